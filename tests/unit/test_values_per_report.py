"""How many values one report may have, in every form, and what it costs to refuse one that has more."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.codec.line import LineDecoder, LineNaming
from widerow.codec.line.kernel import DONE, NEW_SERIES
from widerow.codec.line.memory import Memory, entries_room
from widerow.codec.line.scratch import Scratch
from widerow.ingest.kafka.message import JSON
from widerow.ingest.kafka.offsets import Line, Place
from widerow.ingest.kafka.receive import Incoming, Pack, Receiver
from widerow.model.errors import Rejected
from widerow.model.names import Coded
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import ManualClock
from widerow.pipeline.job import Job, Lane, Outcome
from widerow.service import Service

MOST = 5
NOW_US = 1_700_000_000_000_000
GOOD = {f"good{i}": float(i) for i in range(MOST)}
CROWD = {f"crowd{i}": float(i) for i in range(MOST + 1)}
REPORTS = [("a", GOOD), ("b", CROWD), ("c", GOOD)]


def as_json() -> bytes:
    return json.dumps([{"device": device, "values": values} for device, values in REPORTS]).encode()


def as_odd_json() -> bytes:
    """Which no kernel reads: a number has too many digits."""
    return as_json().replace(b"0.0", b"0.00000000000000000000000000")


def as_lines() -> bytes:
    fields = (f"m,device={device} {','.join(f'{k}={v}' for k, v in values.items())}" for device, values in REPORTS)
    return "\n".join(fields).encode()


def as_odd_lines() -> bytes:
    return as_lines().replace(b" ", b" \t").replace(b"0.0", b"0.00000000000000000000000000")


def stream(columns: dict[str, Any]) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def as_wide() -> bytes:
    metrics = [*GOOD, *CROWD]
    columns = {metric: [values.get(metric) for _, values in REPORTS] for metric in metrics}
    return stream({"device": [device for device, _ in REPORTS], **columns})


def as_long() -> bytes:
    rows = [(device, metric, value) for device, values in REPORTS for metric, value in values.items()]
    return stream({name: [row[i] for row in rows] for i, name in enumerate(("device", "metric", "value"))})


def taken(service: Service, tenant: Tenant, decode: Callable[[], Decoded], size: int) -> Outcome:
    done, outcomes = threading.Event(), list[Outcome]()

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    service.pipeline.submit(Job(tenant, size, decode, finish))
    assert done.wait(30)
    return outcomes[0]


@pytest.mark.parametrize("told", [True, False], ids=["decoders are told", "decoders are not told"])
def test_a_report_with_too_many_values_is_refused_alone_in_every_form(service: Service, *, told: bool) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme", limits=Limits(values_per_report=MOST)))
    known: Any = {"max_values": MOST} if told else {}

    def check(body: bytes, media_type: str, position: int = 1) -> None:
        if media_type == "lines":
            decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 20, **known)
        else:
            decode = service.bodies.reports(
                body, content_type=media_type, encoding="", precision="us", max_bytes=1 << 20, **known
            )
        outcome = taken(service, tenant, decode, len(body))
        assert outcome.error is None
        assert (outcome.accepted, [(r.code, list(r.positions)) for r in outcome.refusals]) == (
            2,
            [("too-many-values", [position])],
        )
        assert "limits.values_per_report" in outcome.refusals[0].reason

    check(as_json(), "application/json")
    check(as_odd_json(), "application/json")
    check(as_json()[1:-1].replace(b"}}, ", b"}}\n"), "application/x-ndjson")
    check(as_lines(), "lines")
    check(as_odd_lines(), "lines")
    check(as_wide(), "application/vnd.apache.arrow.stream")
    check(as_long(), "application/vnd.apache.arrow.stream", position=MOST)
    metrics = {metric.name.removeprefix("m_") for metric in service.catalog.metrics.list("acme")}
    assert metrics == set(GOOD)


def test_messages_of_mqtt_and_kafka_are_held_to_it_one_by_one() -> None:
    texts = [json.dumps({"values": values}).encode() for _, values in REPORTS]
    data, offsets = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])
    devices = Coded.of([device for device, _ in REPORTS])
    from_mqtt = JsonDecoder().decode_documents(data, offsets, devices, now_us=NOW_US, version_us=NOW_US, max_values=MOST)
    messages = [
        Incoming(Place(Line("t", 0), i, len(text)), text, JSON, "acme", device, NOW_US, 0, 0)
        for i, (text, (device, _)) in enumerate(zip(texts, REPORTS, strict=True))
    ]
    from_kafka = Receiver(JsonDecoder(), ManualClock(NOW_US)).decode(Pack(Lane.LIVE, messages), MOST)
    for decoded in (from_mqtt, from_kafka):
        assert decoded.batch.device.to_list() == ["a", "c"]
        assert [(r.code, list(r.positions)) for r in decoded.refusals] == [("too-many-values", [1])]
        assert set(decoded.batch.cells.names) - {"widerow_time"} == set(GOOD)


def test_a_thousand_values_are_allowed_unless_the_tenant_has_another_limit() -> None:
    assert Limits().most_values == 1000
    assert Limits(values_per_report=0).most_values > 1 << 32


def test_fields_that_a_line_repeats_and_tags_count_each_time() -> None:
    def check(line: str, *, kept: bool) -> None:
        decoder = LineDecoder(LineNaming(attribute_tags=tuple("stabcdef")))
        for _ in range(2):  # the first time its names are new
            decoded = decoder.decode(line.encode(), now_us=NOW_US, version_us=NOW_US, max_values=MOST)
            assert (len(decoded.batch), [r.code for r in decoded.refusals]) == (
                (1, []) if kept else (0, ["too-many-values"])
            )

    check("m,device=d f=1,f=1,f=1,f=1,f=1", kept=True)
    check("m,device=d f=1,f=1,f=1,f=1,f=1,f=1", kept=False)
    check("m,device=d,s=x,t=y f=1,g=1,h=1", kept=True)
    check("m,device=d,s=x,t=y f=1,g=1,h=1,i=1", kept=False)
    check("m,device=d,a=1,b=1,c=1,d=1,e=1,f=1 f=1", kept=False)
    check('m,device=d a="x,y",b="x,y",c="x,y",d="x,y",e="x,y"', kept=True)


def test_no_field_of_a_refused_line_is_remembered() -> None:
    memory, scratch = Memory(64), Scratch(1 << 16, entries_room(64))
    fields = ",".join(f"f{i}=1" for i in range(5_000))
    scratch.begin(f"m,device=d {fields}".encode(), 0, NOW_US, 1000, 1 << 32)
    assert scratch.scan(memory, may_learn=True) == NEW_SERIES
    memory.learn_series(b"m,device=d", LineNaming(), 1 << 32)
    assert scratch.scan(memory, may_learn=True) == DONE


def test_a_line_may_bring_more_new_fields_than_are_learned_at_a_time() -> None:
    decoder = LineDecoder()
    line = "m,device=d " + ",".join(f"f{i}=1" for i in range(3_000))
    for _ in range(3):
        decoded = decoder.decode(line.encode(), now_us=NOW_US, version_us=NOW_US, max_values=3_000)
        assert (len(decoded.batch), len(decoded.batch.cells), decoded.refusals) == (1, 3_001, ())


SIZE = 3 << 20


def hostile() -> Iterator[tuple[str, str, bytes]]:
    commas = b"," * SIZE
    fields = b",".join(b"f%d=1" % i for i in range(SIZE // 10))
    values = b",".join(b'"m%d":1' % i for i in range(SIZE // 12))
    yield "commas", "lines", commas
    yield "commas behind a measurement", "lines", b"m" + commas
    yield "commas behind a field", "lines", b"m,device=d f=1" + commas
    yield "lines of a comma", "lines", b",\n" * (SIZE // 2)
    yield "fields", "lines", b"m,device=d " + fields
    yield "a field again and again", "lines", b"m,device=d " + b",".join([b"f=1"] * (SIZE // 4))
    yield "tags", "lines", b"m,device=d," + fields + b" f=1"
    yield "commas", "json", commas
    yield "commas in an array", "json", b"[" + commas + b"]"
    yield "commas among values", "json", b'{"device":"d","values":{' + commas + b"}}"
    yield "numbers where one should be", "json", b'{"device":"d","values":{"a":[' + b"1," * (SIZE // 2) + b"1]}}"
    yield "values", "json", b'{"device":"d","values":{' + values + b"}}"
    yield "values, the last of them infinite", "json", b'{"device":"d","values":{' + values + b',"x":1e999}}'
    yield "bad reports", "json", b"[" + b",".join([b"{}"] * (SIZE // 3)) + b"]"
    yield "lines of a comma", "ndjson", b",\n" * 900_000


@pytest.mark.parametrize(("kind", "body"), [pytest.param(k, b, id=f"{k}: {what}") for what, k, b in hostile()])
def test_a_body_of_nonsense_costs_at_most_twenty_times_a_good_one(kind: str, body: bytes) -> None:
    good = [b'{"device":"d%d","values":{"a":%d}}' % (i % 100, i) for i in range(SIZE // 30)]
    lines, reports = LineDecoder(), JsonDecoder()

    def seconds(kind: str, body: bytes) -> float:
        began_s = time.process_time()
        with suppress(Rejected):
            if kind == "lines":
                lines.decode(body, now_us=NOW_US, version_us=NOW_US, max_values=1000)
            else:
                reports.decode(body, ndjson=kind == "ndjson", now_us=NOW_US, version_us=NOW_US, max_values=1000)
        return time.process_time() - began_s

    seconds(kind, b"{}")  # kernels are compiled
    usual_s = seconds("ndjson", b"\n".join(good))
    assert seconds(kind, body) < 20 * usual_s
