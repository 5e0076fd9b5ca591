// The key space as a picture: a row for each range of keys, a column for each minute, on a canvas of its own.
//
// Rule 1: a cell is blue by how much it has. It is amber or red by how much more a key of it has than the mean key of that minute.
// Rule 2: the same cells can be reached with the arrow keys; what they say is told in `readout`.

import { css } from "./chart.js";
import { fill, h } from "./dom.js";
import { clockTime, number } from "./format.js";

/** A key with so many times the mean is warm, or hot, if its range has that share of the minute, too. */
export const WARM = 3, HOT = 10;
const LEAST_SHARE = 0.02, LEAST = 10;
const GAP = 18;

/** A map in `root`. `draw({rows, minutes, label(row)})`: rows have {start, stop, keys, cells}. `pick(row)`, `point(row, column)`. */
export function heatmap(root, { pick, point }) {
  const canvas = h("canvas", { class: "heat", tabindex: "0", role: "img", "aria-label": "Key ranges by minute" });
  const names = h("div", { class: "heat-names", "aria-hidden": "true" }), times = h("div", { class: "heat-times", "aria-hidden": "true" });
  root.append(h("div", { class: "heat-map" }, names, h("div", { class: "heat-field" }, canvas, times)));
  let shown = null, at = null;

  function draw(data) {
    shown = data;
    if (at && (at.row >= data.rows.length || at.column >= data.minutes.length)) at = null;
    paint();
    label(names, data, canvas.clientHeight);
    ticks(times, data.minutes);
    if (at) point(data.rows[at.row], at.column);
  }

  function paint() {
    if (!shown?.rows.length) return;
    const { rows, minutes } = shown;
    const height = Math.round(Math.min(420, Math.max(rows.length * 5, Math.min(rows.length * 22, 340))));
    canvas.style.height = `${height}px`;
    const ratio = devicePixelRatio, width = canvas.clientWidth;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d"), colour = colours(rows, minutes.length);
    const x = (i) => Math.round((i * canvas.width) / minutes.length), y = (i) => Math.round((i * canvas.height) / rows.length);
    rows.forEach((row, r) => row.cells.forEach((_, m) => {
      c.fillStyle = colour(r, m);
      c.fillRect(x(m), y(r), x(m + 1) - x(m), y(r + 1) - y(r));
    }));
    if (at) {
      c.strokeStyle = css("--ink");
      c.lineWidth = Math.max(1, ratio);
      c.strokeRect(x(at.column) + 0.5, y(at.row) + 0.5, x(at.column + 1) - x(at.column) - 1, y(at.row + 1) - y(at.row) - 1);
    }
  }

  function move(row, column) {
    if (!shown?.rows.length || (at && at.row === row && at.column === column)) return;
    at = { row: clamp(row, shown.rows.length), column: clamp(column, shown.minutes.length) };
    paint();
    point(shown.rows[at.row], at.column);
  }
  function leave() {
    at = null;
    paint();
    point(null, null);
  }
  canvas.addEventListener("pointermove", (event) => move(...cellAt(event)));
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("click", (event) => { move(...cellAt(event)); if (at) pick(shown.rows[at.row]); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step && shown?.rows.length) {
      event.preventDefault();
      move((at?.row ?? 0) + (at ? step[0] : 0), at ? at.column + step[1] : shown.minutes.length - 1);
    }
    if (event.key === "Enter" && at) pick(shown.rows[at.row]);
  });
  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    return [Math.floor(((event.clientY - box.top) / box.height) * shown.rows.length), Math.floor(((event.clientX - box.left) / box.width) * shown.minutes.length)];
  }

  const resized = new ResizeObserver(paint);
  resized.observe(root);
  const themed = new MutationObserver(paint);
  themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return { draw, element: canvas, stop: () => { resized.disconnect(); themed.disconnect(); } };
}

function clamp(index, length) {
  return Math.max(0, Math.min(length - 1, index));
}

/** How hot a cell is: 0, 1 (warm) or 2 (hot), by rule 1. */
export function heat(row, column, minute) {
  const count = row.cells[column];
  if (count < LEAST || count < minute.sum * LEAST_SHARE) return 0;
  const times = count / Math.max(1, row.keys) / minute.mean;
  return times >= HOT ? 2 : times >= WARM ? 1 : 0;
}

/** Of a minute: what all ranges have, and the mean of a key. */
export function minuteOf(rows, column) {
  let sum = 0, keys = 0;
  for (const row of rows) {
    sum += row.cells[column];
    keys += Math.max(1, row.keys);
  }
  return { sum, mean: sum / (keys || 1) };
}

function colours(rows, columns) {
  const [none, full, warm, hot] = ["--heat0", "--heat1", "--heat2", "--heat3"].map(css);
  const minutes = Array.from({ length: columns }, (_, m) => minuteOf(rows, m));
  const cool = rows.flatMap((row) => row.cells.filter((count, m) => count && !heat(row, m, minutes[m]))).sort((a, b) => a - b);
  const most = cool[Math.floor(cool.length * 0.9)] ?? 0; // a burst of a minute does not make all others look empty
  const from = rgb(none), to = rgb(full);
  return (r, m) => {
    const kind = heat(rows[r], m, minutes[m]);
    if (kind) return kind === 2 ? hot : warm;
    const part = most ? Math.sqrt(Math.min(1, rows[r].cells[m] / most)) * 0.8 : 0;
    return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * part)).join(" ")})`;
  };
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/** Names at the side: as many as have room. */
function label(names, { rows, label: name }, height) {
  const each = height / rows.length, step = Math.max(1, Math.ceil(GAP / each));
  fill(names, rows.map((row, i) => {
    if (i % step) return null;
    const line = h("span", { title: row.start }, name(row, rows[i - step]));
    line.style.top = `${i * each + Math.min(each, GAP) / 2 - 8}px`;
    return line;
  }));
}

function ticks(times, minutes) {
  const wanted = [...new Set([0, Math.floor((minutes.length - 1) / 2), minutes.length - 1])];
  fill(times, wanted.map((i) => h("span", null, clockTime(Date.parse(minutes[i])))));
}

/** What the colours mean. */
export function key(name) {
  const square = (colour) => {
    const box = h("i", { class: "swatch wide", "aria-hidden": "true" });
    box.style.background = `var(${colour})`;
    return box;
  };
  return h("div", { class: "legend" },
    h("span", null, square("--heat0"), `no ${name}`), h("span", null, square("--heat1"), `more ${name}`),
    h("span", null, square("--heat2"), `${number(WARM)} times the mean of a key`), h("span", null, square("--heat3"), `${number(HOT)} times`));
}
