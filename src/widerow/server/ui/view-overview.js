// What is wrong or has changed now, in one line; then how the fleet and the process do, each with its last hour.

import { chart, spark } from "./chart.js";
import { bar, dot, fill, h, table, text, unit } from "./dom.js";
import { bytes, clockTime, duration, full, number, seconds, when } from "./format.js";
import { to } from "./place.js";

const FIGURES = [
  { name: "ingestion_rate", label: "Reports", shown: (v) => [number(v), "/s"], note: (o) => note(o.figures.metrics_rate, (v) => `${number(v)} metrics/s`) },
  { name: "ingestion_latency_p99", label: "Acknowledged, p99", shown: seconds, note: (o) => note(o.figures.ingestion_latency_p99, () => (o.figures.ingestion_latency_p99.limit ? `alert at ${duration(o.figures.ingestion_latency_p99.limit)}` : "")) },
  { name: "devices_online", label: "Online", shown: (v, o) => [number(v), `of ${number(o.devices.total)}`], note: (o) => (o.devices.stale ? { text: `${number(o.devices.stale)} silent`, kind: "warn" } : { text: "" }) },
  { name: "refused_rate", label: "Refused", shown: (v) => [number(v), v === null ? "" : "/s"], note: (o) => ({ text: o.refusals.slice(0, 2).map((one) => one.code).join(", ") || "nothing refused" }) },
  { name: "hot_partitions", label: "Hot partitions", shown: (v) => [number(v), ""], note: (o) => (o.figures.hot_partitions?.now ? { text: "a device sends too much", kind: "bad" } : { text: "" }) },
  { name: "backpressure_events", label: "Backpressure", shown: (v) => [number(v), "/min"], note: (o) => note(o.figures.pending_compactions, (v) => `${number(v)} compactions wait`) },
];
export const STAGES = { decode: "Decode", admit: "Check and admit", commit: "Commit", sync: "Sync to disk", rollup: "Roll up", mqtt: "MQTT", kafka: "Kafka" };
const MOST_ISSUES = 3, MOST_ALERTS = 4, MOST_TENANTS = 5, MOST_REASONS = 4, SHORT = 20, SHORTEST_MS = 600e3;
export const STATES = { ok: "ok", slow: "slow", failed: "failed", unused: "not used" };

function note(figure, words) {
  return { text: figure && figure.now !== null ? words(figure.now) : "" };
}

export function show(root) {
  const say = h("div", { class: "say", "aria-live": "polite" }), stats = h("div", { class: "stats" });
  const left = h("div"), right = h("div");
  fill(root, say, stats, h("div", { class: "grid" }, left, right));
  const rate = part(left, "Ingestion", "reports a second"), p99 = part(left, "Acknowledged within", "99th percentile, ms"), refused = part(left, "Refused", "reports a minute, by reason");
  const charts = {
    rate: chart(rate, { height: 140, label: "Reports a second", sync: "overview" }),
    p99: chart(p99, { height: 115, label: "Time to acknowledge, 99th percentile", sync: "overview" }),
    refused: chart(refused, { height: 100, label: "Refused reports", sync: "overview" }),
  };
  const blocks = { rate, p99, refused, nothing: h("p", { class: "dim" }, "Nothing was refused in this hour.") };
  refused.append(blocks.nothing);
  const places = Object.fromEntries(["alerts", "stages", "tenants", "store"].map((name) => [name, h("section", { class: "block" })]));
  right.append(places.alerts, places.stages, places.tenants);
  left.append(places.store);
  const memory = new Map();

  function live(overview) {
    headline(say, overview);
    figures(stats, overview, memory);
    draw(charts, overview, blocks);
    once(memory, "alerts", [overview.alerts, overview.minutes], () => alerts(places.alerts, overview));
    once(memory, "stages", overview.stages, () => stages(places.stages, overview));
    once(memory, "tenants", [overview.tenants, overview.scope], () => tenants(places.tenants, overview));
    once(memory, "store", [overview.store, overview.started], () => store(places.store, overview));
  }
  return { live, stop: () => Object.values(charts).forEach((one) => one.destroy()) };
}

/** Draw a part only when what it shows has changed. */
function once(memory, name, data, act) {
  const now = JSON.stringify(data ?? null);
  if (memory.get(name) !== now) { memory.set(name, now); act(); }
}

function part(side, title, small) {
  const block = h("section", { class: "block" }, h("h2", null, title, " ", h("small", null, small)));
  side.append(block);
  return block;
}

function headline(say, overview) {
  const issues = overview.headline ?? [];
  const key = JSON.stringify([issues, overview.devices.total === 0]);
  if (say.dataset.key === key) return;
  say.dataset.key = key;
  const nobody = overview.devices.total === 0 && !issues.length;
  const title = nobody ? "No device has reported yet" : issues.length === 0 ? "All is well" : issues.length === 1 ? "One thing needs attention" : `${issues.length} things need attention`;
  const words = nobody ? ["Send a report to ", h("code", null, "POST /v1/write"), " with a token of role write; it appears here within seconds."] : "No alert fires, no stage is slow, nothing is hot.";
  fill(say, h("h1", null, title), issues.length ? issues.slice(0, MOST_ISSUES).map(issueOf) : h("span", { class: "dim" }, words),
    issues.length > MOST_ISSUES ? h("a", { href: to("alerts") }, `${issues.length - MOST_ISSUES} more`) : null);
}

function issueOf(issue) {
  return h("span", { class: `issue ${issue.severity}` }, h("a", { href: address(issue) }, issue.text), issue.since ? h("span", { class: "dim" }, ` since ${when(issue.since)}`) : null);
}

function address(issue) {
  const chosen = issue.tenant ? { tenant: issue.tenant } : {};
  return issue.device ? to("device", [issue.device], chosen) : to(issue.view === "tenant" ? "tenants" : issue.view === "device" ? "devices" : issue.view || "alerts", [], chosen);
}

function figures(stats, overview, memory) {
  const wanted = FIGURES.filter((figure) => overview.figures[figure.name]);
  once(memory, "figures", wanted.map((figure) => figure.name), () => fill(stats, wanted.map((figure) => {
    const value = h("strong", { "data-figure": figure.name }), line = h("div"), words = h("em");
    memory.set(figure.name, { value, line, words });
    return h("div", { class: "stat" }, h("span", null, figure.label), value, line, words);
  })));
  for (const figure of wanted) {
    const parts = memory.get(figure.name), data = overview.figures[figure.name];
    const [value, name] = figure.shown(data.now, overview), told = figure.note(overview);
    once(memory, `${figure.name}=`, [value, name], () => fill(parts.value, value, unit(name)));
    once(memory, `${figure.name}~`, data.minutes, () => fill(parts.line, spark(data.minutes, figure.name === "hot_partitions" && data.now ? "--bad" : "--c1")));
    text(parts.words, told.text);
    parts.words.className = told.kind ?? "";
  }
}

function draw(charts, overview, blocks) {
  const times = overview.minutes.map((time) => Date.parse(time)), last = times.at(-1), started = Date.parse(overview.started);
  const span = { times, from: Math.max(times[0], Math.min(started, last - SHORTEST_MS)), to: last, zero: true };
  const { ingestion_rate: rate, ingestion_latency_p99: p99 } = overview.figures, reasons = overview.refusals.slice(0, MOST_REASONS);
  text(blocks.rate.querySelector("small"), started > times[0] ? `reports a second, since the start at ${when(overview.started)}` : "reports a second");
  charts.rate.draw({ ...span, series: [{ label: "reports", values: rate.minutes, colour: "--c1", unit: "/s", fill: true }] });
  blocks.p99.hidden = !p99;
  if (p99) {
    charts.p99.draw({ ...span, limit: p99.limit ? p99.limit * 1000 : null,
      series: [{ label: "p99", values: p99.minutes.map((value) => (value === null ? null : value * 1000)), colour: "--c1", unit: "ms" }] });
  }
  blocks.nothing.hidden = reasons.length > 0;
  charts.refused.element.hidden = reasons.length === 0;
  if (reasons.length) charts.refused.draw({ ...span, series: reasons.map((one, i) => ({ label: one.code, values: one.minutes, colour: `--c${[2, 4, 3, 5][i]}` })) });
}

function alerts(place, overview) {
  const all = overview.alerts ?? [], shown = all.slice(0, MOST_ALERTS);
  fill(place, h("h2", null, "Alerts"), shown.length
    ? table([
      { label: "alert", words: true, cell: (a) => [dot(a.silenced ? "" : a.state === "firing" ? a.severity : "pending"), h("a", { href: to("alerts", [a.id]) }, a.name), " ", h("span", { class: "dim" }, a.device || a.tenant || "")] },
      { label: "last hour", cell: (a) => h("div", { class: "small-line" }, a.device || !overview.figures[a.name] ? null : spark(overview.figures[a.name].minutes, a.state === "firing" ? "--bad" : "--c1")) },
      { label: "state", number: true, cell: (a) => h("span", { class: "dim", title: `since ${full(a.since)}` }, `${a.silenced ? "silenced" : a.state} ${clockTime(Date.parse(a.since))}`) },
    ], shown, { caption: "Alerts", bare: true })
    : h("p", { class: "dim" }, "No alert fires."), all.length > MOST_ALERTS ? h("a", { href: to("alerts") }, `${all.length - MOST_ALERTS} more`) : null);
}

function stages(place, overview) {
  const all = overview.stages ?? [], unused = all.filter((one) => one.state === "unused");
  place.hidden = !all.length;
  fill(place, h("h2", null, "Stages"), table([
    { label: "stage", cell: (one) => [dot(one.state), STAGES[one.name] ?? one.name] },
    { label: "now", number: true, cell: (one) => h("span", { class: one.state === "slow" ? "warn" : one.state === "failed" ? "bad" : "dim", title: one.detail }, stageWords(one)) },
  ], all.filter((one) => one.state !== "unused"), { caption: "Stages", bare: true }),
  unused.length ? h("p", { class: "dim" }, `${unused.map((one) => STAGES[one.name] ?? one.name).join(" and ")}: ${STATES.unused}`) : null);
}

/** What a stage says of itself, if that is short or it is not well. */
function stageWords({ state, detail, value }) {
  const known = value ? duration(value) : detail.length <= SHORT ? detail : "";
  return state === "ok" ? known || STATES.ok : `${STATES[state] ?? state}: ${detail || known}`;
}

function tenants(place, overview) {
  const all = overview.tenants ?? [], own = overview.scope !== "all";
  place.hidden = own && all[0]?.share === null;
  fill(place, h("h2", null, own ? "Quota " : "Tenants ", h("small", null, own ? "share of the reports a second that are allowed" : "busiest first, with the share of their quota")), table([
    { label: "tenant", cell: (one) => h("a", { href: own ? to("tenants") : to("overview", [], { tenant: one.name }) }, one.display_name || one.name) },
    { label: "last hour", cell: (one) => h("div", { class: "small-line" }, spark(one.minutes)) },
    { label: "refused", number: true, cell: (one) => (one.refused_per_s > 0 ? [h("span", { class: "bad" }, number(one.refused_per_s, 2)), unit("/s")] : "") },
    { label: "reports", number: true, cell: (one) => [number(one.reports_per_s), unit("/s"), one.share === null ? null : bar(one.share)] },
  ], all.slice(0, MOST_TENANTS), { caption: "Tenants" }));
}

function store(place, overview) {
  const known = overview.store;
  place.hidden = !known;
  if (known) fill(place, h("p", { class: "dim" }, h("a", { href: to("system") }, "Store"), `: ${bytes(known.disk_bytes)} on disk, ${bytes(known.memory_bytes)} in memory; this process started at ${when(overview.started)}.`));
}
