"""Where a store is: the URLs that name one. Light, because every command reads one before it knows what it needs.

    rocksdb:PATH                                                                  embedded, in a folder
    cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?dc=&consistency=&replication=]    a cluster
    bigtable://PROJECT/INSTANCE/PREFIX[?app_profile=]                             tables of an instance
    memory:                                                                       gone with the process

Credentials are not part of a URL: they come from the configuration or the environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl

from widerow.model.errors import ConfigError

_REMAINS = re.compile(r"\d+\.(sst|log)|MANIFEST-\d+|IDENTITY")
KNOWN = "rocksdb:PATH, cassandra://HOST/KEYSPACE, bigtable://PROJECT/INSTANCE/PREFIX or memory:"
CONSISTENCIES = ("ONE", "TWO", "THREE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL")
RESTORING = "RESTORING"
"""A file in the folder of an embedded store: a backup is being restored into it, and nobody may open it."""


@dataclass(frozen=True, slots=True)
class Embedded:
    path: Path


@dataclass(frozen=True, slots=True)
class InMemory:
    pass


@dataclass(frozen=True, slots=True)
class OnCassandra:
    hosts: tuple[str, ...]
    port: int
    keyspace: str
    dc: str
    consistency: str
    replication: int


@dataclass(frozen=True, slots=True)
class OnBigtable:
    project: str
    instance: str
    prefix: str
    app_profile: str


StorePlace: TypeAlias = Embedded | InMemory | OnCassandra | OnBigtable


def parse_store(url: str) -> StorePlace:
    """What a URL names; `ConfigError` says what is wrong with one that names nothing."""
    scheme, _, rest = url.partition(":")
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if options.pop("layout", "rows") != "rows":
        raise ConfigError(f"store {url!r}: the layout is rows")
    found: StorePlace
    if scheme == "rocksdb":
        if not place:
            raise ConfigError(f"store {url!r} names no folder: rocksdb:PATH")
        found = Embedded(Path(place))
    elif scheme == "memory" and not place:
        found = InMemory()
    elif scheme == "cassandra":
        found = _cassandra(url, place, options)
    elif scheme == "bigtable":
        found = _bigtable(url, place, options)
    else:
        raise ConfigError(f"store {url!r} is not known: give {KNOWN}")
    if options:
        raise ConfigError(f"store option {next(iter(options))!r} is not known to {scheme}:")
    return found


def is_made(folder: Path) -> bool:
    """Whether a store lies in a folder, or what is left of one: only a process that opens it can tell which."""
    return (folder / "CURRENT").exists() or bool(remains(folder))


def remains(folder: Path) -> list[str]:
    """Files that only an embedded store leaves in its folder, `CURRENT` apart."""
    return sorted(file.name for file in folder.iterdir() if _REMAINS.fullmatch(file.name)) if folder.is_dir() else []


def is_shared(url: str) -> bool:
    """Whether several processes may have the store open at once."""
    return isinstance(parse_store(url), OnCassandra | OnBigtable)


def _cassandra(url: str, place: str, options: dict[str, str]) -> OnCassandra:
    nodes, _, keyspace = place.removeprefix("//").partition("/")
    hosts, ports = [], set()
    for node in filter(None, nodes.split(",")):
        host, _, port = node.partition(":")
        hosts.append(host)
        ports |= {port} if port else set()
    if "@" in nodes:
        raise ConfigError("store: credentials are given by cassandra.username and cassandra.password, not in the URL")
    if not all(hosts) or not hosts or not keyspace.isidentifier() or keyspace != keyspace.lower() or len(ports) > 1:
        raise ConfigError(f"store {url!r}: give cassandra://HOST[:PORT][,HOST...]/keyspace, with one port for all hosts")
    consistency = (options.pop("consistency", "") or "LOCAL_QUORUM").upper()
    if consistency not in CONSISTENCIES:
        raise ConfigError(f"store {url!r}: consistency is one of {', '.join(CONSISTENCIES)}")
    return OnCassandra(
        tuple(hosts),
        _whole(url, "port", next(iter(ports), "9042"), 65535),
        keyspace,
        options.pop("dc", "") or "datacenter1",
        consistency,
        _whole(url, "replication", options.pop("replication", "1"), 100),
    )


def _bigtable(url: str, place: str, options: dict[str, str]) -> OnBigtable:
    parts = place.removeprefix("//").split("/")
    if len(parts) != 3 or not all(parts):
        raise ConfigError(f"store {url!r}: give bigtable://PROJECT/INSTANCE/PREFIX")
    project, instance, prefix = parts
    return OnBigtable(project, instance, prefix, options.pop("app_profile", ""))


def _whole(url: str, name: str, text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ConfigError(f"store {url!r}: {name} is a whole number from 1 to {most}")
    return int(text)
