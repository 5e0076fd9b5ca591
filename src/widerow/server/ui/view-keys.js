// The live key space: how much is written and read in each range of keys, minute by minute, and which keys have the most.
//
// Rule 1: the part that is looked at is in the address (`start`, `stop`), so zooming out is going back, too.
// Rule 2: an operator sees the map. A tenant's token sees which of its devices send too much, and what is done about them.

import { bar, fill, h, segments, state, table, text, unit } from "./dom.js";
import { bytes, clockTime, full, number, percent, when } from "./format.js";
import { heat, heatmap, key, minuteOf } from "./heatmap.js";
import { deviceLink, every, factWords, failure, stepWords } from "./parts.js";
import { choose, go, to } from "./place.js";

const EVERY_S = 20, RANGES = 64, SHOWN = 10;
const END = "\u0000";
const PLANES = [["writes", "Writes"], ["reads", "Reads"], ["bytes", "Bytes"]];
const WORDS = { writes: "reports written", reads: "devices read", bytes: "bytes written" };

export function show(root, context) {
  const plane = PLANES.some(([name]) => name === context.chosen.plane) ? context.chosen.plane : "writes";
  return context.operator ? map(root, context, plane) : own(root, context);
}

/** For a tenant's token: its hot devices. */
async function own(root, context) {
  const place = h("div");
  fill(root, h("h1", null, "Key space"),
    h("p", { class: "dim" }, "The map of all keys is an operator's. This page shows your devices that send far too much."), place);
  await every(EVERY_S, context, async () => fill(place, hotDevices(await context.ask("/v1/hot"))), (error) => fill(place, failure(error)));
}

async function map(root, context, plane) {
  const { start = "", stop = "" } = context.chosen;
  const left = h("div", { class: "block" }), side = h("div", { class: "block" }), hot = h("div"), rows = h("div");
  const readout = h("p", { class: "heat-readout dim", role: "status" }), trouble = h("div");
  const field = h("div");
  fill(root,
    h("div", { class: "row" }, h("h1", null, "Key space ", h("small", null, `${WORDS[plane]}, by key range and minute; sampled`)),
      segments("What is counted", PLANES, plane, (value) => choose({ plane: value === "writes" ? null : value }))),
    crumbs(start, stop), trouble,
    h("div", { class: "grid keys" }, h("div", null, left, hot), side), rows);
  fill(left, field, readout, key(plane));
  let view = null;
  const picture = heatmap(field, {
    pick: (row) => zoom(row),
    point: (row, column) => text(readout, row ? said(row, column, view, plane) : rest(view)),
  });
  const memory = { open: false };
  async function look() {
    const [space, devices] = await Promise.all([
      context.ask("/v1/admin/keyspace", { ranges: RANGES, start, stop }), context.ask("/v1/hot"),
    ]);
    view = { ...space, rows: space.ranges.map((range) => ({ ...range, cells: cells(range, plane) })) };
    fill(trouble);
    const any = view.rows.some((row) => row.cells.some(Boolean));
    left.hidden = !any;
    if (any) picture.draw({ rows: view.rows, minutes: view.minutes, label: name });
    if (any && !readout.textContent) text(readout, rest(view));
    once(memory, "side", [space[plane], plane, any], () => fill(side, any ? hottest(space, plane) : nothing(space, plane, start)));
    once(memory, "hot", devices, () => fill(hot, hotDevices(devices)));
    fill(rows, any ? asTable(view, plane, memory) : null);
  }
  await every(EVERY_S, context, look, (error) => fill(trouble, failure(error, look)));
  return { stop: picture.stop };
}

function once(memory, part, data, act) {
  const now = JSON.stringify(data);
  if (memory[part] !== now) { memory[part] = now; act(); }
}

/** The minutes of a range. Bytes are known for all minutes together, and lie where its writes do. */
function cells(range, plane) {
  if (plane !== "bytes") return range[plane];
  const sum = range.writes.reduce((a, b) => a + b, 0);
  return range.writes.map((count) => (sum ? (range.bytes * count) / sum : 0));
}

// -- names of ranges

const isKey = (range) => Boolean(range.stop?.endsWith(END)) && range.start === range.stop.slice(0, -1);
const within = (key) => key.slice(key.indexOf("/") + 1);

/** A row's name at the side: its tenant where that begins, then only the device that it starts at. */
function name(range, before) {
  const [tenant, other] = [range, before].map((one) => one?.start.split("/")[0]);
  return tenant !== other || !range.start.includes("/") ? h("b", null, tenant || "the first key") : from(within(range.start));
}

/** A key that a range starts at; one that ends in U+0000 is the first one behind a key. */
function from(key) {
  return key.endsWith(END) ? `after ${key.slice(0, -1)}` : key;
}

function spanned(range) {
  if (isKey(range)) return range.start;
  return `${from(range.start) || "the first key"} to ${range.stop ? range.stop.endsWith(END) ? range.stop.slice(0, -1) : `before ${range.stop}` : "the last key"}`;
}

function zoom(range) {
  if (isKey(range) && range.start.includes("/")) go("device", [within(range.start)], { tenant: range.start.slice(0, range.start.indexOf("/")) });
  else choose({ start: range.start || null, stop: range.stop || null });
}

function crumbs(start, stop) {
  if (!start && !stop) return null;
  const tenant = start.includes("/") ? start.slice(0, start.indexOf("/")) : "", last = `${tenant}0`;
  const of = tenant && stop && stop <= last ? tenant : "";
  return h("nav", { class: "crumbs", "aria-label": "Part of the key space" },
    h("a", { href: to("keys") }, "All keys"),
    of && (start !== `${of}/` || stop !== last) ? [" › ", h("a", { href: to("keys", [], { start: `${of}/`, stop: last }) }, of)] : null,
    " › ", h("span", { class: "mono" }, start === `${of}/` && stop === last ? of : spanned({ start, stop })));
}

// -- what the pointer is told

function amount(count, plane) {
  return plane === "bytes" ? bytes(count) : `${number(Math.round(count))} ${plane}`;
}

function said(row, column, view, plane) {
  const minute = minuteOf(view.rows, column), error = row[`${plane}_error`];
  const sum = row.cells.reduce((a, b) => a + b, 0);
  const words = ["", ", more than 3 times the mean of a key", ", more than 10 times the mean of a key"][heat(row, column, minute)];
  const keys = isKey(row) ? "" : ` (${number(row.keys)} ${row.keys === 1 ? "key" : "keys"})`;
  return `${clockTime(Date.parse(view.minutes[column]))}  ${spanned(row)}${keys}: ${amount(row.cells[column], plane)} in this minute${words}; `
    + `${amount(sum, plane)}${error ? ` ± ${number(Math.round(error))}` : ""} in ${number(view.minutes.length)} min`;
}

function rest(view) {
  return view ? `Point at a cell for its figures, or use the arrow keys. Click a range to zoom in, a single key to open its device. Counted since ${when(view.since)}.` : "";
}

// -- at the side

function minutes(space) {
  return space.minutes.length === 1 ? "minute" : `${number(space.minutes.length)} minutes`;
}

function nothing(space, plane, start) {
  return state("empty", start ? `Nothing is counted for this part of the key space in the last ${minutes(space)}.`
    : `No ${plane === "bytes" ? "writes" : plane} in the last ${minutes(space)}. The map shows ${plane === "reads" ? "questions" : "reports"} as they come; counted since ${when(space.since)}.`);
}

function hottest(space, plane) {
  const of = plane === "bytes" ? "writes" : plane, use = space[of], first = use.hottest[0];
  const share = (one) => Math.min(1, one.count / Math.max(1, use.count));
  const without = alone(space, of);
  return [
    h("h2", null, "Hottest key"),
    first ? h("p", null, keyLink(first), ` takes ${percent(share(first))}% of all ${of} of the last ${minutes(space)}.`) : state("empty", `No key stands out among the ${of}.`),
    facts([
      ["Skew", "the most that a key has, by the mean", [number(use.skew), unit("×")]],
      ["Without it", "the same without the hottest key", without === null ? "-" : [number(without), unit("×")]],
      ["Gini", "0: all keys alike; 1: one key has all", number(use.gini, 2)],
      [`All ${of}`, "exact", number(use.count)],
    ]),
    use.hottest.length > 1 ? [h("h2", null, "Hottest keys ", h("small", null, `share of all ${of}, count and its error`)), table([
      { label: "key", cell: keyLink },
      { label: "share", number: true, cell: (one) => [percent(share(one)), unit("%"), bar(share(one))] },
      { label: "count ±", number: true, cell: (one) => [number(Math.round(one.count)), h("span", { class: "dim" }, ` ± ${number(Math.round(one.error))}`)] },
    ], use.hottest.slice(0, SHOWN), { caption: `The keys with the most ${of}` })] : null,
  ];
}

/** Skew as it would be without the hottest key. */
function alone(space, of) {
  const { skew, hottest } = space[of];
  const keys = space.ranges.reduce((sum, range) => sum + range.keys, 0), count = space.ranges.reduce((sum, range) => sum + range[of].reduce((a, b) => a + b, 0), 0);
  if (!skew || hottest.length < 2 || keys < 2) return null;
  const mean = Math.max(0, count - hottest[0].count) / (keys - 1);
  return mean ? Math.max(1, hottest[1].count / mean) : null;
}

function keyLink(one) {
  return h("span", { class: "mono" }, h("span", { class: "dim" }, `${one.tenant}/`), deviceLink(one.tenant, one.device));
}

function facts(rows) {
  return h("dl", { class: "facts" }, rows.map(([term, meaning, value]) => h("div", null, h("dt", null, term, " ", h("small", { class: "dim" }, meaning)), h("dd", null, value))));
}

// -- hot devices

function hotDevices({ hot, story }) {
  return [h("div", { class: "block" }, h("h2", null, "Devices that send far too much"), hot.length ? table([
      { label: "device", cell: (one) => [h("i", { class: "dot bad", "aria-hidden": "true" }), deviceLink(one.tenant, one.device), h("span", { class: "dim" }, ` ${one.tenant}`)] },
      { label: "why", words: true, cell: (one) => one.reason },
      { label: "done about it", cell: (one) => stepWords(one.steps) },
      { label: "since", number: true, cell: (one) => h("span", { title: full(one.since) }, when(one.since)) },
    ], hot.slice(0, 50), { stack: true, caption: "Hot devices" }) : state("empty", "No device sends far too much.")),
  story.length ? h("div", { class: "block" }, h("h2", null, "What happened ", h("small", null, "newest first")), table([
      { label: "time", fit: true, cell: (fact) => h("span", { title: full(fact.time) }, when(fact.time)) },
      { label: "device", cell: (fact) => deviceLink(fact.tenant, fact.device) },
      { label: "what", words: true, cell: (fact) => [factWords(fact), fact.reason ? h("span", { class: "dim" }, ` ${fact.reason}`) : null] },
    ], story.slice(-SHOWN).reverse(), { stack: true, caption: "What happened to hot devices" })) : null];
}

// -- the same as a table

function asTable(view, plane, memory) {
  const details = h("details", { class: "block", open: memory.open, ontoggle: (event) => { memory.open = event.target.open; } },
    h("summary", null, "The map as a table"), table([
      { label: "keys", cell: (row) => h("span", { class: "mono" }, spanned(row)) },
      { label: "how many", number: true, cell: (row) => number(row.keys) },
      { label: "writes ±", number: true, cell: (row) => counted(row, "writes") },
      { label: "reads ±", number: true, cell: (row) => counted(row, "reads") },
      { label: "bytes", number: true, cell: (row) => bytes(row.bytes) },
      { label: "this minute", number: true, cell: (row) => amount(row.cells.at(-1), plane) },
      { label: "", cell: (row) => h("button", { type: "button", class: "link", onclick: () => zoom(row), "aria-label": `${isKey(row) ? "Open" : "Zoom into"} ${spanned(row)}` }, isKey(row) ? "open" : "zoom") },
    ], view.rows, { caption: `Ranges of keys, ${number(view.minutes.length)} minutes` }));
  return details;
}

function counted(row, plane) {
  return [number(Math.round(row[plane].reduce((a, b) => a + b, 0))), h("span", { class: "dim" }, ` ± ${number(Math.round(row[`${plane}_error`]))}`)];
}
