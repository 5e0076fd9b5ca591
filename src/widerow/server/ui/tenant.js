// An operator sees all tenants; views about one of them ask which.

import { fill, h } from "./dom.js";
import { to, here } from "./place.js";

const MOST = 50;

/** Whether a tenant must be chosen first; if so, `root` asks for it. `words`: what the view shows of a tenant. */
export function tenantMissing(root, context, words) {
  if (context.tenant || !context.operator) return false;
  const { view, about, chosen } = here(), tenants = context.tenants ?? [];
  fill(root, h("h1", null, "Choose a tenant"), h("p", { class: "dim lead" }, words),
    tenants.length ? h("ul", { class: "choices" }, tenants.slice(0, MOST).map((one) =>
      h("li", null, h("a", { href: to(view, about, { ...chosen, tenant: one.name }) }, one.display_name || one.name))))
      : h("p", null, "There are no tenants yet. Make one with ", h("code", null, "widerow tenant create NAME"), "."),
    tenants.length > MOST ? h("p", { class: "dim" }, `${tenants.length - MOST} more are in the field at the top.`) : null);
  return true;
}
