// Where one is: the part of the address behind `#/`, which names the view, what it is about, and everything that was chosen.
//
// `#/device/press-7?tenant=acme&range=24h` is {view: "device", about: ["press-7"], chosen: {tenant: "acme", range: "24h"}}.
// Rule: a view keeps nothing in itself that a reload should bring back; it is in the address.

/** Choices that stay when one goes to another view. */
const KEPT = ["tenant", "range", "zone"];

export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...about] = path.split("/").map(decoded);
  return { view: view || "overview", about, chosen: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** The address of a view: for links. What is kept from here on is kept; `chosen` adds to it, null takes out. */
export function to(view, about = [], chosen = {}) {
  const now = here().chosen;
  const all = new URLSearchParams();
  for (const name of KEPT) if (now[name] && !(name in chosen)) all.set(name, now[name]);
  for (const [name, value] of Object.entries(chosen)) if (value !== null && value !== undefined && value !== "") all.set(name, value);
  const path = [view, ...[about].flat()].map(encodeURIComponent).join("/");
  return `#/${path}${all.size ? `?${all}` : ""}`;
}

/** Choose something here: the address changes, and so does what is shown. `quietly`: without a step for "back". */
export function choose(chosen, quietly = false) {
  const { view, about, chosen: now } = here();
  const address = to(view, about, { ...now, ...chosen });
  if (address === location.hash) return;
  if (quietly) { history.replaceState(null, "", address); dispatchEvent(new HashChangeEvent("hashchange")); } else location.hash = address;
}

export function go(view, about, chosen) {
  location.hash = to(view, about, chosen);
}

/** Several names in one choice: `a,b`. Commas within names are encoded. */
export function names(text) {
  return text ? text.split(",").map(decoded) : [];
}
export function listed(names) {
  return names.map(encodeURIComponent).join(",");
}
