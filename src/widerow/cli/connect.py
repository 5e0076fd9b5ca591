"""From options and environment to a server that answers.

    --server URL [--token]     that server
    --store URL                the store's owner, through PATH/serve.sock, if it is being served;
                               otherwise the store is opened here and served to ourselves on a private socket
    neither                    WIDEROW_URL, then WIDEROW_STORE, then the configuration's store if it exists

Rule 1: what is given on the command line beats the environment; two answers to one question are an error.
Rule 2: opening a store never makes one, except for commands whose purpose includes that.
Rule 3: the heavy parts of the program are imported only when a store is opened in this process.
Rule 4: a shared store is opened beside whoever serves it, without the writer's lease; only a command that sends reports
(`writes`) takes that. With Kafka in front of it workers have it, and such a command hands them to Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from widerow.cli.api import Api
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.config import Config, load
from widerow.model.address import check_brokers, mqtt_url
from widerow.model.store import Embedded, InMemory, is_made, parse_store
from widerow.model.system import check_address_space
from widerow.server.sockets import SOCKET, is_served, reachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What the options and the environment say about whom to speak to. Exactly one of `server` and `store` is set."""

    server: str | None = None
    token: str | None = None
    store: str | None = None
    config: Config


def resolve(
    *,
    server: str | None,
    token: str | None,
    store: str | None,
    config: Path | None,
    environment: Mapping[str, str] | None = None,
) -> Where:
    env = os.environ if environment is None else environment
    if server is not None and store is not None:
        raise Misused("--server and --store are two ways to the same: give one")
    if token is not None and store is not None:
        raise Misused("--token goes with --server; a store on this machine needs none")
    if server is None and store is None:
        server = env.get("WIDEROW_URL") or None
        # A token alone says that a server is meant.
        store = None if server or token else env.get("WIDEROW_STORE") or None
    settings = _settings(config, env)
    if server is not None:
        return Where(server=server, token=token or env.get("WIDEROW_TOKEN") or None, config=settings)
    if token is not None:
        raise Misused("--token needs a server", todo="give --server URL or set WIDEROW_URL")
    if store is None:
        if not store_exists(settings.store.url):
            raise Misused(
                f"no server and no store is given, and there is none at {settings.store.url}",
                todo="give --server URL with --token, or --store rocksdb:PATH (or set WIDEROW_URL, WIDEROW_STORE)",
            )
        store = settings.store.url
    with as_misuse():
        parse_store(store)
    check_address_space()
    return Where(store=store, config=replace(settings, store=replace(settings.store, url=store)))


def configuration(
    config: Path | None,
    *,
    store: str | None = None,
    host: str | None = None,
    port: int | None = None,
    brokers: str | None = None,
    mqtt: str | None = None,
) -> Config:
    """The configuration of a process that serves: file, environment, then options."""
    settings = load_config(config)
    store = store or os.environ.get("WIDEROW_STORE") or settings.store.url
    http = replace(
        settings.http,
        host=settings.http.host if host is None else host,
        port=settings.http.port if port is None else port,
    )
    with as_misuse():
        parse_store(store)
        if brokers:
            check_brokers(brokers)
        if mqtt:
            mqtt_url(mqtt)
    check_address_space()
    kafka = replace(settings.kafka, brokers=settings.kafka.brokers if brokers is None else brokers)
    broker = replace(settings.mqtt, url=settings.mqtt.url if mqtt is None else mqtt)
    return replace(settings, store=replace(settings.store, url=store), http=http, kafka=kafka, mqtt=broker)


def load_config(config: Path | None) -> Config:
    """The configuration of a file and the environment."""
    return _settings(config, os.environ)


def _settings(given: Path | None, environment: Mapping[str, str]) -> Config:
    if given is not None and not given.is_file():
        raise Misused(f"--config {given}: there is no such file")
    named = environment.get("WIDEROW_CONFIG")
    return load(given or (Path(named) if named else None), environment)


@contextmanager
def connect(where: Where, *, tenant: str | None = None, creates: bool = False, writes: bool = False) -> Iterator[Api]:
    """A server that answers, for as long as the context lasts."""
    if where.server is not None:
        with Api.of_url(where.server, where.token, tenant) as api:
            yield api
        return
    url = where.config.store.url
    place = parse_store(url)
    if isinstance(place, InMemory):
        raise Misused(f"store {url!r} cannot be used by this command", todo="reach a store in memory with --server")
    if not isinstance(place, Embedded):  # shared: nobody owns it
        with _opened(where.config, writes=writes) as path, Api.of_socket(path, tenant, url) as api:
            yield api
        return
    folder = place.path
    owner = folder / SOCKET
    if is_served(owner):
        with reachable(owner) as path, Api.of_socket(path, tenant, f"the owner of {folder}") as api:
            yield api
        return
    if not creates and not is_made(folder):
        raise Failed(
            f"there is no store at {folder}",
            code="no-store",
            todo="check the path; `widerow serve` and `widerow tenant create` make one",
        )
    with _opened(where.config, writes=writes) as path, Api.of_socket(path, tenant, f"{folder}") as api:
        yield api


@contextmanager
def _opened(config: Config, *, writes: bool) -> Iterator[str]:
    """The store, open in this process and served on a socket that only we know."""
    from widerow.cli.embedded import opened  # noqa: PLC0415 - everything heavy hangs on this import

    with opened(config, writes=writes) as path:
        yield path


def store_folder(url: str) -> Path | None:
    """The folder of an embedded store; None for others."""
    place = parse_store(url)
    return place.path if isinstance(place, Embedded) else None


def store_exists(url: str) -> bool:
    """Whether there is something to open. Only a cluster itself could say what is in it."""
    place = parse_store(url)
    return is_made(place.path) if isinstance(place, Embedded) else not isinstance(place, InMemory)
