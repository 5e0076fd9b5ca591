"""What `doctor` looks at, each as a function from figures to a verdict, so that every verdict can be tested.

A `fail` is something that loses or refuses data now; a `warn` is something that will, or that makes it slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from widerow.cli.output import size
from widerow.config import Config
from widerow.model.tenant import GUARD_US
from widerow.model.times import SECOND, about_duration, format_time, parse_rfc3339

MIB = 1 << 20
GIB = 1 << 30

RELEASED_US = parse_rfc3339("2025-01-01T00:00:00Z")
"""No clock that is right shows an earlier time."""


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: Verdict
    found: str
    todo: str = ""


def worse(low: float, high: float, value: float) -> Verdict:
    """Ok up to `low`, a warning up to `high`, a failure beyond."""
    return Verdict.OK if value <= low else Verdict.WARN if value <= high else Verdict.FAIL


def check_disk(free_bytes: int, total_bytes: int, reserve_bytes: int) -> Check:
    found = f"{size(free_bytes)} free of {size(total_bytes)}; reserve {size(reserve_bytes)}"
    if free_bytes < reserve_bytes:
        return Check("disk", Verdict.FAIL, found, "writes are refused: free some space (store.reserve_mib is the reserve)")
    if free_bytes < max(10 * reserve_bytes, GIB):
        return Check("disk", Verdict.WARN, found, "free some space, or shorten the retention of a tenant")
    return Check("disk", Verdict.OK, found)


def check_sync(latencies_s: Sequence[float]) -> Check:
    """Every acknowledgement waits for one sync to disk."""
    ordered = sorted(latencies_s)
    middle_ms, slowest_ms = 1e3 * ordered[len(ordered) // 2], 1e3 * ordered[-1]
    verdict = worse(20, 200, middle_ms)
    todo = "" if verdict is Verdict.OK else "put the data on a faster disk; network disks often sync slowly"
    return Check(
        "write and sync",
        verdict,
        f"p50 {about_duration(1e3 * middle_ms)}, slowest of {len(ordered)} {about_duration(1e3 * slowest_ms)}",
        todo,
    )


def check_clock(now_us: int) -> Check:
    found = format_time(now_us - now_us % SECOND)
    if now_us < RELEASED_US:
        return Check("clock", Verdict.FAIL, found, "set the clock: it shows a time before this program existed")
    return Check("clock", Verdict.OK, found)


def check_trust(trusted: bool, reason: str, ahead_s: int) -> Check:
    """Data expires by the clock; versions come from one of the store's own, which may be ahead of it."""
    if not trusted:
        todo = "compare it with another clock; set it (NTP), or, if it is right, widerow doctor --confirm-clock"
        return Check("clock and store", Verdict.WARN, reason, todo)
    ahead = f"; versions are {about_duration(ahead_s * SECOND)} ahead of it, which does no harm" if ahead_s else ""
    return Check("clock and store", Verdict.OK, f"data expires by the clock{ahead}")


def check_skew(skew_us: int, round_trip_us: int, max_future_us: int) -> Check:
    """How far the server's clock is from ours, as well as a request can tell."""
    apart_us = max(0, abs(skew_us) - round_trip_us)
    which = "ahead of" if skew_us > 0 else "behind"
    found = "no difference to see" if not apart_us else f"the server is {about_duration(apart_us)} {which} this machine"
    verdict = worse(SECOND, max(max_future_us, 2 * SECOND), apart_us)
    return Check("clock of the server", verdict, found, "" if verdict is Verdict.OK else "set both clocks by NTP")


def check_compaction(pending_bytes: float | None) -> Check:
    if pending_bytes is None:
        return Check("compaction", Verdict.SKIPPED, "the server does not tell")
    verdict = worse(4 * GIB, 64 * GIB, pending_bytes)
    todo = "" if verdict is Verdict.OK else "writes outrun the disk: slow them down, or use a faster disk"
    return Check("compaction", verdict, f"{size(pending_bytes)} wait for it", todo)


def check_size(disk_bytes: int | None, memory_bytes: int | None) -> Check:
    """Cassandra and Bigtable have no question that a client could ask for it."""
    if disk_bytes is None:
        todo = "Cassandra: nodetool tablestats KEYSPACE on each node; Bigtable: its console"
        return Check("size of the store", Verdict.SKIPPED, "this store does not tell its clients", todo)
    memory = "" if memory_bytes is None else f", {size(memory_bytes)} in memory"
    return Check("size of the store", Verdict.OK, f"{size(disk_bytes)} on disk{memory}")


def check_rollups(behind_s: float, margin_s: float, pending: int) -> Check:
    """What rollups are computed from stays `GUARD_US` beyond its retention; who is behind eats from that."""
    behind, margin = f"{about_duration(behind_s * SECOND)} behind", f"a margin of {about_duration(margin_s * SECOND)}"
    found = f"{behind}, {pending:,} windows wait, {margin}" if behind_s > 60 else f"up to date, {margin}"
    if margin_s < GUARD_US / SECOND / 2:
        todo = "roll before the margin is gone: `serve` must run, rollup.enabled be 1; its log says what fails"
        return Check("rollups", Verdict.FAIL, found, todo)
    if behind_s > 2 * 3600:
        return Check("rollups", Verdict.WARN, found, "is `serve` running, with rollup.enabled = 1? its log says what fails")
    return Check("rollups", Verdict.OK, found)


def check_memory(available_bytes: int, config: Config) -> Check:
    wanted = (config.store.cache_mib + config.store.write_buffer_mib + config.pipeline.max_in_flight_mib) * MIB
    found = f"{size(available_bytes)} available; caches and buffers may take {size(wanted)}"
    verdict = worse(0.8, 1.5, wanted / max(available_bytes, 1))
    todo = "" if verdict is Verdict.OK else "lower store.cache_mib, store.write_buffer_mib or pipeline.max_in_flight_mib"
    return Check("memory", verdict, found, todo)


def check_tenant_memory(held: Mapping[str, Mapping[str, int]]) -> Check:
    """Who needs how much of the server's memory, as far as it can be told apart."""
    total = {tenant: sum(parts.values()) for tenant, parts in held.items()}
    if not any(total.values()):
        return Check("memory of tenants", Verdict.OK, "none to speak of")
    most = max(total, key=lambda tenant: total[tenant])
    parts = sorted(held[most].items(), key=lambda part: -part[1])
    shown = ", ".join(f"{what.replace('_', ' ')} {size(taken)}" for what, taken in parts if taken)
    return Check(
        "memory of tenants", Verdict.OK, f"{size(sum(total.values()))}; most for {most}, {size(total[most])}: {shown}"
    )


def check_damage(damage: Sequence[str]) -> Check:
    """What reads and compactions have met so far: nobody has looked at the rest."""
    if not damage:
        return Check("damage", Verdict.OK, "none was met")
    return Check(
        "damage", Verdict.FAIL, "; ".join(damage), "check the disk; restore a backup, or drop the window that is damaged"
    )


def check_files(limit: int) -> Check:
    """A big store has many files open at a time, and each connection is one more."""
    verdict = Verdict.OK if limit >= 4096 else Verdict.WARN
    return Check("open files", verdict, f"at most {limit:,}", "" if verdict is Verdict.OK else "raise it: ulimit -n 65536")


def check_version(ours: str, theirs: str) -> Check:
    if ours == theirs:
        return Check("version", Verdict.OK, ours)
    return Check("version", Verdict.WARN, f"{ours} here, {theirs} at the server", "use the same version on both sides")


def check_settings(config: Config) -> Check:
    """What is allowed, and still seldom meant."""
    if config.http.host not in ("127.0.0.1", "::1", "localhost") and not config.http.tls_cert:
        return Check(
            "configuration",
            Verdict.WARN,
            f"http.host is {config.http.host}: tokens cross the network as they are",
            "set http.tls_cert, or put a proxy with TLS in front",
        )
    if config.pipeline.max_tenant_in_flight_mib > config.pipeline.max_in_flight_mib:
        return Check(
            "configuration",
            Verdict.WARN,
            "pipeline.max_tenant_in_flight_mib is more than pipeline.max_in_flight_mib",
            "lower it, so that one tenant cannot take all",
        )
    return Check("configuration", Verdict.OK, "no problem found")
