"""From a configuration to an engine. Only this module knows which engines there are; each is imported when it is used."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from widerow.config import Bigtable, Cassandra, Config
from widerow.engine.memory import MemoryEngine
from widerow.engine.memory import definition as definition_in_memory
from widerow.engine.port import Engine
from widerow.model.errors import ConfigError
from widerow.model.store import RESTORING, Embedded, OnBigtable, OnCassandra, parse_store
from widerow.model.times import Clock
from widerow.schema.table import Table

if TYPE_CHECKING:
    from widerow.engine.bigtable import BigtableSettings
    from widerow.engine.bigtable.tablets import Tablets
    from widerow.engine.cassandra import CassandraSettings
    from widerow.engine.cassandra.look import Look
    from widerow.engine.rocksdb import RocksSettings


def open_engine(config: Config, clock: Clock) -> Engine:
    """The engine of `store.url`."""
    place = parse_store(config.store.url)
    if isinstance(place, Embedded):
        from widerow.engine.rocksdb import RocksEngine  # noqa: PLC0415

        if (place.path / RESTORING).exists():
            raise ConfigError(
                f"a restore into {place.path} is not finished: run the same `widerow restore` again, or remove the folder"
            )
        return RocksEngine(place.path, clock=clock, settings=rocks_settings(config))
    if isinstance(place, OnCassandra):
        return _cassandra(place, config.cassandra, clock)
    if isinstance(place, OnBigtable):
        return _bigtable(place, config.bigtable, clock)
    return MemoryEngine(clock)


def statements(url: str, tables: Sequence[Table]) -> list[tuple[str, str]]:
    """What makes these tables in a new store at the URL: name and text of each, in order. Nothing is opened."""
    place = parse_store(url)
    if isinstance(place, Embedded):
        from widerow.engine.rocksdb.definition import definition  # noqa: PLC0415

        return [(table.name, definition(table)) for table in tables]
    if isinstance(place, OnCassandra):
        with _driver_of_cassandra():
            from widerow.engine.cassandra.physical import CELL, Physical, create_cell, create_keyspace  # noqa: PLC0415

        keyspace = (place.keyspace, f"{create_keyspace(place.keyspace, place.dc, place.replication)};")
        cell = (CELL, f"{create_cell(place.keyspace)};")
        return [keyspace, cell, *((table.name, f"{Physical(place.keyspace, table).create()};") for table in tables)]
    if isinstance(place, OnBigtable):
        with _client_of_bigtable():
            from widerow.engine.bigtable.engine import creation  # noqa: PLC0415

        parent = f"projects/{place.project}/instances/{place.instance}"
        return [(table.name, creation(table, f"{parent}/tables/{place.prefix}_{table.name}")) for table in tables]
    return [(table.name, definition_in_memory(table)) for table in tables]


def rocks_settings(config: Config) -> RocksSettings:
    from widerow.engine.rocksdb import RocksSettings  # noqa: PLC0415

    return RocksSettings(
        cache_bytes=config.store.cache_mib << 20,
        write_buffer_bytes=config.store.write_buffer_mib << 20,
        reserve_bytes=config.store.reserve_mib << 20,
    )


def look_at(url: str, config: Cassandra) -> Look:
    """A keyspace of somebody else, to be read. Nothing is made there."""
    place = parse_store(url)
    if not isinstance(place, OnCassandra):
        raise ConfigError(f"{url!r} cannot be looked at: give cassandra://HOST[:PORT]/KEYSPACE")
    with _driver_of_cassandra():
        from widerow.engine.cassandra.look import Look  # noqa: PLC0415

    return Look(_settings_of_cassandra(place, config))


def _cassandra(place: OnCassandra, config: Cassandra, clock: Clock) -> Engine:
    with _driver_of_cassandra():
        from widerow.engine.cassandra import CassandraEngine  # noqa: PLC0415

    return CassandraEngine(_settings_of_cassandra(place, config), clock=clock)


def _settings_of_cassandra(place: OnCassandra, config: Cassandra) -> CassandraSettings:
    from widerow.engine.cassandra import CassandraSettings  # noqa: PLC0415

    return CassandraSettings(
        hosts=place.hosts,
        port=place.port,
        keyspace=place.keyspace,
        dc=place.dc,
        replication=place.replication,
        consistency=place.consistency,
        timeout_s=config.timeout_s,
        in_flight=config.in_flight,
        username=config.username,
        password=config.password,
        tls=_tls(config),
    )


def _bigtable(place: OnBigtable, config: Bigtable, clock: Clock) -> Engine:
    with _client_of_bigtable():
        from widerow.engine.bigtable import BigtableEngine  # noqa: PLC0415
    settings = _bigtable_settings(place, config)
    return BigtableEngine(place.project, place.instance, place.prefix, clock=clock, settings=settings)


def tablets_of(place: OnBigtable, config: Bigtable) -> Tablets:
    """What looks at the tablets of a store on Bigtable."""
    with _client_of_bigtable():
        from widerow.engine.bigtable.tablets import Tablets  # noqa: PLC0415
    return Tablets(place.project, place.instance, place.prefix, _bigtable_settings(place, config))


def _bigtable_settings(place: OnBigtable, config: Bigtable) -> BigtableSettings:
    from widerow.engine.bigtable import BigtableSettings  # noqa: PLC0415

    return BigtableSettings(
        app_profile=place.app_profile or config.app_profile,
        read_app_profile=config.read_app_profile,
        deadline_s=config.timeout_s,
    )


@contextmanager
def _driver_of_cassandra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "cassandra":
            raise
        raise ConfigError("the driver for Cassandra is not installed: pip install 'widerow[cassandra]'") from error


@contextmanager
def _client_of_bigtable() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("google"):
            raise
        raise ConfigError("the client for Bigtable is not installed: pip install 'widerow[bigtable]'") from error


def _tls(config: Cassandra) -> ssl.SSLContext | None:
    if not config.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=config.tls_ca or None)
        context.check_hostname = False  # nodes are reached by address; their certificates are checked against the authority
        if config.tls_cert:
            context.load_cert_chain(config.tls_cert, config.tls_key or None)
    except OSError as error:
        raise ConfigError(f"cassandra: the certificates of [cassandra] cannot be used: {error}") from error
    return context
