// What to ask for a span of time, and what the answer means: levels, bands, gaps, states. No page and no network in here.
//
// Times are milliseconds. Points are [time, value] pairs, oldest first.

export const LEVELS = [["auto", "auto"], ["raw", "raw"], ["minutes", "minutes"], ["hours", "hours"], ["days", "days"]];
export const BANDS = [["minmax", "min to max"], ["p50", "median to p99"]];
const MINUTE = 60e3, HOUR = 3600e3, DAY = 86400e3;
const MOST_POINTS = 1500, RAW_MS = 2 * HOUR, STATES = 240, NEAR = 9;
const STEPS = [["1m", MINUTE], ["10m", 10 * MINUTE], ["1h", HOUR], ["6h", 6 * HOUR], ["1d", DAY], ["7d", 7 * DAY]];
const FORCED = { minutes: ["1m", MINUTE], hours: ["1h", HOUR], days: ["1d", DAY] };
const NAMES = { raw: "raw reports", minute: "minutes", hour: "hours", day: "days", fleet: "the fleet's hours" };

/** {step, step_ms}: both null for raw reports. The finest that a screen can show, or the level that was chosen. */
export function plan(width, level = "auto") {
  if (level === "raw" || (level === "auto" && width <= RAW_MS)) return { step: null, step_ms: null };
  const [step, step_ms] = FORCED[level] ?? STEPS.find(([, ms]) => width / ms <= MOST_POINTS) ?? STEPS.at(-1);
  return { step, step_ms };
}

/** The steps in which states are asked for: about as many as a screen can show. */
export function stateStep(width) {
  const seconds = [1, 5, 15, 30, 60, 300, 600, 3600, 6 * 3600, 86400].find((s) => width / 1000 / s <= STATES) ?? 7 * 86400;
  return { step: `${seconds}s`, step_ms: seconds * 1000 };
}

/** The aggregates of a band: [line, low, high]. */
export function aggregates(band) {
  return band === "p50" ? ["p50", "p50", "p99"] : ["avg", "min", "max"];
}

/** What the level is called: "raw", "minutes", "steps of 10 min, read from minutes and raw reports". `used`: the rows that the server read of each. */
export function levelName({ step }, used) {
  if (!step) return "raw reports";
  const read = Object.entries(used ?? {}).filter(([, rows]) => rows > 0).sort((a, b) => b[1] - a[1]).map(([name]) => NAMES[name] ?? name);
  const own = { "1m": "minutes", "1h": "hours", "1d": "days" }[step];
  const from = read.filter((name) => name !== own);
  const name = own ?? `steps of ${step.replace("m", " min").replace("h", " h").replace("d", " days")}`;
  if (!from.length) return name;
  return own && read.includes(own) ? `${name}, the ends from ${listed(from)}` : `${name}, read from ${listed(read)}`;
}

function listed(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

/** Put fresh points behind those that are known, and let go of what lies before `from`. */
export function merged(points, fresh, from) {
  const first = fresh.length ? fresh[0][0] : Infinity;
  let stop = points.length;
  while (stop > 0 && points[stop - 1][0] >= first) stop--;
  let start = 0;
  while (start < stop && points[start][0] < from) start++;
  if (start === 0 && stop === points.length && !fresh.length) return points;
  return points.slice(start, stop).concat(fresh);
}

/** Whether there is a gap between point `i - 1` and point `i`, or behind the last one until `end`: three times as long as it
 *  usually takes there. Rates change, so only the neighbours say what is usual. */
function isGap(points, i, end, step_ms) {
  const apart = (k) => points[k][0] - points[k - 1][0], here = (i < points.length ? points[i][0] : end) - points[i - 1][0];
  if (here <= (step_ms ? 1.5 * step_ms : 10e3)) return false;
  const middle = (from, to) => {
    const some = [];
    for (let k = Math.max(1, from); k < Math.min(points.length, to); k++) some.push(apart(k));
    return some.length ? some.sort((a, b) => a - b)[some.length >> 1] : 0;
  };
  return here > 3 * Math.max(middle(i - NEAR, i), middle(i + 1, i + 1 + NEAR));
}

/** Where there is nothing: [{start, end}]; `end` null where it lasts until now. `now`: the end of what can be there. */
export function gaps(points, { from, to, now, step_ms }) {
  if (!points.length) return [];
  const width = step_ms ?? 0, found = [], end = Math.min(to, now), usual = points.length > 1 ? points[1][0] - points[0][0] : 0;
  if (points[0][0] - from > Math.max(3 * usual, step_ms ? 1.5 * step_ms : 10e3)) found.push({ start: from, end: points[0][0] });
  for (let i = 1; i < points.length; i++) {
    if (isGap(points, i, end, step_ms)) found.push({ start: points[i - 1][0] + width, end: points[i][0] });
  }
  if (isGap(points, points.length, end, step_ms)) found.push({ start: points.at(-1)[0] + width, end: to >= now ? null : end });
  return found;
}

/** {times, values} of each list for a chart, with a null wherever a gap begins. The lists have the same times. */
export function drawn(lists, step_ms) {
  const [main] = lists, times = [], out = lists.map(() => []);
  const others = lists.map((list) => (list.length === main.length ? null : new Map(list)));
  for (let i = 0; i < main.length; i++) {
    const at = main[i][0];
    if (i > 0 && isGap(main, i, 0, step_ms)) {
      times.push((at + main[i - 1][0]) / 2);
      for (const values of out) values.push(null);
    }
    times.push(at);
    for (let k = 0; k < lists.length; k++) out[k].push((others[k] ? others[k].get(at) : lists[k][i][1]) ?? null);
  }
  return { times, values: out };
}

/** Lists of points with other times each, at the times of all of them: {times, values}. */
export function together(lists, step_ms) {
  const times = [...new Set(lists.flatMap((list) => list.map((point) => point[0])))].sort((a, b) => a - b);
  const { times: all, values } = drawn([times.map((time) => [time, 0]), ...lists], step_ms);
  return { times: all, values: values.slice(1) };
}

/** Blocks of the same state: from raw points [time, text], which last until the next; or from steps [time, {text: {seconds}}]. */
export function blocks(points, { to, now, step_ms }) {
  const end = Math.min(to, now), found = [];
  points.forEach(([time, value], i) => {
    const name = step_ms ? longest(value) : value;
    if (name === null || name === undefined) return;
    const until = step_ms ? Math.min(end, time + step_ms) : Math.min(end, points[i + 1]?.[0] ?? end), last = found.at(-1);
    if (last?.name === name && last.end >= time) last.end = until; else found.push({ name, start: time, end: until });
  });
  return found;
}

function longest(states) {
  let best = null;
  for (const [name, one] of Object.entries(states ?? {})) if (!best || one.seconds > best[1]) best = [name, one.seconds];
  return best?.[0] ?? null;
}
