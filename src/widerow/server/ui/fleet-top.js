// The devices at the top of the fleet by one metric, and the same by type and location. Reading them reads every device.

import { bar, fill, h, segments, state, table, unit } from "./dom.js";
import { send } from "./api.js";
import { number } from "./format.js";
import { deviceLink, failure } from "./parts.js";
import { choose } from "./place.js";
import { iso } from "./range.js";

const MOST = 10;
const ORDERS = [["max", "greatest mean"], ["peak", "highest value"], ["min", "smallest mean"]];
const ASKED = { max: ["avg", "desc"], peak: ["max", "desc"], min: ["avg", "asc"] };

/** Put the top devices into `place`, or a button that asks for them. `at`: {metric, unit, range, small, devices}. */
export async function top(place, context, at) {
  const order = ASKED[context.chosen.top] ? context.chosen.top : "max";
  const choices = segments("Order", ORDERS, order, (value) => choose({ top: value === "max" ? null : value }));
  const content = h("div");
  fill(place, h("h2", null, "Devices at the top"), h("div", { class: "line tools" }, choices), content);
  const read = async () => {
    fill(content, h("p", { class: "dim", role: "status" }, "Reading every device …"));
    try { fill(content, rows(await asked(context, at, order), at)); } catch (error) {
      if (error.name !== "AbortError") fill(content, failure(error, read));
    }
  };
  if (at.small) await read();
  else fill(content, h("p", null, h("button", { type: "button", onclick: read }, "Find them"), h("span", { class: "dim" }, ` This reads all ${number(at.devices)} devices and may take seconds.`)));
}

function asked(context, { metric, range }, order) {
  const [by, direction] = ASKED[order];
  return send("POST", "/v1/query", { tenant: context.chosen.tenant },
    { match: {}, metrics: [metric], start: iso(range.start), end: iso(range.end), top: MOST, by, order: direction, agg: [by] }, context.signal);
}

function rows(answer, at) {
  const found = answer.top ?? [], most = Math.max(...found.map((one) => Math.abs(one.value)), 0);
  if (!found.length) return state("empty", "No device sent this metric in the span.");
  return table([
    { label: "device", cell: (one) => deviceLink(null, one.device) },
    { label: "value", number: true, cell: (one) => [number(one.value, 4), unit(at.unit), most ? bar(Math.min(0.79, 0.79 * Math.abs(one.value) / most)) : null] },
  ], found, { caption: "Devices at the top", bare: true });
}
