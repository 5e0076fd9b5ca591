// Webhooks: where notices of alerts go; each can be tried.

import { segment, send } from "./api.js";
import { confirmed, dot, fill, h, state, table } from "./dom.js";
import { again, asked } from "./parts.js";

export async function webhooks(place, context) {
  if (!context.mayChange) { fill(place, state("empty", "Webhooks say where notices of alerts go. A token of role admin shows them, this one does not.")); return; }
  const told = h("div", { "aria-live": "polite" });
  const { webhooks: found } = await context.ask("/v1/alerts/webhooks"), tenant = { tenant: context.chosen.tenant };
  const address = (name) => `/v1/alerts/webhooks/${segment(name)}`;

  async function edit(one) {
    const given = await asked(one ? `Change the webhook ${one.name}` : "Add a webhook", ["Notices are sent to this address as signed JSON, and tried again for some minutes if it does not answer."], [
      ...(one ? [] : [{ name: "name", label: "Name", type: "text", placeholder: "ops", required: true }]),
      { name: "url", label: "Address", type: "url", placeholder: "an https address", value: one?.url, required: true },
      { name: "secret", label: "Secret", type: "password", placeholder: one ? "as it is" : "signs each notice" },
    ], one ? "Save" : "Add");
    if (given) await tried(() => send("PUT", address(one?.name ?? given.name), tenant, { url: given.url, ...(given.secret ? { secret: given.secret } : {}) }, context.signal), true);
  }
  async function drop(one) {
    if (await confirmed(`Delete the webhook ${one.name}?`, ["Rules that name it tell nobody there any more."], "Delete", true)) await tried(() => send("DELETE", address(one.name), tenant, undefined, context.signal), true);
  }
  async function test(one) {
    fill(told, h("p", { class: "notice" }, `A notice is being sent to ${one.name} …`));
    await tried(async () => {
      const answer = await send("POST", `${address(one.name)}/test`, tenant, {}, context.signal);
      fill(told, h("p", { class: `notice ${answer.delivered ? "good" : "bad"}`, role: "status" }, answer.delivered ? `${one.name} took the notice and answered ${answer.status}.`
        : `${one.name} did not take the notice: ${answer.reason || `it answered ${answer.status}`}.`));
    }, false);
  }
  async function tried(act, changed) {
    try {
      await act();
      if (changed) again();
    } catch (error) {
      if (error.name !== "AbortError") fill(told, h("p", { class: "notice bad", role: "alert" }, error.message));
    }
  }

  fill(place, told, h("div", { class: "row" }, h("span", { class: "dim" }, context.tenant ? "Rules name the webhooks that are told." : "The operator's: rules of the operator's file name them, and a tenant's rules the tenant's. Choose a tenant at the top to see its own."),
    h("button", { type: "button", class: "primary", onclick: () => edit(null) }, "Add a webhook")),
  found.length ? table([
    { label: "webhook", cell: (one) => one.name },
    { label: "address", cell: (one) => h("span", { class: "mono" }, one.url) },
    { label: "signed", wide: true, cell: (one) => (one.has_secret ? [dot("ok"), "signed"] : [dot(""), "not signed"]) },
    { label: "", number: true, cell: (one) => h("div", { class: "line act" },
      h("button", { type: "button", onclick: () => test(one) }, "Test"),
      one.readonly ? null : [h("button", { type: "button", onclick: () => edit(one) }, "Change"), h("button", { type: "button", class: "danger", onclick: () => drop(one) }, "Delete …")]) },
  ], found, { stack: true, caption: "Webhooks" }) : state("empty", "No webhook is set up: alerts are visible here, and nobody is told of them."));
}
