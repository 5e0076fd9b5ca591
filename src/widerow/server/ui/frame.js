// The frame around every view: the search, the tenant, the zone, light or dark, signing out, and the links to the views.
//
// Rule: the frame is built once for a token. What changes later is set in place, so that no field loses its focus.

import { ask } from "./api.js";
import { repaint } from "./chart.js";
import { dot, fill, h, text } from "./dom.js";
import { age, zoneName } from "./format.js";
import { choose, go, here, to } from "./place.js";

export const VIEWS = [
  ["overview", "Overview"], ["devices", "Devices"], ["fleet", "Fleet"], ["tenants", "Tenants"], ["keys", "Key space"],
  ["alerts", "Alerts"], ["letters", "Dead letters"], ["system", "System"],
];
export const WITHIN = { device: "devices" };
const OF_OPERATORS = ["system"];
const THEME = "widerow-theme", FOUND = 8, PAUSE_MS = 150;

const head = document.getElementById("head"), nav = document.getElementById("nav");

export function bare() {
  fill(head, h("span", { class: "brand" }, "Widerow"), h("span", { class: "right" }, themeButton()));
  fill(nav);
}

/** Build the frame. `tenants`: all of them for an operator, null for others. Gives {refresh, counts, alive}. */
export function frame({ tenants, signOut }) {
  const operator = tenants !== null;
  const brand = h("a", { class: "brand plain" }, "Widerow");
  const tenant = tenants && tenantField(tenants), search = searchField(operator);
  const zone = h("button", { type: "button", class: "zone", title: "Times in your zone, or in UTC",
    onclick: () => choose({ zone: here().chosen.zone === "utc" ? null : "utc" }, true) });
  const mark = h("span", { class: "line live", role: "status" });
  fill(head, brand, tenant, search.element, h("span", { class: "right" }, mark, zone, themeButton(), h("button", { type: "button", onclick: signOut }, "Sign out")));
  const links = VIEWS.filter(([name]) => operator || !OF_OPERATORS.includes(name)).map(([name, label]) => {
    const link = h("a", null, label, h("i", { id: `count-${name}` }));
    return { name, link };
  });
  fill(nav, links.map((one) => one.link));

  function refresh() {
    const { view, chosen } = here(), current = WITHIN[view] ?? view;
    brand.href = to("overview");
    for (const { name, link } of links) {
      link.href = to(name);
      if (name === current) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    if (tenant) tenant.value = chosen.tenant ?? "";
    text(zone, zoneName());
    search.refresh(view, chosen);
  }
  return { refresh, counts: (overview) => counts(overview, operator), alive: (news) => alive(mark, news) };
}

function tenantField(tenants) {
  const field = h("select", { "aria-label": "Tenant", onchange: () => choose({ tenant: field.value || null }) },
    h("option", { value: "" }, "All tenants"), tenants.map((one) => h("option", { value: one.name }, one.display_name || one.name)));
  return field;
}

// -- light or dark

export function themeButton() {
  return h("button", { type: "button", title: "Light or dark", "aria-label": "Light or dark", onclick: () => {
    localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    paint();
  } }, "◐");
}

export function paint() {
  document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  repaint();
}

// -- what changes by itself

function counts(overview, operator) {
  const put = (name, count, bad) => {
    const place = document.getElementById(`count-${name}`);
    if (!place) return;
    text(place, count ? count.toLocaleString("en") : "");
    place.className = bad && count ? "bad" : "";
  };
  put("devices", overview.devices?.total);
  put("tenants", operator && overview.scope === "all" ? overview.tenants?.length : 0);
  put("alerts", (overview.alerts ?? []).filter((alert) => alert.state === "firing" && !alert.silenced && !alert.acknowledged).length, true);
}

/** Say whether news arrive. `news`: {kind, words, at}. */
function alive(mark, { kind, words, at }) {
  const said = kind === "live" ? "live" : at ? `${words}; last news ${age(at)} ago` : words || "connecting";
  if (mark.textContent !== said) fill(mark, dot(kind === "live" ? "ok" : "bad"), h("span", null, said));
}

// -- finding a device

function searchField(operator) {
  const field = h("input", { type: "search", "aria-label": "Find a device", "data-search": true, autocomplete: "off", spellcheck: "false" });
  const found = h("div", { class: "popover", hidden: true });
  const element = h("form", { class: "find", role: "search", onsubmit: (event) => {
    event.preventDefault();
    found.hidden = true;
    go("devices", [], { q: field.value.trim() || null });
  } }, field, h("kbd", { "aria-hidden": "true" }, "/"), found);
  const suggest = suggesting(field, found);
  let waiting = 0;
  field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(suggest, PAUSE_MS); });
  element.addEventListener("focusout", (event) => { if (!element.contains(event.relatedTarget)) found.hidden = true; });
  element.addEventListener("keydown", (event) => { walk(event, field, found); });

  function refresh(view, chosen) {
    element.hidden = view === "devices"; // that view has the field itself
    field.disabled = operator && !chosen.tenant;
    field.placeholder = field.disabled ? "Choose a tenant to find its devices" : "Find a device";
    found.hidden = true;
  }
  return { element, refresh };
}

/** Arrows go through what was found; Escape closes it. */
function walk(event, field, found) {
  if (event.key === "Escape") { found.hidden = true; field.focus(); return; }
  const links = found.hidden ? [] : [...found.querySelectorAll("a")], step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !links.length) return;
  event.preventDefault();
  (links[links.indexOf(document.activeElement) + step] ?? field).focus();
}

function suggesting(field, found) {
  let asked = 0;
  return async () => {
    const words = field.value.trim(), mine = ++asked;
    if (!words) { found.hidden = true; return; }
    try {
      const answer = await ask("/v1/devices", { q: words, limit: FOUND, tenant: here().chosen.tenant });
      if (mine !== asked) return;
      fill(found, answer.devices.length
        ? answer.devices.map((device) => h("a", { href: to("device", [device.name]), class: "plain", onclick: () => { found.hidden = true; field.value = ""; } },
          device.name, " ", h("span", { class: "dim" }, [device.type, device.location].filter(Boolean).join(" · "))))
        : h("span", { class: "dim" }, "No device has these words."));
      found.hidden = !field.matches(":focus");
    } catch { found.hidden = true; }
  };
}
