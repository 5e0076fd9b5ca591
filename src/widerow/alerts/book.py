"""Rules, webhooks and silences that people set. Those of the operator's TOML file are read once, and read-only.

Rule 1: all of it is known by heart, as it is small: `MOST` of each kind for a tenant. Where other processes may change it,
it is read again now and then (`load`).
Rule 2: a name that the file has cannot be set over HTTP. A webhook's secret is never shown.
"""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from widerow.alerts.address import check_url
from widerow.alerts.alert import OPERATOR, Alert
from widerow.alerts.rule import Rule, check_slug, read
from widerow.catalog.records import Records, Stored
from widerow.engine.port import Engine
from widerow.engine.rows import Row
from widerow.model.check import check_tenant
from widerow.model.errors import ConfigError, Conflict, Forbidden, Rejected
from widerow.model.system import explained
from widerow.model.times import DAY, Clock
from widerow.schema.tables import ALERT_SETTINGS

T = TypeVar("T")

MOST = {"rule": 100, "webhook": 20, "silence": 100}
LONGEST_SILENCE_US = 30 * DAY
MOST_SECRET = 256


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    secret: str = ""
    revision: int = 0


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Until when nobody is told of some alerts: those of a rule, of a device, or of both."""

    name: str
    """Its id."""
    until_us: int
    rule: str = ""
    device: str = ""
    comment: str = ""
    by: str = ""
    created_us: int = 0

    def covers(self, alert: Alert, now_us: int) -> bool:
        return self.rule in ("", alert.rule) and self.device in ("", alert.device) and now_us < self.until_us


@dataclass(slots=True)
class _Set:
    """Of one tenant."""

    rules: dict[str, Rule] = field(default_factory=dict)
    webhooks: dict[str, Webhook] = field(default_factory=dict)
    silences: dict[str, Silence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class File:
    """What the operator's file says: rules by tenant, and webhooks."""

    rules: Mapping[str, Mapping[str, Rule]] = field(default_factory=dict)
    webhooks: Mapping[str, Webhook] = field(default_factory=dict)


class Book:
    """Safe to share between threads. Changes made here are known at once."""

    def __init__(self, engine: Engine, clock: Clock, file: File | None = None) -> None:
        self._engine, self._clock, self._file = engine, clock, file or File()
        self._records: dict[str, Records[Any]] = {
            "rule": Records(engine, ALERT_SETTINGS, Rule, "rule"),
            "webhook": Records(engine, ALERT_SETTINGS, Webhook, "webhook"),
            "silence": Records(engine, ALERT_SETTINGS, Silence, "silence", _of_silence),
        }
        self._loading = threading.Lock()
        self._sets: dict[str, _Set] = {}

    def load(self) -> None:
        with self._loading:  # or a scan that began earlier could undo what a later one found
            self._sets = self._stored()

    def _stored(self) -> dict[str, _Set]:
        found: dict[str, _Set] = {}
        for rows in self._engine.scan(ALERT_SETTINGS, None):
            for i in range(len(rows)):
                tenant, what, _, name = (str(part) for part in rows.key(ALERT_SETTINGS, i))
                stored = self._records[what].decoded(name, rows.row(i)) if what in self._records else None
                if stored is not None:
                    getattr(found.setdefault(tenant, _Set()), f"{what}s")[name] = stored.value
        return found

    # -- what there is

    def tenants(self) -> list[str]:
        """Those that have rules."""
        return sorted({*self._file.rules, *(tenant for tenant, known in list(self._sets.items()) if known.rules)})

    def rules(self, tenant: str) -> dict[str, Rule]:
        """By name, those of the file as well."""
        return {**self._of(tenant).rules, **self._file.rules.get(tenant, {})}

    def is_of_file(self, tenant: str, rule: str) -> bool:
        return rule in self._file.rules.get(tenant, {})

    def source(self, tenant: str, rule: str) -> str:
        """Of the alerts of a rule."""
        return "toml" if self.is_of_file(tenant, rule) else "http"

    def is_webhook_of_file(self, name: str) -> bool:
        return name in self._file.webhooks

    def webhooks(self, tenant: str) -> dict[str, Webhook]:
        return {**self._of(tenant).webhooks, **(self._file.webhooks if tenant == OPERATOR else {})}

    def webhook_of(self, alert: Alert, name: str) -> Webhook | None:
        """Alerts of the operator's rules go to the operator's webhooks."""
        return self.webhooks(OPERATOR if alert.source != "http" else alert.tenant).get(name)

    def silences(self, tenant: str) -> list[Silence]:
        """Those that are not over."""
        now_us = self._clock.now_us()
        there = [one for one in self._of(tenant).silences.values() if one.until_us > now_us]
        return sorted(there, key=lambda one: one.until_us)

    def silenced(self, alert: Alert, now_us: int) -> bool:
        """By its tenant, or by the operator if it is of a rule of the operator's."""
        whose = {alert.tenant} if alert.source == "http" else {alert.tenant, OPERATOR}
        return any(one.covers(alert, now_us) for tenant in whose for one in [*self._of(tenant).silences.values()])

    def _of(self, tenant: str) -> _Set:
        return self._sets.get(tenant) or _Set()

    # -- setting it

    def set_rule(self, tenant: str, rule: Rule, *, expected: int | None = None) -> Rule:
        if self.is_of_file(tenant, rule.name):
            raise Forbidden(f"rule {rule.name!r} is in the operator's file (alerts.rules), and cannot be changed here")
        return self._put(tenant, "rule", rule.name, rule, expected)

    def delete_rule(self, tenant: str, name: str) -> None:
        if self.is_of_file(tenant, name):
            raise Forbidden(f"rule {name!r} is in the operator's file (alerts.rules), and cannot be removed here")
        self._drop(tenant, "rule", name)

    def set_webhook(self, tenant: str, webhook: Webhook, *, expected: int | None = None) -> Webhook:
        """Without a secret the one that it has stays."""
        if tenant == OPERATOR and webhook.name in self._file.webhooks:
            raise Forbidden(f"webhook {webhook.name!r} is in the operator's file (alerts.rules), and cannot be changed here")
        old = self.webhooks(tenant).get(webhook.name)
        if not webhook.secret and old:
            webhook = msgspec.structs.replace(webhook, secret=old.secret)
        return self._put(tenant, "webhook", webhook.name, webhook, expected)

    def delete_webhook(self, tenant: str, name: str) -> None:
        if tenant == OPERATOR and name in self._file.webhooks:
            raise Forbidden(f"webhook {name!r} is in the operator's file (alerts.rules), and cannot be removed here")
        self._drop(tenant, "webhook", name)

    def add_silence(self, tenant: str, silence: Silence) -> Silence:
        for old in [*self._of(tenant).silences.values()]:
            if old.until_us <= self._clock.now_us():
                self._drop(tenant, "silence", old.name)
        return self._put(tenant, "silence", silence.name, silence, None)

    def delete_silence(self, tenant: str, name: str) -> None:
        self._drop(tenant, "silence", name)

    def forget(self, tenant: str) -> None:
        """The tenant is gone."""
        for what, records in self._records.items():
            records.remove_all((tenant, what), self._clock.version_us())
        self.load()

    def _put(self, tenant: str, what: str, name: str, value: T, expected: int | None) -> T:
        records: Records[T] = self._records[what]
        found: Stored[T] | None = records.find((tenant, what), name)
        try:
            if found is None:
                if expected is not None:
                    raise Conflict(f"no {what} {name!r}: it was removed meanwhile")
                if len(getattr(self._of(tenant), f"{what}s")) >= MOST[what]:
                    raise Rejected(f"there are {MOST[what]} {what}s, as many as may be: remove one first", code="field")
                return records.create((tenant, what), name, value)
            return records.update((tenant, what), name, lambda _old: value, expected)
        finally:
            self.load()

    def _drop(self, tenant: str, what: str, name: str) -> None:
        try:
            self._records[what].remove((tenant, what), name)
        finally:
            self.load()


def _of_silence(name: str, _row: Row) -> dict[str, Any]:
    return {"name": name}


def read_webhook(form: Mapping[str, Any], name: str) -> Webhook:
    """The webhook that a form means."""
    for key in form:
        if key not in ("name", "url", "secret", "revision", "has_secret", "readonly"):
            raise Rejected(f"unknown key {str(key)[:80]!r}: use url, secret", code="field")
    url, secret = form.get("url"), form.get("secret") or ""
    if not isinstance(url, str):
        raise Rejected("url: give the address that notices are sent to", code="field")
    if not isinstance(secret, str) or len(secret.encode(errors="replace")) > MOST_SECRET or not secret.isprintable():
        raise Rejected(f"secret: give a text of at most {MOST_SECRET} bytes", code="field")
    return Webhook(name=check_slug("name", name), url=check_url(url), secret=secret)


def _check_in_file(rule: Rule, others: Mapping[str, Rule], webhooks: Mapping[str, Webhook]) -> None:
    if rule.name in others:
        raise Rejected(f"the tenant has two rules named {rule.name}")
    unknown = [name for name in rule.webhooks if name not in webhooks]
    if unknown:
        raise Rejected(f"webhooks: the file has none named {unknown[0]}")


def read_file(path: str) -> File:
    """The operator's file. `ConfigError` names what is wrong in it."""
    if not path:
        return File()
    try:
        tree = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"alerts.rules: cannot read {explained(error, Path(path))}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"alerts.rules: {path} is not TOML: {error}") from error
    for section in tree:
        if section not in ("rules", "webhooks"):
            raise ConfigError(f"alerts.rules: {path}: unknown section {section}; known are [[rules]] and [[webhooks]]")
    rules: dict[str, dict[str, Rule]] = {}
    webhooks: dict[str, Webhook] = {}
    place = ""
    try:
        for number, form in enumerate(tree.get("webhooks", []), 1):
            place = f"webhook {number}"
            webhook = read_webhook(form, str(form.get("name", "")))
            webhooks[webhook.name] = webhook
        for number, form in enumerate(tree.get("rules", []), 1):
            place = f"rule {number}"
            tenant, rule = check_tenant(str(form.get("tenant", ""))), read(form)
            _check_in_file(rule, rules.setdefault(tenant, {}), webhooks)
            rules[tenant][rule.name] = rule
    except (Rejected, AttributeError, TypeError) as error:
        raise ConfigError(f"alerts.rules: {path}: {place}: {error}") from error
    return File(rules, webhooks)
