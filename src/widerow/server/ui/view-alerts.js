// Alerts: what fires now, what did, the rules behind them, and where notices go.
//
// Rule 1: what fires comes first, then what is pending; each says its value against its threshold, and what it is about.
// Rule 2: a token of role read sees everything and changes nothing: it gets no buttons.

import { segment, send } from "./api.js";
import { confirmed, dot, fill, h, segments, state, table } from "./dom.js";
import { duration, full, number, percent, when } from "./format.js";
import { rules } from "./alert-rules.js";
import { webhooks } from "./alert-webhooks.js";
import { asked, deviceLink, every, failure } from "./parts.js";
import { choose, to } from "./place.js";

const EVERY_S = 5, PAGE = 100;
const TABS = [["", "Now"], ["history", "History"], ["rules", "Rules"], ["webhooks", "Webhooks"]];
/** Units of built-in alerts in the history. */
const UNITS = { ingestion_latency_p99: "s", quota_rejections: "ratio" };
const RANK = { critical: 0, warning: 1, info: 2 };
const UNTIL = [["1h", "1 hour"], ["4h", "4 hours"], ["1d", "1 day"], ["7d", "7 days"], ["30d", "30 days"]];

export async function show(root, context) {
  const tab = TABS.some(([name]) => name === context.chosen.show) ? context.chosen.show : "";
  const place = h("div");
  fill(root, h("div", { class: "row" }, h("h1", null, "Alerts ", h("small", null, context.tenant ?? (context.operator ? "of all tenants, and of the process" : ""))),
    segments("Part", TABS, tab, (value) => choose({ show: value || null, rule: null, after: null }))), place);
  await ({ "": standing, history, rules, webhooks })[tab](place, context);
}

/** A value with its unit, as an alert tells it. */
export function valued(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "s") return duration(value);
  if (unit === "ratio") return `${percent(value)}%`;
  return `${number(value)}${unit ? ` ${value === 1 ? unit.replace(/s$/, "") : unit}` : ""}`;
}

// -- now

async function standing(place, context) {
  const firing = h("div", { class: "block" }), silenced = h("div", { class: "block" }), resolved = h("div", { class: "block" });
  fill(place, firing, silenced, resolved);
  const memory = {};
  const draw = (name, data, act) => {
    const told = JSON.stringify(data);
    if (memory[name] !== told) { memory[name] = told; act(); }
  };
  async function look() {
    const [open, done, quiet] = await Promise.all([
      context.ask("/v1/alerts"), context.ask("/v1/alerts", { state: "resolved" }), context.ask("/v1/alerts/silences"),
    ]);
    draw("open", open.alerts, () => fill(firing, open.alerts.length ? alertTable(sorted(open.alerts), context, look)
      : state("empty", "Nothing fires. Alerts that are pending or firing stand here, with what they are about.")));
    draw("quiet", quiet.silences, () => fill(silenced, silences(quiet.silences, context, look)));
    draw("done", done.alerts, () => fill(resolved, h("h2", null, "Resolved ", h("small", null, "in the last day")),
      done.alerts.length ? alertTable(done.alerts.slice(0, 50), context, null) : state("empty", "No alert was resolved in the last day.")));
  }
  await every(EVERY_S, context, look, (error) => { memory.open = null; fill(firing, failure(error, look)); });
  firing.querySelector(".here")?.scrollIntoView({ block: "nearest" });
}

function sorted(alerts) {
  const rank = (one) => [one.silenced ? 1 : 0, one.state === "firing" ? 0 : 1, RANK[one.severity] ?? 3];
  return [...alerts].sort((a, b) => {
    const [x, y] = [rank(a), rank(b)], i = x.findIndex((value, k) => value !== y[k]);
    return i < 0 ? Date.parse(b.since) - Date.parse(a.since) : x[i] - y[i];
  }).slice(0, 200);
}

function alertTable(alerts, context, look) {
  const here = context.about[0];
  return table([
    { label: "alert", words: true, cell: (one) => [dot(one.state === "resolved" ? "ok" : one.silenced ? "" : one.state === "firing" ? one.severity : "pending"),
      h("span", { class: one.id === here ? "here" : null }, ruleLink(one)), " ", h("span", { class: "dim" }, one.summary), standingNote(one)] },
    { label: "of", cell: about },
    { label: "value", number: true, cell: (one) => [valued(one.value, one.unit), one.threshold === null ? null : h("span", { class: "dim" }, ` limit ${valued(one.threshold, ["s", "ratio"].includes(one.unit) ? one.unit : "")}`)] },
    { label: "state", number: true, cell: (one) => [one.silenced && one.state !== "resolved" ? "silenced" : one.state, h("span", { class: "dim", title: full(one.since) }, ` since ${when(one.since)}`)] },
    ...(look && context.mayChange ? [{ label: "", number: true, cell: (one) => h("div", { class: "line act" },
      one.state === "firing" && !one.acknowledged ? h("button", { type: "button", onclick: () => acknowledge(one, context, look) }, "Acknowledge") : null,
      one.silenced ? null : h("button", { type: "button", onclick: () => silence(one, context, look) }, "Silence")) }] : []),
  ], alerts, { stack: true, caption: look ? "Alerts that fire or are pending" : "Alerts that were resolved" });
}

function ruleLink(one) {
  return one.source === "builtin" ? one.name : h("a", { href: to("alerts", [], { show: "rules", rule: one.name, tenant: one.tenant || null }) }, one.name);
}

function about(one) {
  return [one.device ? deviceLink(one.tenant, one.device) : null,
    one.tenant ? [one.device ? h("span", { class: "dim" }, ` ${one.tenant}`) : h("a", { href: to("tenants", [], { tenant: one.tenant }) }, one.tenant)] : one.process ? `process ${one.process}` : "the process"];
}

function standingNote({ acknowledged }) {
  return acknowledged ? h("div", { class: "dim" }, `Acknowledged by ${acknowledged.by}, ${when(acknowledged.at)}${acknowledged.note ? `: ${acknowledged.note}` : ""}`) : null;
}

// -- acknowledging and silencing

async function acknowledge(one, context, look) {
  const given = await asked(`Acknowledge ${one.name}?`, [
    "Others see that you look after it. It goes on firing until its value is well again.",
  ], [{ name: "note", label: "Note", type: "text", placeholder: "what is being done" }], "Acknowledge");
  if (given) await tried(look, () => send("POST", `/v1/alerts/${segment(one.id)}/acknowledge`, { tenant: of(one, context) }, { note: given.note }, context.signal));
}

async function silence(one, context, look) {
  const given = await asked(`Silence ${one.name}?`, [
    "Nobody is told of it until then. It stays visible here.",
  ], [
    { name: "until", label: "For", choices: UNTIL },
    ...(one.device ? [{ name: "scope", label: "Which", choices: [["device", `${one.name} of ${one.device}`], ["all", `${one.name} of all devices`]] }] : []),
    { name: "comment", label: "Comment", type: "text", placeholder: "why" },
  ], "Silence");
  if (!given) return;
  const body = { name: one.name, until: `+${given.until}`, comment: given.comment, ...(given.scope === "device" ? { device: one.device } : {}) };
  await tried(look, () => send("POST", "/v1/alerts/silences", { tenant: of(one, context) }, body, context.signal));
}

/** The tenant whose alert it is, for an operator. */
function of(one, context) {
  return context.operator ? one.tenant || null : null;
}

async function tried(look, act) {
  try { await act(); await look(); } catch (error) {
    if (error.name !== "AbortError") await confirmed("That did not work", [error.message], "Close");
  }
}

function silences(found, context, look) {
  if (!found.length) return null;
  return [h("h2", null, "Silences ", h("small", null, "nobody is told of these")), table([
    { label: "alert", cell: (one) => one.name || "all" }, { label: "device", cell: (one) => one.device || "all" },
    { label: "until", fit: true, cell: (one) => h("span", { title: full(one.until) }, when(one.until)) },
    { label: "comment", cell: (one) => [one.comment, one.by ? h("span", { class: "dim" }, ` ${one.by}`) : null] },
    ...(context.mayChange ? [{ label: "", number: true, cell: (one) => h("button", { type: "button", onclick: () => tried(look, () => send("DELETE", `/v1/alerts/silences/${segment(one.id)}`, { tenant: of(one, context) ?? context.chosen.tenant }, undefined, context.signal)) }, "End") }] : []),
  ], found.slice(0, 100), { stack: true, caption: "Silences" })];
}

// -- history

async function history(place, context) {
  const { after = "" } = context.chosen;
  const { events, next } = await context.ask("/v1/alerts/history", { start: "-30d", limit: PAGE, after });
  fill(place, events.length ? table([
    { label: "time", fit: true, cell: (one) => h("span", { title: full(one.time) }, when(one.time)) },
    { label: "alert", words: true, cell: (one) => [dot(one.state === "firing" ? one.severity : "ok"), ruleLink({ source: one.source ?? (one.tenant ? "http" : "builtin"), ...one }), " ", h("span", { class: "dim" }, one.summary)] },
    { label: "of", cell: about },
    { label: "", cell: (one) => (one.state === "firing" ? "fired" : "was resolved") },
    { label: "value", number: true, cell: (one) => valued(one.value, UNITS[one.name] ?? "") },
  ], events, { stack: true, caption: "When alerts fired and were resolved" }) : state("empty", "No alert fired in the last 30 days."),
  h("div", { class: "line" }, after ? h("button", { type: "button", onclick: () => window.history.back() }, "← Newer") : null,
    next ? h("button", { type: "button", onclick: () => choose({ after: next }) }, "Older →") : null));
}
