"""Names with labels have one form, which is read back as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.model.errors import Rejected
from widerow.model.labels import Selector, Selectors, cut_names, labelled, parted

TEXTS = st.text("ab\\,={} /é", min_size=1)


def test_labels_stand_in_order_of_their_names() -> None:
    assert labelled("disk_used", {"path": "/", "fstype": "ext4"}) == "disk_used{fstype=ext4,path=/}"
    assert labelled("disk_used", {}) == "disk_used"


@given(TEXTS, st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=3))
def test_a_labelled_name_is_read_as_it_was_written(name: str, labels: dict[str, str]) -> None:
    assert parted(labelled(name, labels)) == (name, labels)


@given(TEXTS)
def test_every_stored_name_has_a_plain_name(stored: str) -> None:
    name, labels = parted(stored)
    assert (name, labels) == (stored, {}) or labelled(name, labels) == stored


def test_a_plain_name_means_all_its_variants() -> None:
    def check(text: str, stored: str, want: bool) -> None:
        assert Selector.of(text).means(stored) is want

    check("disk_used", "disk_used", True)
    check("disk_used", "disk_used{path=/}", True)
    check("disk_used{path=/}", "disk_used{fstype=ext4,path=/}", True)
    check("disk_used{path=/,fstype=ext4}", "disk_used{fstype=ext4,path=/}", True)
    check("disk_used{path=/}", "disk_used{path=/home}", False)
    check("disk_used{path=/}", "disk_used", False)
    check("disk", "disk_used{path=/}", False)
    check("x{", "x{", True)
    check("x{b=1,a=2}", "x{b=1,a=2}", True)
    check("x{b=1,a=2}", "x{a=2,b=1}", True)
    check("x", "x{b=1,a=2}", False)


def test_selectors_hold_what_one_of_them_means() -> None:
    wanted = Selectors.of(["disk_used", "cpu{cpu=0}", "disk_used"])
    assert wanted is not None
    assert len(wanted) == 2
    assert all(stored in wanted for stored in ("disk_used", "disk_used{path=/}", "cpu{cpu=0,host=a}"))
    assert not any(stored in wanted for stored in ("disk_used_max", "cpu", "cpu{cpu=1}", "disk_used{", ""))
    assert wanted == Selectors(("disk_used", "cpu{cpu=0}"))
    assert Selectors.of([]) is None


@given(TEXTS, TEXTS, TEXTS)
def test_the_stem_of_a_selector_begins_the_names_of_its_variants(name: str, label: str, value: str) -> None:
    assert labelled(name, {label: value}).startswith(Selector.of(labelled(name, {})).stem)


def test_commas_inside_braces_part_no_names() -> None:
    def check(text: str, *want: str) -> None:
        assert cut_names(text) == list(want)

    check("a,b", "a", "b")
    check("a{x=1,y=2},b", "a{x=1,y=2}", "b")
    check("a{x=1\\},y=2},b", "a{x=1\\},y=2}", "b")
    check(",a,", "a")
    check("x{", "x{")
    with pytest.raises(Rejected, match="a brace is not closed"):
        cut_names("a{x=1,b")
