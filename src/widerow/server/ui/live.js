// The overview as it changes, by server-sent events, read with `fetch` so that the token goes in a header.
//
// Rule 1: tabs with the same token and tenant share one stream: the one that holds the lock reads, the others are told.
// Rule 2: a stream that breaks is opened again, later each time, 30 s at most; `state` says since when nothing came.

import { headers, token } from "./api.js";

const LONGEST_MS = 30_000, QUIET_MS = 15_000;

/** Watch a tenant (null: what the token sees). `told(overview)`, `state("live" | "late" | "ended", words)`. Gives what stops it. */
export function watch(tenant, told, state, refused) {
  const stopping = new AbortController();
  const name = `widerow-live-${mark(`${token.get()} ${tenant ?? ""}`)}`;
  const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(name) : null;
  let last = Date.now(), late = false;

  function take(message) {
    last = Date.now();
    late = false;
    if (message.overview) { state("live", ""); told(message.overview); }
    if (message.bye) state("ended", message.bye);
  }
  if (channel) channel.onmessage = (event) => take(event.data);
  const watching = setInterval(() => {
    if (Date.now() - last > QUIET_MS && !late) { late = true; state("late", "no news from the server"); }
  }, 1000);
  const tell = (message) => { channel?.postMessage(message); take(message); };
  const read = () => reading(tenant, tell, state, refused, stopping.signal);
  if (channel && navigator.locks) navigator.locks.request(name, { signal: stopping.signal }, read).catch(() => {});
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

async function reading(tenant, tell, state, refused, signal) {
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
        if (ended?.code === "unauthorized") { refused(ended.reason); return; }
      } else state("late", (await answer.json()).error?.message ?? `the server answered ${answer.status}`);
    } catch (error) {
      if (signal.aborted) return;
      state("late", "the server does not answer");
    }
    await new Promise((resolve) => { setTimeout(resolve, wait); });
    wait = Math.min(LONGEST_MS, wait * 2);
  }
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
