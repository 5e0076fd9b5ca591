// Parts that several views share: asking again now and then, choosing a tenant, and hot devices in plain words.

import { Failed } from "./api.js";
import { h, state } from "./dom.js";
import { number, percent, when } from "./format.js";
import { to } from "./place.js";

/** Do `act` now and every so many seconds until the view ends; not while the tab is hidden. `failed(error)` is told of errors. */
export async function every(seconds, context, act, failed) {
  let busy = false;
  async function once() {
    if (busy || (document.hidden && document.readyState === "complete")) return;
    busy = true;
    try { await act(); } catch (error) {
      if (error.name !== "AbortError") failed?.(error);
    } finally { busy = false; }
  }
  const timer = setInterval(once, seconds * 1000);
  context.signal.addEventListener("abort", () => clearInterval(timer));
  document.addEventListener("visibilitychange", once, { signal: context.signal });
  await once();
}

/** What is shown instead of what could not be read. */
export function failure(error, again) {
  if (!(error instanceof Failed)) console.error(error);
  return state("failed", error.message, again ? h("button", { type: "button", onclick: again }, "Try again") : null);
}

/** Links to a view of each tenant, for an operator that named none. */
export function chooseTenant(context, view, words, chosen = {}) {
  const tenants = context.tenants ?? [];
  return h("div", { class: "block" }, state("empty", words),
    h("ul", { class: "plain-list" }, tenants.slice(0, 200).map((one) => h("li", null, h("a", { href: to(view, [], { ...chosen, tenant: one.name }) }, one.display_name || one.name)))),
    tenants.length > 200 ? h("p", { class: "dim" }, `The other ${number(tenants.length - 200)} can be chosen at the top.`) : null);
}

/** Show the view anew, as it is now. */
export function again() {
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Ask for a few things before something is done: an object of them by name, or null. `fields`: {name, label, type,
 *  placeholder, value, required} or {name, label, choices}. */
export function asked(title, lines, fields, action) {
  return new Promise((resolve) => {
    const close = (answer) => { box.close(); box.remove(); resolve(answer); };
    const inputs = fields.map((field) => (field.choices
      ? h("select", { id: `asked-${field.name}`, name: field.name }, field.choices.map(([value, label]) => h("option", { value }, label)))
      : h("input", { id: `asked-${field.name}`, name: field.name, type: field.type, placeholder: field.placeholder, required: field.required, value: field.value ?? "", autocomplete: "off" })));
    const form = h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); close(Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]))); } },
      fields.map((field, i) => [h("label", { for: inputs[i].id }, field.label), inputs[i]]),
      h("div", { class: "wide line" }, h("button", { type: "button", onclick: () => close(null) }, "Cancel"), h("button", { class: "primary" }, action)));
    const box = h("dialog", { "aria-label": title, oncancel: () => close(null) }, h("h1", null, title), lines.map((line) => h("p", null, line)), form);
    document.body.append(box);
    box.showModal();
    inputs[0]?.focus();
  });
}

/** A device of a tenant, as a link. */
export function deviceLink(tenant, device) {
  return h("a", { href: to("device", [device], tenant ? { tenant } : {}) }, device);
}

/** What is done about a hot device. */
export function stepWords(steps) {
  const said = [];
  if (steps.limit) said.push(`limited to ${number(steps.limit)} reports/s`);
  if (steps.spread) said.push(`spread over ${number(steps.spread)} partitions`);
  if (steps.sample) said.push(`${percent(steps.sample)}% of its reports are kept`);
  return said.join("; ") || "watched, nothing is done yet";
}

/** A fact of the story of a hot device, in plain words. */
export function factWords(fact) {
  const { what, value } = fact;
  if (what.endsWith("-mode")) return `an admin set ${what.slice(0, -5)} to ${{ 1: "pinned", "-1": "forbidden" }[value] ?? "automatic"}`;
  const [begun, over] = {
    hot: [`sends far too much: ${number(value)} reports/s`, "has cooled down"],
    "hot-rate": [`limited to ${number(value)} reports/s`, "no longer limited"],
    spread: [`spread over ${number(value)} partitions from ${when(fact.from)}`, `no longer spread from ${when(fact.from)}`],
    sample: [`${percent(value)}% of its reports kept from ${when(fact.from)}`, "all of its reports kept again"],
  }[what] ?? [`${what} ${number(value)}`, `${what} ended`];
  return value ? begun : over;
}
