// A device: what it says now, what it said over time, and how Widerow treats it.

import { spark } from "./chart.js";
import { charts } from "./device-charts.js";
import { facts } from "./device-facts.js";
import { fill, h, segments, state, table, text, unit } from "./dom.js";
import { age, duration, exact, full, number } from "./format.js";
import { chooseTenant } from "./parts.js";
import { choose, go, listed, names, to } from "./place.js";
import { chosen, keys, picker } from "./range.js";
import { segment } from "./api.js";
import { BANDS, LEVELS, plan } from "./series.js";

const RANGE = "1h", AGAIN_MS = 3000, SPARKS_MS = 60_000, MOST_CHARTS = 12, MOST_ROWS = 50, FIRST_CHARTS = 3;

export async function show(root, context) {
  const name = context.about[0];
  if (!name) { go("devices"); return {}; }
  if (context.operator && !context.tenant) { fill(root, await chooseTenant(context, "devices", "Choose the tenant whose device it is.")); return {}; }
  const path = segment(name);
  const device = await found(context, path);
  if (!device) {
    fill(root, h("h1", null, name), state("empty", "There is no such device.", h("a", { href: to("devices") }, "Find another")));
    return {};
  }
  const [latest, metrics] = await Promise.all([context.ask(`/v1/devices/${path}/latest`, { epoch: "ms" }), context.ask("/v1/metrics")]);
  const units = new Map(metrics.metrics.map((metric) => [metric.name, metric]));
  const parts = { head: h("div", { class: "row top" }), hot: h("div"), tools: h("div", { class: "line tools" }), late: h("p", { class: "warn late", role: "status" }),
    charts: h("div"), latest: h("section", { class: "block" }), facts: h("div") };
  fill(root, parts.head, parts.hot, h("div", { class: "grid" }, h("div", null, parts.tools, parts.charts,
    h("p", { class: "dim phone-off" }, "Drag over a chart to zoom in; twice clicked, it goes back. The keys ← and → move the span, + and - zoom, 0 ends it now.")), h("div", null, parts.late, parts.latest, parts.facts)));
  const view = viewing(context, path, device, parts, units);
  await view.begin(latest);
  return view;
}

async function found(context, path) {
  try { return await context.ask(`/v1/devices/${path}`); } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

function viewing(context, path, device, parts, units) {
  const drawings = charts(parts.charts, context, path, RANGE), table = latestTable(parts.latest);
  let rows = [], busy = false, sparksAt = 0, drawn = "";

  const wanted = () => {
    const asked = names(context.chosen.metrics);
    const found = "metrics" in context.chosen ? rows.filter((row) => asked.includes(row.name)) : preferred(rows);
    return found.slice(0, MOST_CHARTS);
  };

  async function begin(latest) {
    const watchKeys = (event) => keys(event, RANGE);
    addEventListener("keydown", watchKeys, { signal: context.signal });
    take(latest);
    header(parts.head, device);
    tools(parts.tools, context);
    facts(parts.facts, parts.hot, context, path, device);
    const timer = setInterval(tick, AGAIN_MS);
    context.signal.addEventListener("abort", () => { clearInterval(timer); drawings.destroy(); }, { once: true });
    await Promise.all([redraw(), sparks()]);
  }

  function take(latest) {
    rows = latest.series.map((series) => rowOf(series, units));
    table.draw(rows, wanted().map((row) => row.name));
    }

  /** Draw what is chosen: other metrics, or another span of the same. */
  async function redraw() {
    const metrics = wanted(), key = JSON.stringify(metrics.map((metric) => metric.name));
    table.draw(rows, metrics.map((metric) => metric.name));
    if (key !== drawn) { drawn = key; await drawings.draw(metrics); } else await drawings.whole();
  }

  async function sparks() {
    sparksAt = Date.now();
    const some = rows.filter((row) => !row.text).slice(0, MOST_ROWS).map((row) => row.name);
    if (some.length) table.sparks((await context.ask(`/v1/devices/${path}/series`, { start: "-1h", step: "1m", fill: "null", epoch: "ms", metrics: some })).series);
  }

  async function tick() {
    if (busy || document.hidden) return;
    busy = true;
    try {
      take(await context.ask(`/v1/devices/${path}/latest`, { epoch: "ms" }));
      await drawings.grow();
      if (Date.now() - sparksAt > SPARKS_MS) await sparks();
      text(parts.late, "");
    } catch (error) {
      if (error.name === "AbortError") return;
      text(parts.late, `These values are not fresh: ${error.message}`);
      table.draw(rows, wanted().map((row) => row.name)); // their ages go on
    }
    busy = false;
  }

  async function moved() {
    header(parts.head, device);
    tools(parts.tools, context);
    try { await redraw(); } catch (error) {
      if (error.name !== "AbortError") fill(parts.late, `The charts could not be read: ${error.message}`);
    }
  }
  return { begin, moved };
}

function rowOf(series, units) {
  const [time, value] = series.points[0], known = units.get(series.metric) ?? units.get(series.metric.replace(/\{.*$/, ""));
  return { name: series.metric, unit: known?.unit === "1" ? "" : known?.unit ?? "", kind: known?.kind, time, value, text: typeof value === "string" };
}

/** What a device shows when nobody chose: its first gauges, and its first state. */
function preferred(rows) {
  const numbers = rows.filter((row) => !row.text), gauges = numbers.filter((row) => row.kind !== "counter");
  return [...(gauges.length ? gauges : numbers).slice(0, FIRST_CHARTS), ...rows.filter((row) => row.text).slice(0, 1)];
}

function header(place, device) {
  const range = chosen(RANGE), every = device.profile.reports_per_s ? `every ${duration(1 / device.profile.reports_per_s)}` : null;
  const title = h("div", null,
    h("h1", null, device.name, " ", h("small", null, [device.display_name, device.type, device.location, every].filter(Boolean).join(" · "))),
    h("div", { class: "tags" }, Object.entries(device.tags).map(([name, value]) => h("span", { class: "tag" }, `${name}=${value}`))));
  fill(place, title, h("span", { class: "push" }, picker(range)));
}

function tools(place, context) {
  const range = chosen(RANGE), level = context.chosen.level ?? "auto", stepped = plan(range.width, level).step;
  fill(place,
    h("span", { class: "line" }, h("span", { class: "dim" }, "Level"), segments("Level", LEVELS, level, (value) => choose({ level: value === "auto" ? null : value }))),
    stepped ? h("span", { class: "line" }, h("span", { class: "dim" }, "Band"), segments("Band", BANDS, context.chosen.band ?? "minmax", (value) => choose({ band: value === "minmax" ? null : value }))) : null);
}

/** The latest values. Rows are made once for a set of metrics; later their texts change in place. */
function latestTable(place) {
  let made = "", cells = new Map(), filter = "", all = [], on = [];
  const field = h("input", { type: "search", "aria-label": "Find a metric", placeholder: "Find a metric", oninput: () => { filter = field.value.toLowerCase(); made = ""; draw(all, on); } });

  function draw(rows, pressed) {
    [all, on] = [rows, pressed];
    const some = rows.filter((row) => row.name.toLowerCase().includes(filter)).slice(0, MOST_ROWS), key = JSON.stringify(some.map((row) => row.name));
    if (key !== made) { made = key; make(some, rows.length); }
    for (const row of some) update(cells.get(row.name), row, pressed.includes(row.name));
  }

  function make(some, count) {
    const kept = cells;
    cells = new Map(some.map((row) => [row.name, kept.get(row.name) ?? parts(row)]));
    const heading = h("h2", null, "Latest");
    if (!count) { fill(place, heading, state("empty", "This device has sent nothing within the raw retention.")); return; }
    fill(place, heading, count > 15 ? h("p", { class: "find-metric" }, field) : null, table([
      { label: "metric", cell: (row) => cells.get(row.name).name },
      { label: "value", number: true, cell: (row) => cells.get(row.name).value },
      { label: "last hour", cell: (row) => cells.get(row.name).line },
      { label: "age", number: true, cell: (row) => cells.get(row.name).age },
    ], some, { caption: "Latest values" }), some.length < count && !filter ? h("p", { class: "dim" }, `${count - some.length} more: type to find them.`) : null);
    if (count > 15 && filter) field.focus();
  }

  function parts(row) {
    const box = h("input", { type: "checkbox", onchange: () => {
      const next = box.checked ? [...on, row.name] : on.filter((name) => name !== row.name);
      choose({ metrics: next.length ? listed(next) : "none" });
    } });
    return { box, name: h("label", { class: "check" }, box, row.name), value: h("span"), line: h("div", { class: "small-line" }), age: h("span", { class: "dim" }) };
  }

  function update(cell, row, pressed) {
    cell.box.checked = pressed;
    cell.box.disabled = !pressed && on.length >= MOST_CHARTS;
    const shown = row.text ? row.value : number(row.value, 4);
    if (cell.shown !== shown) { cell.shown = shown; fill(cell.value, shown, unit(row.unit)); cell.value.title = exact(row.value); }
    text(cell.age, age(row.time));
    cell.age.title = full(row.time);
  }

  function sparks(series) {
    for (const one of series) {
      const cell = cells.get(one.metric);
      if (cell) fill(cell.line, spark(one.points.map((point) => point[1])));
    }
  }
  return { draw, sparks };
}
