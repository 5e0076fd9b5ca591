"""What all client commands have in common: the options that say whom to speak to, and the form of the output.

    @app.command("list")
    @client
    def list_(session: Session, prefix: str = "") -> None: ...

`client` gives the command the options --server, --token, --store, --config, --tenant and --json, and hands it a `Session`
made of them, connected for as long as the command runs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import Api
from widerow.cli.connect import connect, resolve
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.config import Config
from widerow.model.times import parse_duration

_PANEL = "Server or store"
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="A server, HOST:PORT or a URL; or WIDEROW_URL.", rich_help_panel=_PANEL),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help="The token for --server; or WIDEROW_TOKEN.", rich_help_panel=_PANEL),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="A store on this machine, rocksdb:PATH, served or not; or WIDEROW_STORE.",
        rich_help_panel=_PANEL,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings for opening a store; or WIDEROW_CONFIG.", rich_help_panel=_PANEL
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="The tenant; or WIDEROW_TENANT. A tenant's own token implies it.",
        envvar="WIDEROW_TENANT",
        show_envvar=False,
        rich_help_panel=_PANEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)]


@dataclass(slots=True)
class Session:
    """One run of a client command."""

    api: Api
    as_json: bool
    config: Config

    def show(self, value: Any, draw: Callable[[Any], None]) -> None:
        """The result: as JSON if that was asked for, otherwise as `draw` draws it."""
        if self.as_json:
            output.emit_json(value)
        else:
            draw(value)

    def done(self, value: Any, said: str) -> None:
        """A change was made: with `--json` the result, otherwise a remark."""
        if self.as_json:
            output.emit_json(value)
        else:
            output.note(said)


def client(command: Callable[..., None]) -> Callable[..., None]:
    """See above. For commands about what a tenant owns."""
    return _with_session(command, tenant=True)


def writing_client(command: Callable[..., None]) -> Callable[..., None]:
    """The same for commands that send reports."""
    return _with_session(command, tenant=True, writes=True)


def operator_client(command: Callable[..., None]) -> Callable[..., None]:
    """The same for commands about tenants, which name the tenant otherwise."""
    return _with_session(command)


def creating_client(command: Callable[..., None]) -> Callable[..., None]:
    """The same for commands that a new store begins with: they make it."""
    return _with_session(command, creates=True)


_SHARED = {
    "server": (ServerOption, None),
    "token": (TokenOption, None),
    "store": (StoreOption, None),
    "config": (ConfigOption, None),
    "tenant": (TenantOption, None),
    "as_json": (JsonOption, False),
}


def _with_session(
    command: Callable[..., None], *, tenant: bool = False, creates: bool = False, writes: bool = False
) -> Callable[..., None]:
    shared = {name: option for name, option in _SHARED.items() if tenant or name != "tenant"}

    def run(ctx: typer.Context, **given: Any) -> None:
        chosen = {name: given.pop(name) for name in shared}
        as_json, of_tenant = chosen.pop("as_json"), chosen.pop("tenant", None)
        where = resolve(**chosen)
        with connect(where, tenant=of_tenant, creates=creates, writes=writes) as api:
            api.command = ctx.command_path
            with as_misuse():
                command(Session(api, as_json, where.config), **given)

    # typer reads options from a signature: the command's own without the session, then the shared ones.
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in shared.items()
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *added]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def confirm(what: str, *, yes: bool) -> None:
    """Ask before something is gone for good. Where nobody can be asked, the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misused(f"{what} cannot be undone, and there is no terminal to ask at", todo="give --yes")
    # By hand: typer's own question leaves a space on standard output, which is for results.
    sys.stderr.write(f"{what} cannot be undone. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failed("nothing was changed", code="cancelled")


def duration(option: str, text: str) -> int:
    """How long, in microseconds: `7d`."""
    with as_misuse(option):
        return parse_duration(text)


def pairs(values: list[str] | None, option: str) -> dict[str, str]:
    """`--tag name=value`, any number of times."""
    found: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Misused(f"{option} {text!r}: give name=value")
        found[name] = value
    return found
