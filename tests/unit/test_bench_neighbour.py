"""What the benchmark of two tenants says of what it found."""

from __future__ import annotations

from bench.neighbour import BESIDE, BEYOND, PARTS, WITHIN, added, judged, order_of


def found(base: str, *ratios: float) -> dict[str, float]:
    names = ("ack_p50", "ack_p99", "query_p50", "query_p99", "rss")
    return {f"neighbour_{name}_beyond_to_{base}": ratio for name, ratio in zip(names, ratios, strict=True)}


def test_each_figure_of_a_pair_is_said_to_be_as_wanted_or_not() -> None:
    lines = list(judged(found("beside", 0.5, 1.15, 1.151, 1.0, 1.051) | {"neighbour_rss_mib": 200.0}))
    assert lines[0].startswith("beyond vs beside: what A sends beyond its quota, against the same load on the machine")
    assert lines[1] == "  neighbour_ack_p50_beyond_to_beside 0.500, within 15%: yes"
    assert [line.rpartition(", ")[2] for line in lines[1:]] == [
        "within 15%: yes",
        "within 15%: yes",
        "within 15%: no",
        "within 15%: yes",
        "within 5%: no",
    ]


def test_a_pair_that_was_not_measured_is_not_judged() -> None:
    both = found("beside", *[1.0] * 5) | found("within", *[1.0] * 5)
    pairs = [line.partition(":")[0] for line in judged(both) if not line.startswith(" ")]
    assert pairs == ["beyond vs beside", "beyond vs within"]
    assert list(judged(found("alone", *[1.0] * 5))) == []


def test_a_part_is_before_another_about_as_often_as_after_it() -> None:
    for parts, base in (((WITHIN, BESIDE, BEYOND), WITHIN), ((WITHIN, BESIDE, BEYOND), BESIDE), ((BESIDE, BEYOND), BESIDE)):
        orders = [order_of(parts, number) for number in range(5)]
        assert all(sorted(order) == sorted(parts) for order in orders)
        assert sum(order.index(BEYOND) > order.index(base) for order in orders) in (2, 3)
    assert {order_of(PARTS, number)[0] for number in range(8)} == set(PARTS), "each is first at times"


def test_what_the_other_met_with_in_several_blocks_is_added_up() -> None:
    one = {"wall_s": 10.0, "lines": 100, "writes": {"204": 3, "429": 5}, "questions": {"200": 1}}
    other = {"wall_s": 20.0, "lines": 100, "writes": {"429": 7}, "questions": {}}
    both = {"wall_s": 30.0, "lines": 100, "writes": {"204": 3, "429": 12}, "questions": {"200": 1}}
    assert (added(one, other), added({}, one), added(one, {})) == (both, one, one)
