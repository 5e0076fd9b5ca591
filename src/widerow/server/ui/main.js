// The dashboard: signing in, which view is shown, and the news that arrive while it is.
//
// A view is a module with `show(root, context)`, which draws into `root` and gives {live(overview), moved(), stop()}, all optional.
// `live` gets each new overview; `moved` is called when something else was chosen in the same view (without it the view is
// shown anew); `stop` ends what goes on. The context has {about, chosen, tenant, tenants, operator, mayChange,
// overview(), signal, ask(path, parameters)}: `chosen` is what the address says now, `tenants` is for operators (null for
// others), `mayChange` is true for the roles admin and operator, `signal` ends with the view, `ask` names the tenant.

import { ask, Failed, token, whenRefused } from "./api.js";
import { fill, h, skeleton, state } from "./dom.js";
import { setNow, setZone } from "./format.js";
import { bare, frame, paint, VIEWS, WITHIN } from "./frame.js";
import { watch } from "./live.js";
import { choose, here, to } from "./place.js";

const AGAIN_MS = 5000;

const main = document.getElementById("main");
/** What belongs to the token: {role, tenants, frame, overview, at, watched, stop}. Null: nobody is signed in. */
let session = null;
/** What belongs to the view that is shown: {place, ending, part}. */
let shown = null;
let waiting = 0;

// -- signing in and out

function signIn(reason) {
  end();
  bare();
  document.title = "Sign in - Widerow";
  const field = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-label": "Token", placeholder: "wr_…" });
  fill(main, h("div", { class: "sign-in" },
    h("h1", null, "Sign in with a token"),
    reason ? h("p", { class: "bad", role: "alert" }, reason) : null,
    h("form", { onsubmit: (event) => { event.preventDefault(); token.set(field.value.trim()); start(); } }, field, h("button", { class: "primary" }, "Sign in")),
    h("p", { class: "dim" }, "A token with the role read or admin shows its tenant; an operator's token shows all tenants. ",
      "Make one with ", h("code", null, "widerow token create TENANT --role read"), ". The token stays in this tab and is forgotten with it.")));
  field.focus();
}

function signOut() {
  token.forget();
  signIn("You are signed out.");
}

function refused(reason) {
  if (!token.get()) return;
  token.forget();
  signIn(reason);
}

/** A link with `#token=` signs in, also in a tab that is open; the token leaves the address bar at once. */
function tokenInAddress() {
  if (!location.hash.startsWith("#token=")) return false;
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  history.replaceState(null, "", `${location.pathname}#/overview`);
  token.set(given);
  return true;
}

/** Begin with the token of this tab: what it may see decides about the frame. */
async function start() {
  end();
  if (!token.get()) { signIn(""); return; }
  const mine = session = { role: "", tenants: null, frame: null, overview: null, at: 0, watched: undefined, stop: null };
  const tenant = here().chosen.tenant;
  try {
    take(await ask("/v1/overview", { tenant }), mine);
    mine.role = mine.overview.role;
    if (mine.role === "operator") mine.tenants = (await ask("/v1/admin/tenants")).tenants;
  } catch (error) {
    if (mine !== session) return;
    if (error.status === 403 && tenant) { choose({ tenant: null }, true); start(); return; } // its own tenant needs no name
    if (error.status === 401 || error.status === 403) { refused(error.message); return; }
    fill(main, failed(error));
    waiting = setTimeout(start, AGAIN_MS);
    return;
  }
  if (mine !== session) return;
  mine.frame = frame({ tenants: mine.tenants, signOut });
  mine.watched = tenant ?? "";
  listen(mine);
  show();
}

function end() {
  clearTimeout(waiting);
  leave();
  shown = null;
  session?.stop?.();
  session = null;
}

// -- views

function show() {
  if (tokenInAddress()) { start(); return; }
  if (!token.get()) { signIn(""); return; }
  if (!session?.frame) return; // `start` shows it when it knows the token
  const { view, about, chosen } = here(), place = JSON.stringify([view, about, chosen.tenant, chosen.zone]);
  setZone(chosen.zone === "utc" ? "UTC" : undefined);
  if (session.watched !== (chosen.tenant ?? "")) { session.watched = chosen.tenant ?? ""; session.overview = null; listen(session); }
  session.frame.refresh();
  if (shown?.place === place && shown.part?.moved) { shown.part.moved(); return; }
  display(view, about, place);
}

async function display(view, about, place) {
  const other = shown && shown.place !== place;
  leave();
  const title = VIEWS.find(([name]) => name === view)?.[1];
  document.title = `${about[0] ?? title ?? "Not found"} - Widerow`;
  const ending = new AbortController(), root = h("div", { class: `view view-${view}` }, skeleton(320));
  const mine = shown = { place, ending, part: null };
  fill(main, root);
  if (other) { main.scrollTop = 0; scrollTo(0, 0); if (!document.activeElement?.closest("header")) main.focus({ preventScroll: true }); }
  if (!title && !(view in WITHIN)) {
    fill(root, state("empty", `The dashboard has no view ${view}.`, h("a", { href: to("overview") }, "Go to the overview")));
    return;
  }
  try {
    const module = await import(`./view-${view}.js`);
    if (mine !== shown) return;
    const part = await module.show(root, context(session, about, ending.signal)) ?? {};
    if (mine !== shown) { part.stop?.(); return; }
    mine.part = part;
    if (session.overview) part.live?.(session.overview);
  } catch (error) {
    if (error.name !== "AbortError" && mine === shown) fill(root, failed(error));
  }
}

function context(of, about, signal) {
  return {
    about, signal, tenants: of.tenants, operator: of.role === "operator", mayChange: of.role === "operator" || of.role === "admin",
    get chosen() { return here().chosen; },
    get tenant() { return here().chosen.tenant ?? (of.overview && of.overview.scope !== "all" ? of.overview.scope : null); },
    overview: () => of.overview,
    ask: (path, parameters) => ask(path, { tenant: here().chosen.tenant, ...parameters }, signal),
  };
}

/** What a view shows instead of what could not be read. */
function failed(error) {
  if (!(error instanceof Failed)) console.error(error);
  const again = () => { if (session?.frame) { shown = null; show(); } else start(); };
  return state("failed", error instanceof Failed ? error.message : `The page failed: ${error.message}`, h("button", { type: "button", onclick: again }, "Try again"));
}

function leave() {
  shown?.ending.abort();
  shown?.part?.stop?.();
}

// -- news

function take(overview, of) {
  of.overview = overview;
  setNow(Date.parse(overview.time));
  of.at = Date.parse(overview.time);
}

function listen(of) {
  of.stop?.();
  const told = (overview) => {
    take(overview, of);
    of.frame.counts(overview);
    if (of === session) shown?.part?.live?.(overview);
  };
  of.stop = watch(of.watched || null, told, (kind, words) => of.frame.alive({ kind, words, at: of.at }), refused);
  if (of.overview) of.frame.counts(of.overview);
}

addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input,textarea,select,dialog")) return;
  const field = [...document.querySelectorAll("[data-search]")].find((one) => one.offsetParent !== null && !one.disabled);
  if (field) { event.preventDefault(); field.focus(); field.select?.(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
whenRefused(refused);
paint();
tokenInAddress();
start();
