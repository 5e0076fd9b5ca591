// The dashboard: signing in, the frame around every view, and which view is shown.
//
// A view is a module with `show(root, context)`, which draws into `root` and gives {live(overview), stop()}, both optional.
// The context has {about, chosen, tenant, operator, overview(), signal, ask(path, parameters)}; `signal` ends with the view.

import { ask, Failed, token, whenRefused } from "./api.js";
import { repaint } from "./chart.js";
import { dot, fill, h, skeleton, state, text } from "./dom.js";
import { age, setZone, zoneName } from "./format.js";
import { watch } from "./live.js";
import { choose, go, here, to } from "./place.js";

const VIEWS = [
  ["overview", "Overview"], ["devices", "Devices"], ["fleet", "Fleet"], ["tenants", "Tenants"], ["keys", "Key space"],
  ["alerts", "Alerts"], ["letters", "Dead letters"], ["system", "System"],
];
const WITHIN = { device: "devices" };
const THEME = "widerow-theme";

const head = document.getElementById("head"), nav = document.getElementById("nav"), main = document.getElementById("main");
let overview = null, overviewAt = 0, stopLive = null, watched, shown = null, tenants = null, liveMark = null;

const operator = () => overview?.scope === "all" || tenants !== null;

// -- signing in

function signIn(reason) {
  stopAll();
  fill(head, h("span", { class: "brand" }, "Widerow"), h("span", { class: "right" }, themeButton()));
  fill(nav);
  const field = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-label": "Token", placeholder: "wr_…" });
  fill(main, h("div", { class: "sign-in" },
    h("h1", null, "Sign in with a token"),
    reason ? h("p", { class: "bad", role: "alert" }, reason) : null,
    h("form", { onsubmit: (event) => { event.preventDefault(); token.set(field.value.trim()); start(); } }, field, h("button", { class: "primary" }, "Sign in")),
    h("p", { class: "dim" }, "A token of role read or admin shows its tenant; an operator's token shows all tenants. ",
      "Make one with ", h("code", null, "widerow token create TENANT --role read"), ". The token stays in this tab and is forgotten with it.")));
  field.focus();
}

/** A link with `#token=` signs in, also in a tab that is open; the token leaves the address bar at once. */
function tokenInAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null || !location.hash.startsWith("#token=")) return false;
  history.replaceState(null, "", `${location.pathname}#/overview`);
  token.set(given);
  return true;
}

// -- the frame

function frame() {
  const { view, about, chosen } = here();
  liveMark ??= h("span", { class: "line", role: "status" });
  const search = h("input", { type: "search", placeholder: "Find a device", "aria-label": "Find a device", value: view === "devices" ? chosen.q ?? "" : "", autocomplete: "off" });
  const found = h("div", { class: "popover", hidden: true });
  const find = h("form", { class: "find", role: "search", onsubmit: (event) => { event.preventDefault(); found.hidden = true; go("devices", [], { q: search.value }); } }, search, h("kbd", { "aria-hidden": "true" }, "/"), found);
  search.addEventListener("input", () => suggest(search, found));
  find.addEventListener("focusout", (event) => { if (!find.contains(event.relatedTarget)) found.hidden = true; });
  find.addEventListener("keydown", (event) => { if (event.key === "Escape") { found.hidden = true; search.blur(); } });
  fill(head,
    h("a", { class: "brand plain", href: to("overview") }, "Widerow"),
    tenants ? h("select", { "aria-label": "Tenant", onchange: (event) => choose({ tenant: event.target.value || null }) },
      h("option", { value: "" }, "All tenants"), tenants.map((one) => h("option", { value: one.name, selected: one.name === chosen.tenant }, one.display_name || one.name))) : null,
    find,
    h("span", { class: "right" }, liveMark,
      h("button", { type: "button", class: "zone", title: "Times in your zone, or in UTC", onclick: () => choose({ zone: chosen.zone === "utc" ? null : "utc" }) }, zoneName()),
      themeButton(),
      h("button", { type: "button", onclick: () => { token.forget(); signIn("Signed out."); } }, "Sign out")));
  const current = WITHIN[view] ?? view;
  fill(nav, VIEWS.filter(([name]) => name !== "system" || operator()).map(([name, label]) =>
    h("a", { href: to(name), "aria-current": name === current ? "page" : null }, label, h("i", { id: `count-${name}` }))));
  void about;
  counts();
}

function themeButton() {
  return h("button", { type: "button", title: "Light or dark", "aria-label": "Light or dark", onclick: () => {
    const dark = document.documentElement.dataset.theme !== "dark";
    localStorage.setItem(THEME, dark ? "dark" : "light");
    paint();
  } }, "◐");
}

function paint() {
  const chosen = localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = chosen;
  repaint();
}

function counts() {
  if (!overview) return;
  const put = (name, count, bad) => {
    const place = document.getElementById(`count-${name}`);
    if (!place) return;
    text(place, count ? count.toLocaleString("en") : "");
    place.className = bad ? "bad" : "";
  };
  put("devices", overview.devices?.total);
  put("tenants", operator() ? overview.tenants?.length : 0);
  const firing = (overview.alerts ?? []).filter((alert) => alert.state === "firing" && !alert.silenced).length;
  put("alerts", firing, true);
}

let asked = 0;
async function suggest(search, found) {
  const words = search.value.trim(), mine = ++asked;
  const tenant = here().chosen.tenant ?? (operator() ? null : undefined);
  if (!words || tenant === null) { found.hidden = true; return; }
  try {
    const answer = await ask("/v1/devices", { q: words, limit: 8, tenant });
    if (mine !== asked) return;
    fill(found, answer.devices.length
      ? answer.devices.map((device) => h("a", { href: to("device", [device.name]), class: "plain", onclick: () => { found.hidden = true; } }, device.name, " ", h("span", { class: "dim" }, [device.type, device.location].filter(Boolean).join(" · "))))
      : h("span", { class: "dim" }, "No device has these words."));
    found.hidden = false;
  } catch { found.hidden = true; }
}

function alive(kind, words) {
  if (!liveMark) return;
  const name = kind === "live" ? "live" : `last news ${age(new Date(overviewAt).toISOString())} ago: ${words}`;
  if (liveMark.textContent !== name) fill(liveMark, dot(kind === "live" ? "ok" : "bad"), h("span", null, overviewAt ? name : words || "connecting"));
}

// -- views

async function show() {
  if (tokenInAddress()) { start(); return; }
  if (!token.get()) { signIn(""); return; }
  const { view, about, chosen } = here();
  setZone(chosen.zone === "utc" ? "UTC" : undefined);
  if (watched !== (chosen.tenant ?? "")) listen(chosen.tenant ?? "");
  frame();
  leave();
  const known = VIEWS.some(([name]) => name === view) || view in WITHIN;
  document.title = `${about[0] ?? VIEWS.find(([name]) => name === view)?.[1] ?? "Not found"} - Widerow`;
  if (!known) { fill(main, state("empty", `The dashboard has no view ${view}.`, h("a", { href: to("overview") }, "Go to the overview"))); return; }
  const ending = new AbortController();
  const root = h("div", { class: `view-${view}` }, skeleton(320));
  const keeps = shown?.place === `${view}/${about}` ? main.scrollTop : 0;
  fill(main, root);
  const mine = shown = { place: `${view}/${about}`, ending, part: null };
  try {
    const module = await import(`./view-${view}.js`);
    if (mine !== shown) return;
    const part = await module.show(root, {
      about, chosen, tenant: chosen.tenant ?? (overview && overview.scope !== "all" ? overview.scope : null), operator: operator(),
      overview: () => overview, signal: ending.signal,
      ask: (path, parameters) => ask(path, { tenant: chosen.tenant, ...parameters }, ending.signal),
    });
    mine.part = part ?? {};
    if (mine === shown && overview) mine.part.live?.(overview);
    main.scrollTop = keeps;
  } catch (error) {
    if (error.name === "AbortError" || mine !== shown) return;
    fill(root, failed(error));
  }
}

/** What a view shows instead of what could not be read. */
function failed(error) {
  const again = h("button", { type: "button", onclick: () => show() }, "Try again");
  if (!(error instanceof Failed)) console.error(error);
  return state("failed", error instanceof Failed ? error.message : `The page failed: ${error.message}`, again);
}

function leave() {
  shown?.ending.abort();
  shown?.part?.stop?.();
}

function listen(tenant) {
  stopLive?.();
  watched = tenant;
  overview = null;
  stopLive = watch(tenant || null, (news) => {
    const first = overview === null;
    overview = news;
    overviewAt = Date.now();
    if (first) frame();
    counts();
    shown?.part?.live?.(news);
  }, alive, refused);
}

function stopAll() {
  leave();
  shown = null;
  stopLive?.();
  stopLive = null;
  watched = undefined;
  overview = tenants = liveMark = null;
}

function refused(reason) {
  if (!token.get()) return;
  token.forget();
  signIn(reason);
}

async function start() {
  stopAll();
  if (!token.get()) { signIn(""); return; }
  try {
    const answer = await ask("/v1/overview", { tenant: here().chosen.tenant });
    overview = answer;
    overviewAt = Date.now();
    if (answer.scope === "all" || here().chosen.tenant) {
      tenants = await ask("/v1/admin/tenants").then((found) => found.tenants, () => null);
    }
  } catch (error) {
    if (error.status === 401 || error.status === 403) { refused(error.message); return; }
    fill(main, failed(error));
    setTimeout(start, 5000);
    return;
  }
  show();
}

addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input,textarea,select")) { event.preventDefault(); head.querySelector("input")?.focus(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
whenRefused(refused);
paint();
tokenInAddress();
start();
