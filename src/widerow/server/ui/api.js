// Questions to the server. The token is kept for the tab's session, goes in a header, and never into an address.

const KEY = "widerow-token";

export class Failed extends Error {
  constructor(message, status, code) { super(message); this.status = status; this.code = code; }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

let onRefused = () => {};
/** What is told when the server knows the token no longer. */
export function whenRefused(act) { onRefused = act; }

export function headers(more) {
  return { Authorization: `Bearer ${token.get()}`, ...more };
}

function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") query.append(name, one);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** GET as JSON. Raises `Failed` with the server's own words. */
export function ask(path, parameters, signal) {
  return send("GET", path, parameters, undefined, signal);
}

/** Any method; a body is sent as JSON. An answer without a body is null. */
export async function send(method, path, parameters, body, signal, more) {
  let answer;
  try {
    answer = await fetch(address(path, parameters), {
      method, signal, cache: "no-store", credentials: "omit",
      headers: headers({ Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...more }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed("The server does not answer. The page tries again.", 0, "network");
  }
  const content = await answer.text();
  let told = null;
  try { told = content ? JSON.parse(content) : null; } catch { /* told below */ }
  if (answer.ok) return told;
  const error = new Failed(told?.error?.message ?? `The server answered ${answer.status}.`, answer.status, told?.error?.code ?? "");
  if (answer.status === 401) onRefused(error.message);
  throw error;
}

/** A name as a segment of a path. A device may have the name of a route beside it. */
export function segment(name) {
  return encodeURIComponent(name).replaceAll(".", "%2E").replace(/^counts$/, "%63ounts");
}
