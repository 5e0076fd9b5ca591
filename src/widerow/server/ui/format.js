// Numbers, sizes, durations and times as people read them. Times are milliseconds since 1970; the zone is the user's, or UTC.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 4,812; 12.5; 0.042; 1.2M. `figures`: how many matter. */
export function number(value, figures = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  if (size >= 1e7) return `${trimmed(value / 1e6, figures)}M`;
  if (size >= 1000 || Number.isInteger(value)) return whole.format(value);
  return trimmed(value, figures);
}

function trimmed(value, figures) {
  return String(Number(value.toPrecision(figures)));
}

/** A value as it was stored, with all its digits. */
export function exact(value) {
  return typeof value === "number" && Math.abs(value) >= 1e4 && Math.abs(value) < 1e15 && Number.isInteger(value) ? whole.format(value) : String(value);
}

export function bytes(size) {
  if (size === null || size === undefined) return "-";
  for (const [factor, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (size >= factor) return `${trimmed(size / factor, 3)} ${name}`;
  }
  return `${whole.format(size)} B`;
}

export function percent(share) {
  if (share === null || share === undefined) return "-";
  const hundredths = share * 100;
  return hundredths === 0 ? "0" : hundredths < 0.01 ? "<0.01" : String(Number(hundredths.toPrecision(hundredths >= 99.5 ? 3 : 2)));
}

/** [number, unit] of seconds: 0.9 ms, 12 s, 4 min, 3 h, 2 d. */
export function seconds(value) {
  if (value === null || value === undefined) return ["-", ""];
  const size = Math.abs(value);
  if (size === 0) return ["0", "s"];
  if (size < 1e-3) return [trimmed(value * 1e6, 2), "µs"];
  if (size < 1) return [trimmed(value * 1e3, 2), "ms"];
  if (size < 120) return [trimmed(value, size < 10 ? 2 : 3), "s"];
  if (size < 7200) return [whole.format(value / 60), "min"];
  if (size < 172800) return [whole.format(value / 3600), "h"];
  return [whole.format(value / 86400), "d"];
}

export function duration(value) {
  return seconds(value).join(" ").trim();
}

let ahead = 0;
/** The server's time, as its news tell it: a browser's clock may be wrong by minutes. */
export function now() { return Date.now() + ahead; }
export function setNow(server_ms) {
  const by = server_ms - Date.now();
  ahead = Math.abs(by) > 3000 ? by : 0;
}

/** How long ago something was: "2 s", "now" within a second, "never". */
export function age(time, at = now()) {
  if (!time) return "never";
  const past = (at - (typeof time === "number" ? time : Date.parse(time))) / 1000;
  return past < 1 ? "now" : duration(Math.floor(past));
}

let zone = undefined;
const own = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC"; // asked once: it takes a millisecond

/** "UTC", or undefined for the user's own. */
export function setZone(name) { zone = name; clocks.clear(); }
export function zoneName() { return zone ?? own; }

const clocks = new Map();
function clock(key, options) {
  if (!clocks.has(key)) clocks.set(key, new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone, hourCycle: "h23" }));
  return clocks.get(key);
}
const TIME = { hour: "2-digit", minute: "2-digit" };
const DAY = { day: "numeric", month: "short" };

/** 14:05, or with seconds. */
export function clockTime(ms, withSeconds = false) {
  return clock(withSeconds ? "s" : "m", withSeconds ? { ...TIME, second: "2-digit" } : TIME).format(ms);
}
export function dayName(ms, withYear = false) {
  return clock(withYear ? "y" : "d", withYear ? { ...DAY, year: "numeric" } : DAY).format(ms);
}

/** A time as short as it can be understood today: 14:05, or 17 Nov 14:05, or with the year. */
export function when(time, at = now()) {
  if (!time) return "-";
  const ms = typeof time === "number" ? time : Date.parse(time);
  if (dayName(ms, true) === dayName(at, true)) return clockTime(ms, Math.abs(at - ms) < 600_000);
  const old = Math.abs(at - ms) > 300 * 86_400_000;
  return `${dayName(ms, old)} ${clockTime(ms)}`;
}

/** The whole time, for what the pointer rests on. */
export function full(time) {
  const ms = typeof time === "number" ? time : Date.parse(time);
  return `${dayName(ms, true)} ${clockTime(ms, true)} ${zoneName()}`;
}
