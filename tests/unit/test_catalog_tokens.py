"""Tokens: who gets one, what is refused, and how soon a revoked one stops working."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import pytest

from widerow.catalog.catalog import Catalog, CatalogSettings
from widerow.catalog.recent import Recent
from widerow.catalog.tokens import Tokens
from widerow.engine.memory import MemoryEngine
from widerow.model.errors import NotFound, Rejected, Unauthorized
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, ManualClock
from widerow.model.token import Role, Token
from widerow.schema.tables import TABLES, TOKENS

NOW_US = 1_800_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def engine(clock: ManualClock) -> MemoryEngine:
    engine = MemoryEngine(clock)
    engine.apply(TABLES)
    return engine


@pytest.fixture
def tokens(engine: MemoryEngine, clock: ManualClock) -> Tokens:
    return Tokens(engine, clock)


def is_known(tokens: Tokens, secret: str, now_us: int = NOW_US) -> bool:
    try:
        tokens.verify(secret, now_us)
    except Unauthorized as error:
        if str(error) != "token is not known":
            raise
        return False
    return True


def test_a_secret_shows_whose_it_is(tokens: Tokens) -> None:
    secret, token = tokens.create(Role.DEVICE, tenant="acme", device="pump 7", description="on the roof")
    assert re.fullmatch(r"wr_[A-Za-z0-9_-]{43}", secret)
    assert token == Token(
        id=sha256(secret.encode()).hexdigest()[:16],
        role=Role.DEVICE,
        tenant="acme",
        device="pump 7",
        description="on the roof",
        created_us=NOW_US,
    )
    assert tokens.verify(secret, NOW_US) == token


def test_secrets_come_from_the_randomness_given(engine: MemoryEngine, clock: ManualClock) -> None:
    tokens = Tokens(engine, clock, random_bytes=lambda n: b"\xff" * n)
    assert tokens.create(Role.OPERATOR)[0] == "wr_" + "_" * 42 + "8"


def test_the_store_does_not_have_the_secret(tokens: Tokens, engine: MemoryEngine) -> None:
    secret, _ = tokens.create(Role.OPERATOR)
    (rows,) = engine.scan(TOKENS, None)
    shown = f"{rows.key(TOKENS, 0)} {rows.row(0)}"
    assert secret not in shown
    assert secret[3:] not in shown
    assert sha256(secret.encode()).hexdigest() in shown


def test_roles_need_what_they_need_and_nothing_else(tokens: Tokens) -> None:
    def check(code: str, role: Role, **given: Any) -> None:
        with pytest.raises(Rejected) as caught:
            tokens.create(role, **given)
        assert caught.value.code == code

    check("token", Role.OPERATOR, tenant="acme")
    check("token", Role.OPERATOR, device="d")
    for role in (Role.READ, Role.WRITE, Role.ADMIN):
        check("token", role)
        check("token", role, tenant="acme", device="d")
    check("token", Role.DEVICE, tenant="acme")
    check("token", Role.DEVICE, device="d")
    check("name", Role.READ, tenant="Acme Corp")
    check("name", Role.DEVICE, tenant="acme", device="a\0b")
    check("field", Role.OPERATOR, description="x" * 4097)
    check("token", Role.OPERATOR, expires_us=NOW_US)
    assert tokens.list() == []


def test_malformed_unknown_and_revoked_are_one_answer(tokens: Tokens) -> None:
    secret, token = tokens.create(Role.READ, tenant="acme")
    assert is_known(tokens, secret)
    tokens.revoke(token.id, "acme")
    for bad in (secret, "wr_" + "A" * 43, "", "wr_", secret + "A", secret + "\n", "wr_" + "ü" * 43, "wr_" + "\ud800" * 43):
        assert not is_known(tokens, bad)


def test_an_expired_token_says_so(tokens: Tokens) -> None:
    secret, _ = tokens.create(Role.READ, tenant="acme", expires_us=NOW_US + SECOND)
    assert is_known(tokens, secret, NOW_US + SECOND - 1)
    with pytest.raises(Unauthorized, match="the token expired at 2027-01-15T08:00:01Z"):
        tokens.verify(secret, NOW_US + SECOND)


def test_revoking_takes_effect_at_once_here_and_after_the_refresh_elsewhere(
    tokens: Tokens, engine: MemoryEngine, clock: ManualClock
) -> None:
    elsewhere = Tokens(engine, clock, refresh_us=5 * SECOND)
    secret, token = tokens.create(Role.OPERATOR)
    assert is_known(tokens, secret)
    assert is_known(elsewhere, secret)
    tokens.revoke(token.id)
    assert not is_known(tokens, secret)
    assert is_known(elsewhere, secret, NOW_US + 5 * SECOND - 1)
    assert not is_known(elsewhere, secret, NOW_US + 5 * SECOND)


def test_a_token_made_elsewhere_is_known_once_the_refusal_is_forgotten(engine: MemoryEngine, clock: ManualClock) -> None:
    here = Tokens(engine, clock, random_bytes=bytes, refresh_us=5 * SECOND)
    guess = "wr_" + "A" * 43
    assert not is_known(here, guess)
    Tokens(engine, clock, random_bytes=bytes).create(Role.OPERATOR)
    assert not is_known(here, guess, NOW_US + 5 * SECOND - 1)
    assert is_known(here, guess, NOW_US + 5 * SECOND)


def test_a_token_made_here_is_known_at_once(engine: MemoryEngine, clock: ManualClock) -> None:
    tokens = Tokens(engine, clock, random_bytes=bytes)
    assert not is_known(tokens, "wr_" + "A" * 43)
    secret, _ = tokens.create(Role.OPERATOR)
    assert is_known(tokens, secret)


def test_guessing_is_bounded_and_drives_no_good_token_out(engine: MemoryEngine, clock: ManualClock) -> None:
    tokens = Tokens(engine, clock, capacity=20)
    secret, _ = tokens.create(Role.OPERATOR)
    assert is_known(tokens, secret)
    for i in range(100):
        assert not is_known(tokens, f"wr_{i:043d}")
    assert (len(tokens._good), len(tokens._bad)) == (1, 2)


def test_a_tenant_can_revoke_its_own_tokens_only(tokens: Tokens) -> None:
    secret, token = tokens.create(Role.ADMIN, tenant="acme")
    _, operator = tokens.create(Role.OPERATOR)
    for token_id, tenant in ((token.id, "other"), (operator.id, "acme"), ("f" * 16, None), ("", None), (token.id[:8], None)):
        with pytest.raises(NotFound):
            tokens.revoke(token_id, tenant)
    assert is_known(tokens, secret)
    assert tokens.revoke(token.id, "acme") == token
    with pytest.raises(NotFound):
        tokens.revoke(token.id, "acme")


def test_tokens_are_listed_oldest_first(tokens: Tokens, clock: ManualClock) -> None:
    made = []
    for tenant in ("acme", "other", "acme", ""):
        clock.time_us += 1
        made.append(tokens.create(Role.READ if tenant else Role.OPERATOR, tenant=tenant)[1])
    assert tokens.list() == made
    assert tokens.list("acme") == [made[0], made[2]]


def test_all_tokens_of_a_tenant_go_with_it(tokens: Tokens) -> None:
    secrets = [tokens.create(Role.READ, tenant="acme")[0] for _ in range(3)]
    other, operator = tokens.create(Role.READ, tenant="acme-2")[0], tokens.create(Role.OPERATOR)[0]
    assert all(is_known(tokens, s) for s in secrets)
    assert tokens.revoke_all("acme") == 3
    assert not any(is_known(tokens, s) for s in secrets)
    assert is_known(tokens, other)
    assert is_known(tokens, operator)
    assert tokens.revoke_all("acme") == 0
    with pytest.raises(Rejected):
        tokens.revoke_all("")


def test_a_slow_reader_cannot_bring_back_what_was_forgotten() -> None:
    recent: Recent[str] = Recent(2, 10)
    mark = recent.mark()
    recent.forget("a")
    recent.put("a", "stale", 0, mark)
    assert recent.get("a", 0) is None


def test_the_least_recently_used_goes_first() -> None:
    recent: Recent[str] = Recent(2, 10)
    for name in ("a", "b"):
        recent.put(name, name, 0, recent.mark())
    recent.get("a", 1)
    recent.put("c", "c", 1, recent.mark())
    assert [recent.get(name, 1) for name in "abc"] == ["a", None, "c"]


def test_a_catalog_keeps_everything_over_a_restart(engine: MemoryEngine, clock: ManualClock) -> None:
    first = Catalog(engine, clock, CatalogSettings(max_future_us=SECOND))
    tenant = first.tenants.create(Tenant(name="acme"))
    secret, token = first.tokens.create(Role.WRITE, tenant="acme")
    again = Catalog(engine, clock)
    assert again.tenants.current("acme", NOW_US) == tenant
    assert again.tokens.verify(secret, NOW_US) == token
    assert again.devices.count("acme") == 0
    assert again.metrics.list("acme") == []
