"""The servers for pytest: started when the first test asks for one, once per run, and ended with it.

Rule 1: a server that cannot be had is a skip that says what to install; with `CI=true` it is a failure.
Rule 2: a server that is there and does not start is a failure everywhere.
Rule 3: all tests share them. A test keeps to a keyspace, an instance or topics of its own, and undoes what it did to the
process; one that cannot starts a server of its own, as these do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from .bigtable import Bigtable
from .cache import Missing
from .cassandra import FLEETING, Cassandra
from .chromium import Chromium, chromium
from .chromium import fetch as fetch_chromium
from .cluster import Cluster
from .kafka import Kafka
from .mosquitto import Mosquitto

T = TypeVar("T")


@pytest.fixture(scope="session")
def cassandra_server() -> Iterator[Cassandra]:
    """A node: `cassandra_server.host`, `.port`, `.store_url(keyspace)`. It does not survive its end."""
    with had(lambda: Cassandra(java_options=FLEETING)) as server:
        yield server


@pytest.fixture(scope="session")
def cassandra_cluster() -> Iterator[Cluster]:
    """Three nodes: `cassandra_cluster.hosts`, `.port`, `.nodes`. For tests marked `cluster`."""
    with had(Cluster) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bigtable_server() -> Iterator[Bigtable]:
    """An emulator: `bigtable_server.address` is what BIGTABLE_EMULATOR_HOST wants, `.store_url(prefix)`."""
    with had(Bigtable) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker: `kafka.address` is what clients call bootstrap.servers, `.create_topic(name, partitions)`."""
    with had(Kafka) as server:
        yield server


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Mosquitto]:
    """A broker: `mosquitto.url()` of one who may do everything, `.allow(user, password, *acl)` for others."""
    with had(Mosquitto) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """Chromium: `with browser.visit(address) as visit`. Of a module: while it is open an event loop runs in this thread."""
    had(fetch_chromium)
    with chromium() as started:
        yield started


def had(make: Callable[[], T]) -> T:
    """What `make` makes, or the skip or failure of rule 1."""
    if "PYTHON_ALONE" in os.environ:
        pytest.fail("`make test` needs Python alone: mark this test `rest`", pytrace=False)
    try:
        return make()
    except Missing as missing:
        reason = str(missing)
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
