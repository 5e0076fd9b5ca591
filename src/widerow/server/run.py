"""Serving: a TCP port, a Unix socket, or both, in one event loop.

Rule 1: stopping is orderly. No new connections, requests in flight are finished (for 3 s at most), then `serve` returns; the
caller closes the service.
Rule 2: the Unix socket is its owner's alone (mode 0600 from the moment it exists), and whoever reaches it is an operator. A
file that was left behind by a process that was killed is replaced; it is removed at the end.
Rule 3: with `http.tls_cert` the port speaks TLS, and nothing else. The Unix socket never does.
Rule 4: signals are handled where the process's main thread serves. Elsewhere (tests, the command line) `stop` ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn
import uvloop
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from widerow.config import Http
from widerow.model.errors import ConfigError
from widerow.server.app import App
from widerow.server.call import Front
from widerow.server.connection import Connection, Door, connection_class
from widerow.server.routes import ROUTES
from widerow.server.table import Route
from widerow.service import Service

GRACE_S = 3
KEEP_ALIVE_S = 75
"""Longer than the flush interval of the usual agents (10 s), so that they keep their connections."""

SECURITY_HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
]
_TICK_S = 0.05


def serve(
    service: Service,
    *,
    host: str | None = None,
    port: int = 0,
    socket_path: Path | None = None,
    on_ready: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
    routes: Sequence[Route] = ROUTES,
    troubles: Sequence[Callable[[], str]] = (),
    strains: Sequence[Callable[[], str]] = (),
    owner: str = "local socket",
) -> None:
    """Serve until told to stop. `host` None: the socket alone. `on_ready` gets the base URL, or `unix:PATH`.

    `routes`: what is served. `troubles`, `strains`: other parts of the process, asked for what is wrong with them, and why
    they do not keep up, for `/health/ready`. `owner`: how the audit log calls whoever comes by the socket.
    """
    if host is not None:
        _check_tls(service.config.http)
    service.attend()
    listeners: list[tuple[socket.socket, bool]] = []
    try:
        if host is not None:
            listeners.append((_listen(host, port), False))
        if socket_path is not None:
            listeners.append((_listen_locally(socket_path), True))
        if not listeners:
            raise ConfigError("nothing to serve on: give a host or a socket")
        address = (
            _url(host, listeners[0][0], tls=bool(service.config.http.tls_cert))
            if host is not None
            else f"unix:{socket_path}"
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            front = Front(service, owner, troubles=troubles, strains=strains)
            apps = [App(front, local=local, routes=routes) for _, local in listeners]
            runner.run(_serve(front, apps, listeners, address, on_ready or (lambda _: None), stop or threading.Event()))
    finally:
        for listener, _ in listeners:
            listener.close()
        if socket_path is not None and any(local for _, local in listeners):
            socket_path.unlink(missing_ok=True)


@contextlib.contextmanager
def running(
    service: Service,
    *,
    host: str | None = "127.0.0.1",
    port: int = 0,
    socket_path: Path | None = None,
    owner: str = "local socket",
    routes: Sequence[Route] = ROUTES,
) -> Iterator[str]:
    """The same in a thread, for as long as the context lasts; gives the base URL (or `unix:PATH`)."""
    ready: list[str] = []
    failed: list[BaseException] = []
    started, stop = threading.Event(), threading.Event()

    def on_ready(address: str) -> None:
        ready.append(address)
        started.set()

    def run() -> None:
        try:
            serve(
                service,
                host=host,
                port=port,
                routes=routes,
                socket_path=socket_path,
                on_ready=on_ready,
                stop=stop,
                owner=owner,
            )
        except BaseException as error:  # noqa: BLE001 - it is raised where the server was asked for
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    started.wait()
    try:
        if not ready:
            raise failed[0]
        yield ready[0]
    finally:
        stop.set()
        thread.join()


async def _serve(
    front: Front,
    apps: list[App],
    listeners: list[tuple[socket.socket, bool]],
    address: str,
    on_ready: Callable[[str], None],
    stop: threading.Event,
) -> None:
    http, loop = front.service.config.http, asyncio.get_running_loop()
    door = Door(http, loop)
    servers = [
        _Server(_config(app, connection_class(door, exempt=local), None if local else http))
        for app, (_, local) in zip(apps, listeners, strict=True)
    ]
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    tasks = [
        asyncio.create_task(server.serve(sockets=[listener]))
        for server, (listener, _) in zip(servers, listeners, strict=True)
    ]
    try:
        for server in servers:
            await server.listening.wait()
        on_ready(address)
        await _until(stop, tasks)
    finally:
        front.stopping = True
        front.streams.stop()
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)
        for app in apps:
            app.close()


async def _until(stop: threading.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the event, which any thread or a signal may set."""
    while not stop.is_set() and not any(task.done() for task in tasks):  # noqa: ASYNC110 - no event of the loop's own
        await asyncio.sleep(_TICK_S)


class _Server(uvicorn.Server):
    """Uvicorn, without its signal handlers: there are two of them in one loop, and `serve` has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: App, connection: type[Connection], http: Http | None) -> uvicorn.Config:
    """`http`: None for the local socket."""
    return uvicorn.Config(
        _for_browsers(app, http.cors_origins) if http and http.cors_origins else app,
        loop="none",
        http=connection,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=SECURITY_HEADERS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=http.tls_cert or None if http else None,
        ssl_keyfile=http.tls_key or None if http else None,
    )


def _for_browsers(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """With answers that scripts of these origins may read. No cookies: a page sends its token itself."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Encoding", "Content-Type", "If-Match"],
        expose_headers=[
            "ETag",
            "Retry-After",
            "Server-Timing",
            "Widerow-Missing",
            "Widerow-Next",
            "Widerow-Sampled",
            "Widerow-Used",
            "X-Influxdb-Version",
        ],
    )


def _check_tls(http: Http) -> None:
    """Before anything is opened: files that do not belong together are the configuration's fault."""
    if not http.tls_cert:
        if http.tls_key:
            raise ConfigError("http.tls_key is given without http.tls_cert")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(http.tls_cert, http.tls_key or None)
    except OSError as error:  # ssl.SSLError is one, too
        raise ConfigError(f"TLS with {http.tls_cert} is not possible: {error} (http.tls_cert, http.tls_key)") from error


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by connections. Answers are short: waiting to fill a packet would delay each by up to 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror} (http.host, http.port)") from error
    return listener


def _listen_locally(path: Path) -> socket.socket:
    """A socket file of mode 0600, bound through its folder: the system allows 107 bytes for a path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = -1
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        path.unlink(missing_ok=True)
        # The mode of the socket's inode before it is bound is the mode of the file: it is never open to others.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {path}: {error.strerror}") from error
    finally:
        if folder >= 0:
            os.close(folder)
    return listener


def _url(host: str, listener: socket.socket, *, tls: bool) -> str:
    port = listener.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"{'https' if tls else 'http'}://{shown}:{port}"
