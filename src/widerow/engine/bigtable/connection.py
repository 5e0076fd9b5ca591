"""The way to Bigtable: channels, deadlines, and what its errors mean to us.

Rule 1: every call has a deadline. A call that did not answer in time has failed, whatever became of it.
Rule 2: only what can be repeated is repeated: reads, and mutations with explicit timestamps; until the deadline, no longer.
`check` is asked once, because a repeated comparison would see its own first try.
Rule 3: each entry of a bulk mutation has its own status. One without any has failed.
Rule 4: every request goes by `app_profile`, which one cluster serves; only a read whose caller says that it may lag goes by
`read_app_profile`. What is read before a write must be what the write meets.
Calls run side by side without threads of ours: a call is under way as soon as it is made, and is waited for in turn.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from google.api_core.exceptions import GoogleAPICallError
from google.api_core.gapic_v1.routing_header import to_grpc_metadata
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.cloud.bigtable_admin_v2 import BigtableTableAdminClient
from google.cloud.bigtable_admin_v2.services.bigtable_table_admin.transports import BigtableTableAdminGrpcTransport
from google.cloud.bigtable_v2 import types as bigtable
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport

from widerow.engine.bigtable.wire import field
from widerow.model.arrays import Ints
from widerow.model.errors import ConfigError, Corrupt, StorageFull, StoreUnavailable
from widerow.model.names import Names
from widerow.model.times import DAY

EMULATOR = "BIGTABLE_EMULATOR_HOST"

_SERVICE = "/google.bigtable.v2.Bigtable/"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
)
_UNKNOWN = -1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0

_C = grpc.StatusCode
_ERRORS: dict[grpc.StatusCode, type[Exception]] = {
    _C.CANCELLED: StoreUnavailable,
    _C.UNKNOWN: StoreUnavailable,
    _C.DEADLINE_EXCEEDED: StoreUnavailable,
    _C.ABORTED: StoreUnavailable,
    _C.INTERNAL: StoreUnavailable,
    _C.UNAVAILABLE: StoreUnavailable,
    _C.RESOURCE_EXHAUSTED: StorageFull,  # a quota, or the disk of the nodes
    _C.NOT_FOUND: ConfigError,
    _C.ALREADY_EXISTS: ConfigError,
    _C.PERMISSION_DENIED: ConfigError,
    _C.UNAUTHENTICATED: ConfigError,
    _C.FAILED_PRECONDITION: ConfigError,
    _C.UNIMPLEMENTED: ConfigError,
    _C.INVALID_ARGUMENT: ValueError,
    _C.OUT_OF_RANGE: ValueError,
    _C.DATA_LOSS: Corrupt,
}
_RETRIED = (_C.UNAVAILABLE, _C.ABORTED, _C.INTERNAL)
_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True, kw_only=True)
class BigtableSettings:
    """How Bigtable is spoken to."""

    app_profile: str = ""
    """Empty: the instance's default. It must route to a single cluster: conditional tables need that."""
    read_app_profile: str = ""
    """For reads that may lag, by some seconds where it routes to several clusters. Empty: the one above."""
    deadline_s: float = 30.0
    """How long a call may take, with its repetitions."""
    writes_in_flight: int = 4
    """Requests of one `write` that are under way at a time."""
    checks_in_flight: int = 64
    """Rows of one `insert` that are under way at a time."""
    age_margin_us: int = DAY
    """How much longer than they must Bigtable keeps the cells of a window: a report may be stamped before its event time, by
    as much as clocks differ."""


@dataclass(slots=True)
class Counts:
    """What was asked of Bigtable so far. Only ever added to, without a lock: figures for people."""

    requests: int = 0
    repeated: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


def failure(code: grpc.StatusCode, where: str, detail: str) -> Exception:
    """The error of ours that a status means."""
    kind = _ERRORS.get(code, StoreUnavailable)
    return kind(f"Bigtable, {where}: {code.name.lower().replace('_', ' ')}: {detail}")


class Connection:
    """One instance, spoken to over one channel. Safe to share between threads."""

    def __init__(self, project: str, instance: str, settings: BigtableSettings, credentials: Credentials | None) -> None:
        self.instance = f"projects/{project}/instances/{instance}"
        self.settings = settings
        self.counts = Counts()
        self._emulator = os.environ.get(EMULATOR)
        self._credentials = credentials
        try:
            self._channel = (
                grpc.insecure_channel(self._emulator, options=_OPTIONS)
                if self._emulator
                else BigtableGrpcTransport.create_channel(credentials=credentials, options=_OPTIONS)
            )
        except GoogleAuthError as error:
            raise ConfigError(f"Bigtable: no credentials: {error}; set {EMULATOR} to use an emulator") from None
        self._read = self._channel.unary_stream(_SERVICE + "ReadRows")
        self._mutate = self._channel.unary_stream(_SERVICE + "MutateRows")
        self._check = self._channel.unary_unary(_SERVICE + "CheckAndMutateRow")
        self._sample = self._channel.unary_stream(_SERVICE + "SampleRowKeys")
        self._admin: BigtableTableAdminClient | None = None

    def admin(self) -> BigtableTableAdminClient:
        """The client for tables and families: Google's own, there speed is of no matter."""
        if self._admin is None:
            transport = BigtableTableAdminGrpcTransport
            channel = grpc.insecure_channel(self._emulator) if self._emulator else None
            self._admin = BigtableTableAdminClient(
                transport=transport(channel=channel) if channel else transport(credentials=self._credentials)
            )
        return self._admin

    def close(self) -> None:
        self._channel.close()
        if self._admin is not None:
            self._admin.transport.close()
            self._admin = None

    def table_name(self, table_id: str) -> str:
        return f"{self.instance}/tables/{table_id}"

    @property
    def on_emulator(self) -> bool:
        return bool(self._emulator)

    def sample_row_keys(self, table_id: str) -> list[tuple[bytes, int]]:
        """Row keys at or near the borders of tablets, in order, each with the bytes in front of it."""
        route = self._route(table_id)
        call = self._start(self._sample, route, route.head(2), self.settings.deadline_s)
        try:
            found = [bigtable.SampleRowKeysResponse.deserialize(answer) for answer in call]
        except grpc.RpcError as error:
            raise failure(error.code(), table_id, error.details() or "") from None
        return [(one.row_key, one.offset_bytes) for one in found]

    def _route(self, table_id: str, *, may_lag: bool = False) -> _Route:
        profile = (may_lag and self.settings.read_app_profile) or self.settings.app_profile
        return _Route(table_id, self.table_name(table_id), profile)

    def _start(self, call: Any, route: _Route, request: bytes, timeout_s: float) -> Any:
        self.counts.requests += 1
        self.counts.sent_bytes += len(request)
        return call(request, timeout=max(timeout_s, 0.001), metadata=route.metadata())

    # -- reading

    def read(self, table_id: str, requests: Sequence[bytes], *, may_lag: bool = False) -> list[bytes]:
        """The whole answer to each request, a ReadRowsRequest without its table. All are under way at once."""
        deadline, route = _Deadline(self.settings.deadline_s), self._route(table_id, may_lag=may_lag)
        head = route.head(5)
        whole = [head + request for request in requests]
        calls = [self._start(self._read, route, request, deadline.left_s()) for request in whole]
        try:
            return [self._answer(route, request, calls, i, deadline) for i, request in enumerate(whole)]
        finally:
            for call in calls:
                call.cancel()  # of those that have ended, nothing

    def _answer(self, route: _Route, request: bytes, calls: list[Any], i: int, deadline: _Deadline) -> bytes:
        while True:
            try:
                answer = b"".join(calls[i])
            except grpc.RpcError as error:
                if error.code() not in _RETRIED or not deadline.pause():
                    raise failure(error.code(), route.table_id, error.details() or "") from None
                self.counts.repeated += 1
                calls[i] = self._start(self._read, route, request, deadline.left_s())
            else:
                self.counts.received_bytes += len(answer)
                return answer

    # -- writing

    def mutate(self, table_id: str, requests: Iterable[Names]) -> None:
        """Apply entries, several requests at a time. Raises unless every one of them is known to be applied."""
        deadline, route = _Deadline(self.settings.deadline_s), self._route(table_id)
        head = route.head(3)
        waiting, more = iter(requests), True
        again: deque[Names] = deque()
        running: deque[tuple[Names, Any]] = deque()
        try:
            while True:
                while (more or again) and len(running) < self.settings.writes_in_flight:
                    entries = again.popleft() if again else next(waiting, None)
                    if entries is None:
                        more = False
                        continue
                    body = entries.data[entries.offsets[0] : entries.offsets[-1]].tobytes()
                    running.append((entries, self._start(self._mutate, route, head + body, deadline.left_s())))
                if not running:
                    return
                entries, call = running.popleft()
                failed, code, detail = _outcome(call, len(entries))
                if not len(failed):
                    deadline.progress()
                    continue
                if code not in _RETRIED or not deadline.pause():
                    raise failure(code, table_id, f"{len(failed)} of {len(entries)} rows not written: {detail}")
                self.counts.repeated += 1
                again.append(entries.take(failed))
        finally:
            for _, call in running:
                call.cancel()

    # -- comparing

    def check(self, table_id: str, requests: Sequence[bytes]) -> list[bool]:
        """Whether each predicate held: CheckAndMutateRowRequests without their table, several at a time, each sent once."""
        route = self._route(table_id)
        head = route.head(7)
        running: deque[Any] = deque()
        out: list[bool] = []
        failures: list[Exception] = []

        def wait() -> None:
            try:
                answer = bigtable.CheckAndMutateRowResponse.deserialize(running.popleft().result())
                out.append(bool(answer.predicate_matched))
            except grpc.RpcError as error:
                detail = error.details() or ""
                if error.code() is _C.FAILED_PRECONDITION:
                    detail += "; bigtable.app_profile must route to a single cluster and allow transactions on single rows"
                failures.append(failure(error.code(), table_id, detail))

        for request in requests:
            if len(running) >= self.settings.checks_in_flight:
                wait()
            if failures:
                break
            running.append(self._start(self._check.future, route, head + request, self.settings.deadline_s))
        while running:  # after a failure, too: each may have changed its row
            wait()
        if failures:
            raise failures[0]
        return out


@dataclass(frozen=True, slots=True)
class _Route:
    """Which table a request is for, and by which profile it goes."""

    table_id: str
    table_name: str
    profile: str

    def head(self, profile_tag: int) -> bytes:
        """How a request begins. The profile's field has another number in each kind of request."""
        return field(1, self.table_name.encode()) + (field(profile_tag, self.profile.encode()) if self.profile else b"")

    def metadata(self) -> list[tuple[str, str]]:
        """`x-goog-request-params`: Bigtable finds the cluster by this header, before it reads the request."""
        named = (("table_name", self.table_name), ("app_profile_id", self.profile))
        return [to_grpc_metadata([(name, value) for name, value in named if value])]


def _outcome(call: Any, n: int) -> tuple[Ints, grpc.StatusCode, str]:
    """Which of n entries failed, or have no status; with the first of the codes that forbid repeating, if any."""
    codes = np.full(n, _UNKNOWN, np.int64)
    code, detail = _C.UNAVAILABLE, "no status for some rows"
    try:
        for answer in call:
            for one in bigtable.MutateRowsResponse.pb(bigtable.MutateRowsResponse.deserialize(answer)).entries:
                codes[one.index] = one.status.code
                if one.status.code and _CODES.get(one.status.code, _C.UNKNOWN) not in _RETRIED:
                    code, detail = _CODES.get(one.status.code, _C.UNKNOWN), one.status.message
    except grpc.RpcError as error:
        code, detail = error.code(), error.details() or ""
    return np.flatnonzero(codes), code, detail


class _Deadline:
    """The time a call has left, and growing pauses between its repetitions."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._pause_s = _FIRST_PAUSE_S

    def left_s(self) -> float:
        return self._end - time.monotonic()

    def pause(self) -> bool:
        """Wait a little. False: there is no time left for another try."""
        if self.left_s() < 2 * self._pause_s:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True

    def progress(self) -> None:
        """Something was written: a long write has as long for each of its requests."""
        self._end = time.monotonic() + self._seconds
        self._pause_s = _FIRST_PAUSE_S


def admin_failure(error: GoogleAPICallError, where: str) -> Exception:
    code = error.grpc_status_code
    return failure(code if isinstance(code, grpc.StatusCode) else _C.UNKNOWN, where, error.message or str(error))
