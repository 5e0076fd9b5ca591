"""What tenants use is recorded where they use it, on every engine."""

from __future__ import annotations

from system.conftest import Site, now_ms
from widerow.model.times import DAY, HOUR, TimeSpan
from widerow.model.token import Role


def recorded(site: Site, tenant: str) -> dict[str, float]:
    """All of the last hours together."""
    now_us = site.service.clock.now_us()
    site.service.usage.flush()
    total: dict[str, float] = {}
    for hour in site.service.recorded.hours(tenant, TimeSpan(now_us - 3 * HOUR, now_us + HOUR)).values():
        for name, value in hour.items():
            total[name] = total.get(name, 0.0) + value
    return total


def test_reports_and_questions_are_recorded_by_tenant(site: Site) -> None:
    before, others = recorded(site, "acme"), recorded(site, "umbra")
    now = now_ms()
    reports = [{"device": f"u-{i}", "time": now - i, "values": {"a": 1, "b": 2}} for i in range(3)]
    reports.append({"device": "u-0", "time": now + DAY // 1000, "values": {"a": 1}})
    answer = site.client(Role.WRITE).post("/v1/write", json=reports)
    assert answer.status_code == 207
    question = site.client(Role.READ).get("/v1/devices/u-0/series")
    assert question.status_code == 200
    after = recorded(site, "acme")
    used = {name: after[name] - before.get(name, 0.0) for name in after}
    assert (used["offered"], used["accepted"], used["values"], used["refused:future"]) == (4, 3, 6, 1)
    assert used["received_bytes"] == len(answer.request.content)
    assert used["written_bytes"] == 3 * (41 + len("acme") + len("u-0") + 2 * 8)
    assert (used["questions"], used["rows_read"], used["answered_bytes"]) == (1, 2, len(question.content))
    assert used["question_seconds"] > 0
    assert recorded(site, "umbra") == others


def test_seconds_of_live_reports_and_backlog_are_told_apart(site: Site) -> None:
    now = now_ms()
    old = [{"device": "u-9", "time": now - 7_200_000 - i, "values": {"a": 1}} for i in range(5)]
    live = [{"device": "u-9", "time": now - i, "values": {"a": 1}} for i in range(2)]
    for body in (old, live):
        assert site.client(Role.WRITE, "umbra").post("/v1/write", json=body).status_code == 204
    site.service.usage.flush()
    now_us = site.service.clock.now_us()
    hours = list(site.service.recorded.seconds("umbra", TimeSpan(now_us - 3 * HOUR, now_us + HOUR)))
    assert (sum(hour.live.sum() for hour in hours), sum(hour.backlog.sum() for hour in hours)) == (2, 5)
