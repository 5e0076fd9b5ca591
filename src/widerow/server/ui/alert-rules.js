// Rules of alerts: all of them, and a form for one with what it would have done in the last day.
//
// Rule: a rule is tried as it is typed; saving it is a step of its own. Rules of the operator's file are shown, not changed.

import { segment, send } from "./api.js";
import { chart } from "./chart.js";
import { confirmed, dot, fill, h, state, table } from "./dom.js";
import { number, when } from "./format.js";
import { chooseTenant, deviceLink } from "./parts.js";
import { choose, to } from "./place.js";

const TYPING_MS = 600, NEW = "+";
const KINDS = [["threshold", "a metric is above or below a value"], ["rate_of_change", "a metric changes too fast"], ["offline", "a device sends nothing"], ["quota", "a limit is nearly used up"]];
const AGGREGATES = ["mean", "min", "max", "last", "sum", "count"].map((name) => [name, name]);
const SEVERITIES = ["info", "warning", "critical"].map((name) => [name, name]);
const LIMITS = [["writes_per_s", "reports a second"], ["devices", "devices"], ["series", "series"], ["storage_bytes", "stored bytes"]];
const SOURCES = { toml: "the operator's file", http: "" };

export async function rules(place, context) {
  const { rules: found } = await context.ask("/v1/alerts/rules"), everybody = !context.tenant;
  const name = context.chosen.rule, one = everybody ? null : found.find((rule) => rule.name === name);
  if (name && !everybody && (one || name === NEW)) { await form(place, context, one ?? null); return; }
  if (name === NEW) { fill(place, chooseTenant(context, "alerts", "A rule belongs to a tenant. Choose one:", { show: "rules", rule: NEW })); return; }
  fill(place,
    h("div", { class: "row" }, h("span", { class: "dim" }, name ? `There is no rule ${name} any more.` : "A rule fires for each device by itself."),
      context.mayChange ? h("button", { type: "button", class: "primary", onclick: () => choose({ rule: NEW }) }, "Add a rule") : h("span", { class: "dim" }, "A token of role admin can add rules.")),
    found.length ? table([
      { label: "rule", words: true, cell: (rule) => [dot(rule.severity), h("a", { href: to("alerts", [], { show: "rules", rule: rule.name, ...(everybody ? { tenant: rule.tenant } : {}) }) }, rule.name), everybody ? h("span", { class: "dim" }, ` ${rule.tenant}`) : null] },
      { label: "fires when", cell: (rule) => says(rule) },
      { label: "about", cell: scope },
      { label: "tells", wide: true, cell: (rule) => (rule.webhooks ?? []).join(", ") || h("span", { class: "dim" }, "nobody") },
      { label: "from", wide: true, cell: (rule) => h("span", { class: "dim" }, SOURCES[rule.source] ?? rule.source) },
    ], found.slice(0, 300), { stack: true, caption: "Rules" }) : state("empty", "There are no rules yet. A rule says when a metric, a silent device or a limit that is nearly used up needs somebody."));
}

/** What a rule watches for, in words. */
export function says(rule) {
  const side = rule.below === null || rule.below === undefined ? ["above", rule.above] : ["below", rule.below];
  const lasts = rule.for && rule.for !== "0s" && rule.for !== "0" ? ` for ${rule.for}` : "";
  const words = {
    threshold: () => `the ${rule.aggregate ?? "mean"} of ${rule.metric} over ${rule.window ?? "1m"} is ${side[0]} ${number(side[1])}${lasts}`,
    rate_of_change: () => `${rule.metric} changes by ${side[0]} ${number(side[1])} a minute over ${rule.window ?? "2m"}${lasts}`,
    offline: () => `no data comes for ${rule.after}`,
    quota: () => `over ${number(rule.percent)}% of limits.${rule.limit} is used${lasts}`,
  }[rule.kind];
  return [words ? words() : "", rule.summary ? h("span", { class: "dim" }, ` ${rule.summary}`) : null];
}

function scope(rule) {
  if (rule.device) return deviceLink(rule.tenant, rule.device);
  if (rule.match) {
    const { type, location, tags } = rule.match;
    return [type && `type ${type}`, location && `location ${location}`, ...Object.entries(tags ?? {}).map(([name, value]) => `${name} = ${value}`)].filter(Boolean).join(", ");
  }
  return rule.kind === "quota" ? "the tenant" : rule.fleet ? "all devices" : "";
}

// -- one rule

/** A field with its label, for some kinds of rules; `beside` is another one on its line. */
function field(name, label, input, kinds, hint, beside) {
  input.id = `rule-${name}`;
  input.name = name;
  return { input, element: [h("label", { for: input.id, "data-kinds": kinds }, label),
    h("div", { "data-kinds": kinds }, beside ? h("div", { class: "pair" }, input, beside) : input, hint ? h("div", { class: "dim" }, hint) : null)] };
}

function choice(options, value) {
  return h("select", null, options.map(([name, label]) => h("option", { value: name, selected: name === value }, label)));
}

function input(value, placeholder = "", type = "text") {
  return h("input", { type, value: value ?? "", placeholder, autocomplete: "off" });
}

function fieldsOf(rule, webhooks) {
  const number_ = (value) => (value === null || value === undefined ? "" : String(value)), both = "threshold rate_of_change", devices = "threshold rate_of_change offline";
  const tags = Object.entries(rule.match?.tags ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");
  const about = rule.device ? "device" : rule.match ? "match" : "fleet";
  return [
    field("name", "Name", input(rule.name, "too-hot"), "", null), field("kind", "Fires when", choice(KINDS, rule.kind), "", null),
    field("metric", "Metric", input(rule.metric, "temperature"), both, null),
    field("aggregate", "Its", choice(AGGREGATES, rule.aggregate), "threshold", null), field("window", "Over", input(rule.window, "1m"), both, null),
    field("side", "Is", choice([["above", "above"], ["below", "below"]], rule.below === null || rule.below === undefined ? "above" : "below"), both, null,
      field("value", "", h("input", { value: number_(rule.above ?? rule.below), placeholder: "80", autocomplete: "off", "aria-label": "Value" }), both).input),
    field("after", "Without data for", input(rule.after, "10m"), "offline", null),
    field("limit", "Limit", choice(LIMITS, rule.limit), "quota", null), field("percent", "Percent used", input(number_(rule.percent), "90"), "quota", null),
    field("clear", "Is over at", input(number_(rule.clear), "the same value"), `${both} quota`, "A value further back keeps it from firing and resolving again and again."),
    field("for", "Lasting for", input(rule.for === "0s" ? "" : rule.for, "at once"), `${both} quota offline`, null),
    field("about", "About", choice([["fleet", "all devices, each by itself"], ["match", "devices that match"], ["device", "one device"]], about), devices, null),
    field("device", "Device", input(rule.device), `${devices} about-device`, null),
    field("type", "Type", input(rule.match?.type), `${devices} about-match`, null), field("location", "Location", input(rule.match?.location), `${devices} about-match`, null),
    field("tags", "Tags", input(tags, "line=3, hall=A"), `${devices} about-match`, null),
    field("severity", "Severity", choice(SEVERITIES, rule.severity ?? "warning"), "", null),
    field("webhooks", "Tell webhooks", input((rule.webhooks ?? []).join(", "), webhooks.map((one) => one.name).join(", ") || "none is set up"), "", null),
    field("summary", "In words", input(rule.summary, "optional"), "", null),
  ];
}

/** The rule that the form says. Keys that mean nothing for its kind are left out; the server says what is wrong. */
export function ruleOf(of) {
  const text = (name) => of.get(name).trim(), kind = text("kind"), rule = { name: text("name"), kind, severity: text("severity"), summary: text("summary") };
  const put = (name, value) => { if (value !== "" && value !== null) rule[name] = value; };
  const figure = (name) => (text(name) === "" ? null : Number.isNaN(Number(text(name))) ? text(name) : Number(text(name)));
  if (kind === "threshold" || kind === "rate_of_change") {
    put("metric", text("metric"));
    put("window", text("window"));
    put(text("side"), figure("value"));
    if (kind === "threshold") put("aggregate", text("aggregate"));
  }
  if (kind === "offline") put("after", text("after"));
  if (kind === "quota") { put("limit", text("limit")); put("percent", figure("percent")); }
  if (kind !== "offline") put("clear", figure("clear"));
  put("for", text("for"));
  rule.webhooks = text("webhooks").split(",").map((name) => name.trim()).filter(Boolean);
  if (kind === "quota") return rule;
  if (text("about") === "device") rule.device = text("device");
  else if (text("about") === "fleet") rule.fleet = true;
  else {
    const tags = Object.fromEntries(text("tags").split(",").map((tag) => tag.split("=").map((part) => part.trim())).filter(([name]) => name));
    rule.match = Object.fromEntries([["type", text("type")], ["location", text("location")], ["tags", Object.keys(tags).length ? tags : ""]].filter(([, value]) => value !== ""));
  }
  return rule;
}

async function form(place, context, rule) {
  const readonly = !context.mayChange || rule?.readonly, { webhooks } = readonly ? { webhooks: [] } : await context.ask("/v1/alerts/webhooks");
  const told = h("div", { class: "block", "aria-live": "polite" }), drawing = h("div", { class: "block" }), listed = h("div"), trouble = h("p", { class: "bad", role: "alert" });
  const fields = fieldsOf(rule ?? { kind: "threshold" }, webhooks);
  let timer = null, turn = 0, plot = null;
  const address = (name) => `/v1/alerts/rules/${segment(name)}`, tenant = { tenant: context.chosen.tenant };
  const box = h("form", { class: "fields rule", novalidate: true, oninput: () => { fit(); clearTimeout(timer); timer = setTimeout(attempt, TYPING_MS); }, onsubmit: save },
    h("fieldset", { class: "plain", disabled: readonly }, fields.map((one) => one.element)),
    trouble, readonly ? h("p", { class: "dim wide" }, rule?.source === "toml" ? "This rule is in the operator's file, and cannot be changed here." : "A token of role admin can change rules.")
      : h("div", { class: "wide line" }, h("button", { class: "primary" }, rule ? "Save rule" : "Add rule"), rule ? h("button", { type: "button", class: "danger", onclick: drop }, "Delete …") : null));
  const given = () => { // a disabled field is in no FormData
    const data = new Map([...box.querySelectorAll("[name]")].map((each) => [each.name, each.value]));
    return { data, rule: ruleOf(data) };
  };
  function fit() {
    const { data } = given();
    for (const each of box.querySelectorAll("[data-kinds]")) {
      const kinds = each.dataset.kinds.split(" "), of = kinds.find((kind) => kind.startsWith("about-"));
      each.hidden = Boolean(each.dataset.kinds) && (!kinds.includes(data.get("kind")) || (of !== undefined && of !== `about-${data.get("about")}`));
    }
  }
  async function attempt() {
    const mine = ++turn, { rule: tried } = given();
    const why = untried(tried, context);
    if (why) { fill(told, why); fill(drawing); fill(listed); return; }
    try {
      const answer = await send("POST", "/v1/alerts/rules/preview", tenant, { ...tried, name: tried.name || "preview" }, context.signal);
      if (mine !== turn) return;
      fill(trouble);
      fill(told, verdict(answer));
      fill(listed, firings(answer));
      plot?.destroy();
      plot = picture(drawing, answer, tried);
    } catch (error) {
      if (error.name === "AbortError" || mine !== turn) return;
      fill(told, h("p", { class: "dim" }, error.message));
      fill(listed);
      fill(drawing);
    }
  }
  async function save(event) {
    event.preventDefault();
    const { rule: wanted } = given();
    try {
      await send("PUT", address(wanted.name || "-"), tenant, wanted, context.signal, rule && rule.name === wanted.name && rule.revision ? { "If-Match": `"${rule.revision}"` } : {});
      if (rule && rule.name !== wanted.name) await send("DELETE", address(rule.name), tenant, undefined, context.signal);
      choose({ rule: null });
    } catch (error) {
      if (error.name !== "AbortError") fill(trouble, error.status === 412 ? "Somebody else changed this rule meanwhile. Reload the page, then try again." : error.message);
    }
  }
  async function drop() {
    if (!await confirmed(`Delete the rule ${rule.name}?`, ["Its alerts that fire are over, and nobody is told of them any more. The history stays."], "Delete", true)) return;
    try { await send("DELETE", address(rule.name), tenant, undefined, context.signal); choose({ rule: null }); } catch (error) {
      if (error.name !== "AbortError") fill(trouble, error.message);
    }
  }
  context.signal.addEventListener("abort", () => { clearTimeout(timer); plot?.destroy(); });
  fill(place, h("p", { class: "dim" }, h("a", { href: to("alerts", [], { show: "rules" }) }, "All rules")),
    h("div", { class: "even" }, h("div", { class: "block" }, h("h2", null, rule ? rule.name : "A new rule"), box),
      h("div", null, h("h2", null, "In the last day ", h("small", null, "what this rule would have done")), told, drawing, listed)));
  fit();
  await attempt();
}

/** Why a rule cannot be tried yet, in words; null if it can. */
function untried(rule, context) {
  if (rule.kind === "quota") return state("empty", "Use against limits over time is on the tenant's page.", h("a", { href: to("tenants", [], { tenant: context.chosen.tenant }) }, "Tenants"));
  const whole = rule.kind === "offline" ? rule.after : rule.metric && (rule.above ?? rule.below) !== undefined;
  const about = rule.fleet || rule.device || (rule.match && Object.keys(rule.match).length);
  return whole && about ? null : state("empty", "The page shows here what the rule would have done in the last day, as soon as it is complete.");
}

function verdict({ events, devices, would_notify: notices }) {
  const fired = events.filter((event) => event.state === "firing");
  return h("p", null, h("span", { class: "dim" }, `Tried on ${number(devices)} ${devices === 1 ? "device" : "devices"}. `), fired.length ? [dot("bad"), `It would have fired ${number(fired.length)} ${fired.length === 1 ? "time" : "times"}, and sent ${number(notices)} ${notices === 1 ? "notice" : "notices"}.`] : [dot("ok"), "It would not have fired."]);
}

function firings({ events }) {
  return [
    events.length ? table([
      { label: "time", fit: true, cell: (event) => when(event.time) }, { label: "", cell: (event) => (event.state === "firing" ? [dot("bad"), "fires"] : [dot("ok"), event.state === "resolved" ? "is resolved" : event.state]) },
      { label: "device", cell: (event) => event.device ?? "" }, { label: "value", number: true, cell: (event) => number(event.value) },
    ], events.slice(0, 12), { caption: "What the rule would have done" }) : null,
    events.length > 12 ? h("p", { class: "dim" }, `And ${number(events.length - 12)} more.`) : null,
  ];
}

/** The values of the last day with the threshold; where it would have fired, the line is drawn in red as well. */
function picture(place, { points, events: all, device, threshold }, rule) {
  fill(place);
  if (!points.length) { fill(place, state("empty", "There are no values in the last day to try it on.")); return null; }
  const times = points.map(([time]) => Date.parse(time)), values = points.map(([, value]) => value);
  const events = all.filter((event) => event.device === device), fired = spans(events, times.at(-1)), inside = (time) => fired.some(([from, to_]) => time >= from && time <= to_);
  const plot = chart(place, { height: 180, label: `${rule.metric ?? "time without data"} of ${device} in the last day` });
  place.prepend(h("h2", null, device, " ", h("small", null, !rule.metric ? "seconds without data" : device.includes(rule.metric) ? "" : rule.metric)));
  plot.draw({ times, from: times[0], to: times.at(-1), limit: threshold, limitLabel: `fires ${rule.below === undefined ? "above" : "below"} ${number(threshold)}`,
    series: [{ label: rule.metric ?? "without data", values, colour: "--c1" },
      ...(fired.length ? [{ label: "would fire", values: values.map((value, i) => (inside(times[i]) ? value : null)), colour: "--bad" }] : [])] });
  return plot;
}

function spans(events, end) {
  const found = [];
  for (const event of events) {
    const time = Date.parse(event.time), last = found.at(-1);
    if (event.state === "firing" && (!last || last[1] !== null)) found.push([time, null]);
    if (event.state === "resolved" && last && last[1] === null) last[1] = time;
  }
  return found.map(([from, to_]) => [from, to_ ?? end]);
}
