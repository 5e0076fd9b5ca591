"""Parameters, forms and errors, without a server."""

from __future__ import annotations

import logging

import msgspec
import pytest

from widerow.codec.answer import ARROW, CSV, JSON
from widerow.model.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    NotFound,
    Overloaded,
    QuotaExceeded,
    Rejected,
    Stalled,
    StorageFull,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from widerow.ops.counters import Counters
from widerow.ops.rates import KEPT_SAMPLES, Rates
from widerow.server.call import Param, Query, negotiate
from widerow.server.failures import MethodNotAllowed, NotAcceptable, PreconditionFailed, failure, influx

KNOWN = {p.name: p for p in (Param(name="limit", doc="."), Param(name="tag", doc=".", repeats=True))}


def test_the_form_of_an_answer_follows_the_header() -> None:
    def check(accept: str, want: str) -> None:
        assert negotiate(accept) == want

    check("", JSON)
    check("*/*", JSON)
    check("text/csv", CSV)
    check("text/*", CSV)
    check("TEXT/CSV; q=0.9, application/json; q=0.1", CSV)
    check("text/csv;q=0.5, application/json", JSON)
    check("application/*;q=0.1, text/csv;q=0.2", CSV)
    check(f"{ARROW}, */*;q=0.1", ARROW)
    check("text/html, application/xhtml+xml, */*;q=0.8", JSON)
    check("application/json;q=0, */*", CSV)
    for accept in ("image/png", "application/json;q=0", "text/csv;q=x", ","):
        with pytest.raises(NotAcceptable):
            negotiate(accept)


def test_a_query_takes_what_is_known_and_nothing_else() -> None:
    query = Query(b"limit=5&tag=a%3A1&tag=b:%C3%BC+x", KNOWN)
    assert query.whole("limit", default=1, most=10) == 5
    assert query.texts("tag") == ["a:1", "b:ü x"]
    assert Query(b"", KNOWN).whole("limit", default=7, most=10) == 7
    for bad in (b"limt=5", b"limit=1&limit=2", b"tag=%ff"):
        with pytest.raises(Rejected) as caught:
            Query(bad, KNOWN)
        assert caught.value.code == "parameter"


@pytest.mark.parametrize("text", ["0", "11", "-1", "1.5", "", "x", "٣", "9" * 30])
def test_a_number_out_of_range_is_refused(text: str) -> None:
    known = {"limit": KNOWN["limit"]}
    query = Query(f"limit={text}".encode() if text.isascii() else b"limit=%D9%A3", known)
    with pytest.raises(Rejected, match="from 1 to 10"):
        query.whole("limit", default=1, most=10)


def test_names_come_by_commas_or_one_by_one() -> None:
    def check(query: bytes, want: list[str] | None) -> None:
        assert Query(query, KNOWN).names("tag") == want

    check(b"", None)
    check(b"tag=", None)
    check(b"tag=a,b,a", ["a", "b"])
    check(b"tag=a%2Cb&tag=c", ["a,b", "c"])
    check(b"tag=a%2Cb&tag=", ["a,b"])


def test_every_error_has_its_status() -> None:
    def check(error: BaseException, status: int, code: str) -> None:
        failed = failure(error)
        assert failed.status == status
        assert msgspec.json.decode(failed.body)["error"]["code"] == code

    check(Rejected("x"), 400, "invalid")
    check(Rejected("x", code="span"), 400, "span")
    check(Unauthorized("x"), 401, "unauthorized")
    check(Forbidden("x"), 403, "forbidden")
    check(NotFound("x"), 404, "not-found")
    check(MethodNotAllowed("PUT", ["GET"]), 405, "method-not-allowed")
    check(NotAcceptable("x"), 406, "not-acceptable")
    check(Conflict("x"), 409, "conflict")
    check(PreconditionFailed("x"), 412, "conflict")
    check(TooLarge("x"), 413, "too-large")
    check(Unsupported("x"), 415, "unsupported")
    check(QuotaExceeded("acme", "writes_per_s", 10, 20, 2.5), 429, "quota-exceeded")
    check(Stalled("x"), 408, "body-timeout")
    check(Unavailable("x"), 503, "unavailable")
    check(Overloaded("x"), 503, "overloaded")
    check(StorageFull("x"), 507, "storage-full")


def test_a_spent_limit_says_which_and_when_to_come_back() -> None:
    failed = failure(QuotaExceeded("acme", "writes_per_s", 10, 20, 2.5))
    error = msgspec.json.decode(failed.body)["error"]
    assert (error["limit"], error["allowed"], error["seen"], error["retry_after_s"]) == ("writes_per_s", 10, 20, 2.5)
    assert dict(failed.headers)[b"retry-after"] == b"3"
    for error in (Unavailable("x"), StorageFull("x")):
        assert dict(failure(error).headers)[b"retry-after"] == b"1"


def test_clients_of_influxdb_drop_what_got_408_and_are_told_503() -> None:
    assert failure(Stalled("x"), influx).status == 503
    assert msgspec.json.decode(failure(Stalled("x"), influx).body)["code"] == "unavailable"


def test_a_fault_of_ours_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    for error in (RuntimeError("the secret plan"), Corrupt("row 17 of the secret plan")):
        with caplog.at_level(logging.ERROR):
            failed = failure(error)
        assert failed.status == 500
        assert b"secret" not in failed.body
        assert "secret plan" in caplog.text
        caplog.clear()
    assert msgspec.json.decode(failure(RuntimeError("secret"), influx).body)["code"] == "internal error"


def test_rates_are_differences_over_the_last_seconds() -> None:
    now = [100.0]
    counters = Counters()
    rates = Rates(counters, lambda: now[0])
    for _ in range(30):
        now[0] += 1
        counters.reports.labels("acme").inc(5)
        rates.sample()
    before, after = rates.span()
    assert after.at_s - before.at_s == KEPT_SAMPLES - 1
    assert after.reports["acme"] - before.reports["acme"] == 5 * (KEPT_SAMPLES - 1)


def test_writes_fail_when_none_has_worked_lately() -> None:
    counters = Counters()
    rates = Rates(counters)
    assert not rates.writes_fail()
    counters.commits.inc()
    counters.commit_failures.labels("storage-full").inc()
    assert rates.writes_fail()
    counters.commits.inc()
    assert not rates.writes_fail()
