"""`widerow keys`: the group of the commands about row keys. Other modules add theirs with `keys.command(...)`."""

from __future__ import annotations

import typer

keys = typer.Typer(
    help="The key lab: judge row keys before they hold data, and see how a store's keys are used.", no_args_is_help=True
)


@keys.callback()
def _group() -> None:
    pass
