"""The client: a server or a store, as Python sees it.

    with Client("http://127.0.0.1:8080", token) as client:
        client.write([{"device": "press-7", "time": datetime.now(UTC), "values": {"temperature": 21.5}}])
        client.series("press-7", start="-1d", step="1h", agg=["avg", "max"]).polars()

Rule 1: every method is one question of the HTTP API, whose words and defaults it has; docs/reference/http.md has the rest.
Rule 2: times are aware datetimes, RFC 3339 (`2026-11-15T08:00:00Z`), relative to now (`-1h`), or epoch milliseconds. A
datetime without a zone is refused: nobody knows which instant it is.
Rule 3: an answer is whole, or says what it leaves out, or is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeAlias, TypedDict

import httpx
import pyarrow as pa

from widerow.client.answers import ARROW, Answer, Written, answer_of, whole
from widerow.client.connection import Connection, in_path
from widerow.client.reports import Reports, send_reports
from widerow.model.address import server_url
from widerow.model.errors import Rejected

Time: TypeAlias = datetime | str | int
Names: TypeAlias = str | Sequence[str]

_MOST_DEVICES = 10_000
"""As many as one question may name."""
_PAGE, _DEVICES_PAGE = 10_000, 1_000
_ACCEPT_ARROW = {"Accept": ARROW}


class Match(TypedDict, total=False):
    """Which devices: those that have all of this."""

    type: str
    location: str
    tags: Mapping[str, str]
    prefix: str
    """How their names begin."""
    q: str
    """What is somewhere in their name or display name."""


class Client:
    """A way to a server. Safe to share between threads; close it, or use it as a context.

    `token` decides the tenant; with an operator's, which is for all of them, name one. A question that takes longer than
    `timeout_s` raises `Unavailable`; so does a write that takes longer than `write_timeout_s`. Backlog, which waits where
    live reports come, may take minutes.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        tenant: str | None = None,
        timeout_s: float = 30,
        write_timeout_s: float = 180,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            where = server_url(url)
            http = httpx.Client(base_url=where, headers=headers, timeout=timeout_s)
        except Rejected as error:
            raise Rejected(f"{error}; a store is opened with Client.open", code="usage") from None
        except (httpx.InvalidURL, UnicodeError) as error:
            raise Rejected(f"server {url!r}: {error}", code="usage") from None
        self._connection = Connection(http, where, tenant, write_timeout_s=write_timeout_s)

    @classmethod
    def open(
        cls,
        store: str,
        *,
        tenant: str,
        create: bool = False,
        writes: bool = False,
        config: str | Path | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """The same on a store, without a server: `rocksdb:PATH`, `cassandra://...`, `bigtable://...` or `memory:`.

        A `rocksdb:` store that is being served is reached through its owner. `create` makes the store and the tenant if
        they are not there; in `memory:` the tenant is always made. `writes` is for stores that processes share: it takes the
        writer's lease, without which `write` raises `Unavailable`; where there is Kafka, it hands reports to that. Settings
        and credentials come from `config` (or WIDEROW_CONFIG) and the environment. There is no timeout unless you give one:
        a store that is new to a machine is compiled for it, once, and what a question may take is limited by
        `query.timeout_s`. When the main thread ends, a store that is still open is closed.
        """
        from widerow.client.embedded import open_store  # noqa: PLC0415 - brings the whole platform

        file = None if config is None else Path(config)
        client = cls.__new__(cls)
        client._connection = open_store(  # noqa: SLF001 - one without a URL
            store, tenant, create=create, writes=writes, config=file, timeout_s=timeout_s
        )
        return client

    def close(self) -> None:
        """Let go of the server or the store. Once is enough, and twice is harmless."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._connection.where}>"

    # -- writing

    def write(self, reports: Reports) -> Written:
        """Store reports, and say what became of them: those that are bad are refused, with a reason, and the rest is kept.

        Reports are dicts, any number of them (`{"device", "time", "values": {metric: value}, "tags": {name: text}}`), or a
        pyarrow.Table, Polars DataFrame or whatever else speaks Arrow: wide (`device`, `time`, `tag:NAME`, a column for
        each metric) or long (`device`, `time`, `metric`, `value` and/or `text`). Without a time it is the time of receipt.

        Many are sent in several requests. If one fails, what came before it is durable; sending all of it again is safe.
        """
        return send_reports(self._connection, reports)

    # -- one device

    def series(
        self,
        device: str,
        *,
        metrics: Names | None = None,
        start: Time | None = None,
        end: Time | None = None,
        step: str | None = None,
        agg: Names | None = None,
        tz: str | None = None,
        fill: str | None = None,
        group_by: Names | None = None,
        tags: bool = False,
        limit: int | None = None,
        after: str | None = None,
    ) -> Answer:
        """The points of a device in `[start, end)`, oldest first: the last hour, if neither is given.

        Raw as they are; with `step` or `agg`, statistics: `series("d", start="-7d", step="1h", agg=["avg", "p95"])`.
        `tz` says whose days (`Europe/Berlin`), `fill` what steps without values have (`none`, `null`, `previous`, `linear`).
        `metrics` means all variants of a name (`disk_used`), or those with a label (`disk_used{path=/}`); `group_by` merges
        the variants that have the same value of a label.
        Raw points come with the `tags` of their reports if asked for, and are cut at about `limit`: `next` goes on there.
        Without a limit all of them are fetched; `series_batches` takes less memory.
        """
        asked = _question(metrics, start, end, step=step, agg=agg, tz=tz, fill=fill, tags="true" if tags else None)
        if group_by is not None:
            asked["group_by"] = [*_names(group_by), ""]
        return whole(list(self._pages(device, asked, limit, after)))

    def series_batches(
        self,
        device: str,
        *,
        metrics: Names | None = None,
        start: Time | None = None,
        end: Time | None = None,
        tags: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The raw points of a device, oldest first, as batches that are fetched while they are consumed.

        Should the server fail on the way, that raises: an iteration that ends by itself has seen everything.
        """
        asked = _question(metrics, start, end, tags="true" if tags else None)
        for page in self._pages(device, asked, None, None):
            yield from page.table.to_batches()

    def _pages(self, device: str, asked: dict[str, Any], limit: int | None, after: str | None) -> Iterator[Answer]:
        path, done = f"/v1/devices/{in_path(device)}/series", 0
        while True:
            room = None if limit is None else min(limit - done, _PAGE)
            page = self._ask("GET", path, params={**asked, "limit": room, "after": after})
            done += len(page)
            yield page
            after = page.next
            if after is None or (limit is not None and done >= limit):
                return
            # The cursor says where to go on; a start relative to now could have passed it meanwhile.
            asked = {**asked, "start": "0"}

    # -- many devices

    def query(
        self,
        devices: Names | None = None,
        *,
        match: Match | None = None,
        metrics: Names | None = None,
        start: Time | None = None,
        end: Time | None = None,
        step: str | None = None,
        agg: Names | None = None,
        group_by: Names | None = None,
        tz: str | None = None,
        fill: str | None = None,
        limit: int | None = None,
        top: int | None = None,
        by: str | None = None,
        order: str | None = None,
    ) -> Answer:
        """A question about many devices, named or by what they have: of each of them, of groups, or of those at the top.

        `group_by` is of `device`, `type`, `location`, `tag:NAME` and labels of metrics; none of them (`[]`): all devices
        together.
        `top=10, by="max"` is of the ten devices with the greatest maximum, best first. An answer with more than `limit`
        points is refused.
        """
        given = {
            "devices": None if devices is None else _names(devices),
            "match": match,
            "metrics": None if metrics is None else _names(metrics),
            "start": None if start is None else _time(start),
            "end": None if end is None else _time(end),
            "step": step,
            "agg": None if agg is None else _names(agg),
            "group_by": None if group_by is None else _names(group_by),
            "tz": tz,
            "fill": fill,
            "limit": limit,
            "top": top,
            "by": by,
            "order": order,
        }
        return self._ask("POST", "/v1/query", body={key: value for key, value in given.items() if value is not None})

    def fleet(
        self,
        *,
        match: Match | None = None,
        metrics: Names | None = None,
        start: Time | None = None,
        end: Time | None = None,
        step: str | None = None,
        agg: Names | None = None,
        tz: str | None = None,
        fill: str | None = None,
        group_by: str | None = None,
    ) -> Answer:
        """What all devices that match (all, without `match`) say together, over steps; in steps of whole hours that is quick
        however many there are. `agg` has `devices` as well: how many had values.
        """
        asked = _question(metrics, start, end, step=step, agg=agg, tz=tz, fill=fill, group_by=group_by)
        return self._ask("GET", "/v1/fleet/series", params={**_match(match), **asked})

    def latest(self, devices: Names | None = None, *, match: Match | None = None, metrics: Names | None = None) -> Answer:
        """The newest value of each metric: of the devices named, of those that match, or of all. Those that are unknown or
        silent have none.
        """
        if devices is not None and match is not None:
            raise Rejected("say which devices: either devices or match", code="field")
        if devices is None:
            return whole(list(self._fleet_latest({**_match(match), **_question(metrics)})))
        names, chosen = _names(devices), {} if metrics is None else {"metrics": _names(metrics)}
        parts = [names[i : i + _MOST_DEVICES] for i in range(0, len(names), _MOST_DEVICES)] or [[]]
        return whole([self._ask("POST", "/v1/latest", body={"devices": part, **chosen}) for part in parts])

    def _fleet_latest(self, asked: Mapping[str, Any]) -> Iterator[Answer]:
        after = None
        while True:
            page = self._ask("GET", "/v1/fleet/latest", params={**asked, "limit": _DEVICES_PAGE, "after": after})
            yield page
            after = page.next
            if after is None:
                return

    # -- what there is

    def devices(self, match: Match | None = None) -> Iterator[dict[str, Any]]:
        """The devices that match, all without, as `GET /v1/devices` shows them; fetched while they are consumed."""
        after = None
        while True:
            asked = {**_match(match), "limit": _DEVICES_PAGE, "after": after}
            page = self._connection.json("GET", "/v1/devices", params=asked)
            yield from page["devices"]
            after = page["next"]
            if after is None:
                return

    def device(self, name: str) -> dict[str, Any]:
        """A device's description. `NotFound` if there is none."""
        return self._connection.json("GET", f"/v1/devices/{in_path(name)}")

    def metrics(self) -> list[dict[str, Any]]:
        """All metrics, with kind, unit and description."""
        found: list[dict[str, Any]] = self._connection.json("GET", "/v1/metrics")["metrics"]
        return found

    def _ask(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> Answer:
        response = self._connection.send(method, path, params=params, body=body, headers=_ACCEPT_ARROW)
        return answer_of(response, self._connection.where)


def _question(
    metrics: Names | None = None,
    start: Time | None = None,
    end: Time | None = None,
    *,
    agg: Names | None = None,
    **texts: str | None,
) -> dict[str, Any]:
    """Parameters that several questions have. An empty second name keeps the commas of a single one from parting it."""
    return {
        "metrics": None if metrics is None else [*_names(metrics), ""],
        "start": None if start is None else _time(start),
        "end": None if end is None else _time(end),
        "agg": None if agg is None else ",".join(_names(agg)),
        **texts,
    }


def _match(match: Match | None) -> dict[str, Any]:
    given: dict[str, Any] = dict(match or {})
    tags = given.pop("tags", {})
    return {**given, "tag": [f"{name}:{value}" for name, value in tags.items()]}


def _names(given: Names) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _time(given: Time) -> str:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise Rejected(f"time {given} has no zone: give datetime(..., tzinfo=UTC), or {given.isoformat()}Z", code="time")
        return given.isoformat()
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise Rejected(f"time {given!r}: give an aware datetime, RFC 3339, epoch ms, or relative: -1h", code="time")
    return str(given)
