// Tenants and their limits: all of them with their use against each quota; one in full, over time.
//
// Rule: figures of the list come for the tenants that are shown, a page at a time; nothing asks about all of them.

import { segment } from "./api.js";
import { bar, dot, fill, h, segments, state, table, text, unit } from "./dom.js";
import { chart } from "./chart.js";
import { now, number, percent } from "./format.js";
import { limitsOf, used, LIMITS } from "./limits.js";
import { every, failure } from "./parts.js";
import { choose, to } from "./place.js";
import { chosen, iso } from "./range.js";

const EVERY_S = 10, PAGE = 25, AT_ONCE = 4;
const HOUR_MS = 3600e3, DAY_MS = 24 * HOUR_MS, MOST_HOURS = 31 * 24;
const SPANS = [["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ["1y", "1 y"]];

export function show(root, context) {
  const [name] = context.about; // another way to say which tenant is chosen
  if (name) { location.replace(to("tenants", [], { ...context.chosen, ...(context.operator ? { tenant: name } : {}) })); return null; }
  return context.tenant ? one(root, context, context.tenant) : list(root, context);
}

// -- all tenants

async function list(root, context) {
  const find = h("input", { type: "search", placeholder: "Find a tenant", "aria-label": "Find a tenant" }), place = h("div"), more = h("div");
  fill(root, h("div", { class: "row" }, h("h1", null, "Tenants ", h("small", null, "use against each limit, now")), find), place, more);
  const usage = new Map();
  let all = [], rates = new Map(), pages = 1;
  const draw = () => {
    const words = find.value.trim().toLowerCase();
    const found = all.filter((tenant) => `${tenant.name} ${tenant.display_name}`.toLowerCase().includes(words));
    found.sort((a, b) => (rates.get(b.name)?.reports_per_s ?? 0) - (rates.get(a.name)?.reports_per_s ?? 0) || (a.name < b.name ? -1 : 1));
    const shown = found.slice(0, pages * PAGE);
    fill(place, all.length === 0 ? state("empty", "There is no tenant yet. Make one with widerow tenant create NAME.")
      : shown.length === 0 ? state("empty", `No tenant has ${find.value.trim()} in its name.`)
        : table(columns(rates, usage), shown, { caption: "Tenants" }));
    fill(more, found.length > shown.length ? h("button", { type: "button", onclick: () => { pages += 1; draw(); measure(); } }, `Show more of ${number(found.length)}`) : null);
    return shown;
  };
  async function measure() {
    const wanted = draw().filter((tenant) => !usage.has(tenant.name));
    for (let i = 0; i < wanted.length; i += AT_ONCE) {
      await Promise.all(wanted.slice(i, i + AT_ONCE).map(async (tenant) => usage.set(tenant.name, await context.ask("/v1/usage", { tenant: tenant.name, start: "-1h" }))));
      draw();
    }
  }
  find.addEventListener("input", () => { pages = 1; draw(); });
  await every(EVERY_S, context, async () => {
    const [{ tenants }, status] = await Promise.all([context.ask("/v1/admin/tenants"), context.ask("/v1/status")]);
    all = tenants;
    rates = new Map(status.tenants.map((one) => [one.name, one]));
    if (usage.size) draw(); else await measure();
  }, (error) => fill(more, failure(error)));
}

function columns(rates, usage) {
  const against = (limit, label, wide) => ({ label, number: true, wide, cell: (tenant) => {
    const seen = used(limit, rates.get(tenant.name), usage.get(tenant.name)), allowed = tenant.limits[limit];
    return [LIMITS[limit].shown(seen), allowed ? [h("span", { class: "dim phone-off" }, ` of ${LIMITS[limit].shown(allowed)}`), shadow(tenant, limit), seen === null ? null : bar(seen / allowed)] : h("span", { class: "dim phone-off" }, " no limit")];
  } });
  return [
    { label: "tenant", words: true, cell: (tenant) => [dot(worst(tenant, rates, usage)), h("a", { href: to("tenants", [], { tenant: tenant.name }) }, tenant.display_name || tenant.name), tenant.display_name ? h("span", { class: "dim" }, ` ${tenant.name}`) : null] },
    against("writes_per_s", "reports /s"), against("devices", "devices", true), against("storage_bytes", "stored"), against("series", "series", true),
    { label: "refused since the start", number: true, wide: true, cell: (tenant) => number(rates.get(tenant.name)?.refused ?? 0) },
  ];
}

function shadow(tenant, limit) {
  const mode = tenant.limit_modes[limit];
  return mode && mode !== "enforce" ? h("span", { class: "warn" }, ` ${mode}`) : null;
}

/** The colour of the limit that is nearest. */
function worst(tenant, rates, usage) {
  const shares = Object.keys(LIMITS).filter((limit) => tenant.limits[limit]).map((limit) => (used(limit, rates.get(tenant.name), usage.get(tenant.name)) ?? 0) / tenant.limits[limit]);
  const most = Math.max(0, ...shares);
  return most >= 1 ? "bad" : most >= 0.8 ? "warn" : "ok";
}

// -- one tenant

async function one(root, context, name) {
  const range = widest(chosen("24h")), { step } = range;
  const stats = h("div", { class: "stats" }), trouble = h("div"), limits = h("div", { class: "block" }), title = h("h1", null, name);
  const blocks = {
    rate: part("Reports", `a second, the mean of each ${step}`), stored: part("Stored", ""), refused: part("Refused", `reports in each ${step}, by reason`),
  };
  fill(root, context.operator ? h("p", { class: "dim" }, h("a", { href: to("tenants", [], { tenant: null }) }, "All tenants")) : null,
    h("div", { class: "row" }, title, segments("Time range", SPANS, range.relative, (value) => choose({ range: value }))),
    trouble, stats, h("div", { class: "even tenant-charts" }, Object.values(blocks)), limits);
  const charts = {
    rate: chart(blocks.rate, { height: 150, label: "Reports a second against the limit", sync: "tenant" }),
    stored: chart(blocks.stored, { height: 150, label: "Bytes stored against the limit", sync: "tenant" }),
    refused: chart(blocks.refused, { height: 150, label: "Refused reports", sync: "tenant" }),
  };
  const asked = (path, parameters) => context.ask(path, { ...parameters, tenant: name });
  const described = context.mayChange;
  let tenant = null, drawn = false;
  async function look() {
    if (described && !tenant) tenant = await context.ask(`/v1/admin/tenants/${segment(name)}`, { tenant: undefined });
    const [use, status] = await Promise.all([
      asked("/v1/usage", { start: iso(range.start), end: range.relative ? null : iso(range.end), step }), asked("/v1/status"),
    ]);
    fill(trouble);
    if (tenant?.display_name && !drawn) fill(title, tenant.display_name, " ", h("small", null, tenant.name));
    fill(stats, tiles(use, status.tenants[0], tenant));
    draw(charts, blocks, use, range);
    if (!drawn) limitsOf(limits, context, { name, tenant, use, now: status.tenants[0] });
    drawn = true;
  }
  await every(EVERY_S, context, look, (error) => fill(trouble, failure(error, look)));
  return { stop: () => Object.values(charts).forEach((each) => each.destroy()) };
}

function part(title, small) {
  return h("div", { class: "block" }, h("h2", null, title, " ", h("small", null, small)));
}

/** Use is known by the hour: a day is shown at least. Days are asked for where hours would be too many. */
function widest(range) {
  const short = range.width < DAY_MS, start = short ? range.end - DAY_MS : range.start;
  const step = range.end - start > MOST_HOURS * HOUR_MS ? "day" : "hour", wide = step === "day" ? DAY_MS : HOUR_MS;
  return { start: Math.floor(start / wide) * wide, end: range.end, step, wide, relative: short && range.relative ? "24h" : range.relative };
}

function tiles(use, status, tenant) {
  return ["writes_per_s", "storage_bytes", "devices", "series"].map((limit) => {
    const seen = used(limit, status, use), allowed = use.limits[limit], share = allowed && seen !== null ? seen / allowed : null;
    const mode = tenant?.limit_modes[limit];
    const [value, name] = LIMITS[limit].shown(seen).split(" ");
    return h("div", { class: "stat" }, h("span", null, LIMITS[limit].label),
      h("strong", null, value, unit(name ?? LIMITS[limit].unit)),
      share === null ? null : bar(share),
      h("em", { class: share >= 1 ? "bad" : share >= 0.8 ? "warn" : null },
        allowed ? `${share === null ? "" : `${percent(share)}% of `}${LIMITS[limit].shown(allowed)}${mode && mode !== "enforce" ? `, ${mode}` : ""}` : seen === null ? "counted only with a limit" : "no limit"));
  });
}

function draw(charts, blocks, use, range) {
  const steps = use.usage, times = steps.map((step) => Date.parse(step.time));
  const axis = { times, from: times[0] ?? range.start, to: Math.max(range.end, times.at(-1) ?? 0), zero: true };
  const seconds = (i) => Math.max(1, Math.min(range.wide, now() - times[i]) / 1000);
  const limit = (name, by = 1) => (use.limits[name] ? { limit: use.limits[name] / by, limitLabel: `limit ${LIMITS[name].shown(use.limits[name])}` } : {});
  charts.rate.draw({ ...axis, ...limit("writes_per_s"), series: [
    { label: "offered", values: steps.map((step, i) => step.offered / seconds(i)), colour: "--c1", unit: "/s", fill: true },
    { label: "accepted", values: steps.map((step, i) => step.accepted / seconds(i)), colour: "--c3", unit: "/s" },
  ] });
  const kept = steps.map((step) => step.stored_bytes);
  if (range.relative && kept.length) kept[kept.length - 1] = use.stored.total;
  const scale = bytesScale(Math.max(0, ...kept));
  charts.stored.draw({ ...axis, ...limit("storage_bytes", scale.by), series: [
    { label: "stored", values: kept.map((size) => (size === null ? null : size / scale.by)), colour: "--c4", unit: scale.name, fill: true },
  ] });
  text(blocks.stored.querySelector("small"), `${scale.name} on disk at the end of each ${range.step}`);
  const codes = reasons(steps);
  blocks.refused.hidden = codes.length === 0;
  if (codes.length) charts.refused.draw({ ...axis, series: codes.map((code, i) => ({ label: code, values: steps.map((step) => step.refused_by[code] ?? 0), colour: `--c${[2, 4, 3, 5][i]}` })) });
}

function bytesScale(most) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  const i = most > 0 ? Math.min(4, Math.floor(Math.log2(most) / 10)) : 0;
  return { by: 2 ** (10 * i), name: names[i] };
}

/** The codes that refused most, four of them. */
function reasons(steps) {
  const sums = new Map();
  for (const step of steps) for (const [code, count] of Object.entries(step.refused_by)) sums.set(code, (sums.get(code) ?? 0) + count);
  return [...sums].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([code]) => code);
}
