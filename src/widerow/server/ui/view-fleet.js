// The fleet: what all devices of a tenant say together, by metric, over time, by type and location, and those at the top.
//
// Rule 1: by itself the view reads the fleet's hours, which are summed up beforehand and cost the same for a million devices.
// Rule 2: what reads every device (the present hour, finer steps, locations, the top) is read by itself in small fleets only;
// in others a button asks for it and says what it costs.

import { chart, colourOf, spark } from "./chart.js";
import { fill, h, segments, skeleton, state, table, text, unit } from "./dom.js";
import { isSmall, spanOf } from "./fleet-questions.js";
import { top } from "./fleet-top.js";
import { clockTime, number } from "./format.js";
import { chooseTenant, every, failure } from "./parts.js";
import { choose } from "./place.js";
import { chosen, fixed, keys, picker } from "./range.js";
import { drawn, levelName, together } from "./series.js";

const RANGE = "24h", FRESH_S = 60, ROWS = 24, LINES = 8;
const GROUPS = [["", "All devices"], ["type", "By type"], ["location", "By location"]];

export async function show(root, context) {
  if (context.operator && !context.tenant) {
    fill(root, h("h1", null, "Fleet"), await chooseTenant(context, "fleet", "Choose a tenant to see its fleet."));
    return {};
  }
  const [{ metrics }, { devices }] = await Promise.all([context.ask("/v1/metrics"), context.overview() ?? context.ask("/v1/overview")]);
  const numbers = metrics.filter((metric) => metric.kind !== "text");
  if (!numbers.length) {
    fill(root, h("h1", null, "Fleet"), state("empty", "No device of this tenant has sent a number yet."));
    return {};
  }
  const view = viewing(root, context, numbers, devices.total);
  await view.begin();
  return view;
}

function viewing(root, context, metrics, devices) {
  const parts = { head: h("div", { class: "row top" }), tools: h("div", { class: "line tools" }), main: h("div"), top: h("section", { class: "block" }), list: h("section", { class: "block" }) };
  fill(root, parts.head, h("div", { class: "grid" }, h("div", null, parts.tools, parts.main, parts.top), parts.list));
  const drawing = mainChart(parts.main), listing = metricList(parts.list, context, metrics);
  const small = isSmall(devices);

  /** What is chosen: {metric, unit, group, fine, range, small, devices}. */
  function at() {
    const named = metrics.find((metric) => metric.name === context.chosen.metric);
    const metric = named ?? metrics.find((one) => one.kind === "gauge") ?? metrics[0];
    const group = GROUPS.some(([value]) => value === context.chosen.group) ? context.chosen.group : "";
    return { metric: context.chosen.metric ?? metric.name, unit: metric.unit === "1" ? "" : metric.unit, group, small, devices, range: chosen(RANGE), fine: small || context.chosen.fine === "yes" };
  }

  function head(now) {
    fill(parts.head, h("h1", null, "Fleet ", h("small", null, `${number(devices)} devices`)), h("span", { class: "push" }, picker(now.range)));
    fill(parts.tools, segments("Groups", GROUPS, now.group, (value) => choose({ group: value || null })),
      small ? null : h("label", { class: "check" }, h("input", { type: "checkbox", checked: now.fine, onchange: (event) => choose({ fine: event.target.checked ? "yes" : null }) }),
        "Up to now and in finer steps", h("span", { class: "dim" }, `reads all ${number(devices)} devices: seconds`)));
  }

  async function draw() {
    const now = at();
    if (now.group === "location" && !now.fine) { drawing.say(now, "Locations are not summed up beforehand. Choose finer steps to read every device."); return; }
    try { await drawing.read(context, now); } catch (error) {
      if (error.name !== "AbortError") drawing.say(now, failure(error, draw));
    }
  }
  async function all() {
    const now = at();
    head(now);
    listing.chosen(now.metric);
    await Promise.all([draw(), listing.read(now), top(parts.top, context, now)]);
  }
  async function begin() {
    addEventListener("keydown", (event) => keys(event, RANGE), { signal: context.signal });
    context.signal.addEventListener("abort", () => drawing.destroy(), { once: true });
    await all();
    setTimeout(() => every(FRESH_S, context, async () => { if (at().range.relative) await draw(); }), FRESH_S * 1000);
  }
  return { begin, moved: all };
}

// -- the metric over time

function mainChart(root) {
  const title = h("h2"), place = h("div"), counted = h("div"), note = h("p", { class: "dim" }), words = h("div");
  const block = h("section", { class: "block" }, title, words, place, note), below = h("section", { class: "block" }, h("h2", null, "Devices that reported ", h("small", null, "in each step")), counted);
  fill(root, block, below);
  const zoom = (from, to) => choose({ range: from === null ? null : fixed(from, to) });
  const values = chart(place, { height: 220, label: "The fleet over time", sync: "fleet", zoom }), devices = chart(counted, { height: 100, label: "Devices that reported", sync: "fleet", zoom });
  let asked = 0;

  function say(at, content) {
    asked++;
    fill(title, at.metric);
    fill(words, typeof content === "string" ? state("empty", content) : content);
    place.hidden = below.hidden = true;
    text(note, "");
  }

  async function read(context, at) {
    const mine = ++asked, span = spanOf(at.range, at.fine);
    if (!title.childNodes.length) { fill(words, skeleton(240)); place.hidden = below.hidden = true; }
    if (span.end - span.start < span.step_ms) { say(at, "No hour of this span has been summed up yet. Choose a longer span, or finer steps."); return; }
    const answer = await context.ask("/v1/fleet/series", { metrics: [at.metric], start: span.start, end: span.end, step: span.step, epoch: "ms", agg: at.group ? "avg,devices" : "avg,p50,p99,devices", group_by: at.group });
    if (mine !== asked) return;
    const found = answer.series.filter((one) => one.metric === at.metric);
    fill(words);
    place.hidden = below.hidden = found.length === 0;
    if (!found.length) { say(at, "No device sent this metric in the span."); return; }
    fill(title, at.metric, " ", h("small", null, [at.unit, at.group ? `mean of each ${at.group}` : "median with the band up to p99, and the mean", levelName(span, answer.used)].filter(Boolean).join(" · ")));
    text(note, at.fine ? "" : `Until ${clockTime(span.end)}: later hours are not summed up yet.`);
    paint(at, span, found);
  }

  function paint(at, span, found) {
    const of = (agg) => found.filter((one) => one.agg === agg), shown = at.group ? of("avg").slice(0, LINES) : of("avg");
    const band = Object.fromEntries(["p50", "p99"].map((agg) => [agg, of(agg)[0]?.points ?? []]));
    const lists = at.group ? shown.map((one) => one.points) : [band.p50, band.p99, shown[0].points];
    const plotted = at.group ? together(lists, span.step_ms) : drawn(lists, span.step_ms), taken = [];
    const series = at.group
      ? shown.map((one, i) => { const label = one.group[at.group], colour = colourOf(label, taken); taken.push(colour); return { label, values: plotted.values[i], colour, unit: at.unit }; })
      : [{ label: "median", values: plotted.values[0], low: plotted.values[0], high: plotted.values[1], colour: colourOf(at.metric), unit: at.unit },
        { label: "mean", values: plotted.values[2], colour: "--ink3", unit: at.unit }];
    const shape = { from: span.start, to: Math.max(span.end, at.range.end) };
    values.draw({ ...shape, times: plotted.times, series });
    if (at.group && of("avg").length > LINES) text(note, `${of("avg").length - LINES} more are not drawn.`);
    const counts = together(of("devices").map((one) => one.points), span.step_ms);
    const sums = counts.times.map((_, i) => counts.values.reduce((sum, list) => sum + (list[i] ?? 0), 0));
    devices.draw({ ...shape, times: counts.times, zero: true, series: [{ label: "devices", values: sums, colour: "--c8" }] });
  }
  return { say, read, destroy: () => { values.destroy(); devices.destroy(); } };
}

// -- all metrics

/** The metrics, with the last day of each from the fleet's hours; a page of them, found by words. */
function metricList(place, context, metrics) {
  const field = h("input", { type: "search", "aria-label": "Find a metric", placeholder: "Find a metric", "data-search": true, oninput: () => draw() });
  const content = h("div"), lines = new Map();
  let now = null, drawn = "";
  fill(place, h("h2", null, "Metrics ", h("small", null, "mean of all devices")), metrics.length > 12 ? h("p", { class: "find-metric" }, field) : null, content);

  function draw() {
    const words = field.value.trim().toLowerCase(), found = metrics.filter((metric) => metric.name.toLowerCase().includes(words)), shown = found.slice(0, ROWS);
    fill(content, shown.length ? table([
      { label: "metric", cell: (metric) => h("button", { type: "button", class: "link", "aria-pressed": String(metric.name === now?.metric), onclick: () => choose({ metric: metric.name }) }, metric.name) },
      { label: "mean", number: true, cell: (metric) => (lines.has(metric.name) ? [number(lines.get(metric.name).filter((value) => value !== null).at(-1), 4), unit(metric.unit === "1" ? "" : metric.unit)] : "") },
      { label: "over the span", cell: (metric) => h("div", { class: "small-line" }, lines.has(metric.name) ? spark(lines.get(metric.name), colourOf(metric.name)) : null) },
    ], shown, { caption: "Metrics" }) : state("empty", "No metric has these words."), found.length > ROWS ? h("p", { class: "dim" }, `${number(found.length - ROWS)} more: type to find them.`) : null);
    return shown;
  }
  async function read(at) {
    const shown = draw(), span = spanOf(at.range, at.small), key = JSON.stringify([span.step, span.start, span.end, shown.length]);
    if (key === drawn || span.end - span.start < span.step_ms) return;
    drawn = key;
    const answer = await context.ask("/v1/fleet/series", { metrics: shown.map((metric) => metric.name), start: span.start, end: span.end, step: span.step, fill: "null", epoch: "ms" });
    for (const one of answer.series) lines.set(one.metric, one.points.map((point) => point[1]));
    draw();
  }
  return { read, chosen: (metric) => { now = { metric }; draw(); } };
}
