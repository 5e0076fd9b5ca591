"""What a batch must satisfy before anything of it is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.batch import Report, batch_of, reports_of
from widerow.model.tenant import FOREVER, RetentionEpoch, Tenant
from widerow.model.times import DAY, END_EVENT_US, FIRST_EVENT_US, HOUR, MINUTE
from widerow.pipeline.check import check

NOW = 1_800_000_000_000_000
TENANT = Tenant(name="acme")


def run(
    reports: list[Report], only_device: str | None = None, tenant: Tenant = TENANT
) -> tuple[list[Report], list[tuple[str, list[int]]]]:
    batch, refusals = check(batch_of(reports), tenant, now_us=NOW, max_future_us=5 * MINUTE, only_device=only_device)
    return reports_of(batch), [(r.code, list(r.positions)) for r in refusals]


def report(device: str = "d", time_us: int = NOW, tags: dict[str, str] | None = None, **values: float | str) -> Report:
    return Report(device, time_us, dict(values), tags or {})


def test_reports_far_ahead_or_too_old_are_refused_and_their_neighbours_kept() -> None:
    good = report(x=1)
    kept, refused = run([report(time_us=NOW + HOUR, x=1), good, report(time_us=NOW - 31 * DAY, x=1)])
    assert kept == [good]
    assert refused == [("future", [0]), ("too-old", [2])]


def test_the_limits_themselves_are_kept() -> None:
    edge = [report(time_us=NOW + 5 * MINUTE, x=1), report(time_us=NOW - 30 * DAY, x=1)]
    assert run(edge) == (edge, [])


def test_a_time_before_1980_or_after_2200_is_refused_with_a_hint_and_its_neighbours_kept() -> None:
    good = report(x=1)
    tenant = Tenant(name="acme", raw_epochs=(RetentionEpoch(0, FOREVER),))
    times = [1_794_729_600_000, FIRST_EVENT_US - 1, FIRST_EVENT_US, END_EVENT_US, 0]
    batch = batch_of([good, *(report(f"d{i}", time_us, x=1) for i, time_us in enumerate(times))])
    kept, refusals = check(batch, tenant, now_us=NOW, max_future_us=END_EVENT_US)
    assert [r.device for r in reports_of(kept)] == ["d", "d2"]
    assert [(r.code, list(r.positions)) for r in refusals] == [("time", [1, 2, 4, 5])]
    assert "time 1970-01-21T18:32:09.600Z lies outside 1980..2200" in refusals[0].reason
    assert "precision=" in refusals[0].reason


def test_what_is_too_old_depends_on_the_retention_that_holds_at_its_own_time() -> None:
    """By another, it would be kept and expire at once, before it was rolled up; or be refused though it could be kept. A
    shorter one that came later counts, too: what is older could not be read.
    """

    def check_epochs(old_us: int, new_us: int, refused: list[int]) -> None:
        epochs = (RetentionEpoch(0, old_us), RetentionEpoch(NOW - 5 * DAY, new_us))
        tenant = Tenant(name="acme", raw_epochs=epochs)
        reports = [report(time_us=NOW - days * DAY, x=1) for days in (1, 4, 6, 20, 40)]
        assert run(reports, tenant=tenant)[1] == ([("too-old", refused)] if refused else [])

    check_epochs(30 * DAY, 90 * DAY, [4])
    check_epochs(90 * DAY, 30 * DAY, [4])
    check_epochs(90 * DAY, 2 * DAY, [1, 2, 3, 4])
    check_epochs(0, 30 * DAY, [4])
    check_epochs(10 * DAY, 0, [3, 4])


def test_a_device_token_writes_as_its_device_only() -> None:
    kept, refused = run([report("a", x=1), report("b", x=1)], only_device="a")
    assert [r.device for r in kept] == ["a"]
    assert refused == [("wrong-device", [1])]


def test_an_identical_duplicate_is_kept_once_and_refused_never() -> None:
    assert run([report(x=1, s="on"), report(x=1, s="on")]) == ([report(x=1, s="on")], [])


def test_a_different_value_for_a_cell_is_refused_and_the_first_kept() -> None:
    kept, refused = run([report(x=1), report(x=2), report(x=1, y=3)])
    assert kept == [report(x=1), report(y=3)]
    assert refused == [("conflict", [1])]


def test_a_conflict_names_the_metric_with_its_labels_and_both_values() -> None:
    def says(first: Report, second: Report, *words: str) -> None:
        others = [report("a", z=1), report("a", z=1), report("z", x=1), report("z", x=2)]
        for many in ([first, second], [others[0], first, others[1], second, *others[2:]]):
            _, (refusal,) = check(batch_of(many), TENANT, now_us=NOW, max_future_us=0)
            assert all(word in refusal.reason for word in words), refusal.reason

    used = "disk_used{fstype=ext4,path=/}"
    at = "of 'd' at 2027-01-15T08:00:00Z two different values, "
    says(Report("d", NOW, {"x": 1.0, used: 1.5}, {}), Report("d", NOW, {used: 0.1}, {}), f"metric {used!r} {at}1.5 and 0.1;")
    says(report(x="on"), report(y=1, x="off"), f"the metric 'x' {at}'on' and 'off'")
    says(report(x=1), report(x="1"), "1.0 and '1'")
    says(report(x=1, tags={"x": "a"}), report(x=1, tags={"x": "b"}), f"the tag 'x' {at}'a' and 'b'")


def test_two_reports_of_one_time_with_other_metrics_are_both_kept() -> None:
    both = [report(x=1), report(y=2)]
    assert run(both) == (both, [])


def test_a_number_and_a_text_for_one_cell_contradict_each_other() -> None:
    assert run([report(x=1), report(x="1")])[1] == [("conflict", [1])]


def test_a_tag_and_a_metric_of_one_name_do_not_contradict_each_other() -> None:
    both = [report(x=1, tags={"x": "a"})]
    assert run(both) == (both, [])


cells = st.dictionaries(st.sampled_from("abc"), st.sampled_from([1.0, 2.0, "p", "q"]), min_size=1)
reports = st.lists(
    st.builds(Report, st.sampled_from("de"), st.sampled_from([NOW, NOW - 1]), cells, st.just({})), max_size=12
)


@given(reports)
def test_what_is_kept_never_contradicts_itself_and_loses_no_cell_of_a_kept_report(many: list[Report]) -> None:
    kept, refused = run(many)
    said: dict[tuple[str, int, str], float | str] = {}
    for r in kept:
        for name, value in r.values.items():
            assert said.setdefault((r.device, r.time_us, name), value) == value
    gone = {p for code, positions in refused for p in positions if code == "conflict"}
    for i, r in enumerate(many):
        if i not in gone:
            assert all(said[r.device, r.time_us, name] == value for name, value in r.values.items())


def test_reports_that_were_sent_apart_do_not_contradict_each_other() -> None:
    reports = [report(x=1), report(x=2), report("e", x=1, y=1)]
    batch, refusals = check(batch_of(reports), TENANT, now_us=NOW, max_future_us=0, apart=True)
    assert (reports_of(batch), refusals) == (reports, [])
    same_message = replace(batch_of(reports), position=np.array([4, 4, 4], np.int32))
    batch, refusals = check(same_message, TENANT, now_us=NOW, max_future_us=0, apart=True)
    assert [(r.code, list(r.positions)) for r in refusals] == [("conflict", [4])]
    assert reports_of(batch) == [reports[0], reports[2]]
