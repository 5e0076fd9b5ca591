"""Routes about tenants, tokens and erasure.

Rule 1: an admin acts on its own tenant, and makes no operators. An operator acts on all.
Rule 2: a token's secret is in the answer to the request that made it, and nowhere else.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from widerow.catalog.forms import from_json, to_json
from widerow.catalog.series import is_counted
from widerow.model.errors import ConfirmationNeeded, Conflict, Forbidden, Rejected
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import TimeSpan, format_duration, format_time, parse_time
from widerow.model.token import OF_ALL_TENANTS, Role
from widerow.query.going import Going, going, shortened
from widerow.server.call import NO_CONTENT, Answer, Call, entity_answer, json_answer, list_answer
from widerow.server.failures import PreconditionFailed
from widerow.telemetry.erasure import EVER


def list_tenants(call: Call) -> Answer:
    return list_answer(call, "tenants", [to_json(tenant) for tenant in call.service.catalog.tenants.list()])


def create_tenant(call: Call) -> Answer:
    form = call.form()
    name = text_in(form, "name")
    call.trail.tenant = call.trail.about = name
    tenant = call.service.create_tenant(from_json(form, Tenant(name=name)))
    return entity_answer(to_json(tenant), 201, {"Location": f"/v1/admin/tenants/{quote(name)}"})


def get_tenant(call: Call) -> Answer:
    name = call.path["tenant"]
    if call.who.role is not Role.OPERATOR and call.who.tenant != name:
        raise Forbidden(f"this token is for the tenant {call.who.tenant!r} only")
    return entity_answer(to_json(call.service.catalog.tenants.get(name)))


def patch_tenant(call: Call) -> Answer:
    """A shorter retention takes data away at once: it is asked for twice, and what goes is told first."""
    form = call.form()
    confirmed = form.pop("confirm", call.query.text("confirm") == "true")
    if not isinstance(confirmed, bool):
        raise Rejected("confirm: give true or false", code="field")

    def change(tenant: Tenant) -> Tenant:
        new = from_json(form, tenant)
        if not confirmed and shortened(tenant.retention, new.retention):
            raise _Unconfirmed(tenant, new.retention)
        return new

    expected, tenants = call.expected_revision(), call.service.catalog.tenants
    before = tenants.get(call.path["tenant"])
    if is_counted(from_json(form, before)) and not is_counted(before):
        call.service.catalog.series.begin_anew(before.name)
    try:
        try:
            after = tenants.update(call.path["tenant"], call.noted(change), expected=expected)
        except _Unconfirmed as unconfirmed:
            _check_nothing_goes(call, unconfirmed.tenant, unconfirmed.retention)
            confirmed = True
            after = tenants.update(call.path["tenant"], call.noted(change), expected=expected or unconfirmed.tenant.revision)
    except ConfirmationNeeded:
        raise
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    return entity_answer(to_json(after))


class _Unconfirmed(Exception):
    def __init__(self, tenant: Tenant, retention: Retention) -> None:
        self.tenant, self.retention = tenant, retention


def _check_nothing_goes(call: Call, tenant: Tenant, retention: Retention) -> None:
    """Raise `ConfirmationNeeded` if data would."""
    service = call.service
    found = going(service.queries.sources, service.catalog.devices, tenant, retention)
    goes = [g for g in found if g.rows != 0 or not g.certain]
    if not goes:
        return
    said = "; ".join(
        f"{g.level} from {_kept(g.keep_us)} to {_kept(g.becomes_us)}, "
        + (f"about {g.rows:,} rows of {g.devices:,} devices" if g.rows is not None else "nobody knows how many rows")
        for g in goes
    )
    raise ConfirmationNeeded(
        f"a shorter retention of {tenant.name} takes data away at once and for good: {said}; repeat it with confirm=true if "
        "that is meant",
        [going_form(g) for g in goes],
    )


def going_form(g: Going) -> dict[str, Any]:
    return {
        "level": g.level,
        "retention": _kept(g.keep_us),
        "becomes": _kept(g.becomes_us),
        "reaches_back_to": format_time(g.span.start_us),
        "would_reach_back_to": format_time(g.span.stop_us),
        "days": g.days,
        "devices": g.devices,
        "rows": g.rows,
    }


def _kept(keep_us: int) -> str:
    return format_duration(keep_us) if keep_us else "forever"


def delete_tenant(call: Call) -> Answer:
    """Its tokens stop working and its data is unreadable on return; it leaves the disk soon after."""
    call.service.delete_tenant(call.path["tenant"])
    return NO_CONTENT


def list_tokens(call: Call) -> Answer:
    name = call.tenant_name()
    if name is not None:
        call.auth.existing(name)
    return list_answer(call, "tokens", [to_json(token) for token in call.service.catalog.tokens.list(name)])


def create_token(call: Call) -> Answer:
    form = call.form(("role", "tenant", "device", "description", "expires"))
    role = _role(text_in(form, "role"))
    device, description = text_in(form, "device", ""), text_in(form, "description", "")
    expires = form.get("expires")
    now_us = call.service.clock.now_us()
    expires_us = parse_time(str(expires), now_us) if expires is not None else 0
    tokens = call.service.catalog.tokens
    if role in OF_ALL_TENANTS:
        if call.who.role is not Role.OPERATOR:
            raise Forbidden(f"only an operator makes tokens of role {role}")
        tenant = text_in(form, "tenant", "") or call.query.text("tenant") or ""
    else:
        tenant = _tenant_of_token(call, form)
    call.trail.tenant = tenant
    secret, token = tokens.create(role, tenant=tenant, device=device, description=description, expires_us=expires_us)
    call.trail.about = token.id
    return json_answer({"token": secret, **to_json(token)}, 201)


def _tenant_of_token(call: Call, form: dict[str, Any]) -> str:
    named, asked = text_in(form, "tenant", ""), call.query.text("tenant")
    if named and asked and named != asked:
        raise Rejected(f"the body names the tenant {named[:80]!r}, the address {asked[:80]!r}", code="tenant")
    return call.auth.tenant(call.who, named or asked).name


def delete_token(call: Call) -> Answer:
    call.service.catalog.tokens.revoke(call.path["id"], call.tenant_name())
    return NO_CONTENT


def erase(call: Call) -> Answer:
    """Erase a metric over a span, of one device or of all. It cannot be undone."""
    form = call.form(("device", "metric", "start", "end"))
    tenant = call.tenant()
    device, metric = text_in(form, "device", ""), text_in(form, "metric")
    if device:
        call.service.catalog.devices.get(tenant.name, device)
    span = TimeSpan(time_in(call, form, "start", EVER.start_us), time_in(call, form, "end", EVER.stop_us))
    call.service.erase(tenant, device=device, metric=metric, span=span)
    return NO_CONTENT


def confirm_clock(call: Call) -> Answer:
    """The machine's clock is right, whatever it looked like: what has expired may go."""
    guard = call.service.clock_guard
    if guard is None:
        raise Conflict("processes share this store, and each goes by its machine's clock: there is nothing to confirm")
    guard.confirm()
    call.service.house.wake()
    return NO_CONTENT


def time_in(call: Call, form: dict[str, Any], key: str, default_us: int) -> int:
    """A time that a body gives."""
    value = form.get(key)
    if value is None:
        return default_us
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise Rejected(f"{key}: give a time: RFC 3339, epoch milliseconds, or relative such as -1h", code="field")
    return parse_time(str(value), call.service.clock.now_us())


def text_in(form: dict[str, Any], key: str, default: str | None = None) -> str:
    """A text that a body gives; without a default it must."""
    value = form.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise Rejected(f"{key}: give a text", code="field")
    return value


def _role(text: str) -> Role:
    if text not in list(Role):
        raise Rejected(f"role is {text[:40]!r}: give one of {', '.join(Role)}", code="field")
    return Role(text)
