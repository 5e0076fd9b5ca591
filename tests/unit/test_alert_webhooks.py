"""Webhooks: what they are sent, how often it is tried, and which addresses are never connected to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

import pytest

from widerow.alerts import webhook as webhooks
from widerow.alerts.address import check_url, chosen, is_allowed, networks
from widerow.alerts.book import Webhook
from widerow.alerts.webhook import Courier, Notice, Sent, send, signature
from widerow.model.errors import ConfigError, Forbidden, Rejected
from widerow.ops.counters import Counters

LOOPBACK = networks(["127.0.0.0/8"])
BODY = b'{"event":"firing"}'
OPS = ("acme", "ops")


@dataclass
class Endpoint:
    """A server that notes what it gets, and answers as it is told."""

    port: int = 0
    answers: list[Any] = field(default_factory=list)
    """Of each request: a status, or what writes an answer itself; afterwards 204."""
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def hook(self, host: str = "127.0.0.1", secret: str = "s3cret") -> Webhook:
        return Webhook(name="ops", url=f"http://{host}:{self.port}/hook?a=1", secret=secret)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    known = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.got.append((self.path, dict(self.headers), body))
            answer = known.answers.pop(0) if known.answers else 204
            if callable(answer):
                answer(self)
                return
            self.send_response(answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


def sent(hook: Webhook, *, allowed: Any = LOOPBACK, resolver: Any = webhooks.resolve) -> Sent:
    return asyncio.run(send(hook, BODY, 1_800_000_000, allowed, resolver))


def resolves_to(*addresses: str) -> Callable[[str, int], Any]:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


# -- what is sent


def test_a_notice_is_signed_with_its_time(endpoint: Endpoint) -> None:
    assert sent(endpoint.hook()) == Sent(delivered=True, status=204)
    ((path, headers, body),) = endpoint.got
    assert (path, body, headers["Content-Type"]) == ("/hook?a=1", BODY, "application/json")
    assert headers["Widerow-Timestamp"] == "1800000000"
    # echo -n '1800000000.{"event":"firing"}' | openssl dgst -sha256 -hmac s3cret
    assert headers["Widerow-Signature"] == signature("s3cret", 1_800_000_000, BODY)
    assert headers["Widerow-Signature"] == "sha256=a99af9bffb1d8a8b26bb04adc7fee718a3f7f8e87acab9990ee7067cc0021e8a"


def test_without_a_secret_there_is_no_signature(endpoint: Endpoint) -> None:
    assert sent(endpoint.hook(secret="")).delivered
    assert "Widerow-Signature" not in endpoint.got[0][1]


def test_the_address_that_was_checked_is_connected_to_and_the_host_stays_the_name(endpoint: Endpoint) -> None:
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    assert sent(endpoint.hook("hooks.example.com"), resolver=resolve).delivered
    assert asked == ["hooks.example.com"]
    assert endpoint.got[0][1]["Host"] == f"hooks.example.com:{endpoint.port}"


def test_redirects_are_not_followed(endpoint: Endpoint) -> None:
    def redirect(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", f"http://127.0.0.1:{endpoint.port}/elsewhere")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    endpoint.answers = [redirect]
    assert sent(endpoint.hook()) == Sent(delivered=False, status=307, reason="status 307: redirects are not followed")
    assert len(endpoint.got) == 1


def test_of_an_endless_answer_little_is_read(endpoint: Endpoint) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100_000):
                handler.wfile.write(bytes(4096))
        except OSError:
            return
        raise AssertionError("all of it was read")

    endpoint.answers = [endless]
    assert sent(endpoint.hook()) == Sent(delivered=True, status=200)


def test_an_endpoint_that_does_not_answer_is_given_up(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.2)
    enough = threading.Event()
    endpoint.answers = [lambda _handler: enough.wait(10)]
    try:
        assert sent(endpoint.hook()) == Sent(delivered=False, reason="no answer within 0.2 s")
    finally:
        enough.set()


# -- where it may be


def test_addresses_that_are_not_public_are_forbidden() -> None:
    def check(address: str, allowed: bool) -> None:
        assert is_allowed(ip_address(address), ()) is allowed, address

    for address in ("8.8.8.8", "2001:4860:4860::8888"):
        check(address, allowed=True)
    for address in (
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::7f00:1", "2002:7f00:1::",
        "fec0::2", "::ffff:0:7f00:1", "200::1", "64:ff9b:1::808:808",
    ):  # fmt: skip
        check(address, allowed=False)


def test_configuration_allows_networks() -> None:
    allowed = networks(["10.1.0.0/16", "::1/128"])
    assert is_allowed(ip_address("10.1.2.3"), allowed)
    assert is_allowed(ip_address("::1"), allowed)
    assert not is_allowed(ip_address("10.2.2.3"), allowed)
    with pytest.raises(ConfigError, match=r"alerts\.webhook_networks has '10\.1\.2\.3/8'"):
        networks(["10.1.2.3/8"])


def test_a_name_of_which_one_address_is_forbidden_is_refused() -> None:
    with pytest.raises(Forbidden) as refused:
        chosen("hooks.example.com", ["8.8.8.8", "10.0.0.7"], ())
    assert "10.0.0.7" not in str(refused.value), "tenants are not told what our resolver knows"


def test_a_forbidden_address_is_never_connected_to(endpoint: Endpoint) -> None:
    def check(hook: Webhook, resolver: Any = webhooks.resolve) -> None:
        refused = sent(hook, allowed=(), resolver=resolver)
        assert (refused.delivered, refused.forbidden, refused.status) == (False, True, None)

    check(endpoint.hook("127.0.0.1"))
    check(endpoint.hook("localhost"))
    check(endpoint.hook("hooks.example.com"), resolves_to("127.0.0.1"))
    check(endpoint.hook("hooks.example.com"), resolves_to("93.184.216.34", "127.0.0.1"))
    check(endpoint.hook("[::ffff:127.0.0.1]"))
    assert endpoint.got == []


def test_only_plain_web_addresses_are_taken() -> None:
    for url in ("https://hooks.example.com/a?b=c", "http://10.1.2.3:8080/"):
        assert check_url(url) == url
    for url in (
        "ftp://example.com", "example.com", "https://", "https://me:pw@example.com", "https://example.com/#a",
        "https://exa mple.com", "https://example.com:99999", "https://example.com/\n", "https://example.com/" + 1100 * "a",
        "file:///etc/passwd", "https://bücher.example",
    ):  # fmt: skip
        with pytest.raises(Rejected):
            check_url(url)


# -- how often it is tried


@pytest.fixture
def courier() -> Iterator[Courier]:
    courier = Courier(Counters(), lambda: 1_800_000_000.0, LOOPBACK, pauses_s=(0.01, 0.01, 0.01))
    yield courier
    courier.stop()


def deliver(courier: Courier, hook: Webhook | None, bodies: Sequence[bytes] = (BODY,)) -> list[bytes]:
    """Submit notices, and wait until they are settled; in which order they were."""
    settled: list[bytes] = []
    all_of_them = threading.Event()

    def done(body: bytes) -> None:
        settled.append(body)
        if len(settled) == len(bodies):
            all_of_them.set()

    for body in bodies:
        assert courier.submit(Notice(body, lambda: hook, OPS, str(body), lambda body=body: done(body)))  # type: ignore[misc]
    assert all_of_them.wait(30)
    return settled


def results(courier: Courier) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for family in courier._counters.alert_notices.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def test_an_endpoint_that_fails_twice_gets_the_notice_at_the_third_time(endpoint: Endpoint, courier: Courier) -> None:
    endpoint.answers = [500, 503]
    deliver(courier, endpoint.hook())
    assert [body for _, _, body in endpoint.got] == [BODY] * 3
    assert results(courier) == {"delivered": 1}


def test_an_endpoint_that_always_fails_is_given_up(endpoint: Endpoint, courier: Courier) -> None:
    endpoint.answers = [500] * 20
    deliver(courier, endpoint.hook())
    assert (len(endpoint.got), results(courier)) == (4, {"failed": 1})


def test_a_forbidden_address_is_tried_once(courier: Courier) -> None:
    deliver(courier, Webhook(name="ops", url="http://10.0.0.1/"))
    assert results(courier) == {"refused": 1}


def test_notices_of_a_webhook_come_in_order_though_the_first_fails(endpoint: Endpoint, courier: Courier) -> None:
    endpoint.answers = [500, 204, 500]
    bodies = [b"firing", b"resolved", b"firing again"]
    assert deliver(courier, endpoint.hook(), bodies) == bodies
    assert [body for _, _, body in endpoint.got] == [bodies[0], *bodies[:2], bodies[1], bodies[2]]


def test_a_notice_for_a_webhook_that_was_removed_is_settled(courier: Courier) -> None:
    deliver(courier, None)
    assert results(courier) == {"failed": 1}


def test_a_courier_that_is_full_takes_no_more(endpoint: Endpoint, courier: Courier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MOST_WAITING", 1)
    enough, settled = threading.Event(), threading.Event()
    endpoint.answers = [lambda _handler: enough.wait(10)]
    try:
        assert courier.submit(Notice(BODY, endpoint.hook, OPS, "a", settled.set))
        assert not courier.submit(Notice(BODY, endpoint.hook, OPS, "b", lambda: None))
    finally:
        enough.set()
    assert settled.wait(30)


def test_a_webhook_that_is_slow_leaves_room_for_the_others_and_a_notice_waits_once(
    endpoint: Endpoint, courier: Courier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST_OF_ONE", 2)
    enough, settled = threading.Event(), [threading.Event() for _ in range(3)]
    endpoint.answers = [lambda _handler: enough.wait(10)]
    try:
        for about, event in (("a", settled[0]), ("b", settled[1]), ("b", settled[1])):
            assert courier.submit(Notice(BODY, endpoint.hook, OPS, about, event.set))
        assert not courier.submit(Notice(BODY, endpoint.hook, OPS, "c", lambda: None))
        assert courier.submit(Notice(BODY, endpoint.hook, ("acme", "other"), "c", settled[2].set))
    finally:
        enough.set()
    assert all(event.wait(30) for event in settled)


def test_stop_waits_until_a_delivered_notice_is_settled(endpoint: Endpoint) -> None:
    courier = Courier(Counters(), lambda: 1_800_000_000.0, LOOPBACK)
    began, enough, settled = threading.Event(), threading.Event(), list[str]()

    def done() -> None:
        began.set()
        enough.wait(10)
        settled.append("it is")

    assert courier.submit(Notice(BODY, endpoint.hook, OPS, "a", done))
    assert began.wait(30)
    timer = threading.Timer(0.1, enough.set)
    timer.start()
    courier.stop()
    timer.join()
    assert settled == ["it is"]
    assert not courier.try_once(endpoint.hook(), BODY).delivered
