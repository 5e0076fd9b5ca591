// The limits of a tenant: what it uses of each, what another limit would have refused, and changing them.
//
// Rule 1: another limit is tried on the recorded use before it can be saved; trying changes nothing.
// Rule 2: saving names the revision that was shown: a change by somebody else in between is never overwritten.

import { send, segment } from "./api.js";
import { chart } from "./chart.js";
import { bar, confirmed, dot, fill, h, segments, state, table } from "./dom.js";
import { bytes, number, percent } from "./format.js";
import { again } from "./parts.js";

const per_s = (value) => (value === null ? "-" : `${number(value)} /s`);
const plain = (value) => (value === null ? "-" : number(value));

/** The limits that the page shows: their names, and how their numbers are written. */
export const LIMITS = {
  writes_per_s: { label: "Reports a second", shown: per_s, unit: "/s", moded: true },
  writes_burst: { label: "Reports at once", shown: plain, zero: "ten seconds' worth" },
  storage_bytes: { label: "Stored bytes", shown: (value) => (value === null ? "-" : bytes(value)), moded: true },
  devices: { label: "Devices", shown: plain, moded: true },
  series: { label: "Series", shown: plain, moded: true },
  query_cost_per_s: { label: "Rows read a second", shown: per_s, unit: "/s", moded: true },
};
const MODES = [["enforce", "enforced"], ["shadow", "shadow"], ["off", "off"]];
const LASTS = [["1d", "1 day"], ["7d", "7 days"], ["30d", "30 days"]];
const TYPING_MS = 500;

/** What is used of a limit now, or null where that is not known. */
export function used(limit, now, use) {
  if (limit === "writes_per_s") return now?.reports_per_s ?? null;
  if (limit === "storage_bytes") return use?.stored.total ?? null;
  if (limit === "devices") return now?.devices ?? use?.devices ?? null;
  if (limit === "series") return use?.series ?? null;
  return null;
}

/** "5,000", "10k", "20 GiB", "1.5 GB" as a number; null if it cannot be read. */
export function amount(text) {
  const match = /^([\d.,_ ]+?)\s*([kKMGT]?)(i?)B?$/.exec(text.trim());
  if (!match) return null;
  const power = ["", "k", "m", "g", "t"].indexOf(match[2].toLowerCase());
  const value = Number(match[1].replace(/[,_ ]/g, "")) * (match[3] ? 1024 : 1000) ** power;
  return Number.isFinite(value) ? Math.round(value) : null;
}

/** The limits of a tenant in `place`. Only operators may try others. `tenant` is null where its description may not be seen. */
export function limitsOf(place, context, { name, tenant, use, now }) {
  const limits = tenant?.limits ?? use.limits, modes = tenant?.limit_modes ?? {};
  const rows = Object.keys(LIMITS).filter((limit) => context.operator || limits[limit]);
  const heading = h("h2", null, "Limits ", h("small", null, "what is over one is refused; in shadow it is only counted"));
  if (context.operator) { trial(place, heading, context, { name, tenant, use, now }); return; }
  fill(place, heading, rows.length ? table([
    { label: "limit", cell: (limit) => named(limit) },
    { label: "used now", number: true, cell: (limit) => share(limit, limits[limit], used(limit, now, use)) },
    { label: "allowed", number: true, cell: (limit) => LIMITS[limit].shown(limits[limit]) },
    tenant && { label: "mode", cell: (limit) => (LIMITS[limit].moded ? MODES.find(([value]) => value === (modes[limit] ?? "enforce"))[1] : "") },
  ].filter(Boolean), rows, { caption: "Limits" }) : state("empty", "This tenant has no limits."), h("p", { class: "dim" }, "An operator can try other limits and change them."));
}

function named(limit) {
  return [LIMITS[limit].label, " ", h("span", { class: "dim mono" }, limit)];
}

function share(limit, allowed, seen) {
  return [seen === null ? h("span", { class: "dim" }, "not counted") : LIMITS[limit].shown(seen), allowed && seen !== null ? bar(seen / allowed) : null];
}

// -- what if

/** A form that tries other limits as they are typed, and saves them after a question. */
function trial(place, heading, context, { name, tenant, use, now }) {
  const fields = new Map(), drawing = h("div", { class: "block" }), trouble = h("p", { class: "bad", role: "alert" });
  const save = h("button", { type: "submit", class: "primary", disabled: true }, "Save limits");
  const address = `/v1/admin/tenants/${segment(name)}`;
  let last = "7d", timer = null, asked = 0, plot = null, found = null;

  function proposed() {
    const limits = {}, limit_modes = {}, wrong = [];
    for (const [limit, { field, choice }] of fields) {
      const value = field.value.trim() === "" ? 0 : amount(field.value);
      field.setAttribute("aria-invalid", String(value === null));
      if (value === null) wrong.push(LIMITS[limit].label);
      else if (value !== tenant.limits[limit]) limits[limit] = value;
      if (choice && choice.value !== (tenant.limit_modes[limit] ?? "enforce")) limit_modes[limit] = choice.value;
    }
    return { limits, limit_modes, wrong };
  }

  async function attempt() {
    const mine = ++asked, change = proposed(), tried = Object.keys(change.limits).length > 0;
    save.disabled = change.wrong.length > 0 || !(tried || Object.keys(change.limit_modes).length);
    fill(trouble, change.wrong.length ? `${change.wrong.join(", ")}: give a number such as 5000, 10k or 20 GiB, or nothing for no limit.` : "");
    found = null;
    try {
      if (tried) found = await send("POST", `${address}/whatif`, null, { limits: change.limits, last }, context.signal);
      if (mine !== asked) return;
      for (const [limit, { told }] of fields) fill(told, verdict(limit, found, change));
      plot = refusedHours(drawing, found, plot);
    } catch (error) {
      if (error.name !== "AbortError" && mine === asked) fill(trouble, error.message);
    }
  }
  const soon = () => { save.disabled = true; clearTimeout(timer); timer = setTimeout(attempt, TYPING_MS); };
  context.signal.addEventListener("abort", () => { clearTimeout(timer); plot?.destroy(); });

  async function saved(event) {
    event.preventDefault();
    clearTimeout(timer);
    await attempt();
    const { limits, limit_modes } = proposed();
    if (save.disabled || !await confirmed(`Change the limits of ${name}?`, consequences(tenant, { limits, limit_modes }, found, last), "Save limits")) return;
    try {
      await send("PATCH", address, null, { limits, ...(Object.keys(limit_modes).length ? { limit_modes } : {}) }, context.signal, { "If-Match": `"${tenant.revision}"` });
      again();
    } catch (error) {
      if (error.name !== "AbortError") fill(trouble, error.status === 412 ? "Somebody else changed this tenant meanwhile. Reload the page, then try again." : error.message);
    }
  }

  const lasts = h("div"), choose = (value) => {
    last = value;
    fill(lasts, segments("Recorded use that limits are tried on", LASTS, last, choose));
    attempt();
  };
  const rows = Object.keys(LIMITS).map((limit) => row(limit, fields, tenant, used(limit, now, use)));
  fill(place, heading, h("form", { class: "limits", onsubmit: saved, oninput: soon, novalidate: true },
    h("div", { class: "limit head", "aria-hidden": "true" }, ["limit", "used now", "allowed", "mode", "another limit would have done"].map((label) => h("span", null, label))),
    rows, trouble, h("div", { class: "line" }, save, h("span", { class: "dim" }, "Type another limit: it is tried on the recorded use of the last"), lasts)), drawing);
  choose(last);
}

/** A limit: its use, a field for another number, its mode, and what the number would have done. */
function row(limit, fields, tenant, seen) {
  const { label, zero = "no limit", moded } = LIMITS[limit], allowed = tenant.limits[limit];
  const field = h("input", { type: "text", id: `limit-${limit}`, placeholder: zero, value: allowed ? written(limit, allowed) : "", autocomplete: "off" });
  const choice = moded ? h("select", { "aria-label": `Mode of ${label}` }, MODES.map(([value, name]) => h("option", { value, selected: value === (tenant.limit_modes[limit] ?? "enforce") }, name))) : null;
  const told = h("span", { class: "told", role: "status" });
  fields.set(limit, { field, choice, told });
  return h("div", { class: "limit" }, h("label", { for: field.id }, named(limit)), h("span", null, share(limit, allowed, seen)), field, choice ?? h("span"), told);
}

/** A limit as it is typed: bytes with their unit where that loses nothing. */
function written(limit, value) {
  if (limit !== "storage_bytes") return String(value);
  const unit = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["TB", 1e12], ["GB", 1e9], ["MB", 1e6]].find(([, by]) => value % by === 0);
  return unit ? `${value / unit[1]} ${unit[0]}` : String(value);
}

function modesWords(modes) {
  return Object.entries(modes).map(([limit, value]) => `${LIMITS[limit].label}: ${{ enforce: "what is over it is refused from now on", shadow: "what is over it is counted, and passes", off: "the limit is not looked at" }[value]}.`).join(" ");
}

/** What a limit would have done, in words. */
function verdict(limit, found, { limits, limit_modes }) {
  if (!(limit in limits)) return limit in limit_modes ? modesWords({ [limit]: limit_modes[limit] }) : null;
  if (!limits[limit]) return [dot("ok"), limit === "writes_burst" ? "ten seconds' worth may come at once" : "nothing is refused"];
  const { writes, reads, now } = found, one = now.find((each) => each.limit === limit), { shown } = LIMITS[limit];
  if (limit.startsWith("writes")) {
    return writes.refused ? [dot("bad"), `${number(writes.refused)} of ${number(writes.offered)} reports refused (${percent(writes.refused / Math.max(1, writes.offered))}%), in ${hours(writes.hours_over)}`]
      : [dot("ok"), `none of ${number(writes.offered)} reports refused`];
  }
  if (limit === "query_cost_per_s") {
    return reads.over ? [dot("bad"), `${number(reads.over)} of ${number(reads.rows)} rows too many, in ${hours(reads.hours_over)}`] : [dot("ok"), `none of ${number(reads.rows)} rows too many by the hour`];
  }
  return one?.over ? [dot("bad"), `over it now by ${shown(one.over)}: nothing new is taken`] : [dot("ok"), `${one ? `${shown(one.seen)} now: ` : ""}it fits`];
}

function hours(count) {
  return `${number(count)} ${count === 1 ? "hour" : "hours"}`;
}

/** Refused reports by hour, if any would have been. */
function refusedHours(place, found, before) {
  before?.destroy();
  fill(place);
  if (!found?.writes.hours.length) return null;
  const { start, end, writes } = found;
  place.append(h("h2", null, "Would have been refused ", h("small", null, "reports in each hour")));
  const first = Math.floor(Date.parse(start) / 3600e3), count = Math.floor(Date.parse(end) / 3600e3) - first + 1;
  const refused = new Map(writes.hours.map((hour) => [Date.parse(hour.time) / 3600e3, hour.refused]));
  const times = Array.from({ length: count }, (_, i) => (first + i) * 3600e3);
  const plot = chart(place, { height: 110, label: "Reports that would have been refused, by hour" });
  plot.draw({ times, from: times[0], to: times.at(-1) + 3600e3, zero: true, series: [{ label: "would have been refused", values: times.map((time) => refused.get(time / 3600e3) ?? 0), colour: "--c2", fill: true }] });
  return plot;
}

function consequences(tenant, { limits, limit_modes }, found, last) {
  const lines = Object.entries(limits).map(([limit, value]) => {
    const shown = (each) => (each ? LIMITS[limit].shown(each) : LIMITS[limit].zero ?? "no limit");
    return `${LIMITS[limit].label}: ${shown(tenant.limits[limit])} becomes ${shown(value)}.`;
  });
  if (Object.keys(limit_modes).length) lines.push(modesWords(limit_modes));
  if (found && ("writes_per_s" in limits || "writes_burst" in limits)) lines.push(`In the last ${last} it would have refused ${number(found.writes.refused)} of ${number(found.writes.offered)} reports.`);
  const over = found?.now.filter((one) => one.over && one.limit in limits) ?? [];
  for (const one of over) lines.push(`${LIMITS[one.limit].label} are over it already: nothing new is taken until they are fewer.`);
  lines.push("It holds at once, in this process; in others within seconds.");
  return lines;
}
