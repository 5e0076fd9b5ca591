// The charts of a device: one for each metric that is chosen, all over the same span, and a timeline for each metric of texts.
//
// Rule 1: a span that ends now grows: only what is new is asked for, and everything once a minute, for values that came late.
// Rule 2: each chart says the level that it shows, and where nothing was reported.

import { chart, colourOf, timeline } from "./chart.js";
import { fill, h, state, text } from "./dom.js";
import { clockTime, dayName, number, now } from "./format.js";
import { choose } from "./place.js";
import { chosen, fixed } from "./range.js";
import { aggregates, blocks, drawn, gaps, levelName, merged, plan, stateStep } from "./series.js";

const GAPS_TOLD = 3, WHOLE_MS = 60_000, SLOW_MS = 15_000;

/** Charts in `root`. Gives {draw(metrics), grow(), destroy()}; a metric is {name, unit, text}. */
export function charts(root, context, device, fallback) {
  const path = `/v1/devices/${device}/series`;
  let shown = new Map(), range = null, of = null, used = null, cut = false, asked = 0, wholeAt = 0, grownAt = 0;

  const parts = () => [...shown.values()], numbers = () => parts().filter((one) => !one.metric.text);
  const question = (start, end) => ({ start: Math.floor(start), end: Math.ceil(end), epoch: "ms" });

  /** Ask for everything that is shown, and draw it. */
  async function whole() {
    const mine = ++asked, level = context.chosen.level ?? "auto";
    range = chosen(fallback);
    of = plan(range.width, level);
    let [values, states] = await Promise.all([askValues(range.start, range.end), askStates()]);
    if (mine !== asked) return;
    if (values?.next && level === "auto") { // too many raw reports for one answer: minutes say the same
      of = plan(range.width, "minutes");
      [values, states] = await Promise.all([askValues(range.start, range.end), askStates()]);
      if (mine !== asked) return;
    }
    wholeAt = grownAt = now();
    used = values?.used;
    cut = Boolean(values?.next);
    for (const one of parts()) one.lists = listsOf(one, one.metric.text && of.step ? states : values);
    paint();
  }

  function ask(some, start, end, step, agg) {
    return some.length ? context.ask(path, { ...question(start, end), metrics: some.map((one) => one.metric.name), step, agg }) : null;
  }
  /** Raw reports have numbers and texts; steps have numbers, and `askStates` asks for the texts. */
  function askValues(start, end) {
    return of.step ? ask(numbers(), start, end, of.step, [...new Set(aggregates(context.chosen.band))].join(",")) : ask(parts(), start, end);
  }
  function askStates() {
    return of.step ? ask(parts().filter((one) => one.metric.text), range.start, range.end, stateStep(range.width).step, "states") : null;
  }

  function listsOf(one, answer) {
    const found = (agg) => answer.series.find((s) => s.metric === one.metric.name && (s.agg ?? null) === agg)?.points ?? [];
    if (one.metric.text) return [found(of.step ? "states" : null).filter((point) => of.step || typeof point[1] === "string")];
    return of.step ? aggregates(context.chosen.band).map(found) : [found(null).filter((point) => typeof point[1] === "number")];
  }

  /** Ask for what is new, in a span that ends now. */
  async function grow() {
    if (!range?.relative || document.hidden || !parts().length) return;
    if (now() - wholeAt > WHOLE_MS) { await whole(); return; }
    if (of.step_ms >= 3600e3 && now() - grownAt < SLOW_MS) return;
    const mine = asked, end = now(), growing = of.step ? numbers() : parts();
    const last = Math.max(range.start, ...growing.map((one) => one.lists?.[0].at(-1)?.[0] ?? 0));
    const answer = await askValues(of.step ? last : last + 1, end);
    if (mine !== asked) return;
    grownAt = now();
    range = { ...range, start: end - range.width, end };
    if (answer) for (const one of growing) listsOf(one, answer).forEach((fresh, i) => { one.lists[i] = merged(one.lists[i], fresh, range.start); });
    paint();
  }

  function paint() {
    for (const one of parts()) if (one.lists) (one.metric.text ? paintText : paintNumbers)(one);
  }

  function paintNumbers(one) {
    const [line, low] = one.lists, { times, values } = drawn(one.lists, of.step_ms);
    const series = { label: context.chosen.band === "p50" && of.step ? "median" : of.step ? "mean" : one.metric.name, values: values[0], colour: one.colour, unit: one.metric.unit };
    if (low) Object.assign(series, { low: values[1], high: values[2] });
    one.chart.draw({ times, from: range.start, to: range.end, series: [series] });
    text(one.says, `${levelName(of, used)}${of.step ? `, ${context.chosen.band === "p50" ? "median and p99" : "mean with min and max"}` : ""} · ${number(line.length)} ${line.length === 1 ? "point" : "points"}${cut ? " (the first; choose a shorter span)" : ""}`);
    told(one, gaps(line, { from: range.start, to: range.end, now: now(), step_ms: of.step_ms }), line.length);
  }

  function paintText(one) {
    const step_ms = of.step ? stateStep(range.width).step_ms : null;
    const found = blocks(one.lists[0], { to: range.end, now: now(), step_ms });
    const key = JSON.stringify([found.length, found.at(-1)?.name, range.start, range.end, one.place.clientWidth]);
    text(one.says, of.step ? "the longest state of each step" : "from one report to the next");
    if (key !== one.key) timeline(one.place, { from: range.start, to: range.end, blocks: found });
    one.key = key;
    told(one, [], found.length);
  }

  function told(one, missing, count) {
    if (!count) { text(one.note, "No values in this span."); return; }
    const words = missing.slice(-GAPS_TOLD).map(({ start, end }) => (end === null ? `since ${moment(start)}` : `${moment(start)} to ${moment(end)}`));
    const more = missing.length - words.length;
    text(one.note, words.length ? `No values ${words.join("; ")}${more > 0 ? `; and in ${more} earlier gaps` : ""}` : "");
  }

  function moment(ms) {
    const day = range.width > 20 * 3600e3 ? `${dayName(ms)} ` : "";
    return day + clockTime(ms, range.width < 3600e3);
  }

  function part(metric, taken) {
    const colour = metric.text ? null : colourOf(metric.name, taken);
    const says = h("small"), note = h("p", { class: "dim gaps" }), place = h("div", { class: metric.text ? "states" : null });
    const block = h("section", { class: "block", "data-metric": metric.name }, h("h2", null, metric.name, " ", h("small", null, metric.unit ? `${metric.unit} · ` : ""), says), place, note);
    const one = { metric, block, says, note, place, colour, lists: null, chart: null, key: "" };
    if (!metric.text) one.chart = chart(place, { height: 150, label: metric.name, sync: "device", zoom: (from, to) => choose({ range: from === null ? null : fixed(from, to) }) });
    return one;
  }

  /** Show these metrics; what is shown already stays. */
  async function draw(metrics) {
    const before = shown, taken = [];
    shown = new Map(metrics.map((metric) => {
      const one = before.get(metric.name) ?? part(metric, taken);
      if (one.colour) taken.push(one.colour);
      return [metric.name, one];
    }));
    for (const [name, one] of before) if (!shown.has(name)) one.chart?.destroy();
    fill(root, parts().length ? parts().map((one) => one.block) : state("empty", "Choose a metric to see it over time."));
    if (parts().length) await whole();
  }

  return { draw, whole, grow, range: () => range, destroy: () => parts().forEach((one) => one.chart?.destroy()) };
}
