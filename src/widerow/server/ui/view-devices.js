// The devices of a tenant: found by words, filters and states, a page at a time.
//
// Rule: the view asks for one page and for counts, never for all devices; the cursors of the pages before are in the address.

import { dot, fill, h, segments, skeleton, state, table, text, unit } from "./dom.js";
import { age, full, number } from "./format.js";
import { chooseTenant, every, failure } from "./parts.js";
import { choose, listed, names, to } from "./place.js";

const PAGE = 50, TRAIL = 30, PAUSE_MS = 200, FRESH_S = 5, COUNTS_S = 30, AGAIN_MS = 2000, SORT = "name";
/** In an address: the order of the store, in which devices come while the server makes the list to sort. */
const STORED = "store";
const STATES = [["", "All", "total"], ["online", "Online", "online"], ["stale", "Silent", "stale"], ["hot", "Hot", "hot"]];
/** Choices of which a change leads back to the first page. */
const FROM_THE_START = { after: null, trail: null };

export async function show(root, context) {
  if (context.operator && !context.tenant) {
    fill(root, h("h1", null, "Devices"), await chooseTenant(context, "devices", "Choose a tenant to see its devices."));
    return {};
  }
  const parts = { title: h("h1"), filters: h("div", { class: "filters" }), states: h("div"), late: h("p", { class: "warn late", role: "status" }), list: h("div", null, skeleton(320)), pages: h("div", { class: "row pages" }) };
  fill(root, h("div", { class: "row" }, parts.title, parts.states), parts.filters, parts.late, parts.list, parts.pages);
  const list = lister(parts, context), filters = filterFields(parts.filters, context);
  const late = (error) => text(parts.late, error ? `This list is not fresh: ${error.message}` : "");
  let counts = null, waiting = 0;
  const count = async () => {
    counts = await context.ask("/v1/devices/counts", asked(context.chosen, false));
    filters.known(counts);
    title(parts, counts, context.chosen);
  };
  const countSoon = () => count().catch((error) => { // the list is there without them
    clearTimeout(waiting);
    if (error.status === 503) waiting = setTimeout(() => { if (!context.signal.aborted) countSoon(); }, AGAIN_MS);
    else if (error.name !== "AbortError") late(error);
  });
  const again = async () => {
    countSoon();
    try { await list.read(); late(null); } catch (error) {
      if (error.status === 503) { // the server is reading them, and says so
        fill(parts.list, state("empty", error.message));
        setTimeout(() => { if (!context.signal.aborted) again(); }, AGAIN_MS);
      } else if (error.name !== "AbortError") fill(parts.list, failure(error, again));
    }
  };
  title(parts, null, context.chosen);
  again().then(() => { // not awaited: words may be typed before the first page is there
    every(FRESH_S, context, async () => { await list.refresh(); late(null); }, late);
    every(COUNTS_S, context, count, late);
  });
  return { moved: () => { filters.refresh(); title(parts, counts, context.chosen); again(); } };
}

/** The parameters of a question for devices, or for counts of them. */
function asked(chosen, page) {
  const filters = { q: chosen.q, type: chosen.type, location: chosen.location, tag: names(chosen.tag) };
  const sort = chosen.sort === STORED ? null : chosen.sort ?? SORT;
  return page ? { ...filters, state: chosen.state, sort, limit: PAGE, after: chosen.after, activity: "true" } : filters;
}

function title(parts, counts, chosen) {
  const filtered = ["q", "type", "location", "tag"].some((name) => chosen[name]);
  fill(parts.title, "Devices ", counts ? h("small", null, `${number(counts.total)}${filtered ? " match" : ""}`) : null);
  fill(parts.states, segments("State", STATES.map(([value, label, count]) => [value, counts ? [label, " ", h("span", { class: "dim" }, number(counts[count]))] : label]), chosen.state ?? "",
    (value) => choose({ ...FROM_THE_START, state: value || null })));
}

// -- filters

function filterFields(place, context) {
  let waiting = 0;
  const later = (act) => () => { clearTimeout(waiting); waiting = setTimeout(act, PAUSE_MS); };
  const set = (what) => choose({ ...FROM_THE_START, ...what }, true);
  const words = h("input", { type: "search", "data-search": true, "aria-label": "Find devices", placeholder: "Name, type, location or tag", autocomplete: "off", spellcheck: "false", maxlength: 200 });
  const tag = h("input", { type: "text", "aria-label": "Tags", placeholder: "Tags: line:L1, vendor:Acme", autocomplete: "off", spellcheck: "false" });
  const type = h("select", { "aria-label": "Type", onchange: () => choose({ ...FROM_THE_START, type: type.value || null }) });
  const place_ = h("select", { "aria-label": "Location", onchange: () => choose({ ...FROM_THE_START, location: place_.value || null }) });
  const clear = h("button", { type: "button", class: "link", onclick: () => choose({ ...FROM_THE_START, q: null, type: null, location: null, tag: null, state: null }) }, "Clear");
  words.addEventListener("input", later(() => set({ q: words.value.trim() || null })));
  tag.addEventListener("change", () => set({ tag: listed(tag.value.split(",").map((one) => one.trim().replace("=", ":")).filter((one) => one.includes(":"))) || null }));
  fill(place, words, type, place_, tag, clear);

  function options(field, all, found, name) {
    const chosen = context.chosen[name], known = (found ?? []).map((one) => [one[name], one.count]);
    if (chosen && !known.some(([value]) => value === chosen)) known.unshift([chosen, null]);
    fill(field, h("option", { value: "" }, all), known.map(([value, count]) => h("option", { value }, count === null ? value : `${value} (${number(count)})`)));
    field.value = chosen ?? "";
  }
  function known(counts) {
    options(type, "All types", counts?.types, "type");
    options(place_, "All locations", counts?.locations, "location");
  }
  function refresh() {
    const { q = "", type: kind = "", location = "", tag: tags } = context.chosen;
    if (document.activeElement !== words) words.value = q;
    if (document.activeElement !== tag) tag.value = names(tags).join(", ");
    type.value = kind;
    place_.value = location;
    clear.hidden = !["q", "type", "location", "tag", "state"].some((name) => context.chosen[name]);
  }
  known(null);
  refresh();
  return { known, refresh };
}

// -- the list

function lister(parts, context) {
  let asking = 0, made = "", cells = new Map();

  async function page() {
    const { chosen } = context, parameters = asked(chosen, true);
    try { return { ...await context.ask("/v1/devices", parameters), sort: chosen.sort ?? SORT }; } catch (error) {
      if (error.status !== 503 || chosen.sort || chosen.after || chosen.state || chosen.q) throw error;
      return { ...await context.ask("/v1/devices", { ...parameters, sort: null }), sort: STORED };
    }
  }
  async function read() {
    const mine = ++asking, answer = await page();
    if (mine === asking) draw(answer);
  }
  async function refresh() {
    const mine = asking, answer = await page();
    if (mine === asking) draw(answer);
  }

  function draw({ devices, next, sort }) {
    const chosen = { ...context.chosen, sort }, key = JSON.stringify([chosen.sort, devices.map((one) => [one.name, one.revision])]);
    if (key !== made || !parts.list.querySelector("table")) { made = key; make(devices, chosen); }
    for (const device of devices) update(cells.get(device.name), device);
    pager(parts.pages, chosen, next, devices.length);
  }

  function make(devices, chosen) {
    const focus = parts.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    cells = new Map(devices.map((device) => [device.name, { seen: h("span"), rate: h("span"), state: h("span", { class: "line state-of" }) }]));
    fill(parts.list, devices.length ? table(columns((device) => cells.get(device.name)), devices, {
      caption: "Devices", pick: (device) => { location.hash = to("device", [device.name]); },
      sorted: { by: chosen.sort, choose: (by) => choose({ ...FROM_THE_START, sort: by === SORT ? null : by }) },
    }) : nothing(context));
    if (focus) [...parts.list.querySelectorAll("a")].find((link) => link.getAttribute("href") === focus)?.focus();
  }
  return { read, refresh };
}

function columns(cell) {
  return [
    { label: "name", sort: "name", cell: (one) => [h("a", { href: to("device", [one.name]) }, one.name), one.display_name ? h("span", { class: "dim" }, ` ${one.display_name}`) : null,
      h("div", { class: "dim phone-only" }, [one.type, one.location].filter(Boolean).join(" · "))] },
    { label: "type", wide: true, cell: (one) => one.type },
    { label: "location", wide: true, cell: (one) => one.location },
    { label: "last seen", sort: "last_seen", down: true, number: true, cell: (one) => cell(one).seen },
    { label: "reports", wide: true, sort: "rate", number: true, cell: (one) => cell(one).rate },
    { label: "state", cell: (one) => cell(one).state },
  ];
}

function update(cell, { activity }) {
  const { last_seen: seen = null, reports_per_s: rate = 0, online = false, hot = false } = activity ?? {};
  text(cell.seen, seen ? `${age(seen)} ago`.replace("now ago", "now") : "never");
  cell.seen.title = seen ? full(seen) : "";
  const [kind, words] = hot ? ["bad", "hot"] : online ? ["ok", "online"] : seen ? ["warn", "silent"] : ["", "never reported"];
  if (cell.state.textContent !== words) fill(cell.state, dot(kind), words);
  const shown = number(rate, 2);
  if (cell.shown !== shown) { cell.shown = shown; fill(cell.rate, shown, unit("/s")); }
}

function nothing({ chosen, mayChange }) {
  if (["q", "type", "location", "tag", "state"].some((name) => chosen[name])) return state("empty", "No device matches these words and filters.");
  return state("empty", "This tenant has no devices yet.", mayChange ? h("p", { class: "dim" }, "A device appears when it is registered, or with its first report if the tenant registers devices by themselves.") : null);
}

/** Back and forth: the cursors of the pages before are the trail. */
function pager(place, chosen, next, count) {
  const trail = names(chosen.trail), page = trail.length + (chosen.after ? 2 : 1);
  const key = JSON.stringify([chosen.after, next, page, count]);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const back = () => choose({ after: trail.at(-1) ?? null, trail: listed(trail.slice(0, -1)) || null });
  const forth = () => choose({ ...(chosen.sort === STORED ? { sort: STORED } : {}), after: next, trail: listed([...trail, ...(chosen.after ? [chosen.after] : [])].slice(-TRAIL)) || null });
  fill(place, page > 1 || next ? [h("span", { class: "dim" }, `Page ${number(page)}, ${number(count)} devices`),
    h("span", { class: "line" },
      page > 2 ? h("button", { type: "button", onclick: () => choose(FROM_THE_START) }, "First page") : null,
      h("button", { type: "button", disabled: page === 1, onclick: back }, "← Back"), h("button", { type: "button", disabled: !next, onclick: forth }, "Next →"))] : null);
}
