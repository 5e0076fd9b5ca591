"""Routes about what raises alerts, and who is told: rules, webhooks, silences; acknowledging; trying a rule out.

Rule 1: a tenant's rules, webhooks and silences are its own. An operator names the tenant. Webhooks and silences of an
operator that names none are the operator's own: for the built-in alerts and the rules of its file.
Rule 2: a webhook's secret goes in and never comes out. Its address may be a secret as well: the audit log has the host
alone.
"""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import urlsplit

import msgspec

from widerow.alerts.alert import FIRING, OPERATOR, PENDING, RESOLVED, Acknowledged, Alert, shown
from widerow.alerts.book import LONGEST_SILENCE_US, Book, Silence, Webhook, read_webhook
from widerow.alerts.preview import MOST_DEVICES, preview, question
from widerow.alerts.rule import Rule, read
from widerow.alerts.rule import shown as rule_form
from widerow.alerts.state import State
from widerow.catalog.match import Match
from widerow.model.check import text_fault
from widerow.model.errors import Conflict, NotFound, Rejected
from widerow.model.times import format_duration, format_time
from widerow.model.token import Role
from widerow.server.admin import text_in, time_in
from widerow.server.call import NO_CONTENT, Answer, Call, entity_answer, json_answer
from widerow.server.failures import PreconditionFailed

_MOST_TEXT = 500
_STATES = {State.OK: RESOLVED, State.PENDING: PENDING, State.FIRING: FIRING}


def list_rules(call: Call) -> Answer:
    book, name = _book(call), call.tenant_name()
    tenants = book.tenants() if name is None else [call.auth.existing(name).name]
    return json_answer({"rules": [_rule(call, tenant, rule) for tenant in tenants for rule in book.rules(tenant).values()]})


def put_rule(call: Call) -> Answer:
    tenant, book = call.tenant().name, _book(call)
    rule = read(call.form(), call.path["name"])
    unknown = [name for name in rule.webhooks if name not in book.webhooks(tenant)]
    if unknown:
        raise Rejected(f"webhooks: there is none named {unknown[0]!r}: set it first", code="field")
    try:
        after = book.set_rule(tenant, rule, expected=call.expected_revision())
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    call.service.alerts.rules_changed()
    return entity_answer(_rule(call, tenant, after))


def delete_rule(call: Call) -> Answer:
    """Its alerts go with it, and nobody is told."""
    _book(call).delete_rule(call.tenant().name, call.path["name"])
    call.service.alerts.rules_changed()
    return NO_CONTENT


def preview_rule(call: Call) -> Answer:
    """Of a rule that matches many devices the first are looked at."""
    tenant, queries = call.tenant(), call.service.queries
    rule = read({"name": "preview", **call.form()})
    asked = question(rule, call.service.clock.now_us())
    devices = [rule.device] if rule.device else _first(call, tenant.name, rule)
    chosen = queries.chosen(tenant, devices, None)
    reply = queries.ask(tenant, chosen, asked, call.budget(tenant))
    found = preview(rule, [device.name for device in chosen], reply.series, asked.span)
    changed = [change.device for change in found.changes]
    worst = max(found.points, key=lambda device: (changed.count(device), len(found.points[device])), default="")
    return json_answer(
        {
            "device": worst,
            "devices": len(chosen),
            "threshold": rule.threshold,
            "points": [[format_time(at_us), value] for at_us, value in found.points.get(worst, [])],
            "events": [
                {
                    "time": format_time(change.at_us),
                    "device": change.device,
                    "state": _STATES[change.state],
                    "value": change.value,
                }
                for change in sorted(found.changes, key=lambda change: (change.at_us, change.device))
            ],
            "would_notify": found.notices,
        }
    )


def _first(call: Call, tenant: str, rule: Rule) -> list[str]:
    match = rule.match.match() if rule.match else Match()
    page = call.service.catalog.devices.list(tenant, match, limit=MOST_DEVICES)
    return [device.name for device in page.devices]


def acknowledge(call: Call) -> Answer:
    """Somebody sees to it. It stays as long as the alert does."""
    note = _text(call.form(("note",)), "note")
    now_us, whose, alerts = call.service.clock.now_us(), call.tenant_name(), call.service.alerts
    alerts.load(now=True)
    name = call.path["id"]
    found = next((alert for alert in alerts.store.known(whose) if alert.id == name), None)
    if found is None or found.state == RESOLVED:
        raise NotFound(f"no alert {name[:80]!r} that is pending or firing")
    call.trail.tenant, call.trail.about = found.tenant, found.rule
    seen = Acknowledged(by=_by(call), at_us=now_us, note=note)
    after = alerts.store.edit(found.tenant, name, lambda old: msgspec.structs.replace(old, acknowledged=seen))
    return json_answer(_alert(call, after))


def list_silences(call: Call) -> Answer:
    return json_answer({"silences": [_silence(one) for one in _book(call).silences(_whose(call))]})


def create_silence(call: Call) -> Answer:
    form, now_us = call.form(("name", "device", "until", "comment")), call.service.clock.now_us()
    until_us = time_in(call, form, "until", 0)
    if not now_us < until_us <= now_us + LONGEST_SILENCE_US:
        longest = format_duration(LONGEST_SILENCE_US)
        raise Rejected(f"until: give a time that is to come, such as +2h, at most {longest} ahead", code="field")
    silence = Silence(
        name=secrets.token_hex(8),
        until_us=until_us,
        rule=_text(form, "name"),
        device=_text(form, "device"),
        comment=_text(form, "comment"),
        by=_by(call),
        created_us=now_us,
    )
    return json_answer(_silence(_book(call).add_silence(_whose(call), silence)), 201)


def delete_silence(call: Call) -> Answer:
    _book(call).delete_silence(_whose(call), call.path["id"])
    return NO_CONTENT


def list_webhooks(call: Call) -> Answer:
    hooks = sorted(_book(call).webhooks(_whose(call)).values(), key=lambda hook: hook.name)
    return json_answer({"webhooks": [_webhook(call, hook) for hook in hooks]})


def put_webhook(call: Call) -> Answer:
    form = call.form()
    webhook = read_webhook(form, call.path["name"])
    call.trail.changes = [f"host: {urlsplit(webhook.url).hostname}"]
    try:
        after = _book(call).set_webhook(_whose(call), webhook, expected=call.expected_revision())
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    return entity_answer(_webhook(call, after))


def delete_webhook(call: Call) -> Answer:
    whose, name, book = _whose(call), call.path["name"], _book(call)
    users = [rule.name for rule in book.rules(whose).values() if name in rule.webhooks]
    if users:
        raise Conflict(f"rule {users[0]!r} tells this webhook: change the rule first")
    book.delete_webhook(whose, name)
    return NO_CONTENT


def test_webhook(call: Call) -> Answer:
    """The answer says what became of it: one attempt, now."""
    whose, name = _whose(call), call.path["name"]
    webhook = _book(call).webhooks(whose).get(name)
    if webhook is None:
        raise NotFound(f"no webhook {name[:80]!r}")
    sent = call.service.alerts.test(whose, webhook)
    return json_answer({"delivered": sent.delivered, "status": sent.status, "reason": sent.reason})


def _book(call: Call) -> Book:
    call.service.alerts.load()
    return call.service.alerts.book


def _whose(call: Call) -> str:
    name = call.tenant_name()
    return OPERATOR if name is None else call.auth.existing(name).name


def _by(call: Call) -> str:
    return f"token {call.who.token}" if call.who.token else call.front.owner


def _text(form: dict[str, Any], key: str) -> str:
    text = text_in(form, key, "")
    fault = text_fault(text, _MOST_TEXT)
    if fault:
        raise Rejected(f"{key} {fault}", code="field")
    return text


def _rule(call: Call, tenant: str, rule: Rule) -> dict[str, Any]:
    of_file = call.service.alerts.book.is_of_file(tenant, rule.name)
    readonly = of_file or call.who.role is Role.READ
    source = "toml" if of_file else "http"
    return {**rule_form(rule), "tenant": tenant, "source": source, "readonly": readonly, "revision": rule.revision}


def _alert(call: Call, alert: Alert) -> dict[str, Any]:
    return shown(alert, silenced=call.service.alerts.silenced(alert))


def _silence(silence: Silence) -> dict[str, Any]:
    return {
        "id": silence.name,
        "name": silence.rule,
        "device": silence.device,
        "until": format_time(silence.until_us),
        "comment": silence.comment,
        "by": silence.by,
        "created": format_time(silence.created_us),
    }


def _webhook(call: Call, hook: Webhook) -> dict[str, Any]:
    of_file = _whose(call) == OPERATOR and call.service.alerts.book.is_webhook_of_file(hook.name)
    return {
        "name": hook.name,
        "url": hook.url,
        "has_secret": bool(hook.secret),
        "readonly": of_file,
        "revision": hook.revision,
    }
