// What the fleet view asks: spans of whole hours, which are summed up beforehand, or all of the span, which reads every device.

import { now } from "./format.js";

const HOUR_MS = 3600e3, MOST_POINTS = 800, SMALL = 1000;
const STEPS = [["10m", HOUR_MS / 6], ["1h", HOUR_MS], ["6h", 6 * HOUR_MS], ["1d", 24 * HOUR_MS], ["7d", 168 * HOUR_MS]];
/** An hour is summed up some minutes after its end. */
const LATE_MS = 15 * 60e3;

/** Whether a fleet is so small that reading every device is quick. */
export function isSmall(devices) {
  return devices !== undefined && devices <= SMALL;
}

/** {start, end, step, step_ms} for a range. `fine`: finer steps, and up to now; otherwise whole hours that have ended. */
export function spanOf(range, fine) {
  const [step, step_ms] = STEPS.slice(fine ? 0 : 1).find(([, ms]) => range.width / ms <= MOST_POINTS) ?? STEPS.at(-1);
  const down = (ms, width) => Math.floor(ms / width) * width;
  if (fine) return { start: down(range.start, step_ms), end: Math.ceil(range.end), step, step_ms };
  return { start: down(range.start, HOUR_MS), end: Math.min(down(range.end, HOUR_MS), down(now() - LATE_MS, HOUR_MS)), step, step_ms };
}
