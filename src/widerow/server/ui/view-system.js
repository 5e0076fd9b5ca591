// The process and its store, for operators: stages, engine, levels and their lag, clock, backups, and what admins did.

import { send } from "./api.js";
import { confirmed, dot, fill, h, state, table, text, unit } from "./dom.js";
import { age, bytes, duration, full, now, number, percent, when } from "./format.js";
import { deviceLink, every, failure } from "./parts.js";
import { choose, to } from "./place.js";
import { STAGES, STATES } from "./view-overview.js";

const EVERY_S = 10, ACTIONS = 20;
const LEVELS = { minute: "Minutes", hour: "Hours", day: "Days", fleet: "The fleet's hours" };
const DETAILS = { pending_compaction_bytes: "Waits for compaction", running_compactions: "Compactions running", table_files_bytes: "In table files" };

export async function show(root, context) {
  if (!context.operator) {
    fill(root, h("h1", null, "System"), state("empty", "This page is for operators: it is about the process and its store, not about a tenant."));
    return null;
  }
  const places = Object.fromEntries(["notices", "stats", "stages", "engine", "levels", "clock", "backups", "audit"].map((name) => [name, h("div", { class: name === "stats" ? "stats" : "block" })]));
  const small = h("small");
  fill(root, h("h1", null, "System ", small), places.notices, places.stats,
    h("div", { class: "even system" }, h("div", null, places.stages, places.levels), h("div", null, places.engine, places.clock, places.backups)), places.audit);
  fill(places.stages, h("h2", null, "Stages"), state("loading", "The figures of the stages come within seconds."));
  await every(EVERY_S, context, async () => {
    const status = await context.ask("/v1/status", { tenant: null });
    fill(places.notices, notices(status));
    text(small, `Widerow ${status.version}, started ${when(status.started)}, ${age(status.started)} ago`);
    fill(places.stats, tiles(status));
    fill(places.engine, engine(status.store));
    fill(places.levels, levels(status.rollups));
    fill(places.clock, clock(status.clock, context, places.clock));
  }, (error) => fill(places.notices, failure(error)));
  await every(EVERY_S, context, async () => fill(places.backups, backups(await context.ask("/v1/admin/backup", { tenant: null }))), (error) => fill(places.backups, noBackups(error)));
  await actions(places.audit, context);
  const memory = {};
  return { live: (overview) => {
    const now = JSON.stringify(overview.stages);
    if (overview.stages?.length && memory.stages !== now) { memory.stages = now; fill(places.stages, stages(overview.stages)); }
  } };
}

function pairs(rows) {
  return h("dl", { class: "facts" }, rows.filter(Boolean).map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));
}

// -- what is wrong

function notices({ store, clock: told, rollups }) {
  return [
    ...store.damage.map((damage) => h("p", { class: "notice bad", role: "alert" }, `The store is damaged: ${damage}. Reads that touch it fail; widerow doctor says more.`)),
    store.healthy ? null : h("p", { class: "notice bad", role: "alert" }, "The process does not keep up, or writes to the store fail. Senders are told to wait."),
    told && !told.trusted ? h("p", { class: "notice", role: "alert" }, `The clock is not trusted: ${told.reason}. Nothing expires until an operator confirms it.`) : null,
    rollups.margin_s <= 0 ? h("p", { class: "notice bad", role: "alert" }, "Rolling is so far behind that raw reports expire before they are rolled up.") : null,
  ];
}

function tiles({ store, total, rollups }) {
  const tile = (label, [value, name], note) => h("div", { class: "stat" }, h("span", null, label), h("strong", null, value, unit(name)), h("em", null, note));
  return [
    tile("On disk", bytes(store.disk_bytes).split(" "), `${number(total.tenants)} tenants, ${number(total.devices)} devices`),
    tile("Memory of the store", bytes(store.memory_bytes).split(" "), "caches and write buffers"),
    tile("In flight", bytes(store.in_flight_bytes).split(" "), "not yet acknowledged"),
    tile("Reports", [number(total.reports_per_s), "/s"], `${number(total.reports)} since the start`),
    tile("Refused", [number(total.refused), ""], `${percent(total.refused / Math.max(1, total.refused + total.reports))}% since the start`),
    tile("Rolling behind", duration(rollups.behind_s).split(" "), rollups.pending ? `${number(rollups.pending)} windows wait` : "nothing waits"),
  ];
}

// -- parts

function stages(found) {
  return [h("h2", null, "Stages"), table([
    { label: "stage", cell: (one) => [dot(one.state === "unused" ? "" : one.state), STAGES[one.name] ?? one.name] },
    { label: "state", cell: (one) => STATES[one.state] ?? one.state },
    { label: "now", number: true, cell: (one) => one.detail || (one.value === null ? "" : duration(one.value)) },
  ], found, { caption: "Stages of the process" })];
}

function engine(store) {
  return [h("h2", null, "Engine"), pairs([
    ["State", store.healthy && !store.damage.length ? [dot("ok"), "healthy"] : [dot("bad"), store.damage.length ? "damaged" : "does not keep up"]],
    ["Files of time windows", number(store.windows)], ["Syncs to disk since the start", number(store.syncs)],
    ...Object.entries(store.detail ?? {}).map(([name, value]) => [DETAILS[name] ?? name.replaceAll("_", " "), typeof value !== "number" ? String(value) : name.endsWith("_bytes") ? bytes(value) : number(value)]),
  ])];
}

function levels(rollups) {
  return [h("h2", null, "Levels ", h("small", null, "how far rolling is behind, and the time left before raw reports expire")), table([
    { label: "level", cell: ([name, one]) => [dot(one.margin_s <= 0 ? "bad" : one.behind_s > 300 ? "warn" : "ok"), LEVELS[name] ?? name] },
    { label: "behind", number: true, cell: ([, one]) => (one.behind_s ? duration(one.behind_s) : "up to date") },
    { label: "time left", number: true, cell: ([, one]) => duration(one.margin_s) },
    { label: "windows that wait", number: true, cell: ([, one]) => number(one.pending) },
  ], Object.entries(rollups.levels), { caption: "Levels of rollups" })];
}

function clock(told, context, place) {
  if (!told) return [h("h2", null, "Clock"), state("empty", "Processes share this store: each goes by its own machine's clock.")];
  return [h("h2", null, "Clock"), pairs([["State", told.trusted ? [dot("ok"), "trusted"] : [dot("warn"), "not trusted"]], told.ahead_s ? ["Ahead", duration(told.ahead_s)] : null]),
    told.trusted ? null : h("button", { type: "button", onclick: async () => {
      if (!await confirmed("Is the clock of the server's machine right?", ["What has expired by it is removed from then on, for good.", `The server's clock says ${full(now())} if it agrees with this browser's.`], "The clock is right")) return;
      try { await send("POST", "/v1/admin/clock", null, undefined, context.signal); choose({}, true); } catch (error) { place.append(failure(error)); }
    } }, "Confirm the clock …")];
}

function backups({ state: standing, run, last_success: last, last_error: error, ledgers }) {
  return [h("h2", null, "Backups"), pairs([
    ["Now", standing === "running" ? `${run.phase}: ${bytes(run.done_bytes)} of ${bytes(run.of_bytes)} to ${run.to}` : "none is running"],
    ["Last success", last ? [`${when(last.finished)}, everything until ${when(last.mark)}`, h("br"), h("span", { class: "dim" }, `${bytes(last.bytes)} in `), h("span", { class: "mono" }, last.to)] : [dot("warn"), "never"]],
    error ? ["Last failure", h("span", { class: "bad" }, `${when(error.time)}: ${error.message}`)] : null,
    ...ledgers.filter((ledger) => ledger.trouble).map((ledger) => ["Erasures cannot be recorded", h("span", { class: "bad" }, `${ledger.folder}: ${ledger.trouble}`)]),
  ]), h("p", { class: "dim" }, "Backups are started on the server's machine: ", h("code", null, "widerow backup DEST --store rocksdb:PATH"))];
}

function noBackups(error) {
  return [h("h2", null, "Backups"), error.code === "no-backup" ? state("empty", "This store has no backups of ours: back it up with its own tools.") : failure(error)];
}

// -- what admins did

async function actions(place, context) {
  const { after = "" } = context.chosen;
  let page;
  try { page = await context.ask("/v1/admin/audit", { start: "-30d", limit: ACTIONS, after }); } catch (error) {
    if (error.name === "AbortError") throw error;
    fill(place, h("h2", null, "What admins did"), failure(error));
    return;
  }
  fill(place, h("h2", null, "What admins did ", h("small", null, `the last 30 days${context.chosen.tenant ? `, ${context.chosen.tenant}` : ""}, newest first`)),
    page.actions.length ? table([
      { label: "time", fit: true, cell: (one) => h("span", { title: full(one.time) }, when(one.time)) },
      { label: "tenant", wide: true, cell: (one) => (one.tenant ? h("a", { href: to("tenants", [], { tenant: one.tenant }) }, one.tenant) : "") },
      { label: "by", wide: true, cell: (one) => [one.by, h("span", { class: "dim" }, ` ${one.role}`)] },
      { label: "what", words: true, cell: (one) => [h("span", { title: one.what }, did(one)), one.about ? [" ", one.what.includes("/devices/") && one.tenant ? deviceLink(one.tenant, one.about) : one.about] : null] },
      { label: "changes", words: true, cell: (one) => one.changes.slice(0, 6).join("; ") },
      { label: "outcome", wide: true, cell: (one) => (one.outcome === "done" ? "done" : h("span", { class: "bad", title: one.reason }, one.outcome)) },
    ], page.actions, { stack: true, caption: "What admins and operators did" }) : state("empty", "No admin has changed anything in the last 30 days."),
    h("div", { class: "line" }, after ? h("button", { type: "button", onclick: () => history.back() }, "← Newer") : null,
      page.next ? h("button", { type: "button", onclick: () => choose({ after: page.next }) }, "Older →") : null));
}

const NOUNS = { tenants: "tenant", tokens: "token", devices: "device", metrics: "metric", deadletters: "dead letters", controls: "steps of a hot device", alerts: "alerts", rules: "alert rule", webhooks: "webhook", silences: "silence", whatif: "trial of limits" };
const VERBS = { POST: "made", PUT: "set", PATCH: "changed", DELETE: "removed" };
const DEEDS = {
  "POST /v1/admin/erase": "erased data of", "POST /v1/admin/clock": "confirmed the clock", "POST /v1/admin/verify": "verified rollups", "POST /v1/admin/backup": "began a backup",
  "POST /v1/deadletters/replay": "sent dead letters again", "POST /v1/devices/batch": "registered devices", "POST /v1/devices/{device}/swap": "swapped the device",
};

/** What somebody did, in words: "changed the tenant". */
function did({ what }) {
  const [method, path] = what.split(" "), noun = NOUNS[path.split("/").filter((part) => !part.startsWith("{")).at(-1)];
  return DEEDS[what] ?? (noun && VERBS[method] ? `${VERBS[method]} the ${noun}` : what);
}
