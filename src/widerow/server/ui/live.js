// The overview as it changes, by server-sent events, read with `fetch` so that the token goes in a header.
//
// Rule 1: tabs with the same token and tenant share one stream: the one that holds the lock reads, the others are told.
// Rule 2: a stream that breaks is opened again, later each time, 30 s at most; `state` says since when nothing came.

import { headers, token } from "./api.js";

const LONGEST_MS = 30_000, QUIET_MS = 15_000;

/** Watch a tenant (null: what the token sees). `told(overview)`, `state("live" | "late", words)`. Gives what stops it. */
export function watch(tenant, told, state, refused) {
  const stopping = new AbortController();
  const name = `widerow-live-${mark(`${token.get()} ${tenant ?? ""}`)}`;
  const channel = navigator.locks && "BroadcastChannel" in globalThis ? new BroadcastChannel(name) : null;
  let last = Date.now(), words = "";

  function take(message) {
    last = Date.now();
    words = "";
    if (message.overview) { state("live", ""); told(message.overview); }
    if (message.bye) state("late", words = message.bye);
  }
  function fail(why) {
    words = why;
    state("late", why);
  }
  if (channel) channel.onmessage = (event) => take(event.data);
  const watching = setInterval(() => {
    if (words || Date.now() - last > QUIET_MS) state("late", words || "no news from the server");
  }, 1000);
  const tell = (message) => { channel?.postMessage(message); take(message); };
  const read = () => reading(tenant, tell, fail, refused, stopping.signal);
  if (channel) navigator.locks.request(name, { signal: stopping.signal }, read).catch(() => {});
  else read();
  return () => { stopping.abort(); clearInterval(watching); channel?.close(); };
}

/** A name for a lock that does not give the token away. */
function mark(text) {
  let high = 0xdeadbeef, low = 0x41c6ce57;
  for (const letter of text) {
    high = Math.imul(high ^ letter.charCodeAt(0), 2654435761);
    low = Math.imul(low ^ letter.charCodeAt(0), 1597334677);
  }
  return (high >>> 0).toString(36) + (low >>> 0).toString(36);
}

async function reading(tenant, tell, fail, refused, signal) {
  let wait = 1000;
  while (!signal.aborted) {
    try {
      const address = `/v1/live${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`;
      const answer = await fetch(address, { headers: headers({ Accept: "text/event-stream" }), signal, cache: "no-store", credentials: "omit" });
      if (answer.status === 401) { refused("The token is not known any more."); return; }
      if (answer.ok) {
        const ended = await events(answer.body, (event, data) => {
          wait = 1000;
          if (event === "overview") tell({ overview: data });
          if (event === "bye") tell({ bye: data?.reason ?? "the server ended the stream" });
          return event === "bye" ? data : null;
        });
        if (ended) wait = 1000; // the next try says whether the token is still known
      } else fail(await reason(answer));
    } catch (error) {
      if (signal.aborted) return;
      fail("the server does not answer");
    }
    await pause(wait, signal);
    wait = Math.min(LONGEST_MS, wait * 2);
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

async function reason(answer) {
  try { return (await answer.json()).error.message; } catch { return `the server answered ${answer.status}`; }
}

/** Read events until the stream ends, or `each` gives something. */
async function events(body, each) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return null;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = /^event: (.*)$/m.exec(part)?.[1], data = /^data: (.*)$/m.exec(part)?.[1];
      const given = event ? each(event, data ? JSON.parse(data) : null) : null;
      if (given) { reader.cancel(); return given; }
    }
  }
}
