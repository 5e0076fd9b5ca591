// How Widerow treats a device, in plain words: its steps against too many reports, its refusals, where it is stored, what it is.

import { fill, h, state, table } from "./dom.js";
import { duration, full, number, when } from "./format.js";
import { factWords, stepWords } from "./parts.js";
import { to } from "./place.js";

const LETTERS = 200, SHOWN = 8;

/** Ask for the facts and put them into `place`; a device that is hot is told of in `notice`. */
export async function facts(place, notice, context, path, device) {
  const sections = { story: h("section", { class: "block" }), letters: h("section", { class: "block" }), stored: h("section", { class: "block" }), about: h("section", { class: "block" }) };
  fill(place, Object.values(sections));
  about(sections.about, device);
  await Promise.all([
    part(sections.stored, "Where it is stored", async () => stored(await context.ask(`/v1/devices/${path}/placement`), device)),
    part(sections.story, "Steps against too many reports", async () => {
      const told = await context.ask("/v1/hot", { device: device.name });
      hot(notice, told.hot[0]);
      return story(told.story);
    }),
    context.mayChange ? part(sections.letters, "Refused reports", async () => letters((await context.ask("/v1/deadletters", { limit: LETTERS })).letters, device.name)) : null,
  ]);
}

/** A section with a title; what fails is said in it, and the rest of the view goes on. */
async function part(section, title, content) {
  try {
    fill(section, h("h2", null, title), await content());
  } catch (error) {
    if (error.name !== "AbortError") fill(section, h("h2", null, title), state("failed", error.message));
  }
}

function hot(notice, one) {
  if (!one) { fill(notice); return; }
  fill(notice, h("p", { class: "notice bad", role: "status" }, h("b", null, `Hot since ${when(one.since)}: `), `${one.reason}. Now: ${stepWords(one.steps)}; this ends when it calms down.`));
}

function story(facts) {
  if (!facts.length) return h("p", { class: "dim" }, "None: it never sent far too much.");
  const newest = facts.slice(-SHOWN).reverse();
  return [h("ul", { class: "story" }, newest.map((fact) => h("li", null, h("span", { class: "dim", title: full(fact.time) }, when(fact.time)), h("span", null, sentence(factWords(fact)), fact.reason ? h("span", { class: "dim" }, `, because ${fact.reason}`) : null)))),
    facts.length > SHOWN ? h("p", { class: "dim" }, `${facts.length - SHOWN} earlier ones are in GET /v1/hot.`) : null];
}

function sentence(words) {
  return words[0].toUpperCase() + words.slice(1);
}

function letters(all, name) {
  const own = all.filter((letter) => letter.device === name || letter.reason.includes(`'${name}'`));
  if (!own.length) return h("p", { class: "dim" }, all.length < LETTERS ? "No dead letter names this device. " : `None of the newest ${LETTERS} dead letters names this device. `, h("a", { href: to("letters") }, "All dead letters"));
  return [table([
    { label: "time", fit: true, cell: (letter) => h("span", { title: full(letter.filed) }, when(letter.filed)) },
    { label: "reason", cell: (letter) => [h("a", { href: to("letters", [letter.id]) }, letter.code), " ", h("span", { class: "dim" }, letter.reason)] },
  ], own.slice(0, SHOWN), { caption: "Refused reports" }), own.length > SHOWN ? h("a", { href: to("letters") }, `${own.length - SHOWN} more`) : null];
}

/** "from 13:53: 15 min x 4 partitions, because ...". */
function stored(placement, device) {
  const { observed } = placement, rate = observed ? `${number(observed.reports_per_s)} reports/s of ${number(observed.values_per_report)} values over ${words(observed.over)}` : "-";
  const shape = (epoch) => `${words(epoch.bucket)} × ${epoch.sub_buckets} ${epoch.sub_buckets === 1 ? "partition" : "partitions"}`;
  const epochs = placement.epochs.slice(-SHOWN).reverse();
  return [h("ul", { class: "story" },
    epochs.map((epoch) => h("li", null, h("span", { class: "dim", title: full(epoch.from) }, `from ${when(epoch.from)}`), h("span", null, shape(epoch), epoch.reason ? h("span", { class: "dim" }, `, because ${epoch.reason}`) : null))),
    epochs.length ? null : h("li", null, h("span", { class: "dim" }, `from ${when(device.created)}`), h("span", null, shape(placement), h("span", { class: "dim" }, ", as every device begins")))),
  h("p", { class: "dim" }, `It sends ${rate}.`)];
}

function words(span) {
  return span.replace(/^(\d+)(ms|s|m|h|d|w|mo)$/, (_, count, name) => `${count} ${name === "m" ? "min" : name}`);
}

function about(section, device) {
  const { profile, online } = device, rows = [
    ["Declared rate", profile.reports_per_s ? [`${number(profile.reports_per_s)} reports/s`, h("span", { class: "dim" }, ` (every ${duration(1 / profile.reports_per_s)})`)] : "none"],
    ["Limit", profile.max_reports_per_s ? `${number(profile.max_reports_per_s)} reports/s` : "the tenant's"],
    ["MQTT", online ? `${online.is ? "online" : "offline"} since ${when(online.told)}` : "no status yet"],
    ...device.hardware.map((one, i) => [i ? "" : "Hardware", hardware(one)]),
    ["Registered", h("span", { title: full(device.created) }, when(device.created))], ["Revision", number(device.revision)],
  ];
  fill(section, h("h2", null, "About"), h("dl", { class: "pairs" }, rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])));
}

function hardware(one) {
  return Object.entries(one).filter(([, value]) => value).map(([name, value]) => `${name} ${/^\d{4}-\d\d-\d\dT/.test(value) ? when(value) : value}`).join(", ");
}
