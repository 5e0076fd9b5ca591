"""The connection: a driver session with our policies, prepared statements, and bounded requests.

Rule 1: every request has a deadline; a timeout raises `Unavailable`, and so does a cluster that cannot be reached.
Rule 2: what is repeated is idempotent: reads, and plain writes, which carry their timestamps. Conditional ones are tried
once.
Rule 3: at most `in_flight` requests are under way; whoever wants more waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    RequestExecutionException,
    Unauthorized,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import ConnectionException
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, RetryPolicy, TokenAwarePolicy
from cassandra.query import PreparedStatement, tuple_factory

from widerow.model.errors import ConfigError, StoreUnavailable, Unavailable
from widerow.model.times import SECOND, about_duration

_RECONNECT_S = 10.0
"""A node that came back is used again after this long at the latest."""
_TIMES_AGAIN = 2
"""A server waits 2 s for a write and 5 s for a read; the deadline ends what takes longer in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSettings:
    """How a cluster is reached."""

    hosts: tuple[str, ...]
    port: int = 9042
    keyspace: str = "widerow"
    dc: str = "datacenter1"
    replication: int = 1
    """Copies in the data centre, for a keyspace that is made here. One that exists is left as it is."""
    consistency: str = "LOCAL_QUORUM"
    timeout_s: float = 10.0
    in_flight: int = 128
    """Requests under way at once."""
    username: str = ""
    password: str = ""
    tls: SSLContext | None = None


class AskAgain(RetryPolicy):  # type: ignore[misc]
    """What may be repeated is asked again when the server gave up waiting, which it does long before our deadline is over.

    The deadline is that of the request with all its repetitions. Other failures are for the caller to judge.
    """

    def on_read_timeout(self, query: Any, *_: Any, retry_num: int, **__: Any) -> Any:
        again = getattr(query, "is_idempotent", False) and retry_num < _TIMES_AGAIN
        return (self.RETRY, None) if again else (self.RETHROW, None)

    on_write_timeout = on_read_timeout

    def on_unavailable(self, *_: Any, **__: Any) -> Any:
        return self.RETHROW, None

    on_request_error = on_unavailable


_NOT_PREPARED = "Error preparing query"


class Brief(logging.Filter):
    """A statement that cannot be prepared is a line. The driver raises it as well, and whoever asked reports it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] and str(record.msg).startswith(_NOT_PREPARED):
            error = record.exc_info[1]
            record.msg, record.args = f"{record.getMessage().rstrip(' :')}: {type(error).__name__}: {error}", None
            record.exc_info = record.exc_text = None
        return True


_BRIEF = Brief()


class Connection:
    """A session. Safe to share between threads."""

    def __init__(self, settings: CassandraSettings) -> None:
        self.settings = settings
        logging.getLogger("cassandra.cluster").addFilter(_BRIEF)
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.dc)),
            retry_policy=AskAgain(),
            consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=settings.timeout_s,
            row_factory=tuple_factory,
        )
        auth = PlainTextAuthProvider(settings.username, settings.password) if settings.username else None
        self._cluster = Cluster(
            list(settings.hosts),
            port=settings.port,
            auth_provider=auth,
            ssl_context=settings.tls,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=settings.timeout_s,
            reconnection_policy=ExponentialReconnectionPolicy(1.0, _RECONNECT_S),
            control_connection_timeout=settings.timeout_s,
            protocol_version=4,
        )
        self._prepared: dict[str, PreparedStatement] = {}
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(settings.in_flight)
        with reported():
            self.session: Session = self._connected()

    def _connected(self) -> Session:
        try:
            return self._cluster.connect()
        except NoHostAvailable:
            known = {host.datacenter for host in self._cluster.metadata.all_hosts()} - {None}
            self._cluster.shutdown()
            if known and self.settings.dc not in known:
                there = ", ".join(sorted(known))
                raise ConfigError(
                    f"cassandra: there is no data centre {self.settings.dc!r}: give ?dc= one of {there}"
                ) from None
            raise

    def close(self) -> None:
        self._cluster.shutdown()

    def prepare(self, cql: str, *, idempotent: bool = True) -> PreparedStatement:
        statement = self._prepared.get(cql)
        if statement is None:
            with self._lock, reported():
                statement = self.session.prepare(cql)
                statement.is_idempotent = idempotent
                self._prepared[cql] = statement
        return statement

    def define(self, cql: str) -> None:
        """Run a definition. These take longer than requests."""
        with reported():
            self.session.execute(cql, timeout=max(60.0, self.settings.timeout_s))

    def execute_all(self, requests: Iterable[Any]) -> list[Any]:
        """Run statements at once, as many as may be, and wait for all; then raise the first failure, if there was one."""
        sent = [self.send(request) for request in requests]
        results: list[Any] = []
        failure: BaseException | None = None
        for future in sent:
            try:
                with reported():
                    results.append(future.result())
            except Unavailable as error:
                failure = failure or error
                results.append(None)
        if failure is not None:
            raise failure
        return results

    def send(self, statement: Any, host: Any = None) -> Any:
        """Start a request as soon as there is a slot; its `result()` is to be waited for inside `reported()`.

        `host`: the node of the driver's metadata that answers, and no other.
        """
        deadline = self.settings.timeout_s
        if not self._slots.acquire(timeout=deadline):
            raise StoreUnavailable(
                f"cassandra: {self.settings.in_flight} requests wait for an answer for {about_duration(deadline * SECOND)}"
            )
        try:
            with reported():
                future = self.session.execute_async(statement, timeout=deadline, host=host)
        except BaseException:
            self._slots.release()
            raise
        slot = _Slot(self._slots)
        future.add_callbacks(slot.free, slot.free)
        return future

    def await_schema(self, keyspace: str, table: str) -> None:
        """Until the driver knows a table that was just made."""
        deadline = time.monotonic() + self.settings.timeout_s
        while table not in getattr(self._cluster.metadata.keyspaces.get(keyspace), "tables", {}):
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"cassandra: {keyspace}.{table} was made but is not seen")
            with reported():
                self._cluster.refresh_table_metadata(keyspace, table)

    @property
    def metadata(self) -> Any:
        return self._cluster.metadata


class _Slot:
    """A request's place. The driver calls back for every page of an answer; the first one frees it."""

    def __init__(self, slots: threading.BoundedSemaphore) -> None:
        self._slots: threading.BoundedSemaphore | None = slots

    def free(self, _: Any) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release()


class reported:  # noqa: N801 - reads as a phrase: with reported()
    """Turn what the driver raises into ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or not isinstance(error, (DriverException, NoHostAvailable, ConnectionException, OSError)):
            return
        if isinstance(error, (AuthenticationFailed, Unauthorized)):
            raise ConfigError(f"cassandra: {error}") from error
        if isinstance(error, NoHostAvailable):
            causes = error.errors.values() if isinstance(error.errors, dict) else []
            if any(isinstance(cause, AuthenticationFailed) for cause in causes):
                raise ConfigError(f"cassandra: {error}") from error
            raise StoreUnavailable(f"cassandra: no host answers: {error}") from error
        if isinstance(error, InvalidRequest):
            raise ValueError(f"cassandra: {error}") from error  # noqa: TRY004 - what was asked is wrong
        if isinstance(error, (OperationTimedOut, RequestExecutionException, ConnectionException, OSError)):
            raise StoreUnavailable(f"cassandra: {error}") from error
        raise StoreUnavailable(f"cassandra: {type(error).__name__}: {error}") from error
