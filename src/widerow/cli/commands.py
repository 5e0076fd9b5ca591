"""All commands of `widerow`, put together. A failure of any of them ends in one line and an exit code.

Exit codes: 0 done, 1 failed, 2 put wrongly, 130 interrupted (`serve` and `demo` end with 0: that is how one stops them).
Rule: importing this module imports neither NumPy nor an engine nor HTTP; `widerow --help` answers at once.
"""

from __future__ import annotations

import gc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from widerow import __version__
from widerow.cli import (
    alerts,
    api_server,
    audit,
    backup,
    blocks,
    deadletters,
    demo,
    device,
    doctor,
    fleet,
    gateway,
    hot,
    keys,
    keys_heat,
    keys_lint,
    keys_simulate,
    keys_sizes,
    latest,
    metric,
    migrate,
    mqtt,
    plan,
    query,
    schema,
    serve,
    simulate,
    tenant,
    token,
    top,
    verify,
    worker,
)
from widerow.cli.failure import ended
from widerow.model.errors import WiderowError


class Commands(TyperGroup):
    """The group of all commands, with one place for what can go wrong in any of them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # of our output: see `failure.leave`
            raise
        except (WiderowError, OSError, MemoryError, KeyboardInterrupt) as error:
            raise typer.Exit(ended(error)) from None


app = typer.Typer(
    name="widerow",
    cls=Commands,
    help="Fleet telemetry on wide-column stores.\n\nTo see it work: [bold]widerow demo[/bold].",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
serve.add_to(app)
gateway.add_to(app)
worker.add_to(app)
api_server.add_to(app)
demo.add_to(app)
simulate.add_to(app)
app.add_typer(tenant.app, name="tenant")
app.add_typer(token.app, name="token")
app.add_typer(device.app, name="device")
app.add_typer(metric.app, name="metric")
query.add_to(app)
latest.add_to(app)
app.add_typer(fleet.app, name="fleet")
hot.add_to(app)
top.add_to(app)
app.add_typer(alerts.app, name="alerts")
app.add_typer(deadletters.app, name="deadletters")
app.add_typer(mqtt.app, name="mqtt")
app.add_typer(schema.app, name="schema")
app.add_typer(blocks.app, name="blocks")
app.add_typer(keys.keys, name="keys")  # its commands add themselves
_ = keys_heat, keys_lint, keys_simulate, keys_sizes
plan.add_to(app)
migrate.add_to(app)
backup.add_to(app)
verify.add_to(app)
audit.add_to(app)
doctor.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"widerow {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    pass


_FEW_COLLECTIONS = 50_000


def run() -> None:
    """Run the command that the arguments name."""
    # What is imported stays: to look through it for garbage again and again took a sixth of a short command's time. Servers
    # settle this anew once they have started (`serve.warm_up`).
    gc.set_threshold(_FEW_COLLECTIONS)
    app(prog_name="widerow")
