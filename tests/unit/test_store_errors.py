"""What callers read when a store's driver fails, and what only the log says."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import msgspec
import pytest
from cassandra import OperationTimedOut
from cassandra.cluster import NoHostAvailable
from confluent_kafka import KafkaError

from widerow.engine.bigtable.connection import failure as bigtable_failure
from widerow.engine.cassandra.cluster import reported
from widerow.ingest.kafka.connect import failure as kafka_failure
from widerow.model.errors import StorageFull, StoreUnavailable, WiderowError
from widerow.server.failures import Failure, Shape, failure, influx, ours, told

ADDRESS = "10.1.2.3:9042"


def from_cassandra(error: Exception) -> WiderowError:
    try:
        with reported():
            raise error
    except WiderowError as found:
        return found


def of_drivers() -> list[WiderowError]:
    """One failure of each driver, each with an address in its text."""
    bigtable = [
        bigtable_failure(code, "t", ADDRESS) for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    ]
    return [
        from_cassandra(NoHostAvailable(f"unable to connect to {ADDRESS}", {ADDRESS: OSError("refused")})),
        from_cassandra(OperationTimedOut(last_host=ADDRESS)),
        *(error for error in bigtable if isinstance(error, WiderowError)),
        kafka_failure(f"{ADDRESS} does not answer", KafkaError(KafkaError._TRANSPORT)),
    ]


@pytest.mark.parametrize("shape", [ours, influx])
def test_a_caller_reads_a_request_id_and_no_text_of_a_driver(shape: Shape, caplog: pytest.LogCaptureFixture) -> None:
    for error in of_drivers():
        assert ADDRESS in str(error)
        with caplog.at_level(logging.WARNING):
            answer = failure(error, shape)
        assert ADDRESS.encode() not in answer.body
        request_id = told(error).request_id  # type: ignore[attr-defined]
        assert request_id in answer.body.decode()
        line = next(record.getMessage() for record in caplog.records if request_id in record.getMessage())
        assert ADDRESS in line
        caplog.clear()


def body_of(answer: Failure) -> dict[str, Any]:
    error: dict[str, Any] = msgspec.json.decode(answer.body)["error"]
    return error


def test_a_store_that_fails_is_store_unavailable_and_a_full_one_storage_full() -> None:
    def check(error: WiderowError, status: int, code: str) -> None:
        answer = failure(error)
        assert (answer.status, body_of(answer)["code"]) == (status, code)
        assert dict(answer.headers)[b"retry-after"] == b"1"

    check(StoreUnavailable("x"), 503, "store-unavailable")
    check(StorageFull("x"), 507, "storage-full")


def test_requests_that_fail_together_share_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    error = StoreUnavailable(f"cassandra: {ADDRESS}")
    with caplog.at_level(logging.WARNING):
        answers = [failure(error) for _ in range(100)]
    assert len({body_of(answer)["request_id"] for answer in answers}) == 1
    assert len(caplog.records) == 1
