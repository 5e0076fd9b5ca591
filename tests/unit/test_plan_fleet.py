"""A described fleet is read whole, and a fault in the file is named with its place."""

import pytest

from widerow.model.errors import ConfigError
from widerow.model.tenant import FOREVER
from widerow.model.times import DAY, HOUR, MINUTE, SECOND
from widerow.plan.fleet import example_fleet, read_fleet, simple_fleet


def test_the_example_describes_the_load_that_widerow_is_built_for() -> None:
    fleet = example_fleet()
    assert fleet.devices == 1_000_000
    assert fleet.retention_us == 30 * DAY
    assert [kind.interval_us for kind in fleet.classes] == [10 * SECOND, 15 * MINUTE]
    assert 90_000 < fleet.reports_per_s < 91_000
    assert fleet.hot[0].from_us == 8 * HOUR
    assert fleet.questions["latest"] == 200


def test_one_class_with_its_devices_is_a_fleet() -> None:
    assert read_fleet("[[class]]\nname = 'device'\ndevices = 1000", "f") == simple_fleet(1000, 10 * SECOND, 10, 30 * DAY)
    assert read_fleet("retention = 'forever'\n[[class]]\ndevices = 1", "f").retention_us == FOREVER


def test_a_fault_is_one_line_that_names_its_place() -> None:
    def check(text: str, *words: str) -> None:
        with pytest.raises(ConfigError) as caught:
            read_fleet(text, "fleet.toml")
        message = str(caught.value)
        assert message.startswith("fleet.toml: ")
        assert "\n" not in message
        for word in words:
            assert word in message, message

    one = "[[class]]\ndevices = 1\n"
    check("", "class", "[[class]]")
    check("tenants = = 3", "line 1")
    check("[[class]]\nname = 'x'", "class[1].devices", "missing")
    check("[[class]]\ndevices = 0", "class[1].devices", "whole number from 1")
    check("[[class]]\ndevices = true", "class[1].devices")
    check(one + "[[class]]\ndevices = 1.5", "class[2].devices", "1.5")
    check(one + "interval = 10", "class[1].interval", '"10s"')
    check(one + "interval = '10 parsecs'", "class[1].interval")
    check(one + "interval = '0s'", "class[1].interval")
    check(one + "colour = 'red'", "class[1].colour", "devices")
    check(one + "id = 'press'", "class[1].id", "{n}")
    check(one + "at_night = 2", "class[1].at_night", "from 0 to 1")
    check("class = 3", "class", "[[class]]")
    check("tenants = 0\n" + one, "tenants")
    check("name = 'x'\n" + one, "name", "tenants")
    check(one + "[questions]\nlatest = -1", "questions.latest")
    check(one + "[questions]\nlast = 1", "questions.last", "device_hour")
    check("questions = 1\n" + one, "questions")
    check(one + "[[hot]]\nclass = 'pump'", "hot[1].class", "pump")
    check(one + "[[hot]]\nfactor = 0.5", "hot[1].factor")
    check("tenants = 2\n" + one, "tenants: 2", "1 at most")
    check("tenants = 4\nlargest_tenant = 0.2\n[[class]]\ndevices = 10", "largest_tenant: 0.2", "1/4", "leave it out")
    check(one + "[[hot]]\ndevices = 2", "hot[1].devices: 2", "'device'", "1 at most")
    check(one + "[[class]]\nname = 'device'\ndevices = 1", "class[2].name", "'device'", "of its own")


def test_each_device_has_a_name_of_its_own() -> None:
    def classes(*given: tuple[str, int]) -> str:
        return "".join(f"[[class]]\nid = '{pattern}'\ndevices = {devices}\n" for pattern, devices in given)

    def check(*given: tuple[str, int], place: str, words: str) -> None:
        with pytest.raises(ConfigError) as caught:
            read_fleet(classes(*given), "f")
        assert str(caught.value).startswith(f"f: {place}.id: "), str(caught.value)
        assert words in str(caught.value)

    check(("{hex:1}", 100), place="class[1]", words="put {hex:4} or {n} into it")
    check(("x{hex:8}", 1_000_000), place="class[1]", words="put {hex:10}")
    check(("{hex:4}", 200), ("{hex:4}", 200), place="class[2]", words="some of 400 devices")
    check(("p-{n}", 9), ("p-{n}", 5), place="class[2]", words="'p-4', as class 'device' does: give it another id, such as")
    check(("p-{n}", 101), ("p-{n:03}", 101), place="class[2]", words="'p-100'")
    for fine in (
        [("{hex:1}-{n}", 100)],
        [("{hex:4}", 100), ("{hex:4}", 100)],
        [("p-{n}", 100), ("p-{n:03}", 100)],
        [("p-{n}", 100), ("q-{n}", 100)],
    ):
        assert len(read_fleet(classes(*fine), "f").classes) == len(fine)
    assert [kind.id for kind in read_fleet("[[class]]\ndevices = 1\n" * 2, "f").classes] == [
        "device-{n:06}",
        "class-2-{n:06}",
    ]
