// Charts: lines and bands over time by uPlot, small lines, timelines of states. Colours come from theme.css.

import { fill, h, s, state, swatch } from "./dom.js";
import { clockTime, dayName, full, number, zoneName } from "./format.js";

const LINES = 8;
let plotting;
/** uPlot, which `make assets` puts beside the page. A chart says so where it is missing. */
async function plot() {
  plotting ??= import("./uPlot.esm.js").then((module) => module.default);
  return plotting;
}

/** The colour of a metric: the same everywhere, by its name; `taken` are those that stand beside it. */
export function colourOf(name, taken = []) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  for (let i = 0; i < LINES; i++) {
    const colour = `--c${((sum + i) % LINES) + 1}`;
    if (!taken.includes(colour)) return colour;
  }
  return `--c${(sum % LINES) + 1}`;
}

export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const charts = new Set();
/** Draw all charts again: the colours have changed. */
export function repaint() {
  for (const chart of charts) chart.paint();
}

/** A chart in `root`. `draw({times, series, limit, unit, from, to})`: times are ms; a series is
 *  {label, values, colour, unit, fill, low, high}, where null is a gap. `zoom(from, to)` is told of what was dragged over. */
export function chart(root, { height = 140, label = "", zoom = null, sync = null } = {}) {
  const holder = h("div", { class: "chart", role: "img", "aria-label": label });
  const legend = h("div", { class: "legend", "aria-hidden": "true" });
  root.append(holder, legend);
  let u = null, shown = null, shape = "", gone = false;

  const resized = new ResizeObserver(() => u?.setSize({ width: holder.clientWidth, height }));
  resized.observe(holder);

  async function draw(data) {
    const began = performance.now();
    shown = data;
    let UPlot;
    try { UPlot = await plot(); } catch {
      fill(holder, state("failed", "The package that draws charts is missing from this installation. Run `make assets` in the source checkout, then reload."));
      return;
    }
    if (gone || shown !== data) return;
    const drawing = u ? began : performance.now(); // the package is read once
    const rows = columns(data);
    const now = JSON.stringify([data.series.map((one) => [one.label, one.colour, Boolean(one.low), one.unit]), data.limit ?? null, zoneName()]);
    if (!u || now !== shape) {
      u?.destroy();
      fill(holder);
      shape = now;
      u = new UPlot(options(UPlot, data, () => shown, holder.clientWidth, height, zoom, sync, readout), rows, holder);
    } else {
      u.setData(rows, false);
      u.redraw(true);
      u.setScale("x", { min: data.from / 1000, max: data.to / 1000 });
    }
    await null; // uPlot draws in a microtask
    holder.dataset.ms = (performance.now() - drawing).toFixed(1);
    holder.setAttribute("aria-label", described(label, data));
    readout(null);
  }

  function readout(at) {
    if (!shown) return;
    const parts = shown.series.map((one) => {
      const value = at === null ? null : one.values[at];
      return h("span", null, swatch(`var(${one.colour})`), one.label, value === null || value === undefined ? null : [" ", h("b", null, number(value, 4)), one.unit ? ` ${one.unit}` : ""]);
    });
    fill(legend, at === null ? null : h("span", { class: "dim" }, full(shown.times[at])), shown.series.length > 1 || at !== null ? parts : null);
  }

  const self = {
    draw,
    paint: () => { if (u) { shape = ""; draw(shown); } },
    element: holder,
    destroy: () => { gone = true; charts.delete(self); resized.disconnect(); u?.destroy(); },
  };
  charts.add(self);
  return self;
}

/** What uPlot takes: seconds, then each series, with its band's edges behind it. */
function columns({ times, series }) {
  const out = [times.map((ms) => ms / 1000)];
  for (const one of series) {
    out.push(one.values);
    if (one.low) out.push(one.high, one.low);
  }
  return out;
}

function options(UPlot, data, shown, width, height, zoom, sync, readout) {
  const series = [{}], bands = [];
  let round = { low: 0, high: 1, step: 1 };
  for (const one of data.series) {
    const colour = css(one.colour);
    series.push({ label: one.label, stroke: colour, width: 1.5, fill: one.fill ? `${colour}22` : undefined, points: { size: 5, show: lonely } });
    if (one.low) {
      series.push({ stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } });
      bands.push({ series: [series.length - 2, series.length - 1], fill: `${colour}2b` });
    }
  }
  const axis = { stroke: css("--ink3"), font: `11px ${css("--font")}`, grid: { stroke: css("--line"), width: 1 }, ticks: { show: false } };
  return {
    width, height, series, bands,
    padding: [10, 18, 0, 0],
    legend: { show: false },
    tzDate: zoneName() === "UTC" ? (ts) => UPlot.tzDate(new Date(ts * 1000), "UTC") : (ts) => new Date(ts * 1000),
    scales: { x: { min: data.from / 1000, max: data.to / 1000 }, y: { range: (_, low, high) => { round = around(low, high, shown(), height - 36); return [round.low, round.high]; } } },
    axes: [
      { ...axis, grid: { show: false }, space: 90, size: 30, gap: 9, values: (_, splits, __, ___, step) => splits.map((at) => tick(at * 1000, step)) },
      { ...axis, size: 52, splits: () => ticks(round), values: (_, splits) => splits.map((value) => number(value, 5)) },
    ],
    cursor: { y: false, bind: { dblclick: () => () => { zoom?.(null, null); return null; } }, points: { size: 6 }, drag: { x: Boolean(zoom), y: false, setScale: false }, sync: sync ? { key: sync } : undefined },
    hooks: {
      setCursor: [(u) => readout(u.cursor.idx ?? null)],
      setSelect: [(u) => {
        if (!zoom || u.select.width < 4) return;
        zoom(u.posToVal(u.select.left, "x") * 1000, u.posToVal(u.select.left + u.select.width, "x") * 1000);
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
      draw: [(u) => limit(u, shown())],
    },
  };
}

/** Points are drawn only where no line reaches them. */
function lonely(u, index) {
  const values = u.data[index];
  let line = false;
  for (let i = 1; i < values.length && !line; i++) line = values[i] !== null && values[i - 1] !== null;
  return !line;
}

/** From a round number to a round number, a few round steps apart: {low, high, step}. */
function around(low, high, { limit, zero }, height) {
  if (low === null || high === null) [low, high] = [0, limit ? limit * 1.2 : 1];
  if (limit && limit < high * 8) high = Math.max(high, limit * 1.1);
  if (zero || (low >= 0 && low < high * 0.5)) low = 0;
  if (high === low) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) * 0.05, high + Math.abs(high) * 0.05];
  const rough = (high - low) / Math.max(2, Math.round(height / 36)), size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * size >= rough) * size;
  return { low: Math.floor(low / step + 1e-9) * step, high: Math.ceil(high / step - 1e-9) * step, step };
}

function ticks({ low, high, step }) {
  return Array.from({ length: Math.round((high - low) / step) + 1 }, (_, i) => Number((low + i * step).toPrecision(12)));
}

function tick(ms, step) {
  if (step >= 86400 || clockTime(ms) === "00:00") return dayName(ms);
  return clockTime(ms, step < 60);
}

function limit(u, { limit: at, limitLabel }) {
  if (!at || at > u.scales.y.max) return;
  const y = u.valToPos(at, "y", true), { left, width } = u.bbox, ratio = devicePixelRatio;
  const colour = css("--bad"), c = u.ctx;
  c.save();
  c.strokeStyle = c.fillStyle = colour;
  c.setLineDash([3 * ratio, 3 * ratio]);
  c.beginPath(); c.moveTo(left, y); c.lineTo(left + width, y); c.stroke();
  c.font = `${11 * ratio}px ${css("--font")}`;
  c.textAlign = "left";
  c.fillText(limitLabel ?? `alert at ${number(at)}`, left + 4 * ratio, y - 4 * ratio);
  c.restore();
}

/** A chart in words, for those who do not see it. */
function described(label, { times, series }) {
  const last = series.map((one) => {
    const known = extent(one.values);
    return known ? `${one.label} ${number(known.last)} ${one.unit ?? ""}, from ${number(known.low)} to ${number(known.high)}` : `${one.label}: nothing`;
  });
  return `${label}: ${last.join("; ")}${times.length ? `; from ${full(times[0])} to ${full(times.at(-1))}` : ""}`;
}

/** {low, high, last, count} of the values that are there; null: none is. */
function extent(values) {
  let low = Infinity, high = -Infinity, last = null, count = 0;
  for (const value of values) {
    if (value === null || value === undefined) continue;
    if (value < low) low = value;
    if (value > high) high = value;
    last = value;
    count += 1;
  }
  return count ? { low, high, last, count } : null;
}

/** A small line without axes. Gaps are gaps. */
export function spark(values, colour = "--c1") {
  const known = extent(values);
  const svg = s("svg", { class: "spark", viewBox: "0 0 120 26", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (!known || known.count < 2) return svg;
  const high = known.high, from = known.low > 0 && known.low > high * 0.8 ? known.low * 0.98 : Math.min(0, known.low);
  let path = "", open = false;
  values.forEach((value, i) => {
    if (value === null || value === undefined) { open = false; return; }
    const x = (i * 120) / (values.length - 1), y = 24 - ((value - from) / (high - from || 1)) * 22;
    path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (!open && (values[i + 1] === null || values[i + 1] === undefined)) path += "h.1";
    open = true;
  });
  svg.append(s("path", { d: path, fill: "none", stroke: `var(${colour})`, "stroke-width": "1.4", "vector-effect": "non-scaling-stroke", "stroke-linecap": "round" }));
  return svg;
}

/** A state over time: blocks from `start` to `end` (ms) with a name; each name has its colour. */
export function timeline(root, { from, to, blocks }) {
  const width = Math.max(200, root.clientWidth || 700), left = 52, scale = (width - left - 12) / (to - from);
  const names = [...new Set(blocks.map((block) => block.name))].sort();
  const colour = (name) => `var(--c${(names.indexOf(name) % LINES) + 1})`;
  const svg = s("svg", { class: "timeline", viewBox: `0 0 ${width} 22`, role: "img", "aria-label": blocks.map((b) => `${b.name} from ${full(b.start)}`).slice(0, 20).join("; ") },
    blocks.map((block) => {
      const x = left + (Math.max(block.start, from) - from) * scale, wide = Math.max(1, (Math.min(block.end, to) - Math.max(block.start, from)) * scale - 1);
      return s("rect", { x, y: 2, width: wide, height: 16, rx: 2, fill: colour(block.name), opacity: 0.8 },
        s("title", null, `${block.name}, ${full(block.start)} to ${full(block.end)}`));
    }));
  const legend = h("div", { class: "legend" }, names.slice(0, 12).map((name) => h("span", null, swatch(colour(name)), name)));
  return fill(root, svg, legend);
}
