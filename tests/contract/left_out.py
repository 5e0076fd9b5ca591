"""Every law that an engine does not keep, and why. Such a law is not run on it; one that skips itself fails."""

from __future__ import annotations

_FORGOTTEN = "what is in memory is gone with the process: there is nothing to reopen"
_BY_ITSELF = "the store gives the space of what has expired back by itself, when it likes; reads never show it"
_TOMBSTONES = "a tombstone hides older data written later until gc_grace_seconds are over; erase marks hide it anyway"

LEFT_OUT = {
    ("TestMemory", "test_what_was_acknowledged_is_there_after_reopening"): _FORGOTTEN,
    ("TestMemory", "test_dropped_windows_stay_dropped_after_reopening"): _FORGOTTEN,
    ("TestCassandra", "test_dropped_windows_give_their_space_back"): _BY_ITSELF,
    ("TestCassandra", "test_older_data_written_after_a_delete_shows"): _TOMBSTONES,
    ("TestBigtable", "test_dropped_windows_give_their_space_back"): _BY_ITSELF,
}
