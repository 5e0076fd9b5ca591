// The span of time that is shown: one that ends now ("24h"), or a fixed one ("2026-11-19T10:00Z..2026-11-19T12:00Z").

import { choose, here } from "./place.js";
import { fill, h, segments } from "./dom.js";
import { clockTime, dayName, now as present } from "./format.js";

const UNITS = { m: 60e3, h: 3600e3, d: 86400e3, w: 7 * 86400e3, y: 365 * 86400e3 };
export const BUTTONS = [["15m", "15 min"], ["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ["1y", "1 y"]];
const SHORTEST_MS = 1000;

function width(text) {
  const match = /^(\d+)([mhdwy])$/.exec(text);
  return match ? Number(match[1]) * UNITS[match[2]] : null;
}

/** {start, end (ms), relative: "24h" or null, width}. What cannot be read is the default. */
export function parse(text, fallback = "1h", now = present()) {
  const relative = width(text ?? "") ? text : null;
  if (!relative && text?.includes("..")) {
    const [start, end] = text.split("..").map((part) => Date.parse(part));
    if (end - start >= SHORTEST_MS) return { start, end, width: end - start, relative: null };
  }
  const chosen = relative ?? fallback;
  return { start: now - width(chosen), end: now, width: width(chosen), relative: chosen };
}

export function chosen(fallback) {
  return parse(here().chosen.range, fallback);
}

export function fixed(start, end) {
  return `${iso(start)}..${iso(end)}`;
}

export function iso(ms) {
  return new Date(Math.round(ms)).toISOString();
}

/** What people typed: `24h`, `-2h`, `10:00 to 11:30`, `2026-11-19 10:00 to now`. Null if it cannot be understood. */
export function typed(text, now = present()) {
  const plain = text.trim().replace(/^-/, "").replace(/\s+(min|minutes?)$/, "m").replace(/\s*(h|hours?)$/, "h").replace(/\s*(d|days?)$/, "d");
  if (width(plain)) return plain;
  const parts = text.split(/\s+to\s+|\.\./);
  if (parts.length !== 2) return null;
  const [start, end] = parts.map((part) => moment(part.trim(), now));
  return start !== null && end !== null && end - start >= SHORTEST_MS ? fixed(start, end) : null;
}

function moment(text, now) {
  if (text === "now") return now;
  const ago = /^-(\d+[mhdwy])$/.exec(text);
  if (ago) return now - width(ago[1]);
  const utc = here().chosen.zone === "utc";
  const time = /^(\d{1,2}):(\d{2})$/.exec(text);
  if (time) {
    const day = new Date(now);
    const set = utc ? day.setUTCHours(time[1], time[2], 0, 0) : day.setHours(time[1], time[2], 0, 0);
    return set > now ? set - 86400e3 : set;
  }
  const day = /^(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?))?$/.exec(text);
  const found = Date.parse(day ? `${day[1]}T${day[2] ?? "00:00"}${utc ? "Z" : ""}` : text);
  return Number.isNaN(found) ? null : found;
}

export function label(range) {
  if (range.relative) return `last ${BUTTONS.find(([value]) => value === range.relative)?.[1] ?? range.relative}`;
  const sameDay = dayName(range.start, true) === dayName(range.end, true);
  return `${dayName(range.start)} ${clockTime(range.start)} to ${sameDay ? "" : `${dayName(range.end)} `}${clockTime(range.end)}`;
}

/** Buttons, a field to type in, and steps back and forth. */
export function picker(range) {
  const field = h("input", { type: "text", size: 18, "aria-label": "Time range", value: range.relative ?? label(range), title: "24h, 10:00 to 11:30, 2026-11-19 10:00 to now" });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    const text = typed(field.value);
    field.setCustomValidity(text ? "" : "Type 24h, 10:00 to 11:30, or 2026-11-19 10:00 to now");
    if (text) choose({ range: text }); else field.reportValidity();
  }, oninput: () => field.setCustomValidity("") }, field);
  const step = (by) => choose({ range: fixed(range.start + by * range.width, range.end + by * range.width) });
  return h("div", { class: "line" },
    segments("Time range", BUTTONS, range.relative, (value) => choose({ range: value })),
    h("button", { type: "button", title: "Earlier (←)", "aria-label": "Earlier", onclick: () => step(-0.5) }, "←"),
    h("button", { type: "button", title: "Later (→)", "aria-label": "Later", onclick: () => step(0.5) }, "→"),
    form);
}

/** Keys of a view with a time range: ← and → move it, + and - zoom, 0 goes back to what ends now. */
export function keys(event, fallback) {
  if (event.target.closest("input,textarea,select,dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  const range = chosen(fallback);
  const middle = (range.start + range.end) / 2;
  const moved = { ArrowLeft: [-0.5, 1], ArrowRight: [0.5, 1], "+": [0, 0.5], "-": [0, 2] }[event.key];
  if (event.key === "0") choose({ range: null });
  else if (moved) {
    const half = Math.max(SHORTEST_MS, range.width * moved[1]) / 2;
    const centre = middle + moved[0] * range.width;
    choose({ range: fixed(centre - half, Math.min(present(), centre + half)) });
  }
}

export function put(element, range) {
  return fill(element, picker(range));
}
