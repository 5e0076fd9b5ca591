// Dead letters: refused reports by reason, one of them in full, sending them again and removing them.
//
// Rule 1: the page says what sending again or removing means, and for how many letters, before it does it.
// Rule 2: a body is text: control characters, bytes that are not UTF-8 and marks that turn the line round are shown as escapes.

import { segment, send } from "./api.js";
import { confirmed, fill, h, segments, state, table } from "./dom.js";
import { bytes, full, number, percent, when } from "./format.js";
import { again, chooseTenant, deviceLink, failure } from "./parts.js";
import { choose, go, to } from "./place.js";

const PAGE = 50, COUNTED = 1000, SHOWN_BYTES = 64 << 10;
const SPANS = [["-1h", "1 h"], ["-1d", "24 h"], ["-7d", "7 d"], ["", "all"]];
const KEPT = { whole: "whole", cut: "cut: too large to be sent again", nothing: "nothing was kept" };

/** What was done to letters, for the list that is shown next. */
let news = null;

export async function show(root, context) {
  if (!context.mayChange) {
    fill(root, h("h1", null, "Dead letters"), state("empty", "Dead letters hold refused reports as they were sent. A token of role admin shows them, this one does not."));
    return;
  }
  if (!context.tenant) {
    fill(root, h("h1", null, "Dead letters"), chooseTenant(context, "letters", "Dead letters belong to a tenant. Choose one:"));
    return;
  }
  await (context.about[0] ? one(root, context, context.about[0]) : list(root, context));
}

// -- the list

async function list(root, context) {
  const { code = "", after = "" } = context.chosen, since = context.chosen.since ?? "-7d", span = { since: since === "all" ? "" : since };
  const rows = h("div", { class: "block" }), side = h("div"), told = h("div", { "aria-live": "polite" }, news ?? ""), actions = h("div", { class: "line" });
  news = null;
  fill(root, h("div", { class: "row" }, h("h1", null, "Dead letters ", h("small", null, `${context.tenant}: refused reports and their reasons`)),
    segments("Filed within", SPANS, span.since, (value) => choose({ since: value || "all", after: null }))), told,
  h("div", { class: "grid letters" }, rows, side));
  const [page, newest] = await Promise.all([
    context.ask("/v1/deadletters", { ...span, code, after, limit: PAGE }), context.ask("/v1/deadletters", { ...span, limit: COUNTED }),
  ]);
  const counts = byReason(newest.letters), all = { count: newest.letters.length, more: newest.next !== null };
  const some = code ? { ...counts.get(code) ?? { count: 0, reports: 0 }, more: all.more } : { ...all, reports: sum(newest.letters) };
  const meant = { since: span.since || undefined, code: code || undefined, ...(span.since || code ? {} : { all: true }) };
  fill(side, h("h2", null, "By reason ", all.more ? h("small", null, `of the newest ${number(COUNTED)}`) : null), reasons(counts, all.count, code));
  if (some.count) {
    fill(actions,
      h("button", { type: "button", onclick: () => sendAgain(context, told, meant, { ...some, conflicts: counts.get("conflict")?.count ?? 0, code }) }, "Send again …"),
      h("button", { type: "button", class: "danger", onclick: () => remove(context, told, meant, some, code) }, "Delete …"));
  }
  fill(rows, page.letters.length ? [h("div", { class: "row" }, h("span", { class: "dim" }, `${counted(some)}${code ? ` refused as ${code}` : ""}, newest first`), actions), letters(page.letters), older(page, after)]
    : state("empty", empty(since, code)));
}

function empty(since, code) {
  const within = SPANS.find(([value]) => value === since && value)?.[1];
  return `No report was refused${code ? ` as ${code}` : ""}${within ? ` within ${within}` : ""}. Reports that are refused for what is wrong in themselves are kept here, so that they can be mended and sent again.`;
}

function counted({ count, more }) {
  return `${more ? "over " : ""}${number(count)} ${count === 1 ? "letter" : "letters"}`;
}

function sum(found) {
  return found.reduce((total, letter) => total + letter.reports, 0);
}

function byReason(found) {
  const counts = new Map();
  for (const letter of found) {
    const one = counts.get(letter.code) ?? { count: 0, reports: 0 };
    counts.set(letter.code, { count: one.count + 1, reports: one.reports + letter.reports });
  }
  return new Map([...counts].sort((a, b) => b[1].count - a[1].count));
}

function reasons(counts, total, code) {
  if (!counts.size) return state("empty", "Nothing to count.");
  return [table([
    { label: "reason", cell: ([name]) => h("a", { href: address({ code: name }), "aria-current": name === code ? "true" : null }, name) },
    { label: "reports", number: true, cell: ([, one]) => (one.reports ? number(one.reports) : h("span", { class: "dim", title: "the body cannot be read" }, "?")) },
    { label: "letters", number: true, cell: ([, one]) => [number(one.count), h("span", { class: "dim" }, ` ${percent(one.count / total)}%`)] },
  ], [...counts].slice(0, 30), { caption: "Letters by reason" }), code ? h("p", null, h("a", { href: address({ code: null }) }, "All reasons")) : null];
}

function address(chosen) {
  const now = Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? ""));
  return to("letters", [], { since: now.since, ...chosen });
}

function letters(found) {
  return table([
    { label: "filed", fit: true, cell: (letter) => h("a", { href: to("letters", [letter.id]), title: full(letter.filed) }, when(letter.filed)) },
    { label: "code", fit: true, cell: (letter) => letter.code },
    { label: "reason", words: true, cell: (letter) => letter.reason },
    { label: "source", wide: true, cell: (letter) => [letter.source, letter.device ? [" ", h("span", { class: "dim" }, letter.device)] : null] },
    { label: "reports", number: true, wide: true, cell: (letter) => (letter.reports ? number(letter.reports) : h("span", { class: "dim", title: "the body cannot be read" }, "?")) },
    { label: "size", number: true, cell: (letter) => [bytes(letter.bytes), letter.kept === "whole" ? null : h("span", { class: "warn" }, ` ${letter.kept}`)] },
    { label: "sent again", number: true, wide: true, cell: (letter) => (letter.replays ? `${number(letter.replays)} ×` : "") },
  ], found, { stack: true, caption: "Dead letters", pick: (letter) => go("letters", [letter.id]) });
}

function older(page, after) {
  return h("div", { class: "line" },
    after ? h("button", { type: "button", onclick: () => history.back() }, "← Newer") : null,
    page.next ? h("button", { type: "button", onclick: () => choose({ after: page.next }) }, "Older →") : null);
}

// -- one letter

async function one(root, context, id) {
  const told = h("div", { "aria-live": "polite" });
  const back = h("p", { class: "dim" }, h("a", { href: to("letters") }, "All dead letters"));
  let letter;
  try { letter = await context.ask(`/v1/deadletters/${segment(id)}`); } catch (error) {
    if (error.status !== 404) throw error;
    fill(root, back, h("h1", null, "Dead letter"), state("empty", `There is no letter ${id}. It was sent again, removed, or has expired.`));
    return;
  }
  const may = { count: 1, reports: letter.reports, more: false, conflicts: letter.code === "conflict" ? 1 : 0, code: letter.code, named: true };
  fill(root, back, h("div", { class: "row" }, h("h1", null, letter.code, " ", h("small", null, `filed ${when(letter.filed)}`)),
    h("div", { class: "line" },
      h("button", { type: "button", disabled: letter.kept !== "whole", title: letter.kept === "whole" ? null : KEPT[letter.kept], onclick: () => sendAgain(context, told, { ids: [id] }, may) }, "Send again …"),
      h("button", { type: "button", class: "danger", onclick: () => remove(context, told, { ids: [id] }, may, "") }, "Delete …"))),
  told, h("p", { class: "notice bad" }, letter.reason), h("div", { class: "grid letters" }, body(letter), h("div", null, h("h2", null, "How it came"), facts(context, letter))));
}

function facts(context, letter) {
  const rows = [
    ["Filed", full(letter.filed)], ["Source", letter.source], ["Type", letter.media_type || "-"], ["Compressed", letter.encoding || "no"],
    ["Unit of times", letter.precision || "-"], ["Device of the token or topic", letter.device ? deviceLink(context.tenant, letter.device) : "none"],
    ["Reports", letter.reports ? number(letter.reports) : "unknown: the body cannot be read"],
    letter.positions.length ? ["Places in the request", `${letter.positions.slice(0, 20).map((place) => number(place)).join(", ")}${letter.positions.length > 20 ? " …" : ""}, counted from 0`] : null,
    ["Kept", KEPT[letter.kept] ?? letter.kept], ["Size", bytes(letter.bytes)],
    ["Sent again", letter.replays ? `${number(letter.replays)} ×, last ${when(letter.replayed)}` : "never"], ["Id", h("span", { class: "mono" }, letter.id)],
  ];
  return h("dl", { class: "facts" }, rows.filter(Boolean).map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));
}

function body(letter) {
  const content = letter.body_form === "base64" ? atob(letter.body) : letter.body, cut = content.length > SHOWN_BYTES;
  return h("div", { class: "block" }, h("h2", null, "Body ", h("small", null, letter.body_form === "base64" ? "not UTF-8: bytes that are no text are shown as \\xNN" : "control characters are shown as escapes")),
    content ? h("pre", { class: "body", tabindex: "0", "aria-label": "Body" }, escaped(content.slice(0, SHOWN_BYTES), letter.body_form === "base64")) : state("empty", "Nothing of the body was kept."),
    cut ? h("p", { class: "dim" }, `The first ${bytes(SHOWN_BYTES)} of ${bytes(content.length)}. widerow deadletters show ${letter.id} has all of it.`) : null);
}

/** Text with what cannot be seen as marked escapes. A line feed is marked, and begins a line. */
export function escaped(content, raw) {
  const hidden = raw ? /[\u0000-\u001f\u007f-\u00ff]/ : /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;
  return content.split(new RegExp(`(${hidden.source})`)).map((part) => {
    if (part.length !== 1 || !hidden.test(part)) return part;
    const code = part.charCodeAt(0);
    const name = { 9: "\\t", 10: "\\n", 13: "\\r" }[code] ?? (code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`);
    return [h("span", { class: "escape" }, name), code === 10 ? "\n" : code === 9 ? "\t" : null];
  });
}

// -- sending again, removing

function which({ count, more, named }) {
  return named ? "this letter" : `${more ? "more than " : ""}${number(count)} ${count === 1 ? "letter" : "letters"}`;
}

async function sendAgain(context, told, meant, some) {
  const reports = some.reports ? `${number(some.reports)} ${some.reports === 1 ? "report" : "reports"}` : "an unknown number of reports";
  const left = !some.named && some.conflicts && (!some.code || some.code === "conflict");
  const lines = [
    `${reports[0].toUpperCase()}${reports.slice(1)}${some.more ? ` among the newest ${number(COUNTED)} letters` : ""} ${some.reports === 1 ? "goes" : "go"} into the tenant ${context.tenant}, by the way that every report takes.`,
    "Reports that are accepted now are stored at their own times, and their letters are removed. They do not undo corrections that came later.",
    "Reports that are refused again stay here, with the new reason. Sending again helps only if the cause is gone.",
    left ? `${number(some.conflicts)} refused as conflict ${some.conflicts === 1 ? "is" : "are"} left: only one of two values can be right. Open such a letter to send it by itself.` : null,
    some.named && some.code === "conflict" ? "This one holds another value for a time that has one: it replaces nothing that came later." : null,
  ].filter(Boolean);
  if (!await confirmed(`Send ${which(some)} again?`, lines, "Send again")) return;
  const done = { stored: 0, refused: 0, reports: 0, conflicts: 0 };
  let after = "", reason = "";
  try {
    do {
      const answer = await send("POST", "/v1/deadletters/replay", { tenant: context.chosen.tenant }, { ...meant, ...(after ? { after } : {}) }, context.signal);
      for (const name of Object.keys(done)) done[name] += answer[name];
      reason ||= answer.letters.find((each) => each.outcome === "refused")?.reason ?? "";
      after = answer.next;
      fill(told, outcome(done, reason, Boolean(after)));
    } while (after);
    renew(outcome(done, reason, false));
  } catch (error) {
    if (error.name !== "AbortError") fill(told, outcome(done, reason, false), failure(error));
  }
}

function outcome(done, reason, running) {
  const letters_ = (count) => `${number(count)} ${count === 1 ? "letter" : "letters"}`;
  return h("p", { class: `notice ${done.refused ? "" : "good"}`, role: "status" },
    running ? "Sending … " : "", `${letters_(done.stored)} stored, with ${number(done.reports)} ${done.reports === 1 ? "report" : "reports"}. `,
    done.refused ? `${letters_(done.refused)} refused again: ${reason} ` : "", done.conflicts ? `${letters_(done.conflicts)} refused as conflict left.` : "");
}

async function remove(context, told, meant, some, code) {
  const lines = [`${which(some)[0].toUpperCase()}${which(some).slice(1)}${code ? ` refused as ${code}` : ""} of the tenant ${context.tenant} ${some.named || some.count === 1 ? "is" : "are"} removed for good, with the bytes. Nothing that was stored changes.`];
  if (!await confirmed(`Delete ${which(some)}?`, lines, "Delete", true)) return;
  const { ids, ...rest } = meant;
  try {
    let deleted = 0, answer;
    do {
      answer = await send("DELETE", "/v1/deadletters", { tenant: context.chosen.tenant, id: ids, ...rest }, undefined, context.signal);
      deleted += answer.deleted;
    } while (answer.more);
    renew(h("p", { class: "notice good", role: "status" }, `${number(deleted)} ${deleted === 1 ? "letter is" : "letters are"} removed.`));
  } catch (error) {
    if (error.name !== "AbortError") fill(told, failure(error));
  }
}

/** Show the list as it is now, with what was done above it. */
function renew(words) {
  news = words;
  if (location.hash.startsWith("#/letters/")) go("letters"); else again();
}
