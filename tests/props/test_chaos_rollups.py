"""Chaos of any seed leaves no trace in rollups: the law that the engines show for one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.chaos_suite import check_chaos
from contract.rollup_suite import NOW
from widerow.engine.memory import MemoryEngine
from widerow.model.tenant import Tenant
from widerow.model.times import ManualClock


@given(st.integers(0, 1 << 32))
@settings(max_examples=4)
def test_chaos_of_any_seed_leaves_no_trace(seed: int) -> None:
    clock = ManualClock(NOW)
    check_chaos(MemoryEngine(clock), clock, seed, Tenant(name="chaos"))
