"""A short run of the fuzzer; `make fuzz` runs the long one."""

from fuzz.line import fuzz_line


def test_hostile_lines_are_kept_or_refused_and_never_lost() -> None:
    fuzz_line(3_000, seed=1)
