"""`widerow token`: who may do what. A token is shown once, when it is made."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.failure import Misused
from widerow.cli.session import Session, creating_client, duration, operator_client
from widerow.model.times import SystemClock, format_time

app = typer.Typer(help="Tokens: a secret with a role each.", no_args_is_help=True)

TOKENS = "/v1/admin/tokens"


class TenantRole(StrEnum):
    """The roles a tenant's token can have; `operator` has an option of its own, so that nobody gives it by accident."""

    WRITE = "write"
    READ = "read"
    ADMIN = "admin"
    DEVICE = "device"


OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant's.", show_default=False)]


@app.command("create")
@creating_client
def create(
    session: Session,
    tenant: Annotated[
        str | None,
        typer.Argument(
            metavar="TENANT", help="The tenant of the token; none with --operator or --scrape.", show_default=False
        ),
    ] = None,
    role: Annotated[
        TenantRole | None,
        typer.Option(
            "--role",
            help="write: send reports. read: ask for data. admin: both, and change devices, metrics and tokens. "
            "device: send reports as one device.",
        ),
    ] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="A token for all tenants, and for making them.", show_default=False)
    ] = False,
    scrape: Annotated[
        bool, typer.Option("--scrape", help="A token that reads /metrics, and nothing else.", show_default=False)
    ] = False,
    device: Annotated[str | None, typer.Option("--device", metavar="ID", help="The device of --role device.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", metavar="TIME", help="After how long: 12h, 30d.")] = None,
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", help="A note for people, such as its purpose.")
    ] = "",
) -> None:
    """Make a token and print it, alone, on standard output. It cannot be shown again.

    Example: widerow token create acme --role write --expires 365d

    Example: widerow token create --operator

    Example: widerow token create --scrape
    """
    form: dict[str, Any] = {"description": description}
    if operator and scrape:
        raise Misused("--operator and --scrape are two tokens: give one of them")
    if operator or scrape:
        if tenant or role or device:
            raise Misused(f"--{'operator' if operator else 'scrape'} is for all tenants: give no TENANT, --role or --device")
        form["role"] = "operator" if operator else "scrape"
    else:
        if tenant is None or role is None:
            raise Misused("a token needs a tenant and a role", todo="give TENANT and --role, or --operator, or --scrape")
        if (role is TenantRole.DEVICE) != (device is not None):
            raise Misused("--role device and --device ID go together")
        form |= {"role": role.value, "tenant": tenant}
        if device is not None:
            form["device"] = device
    if expires is not None:
        form["expires"] = format_time(SystemClock().now_us() + duration("--expires", expires))
    made = session.api.post(TOKENS, form)
    if session.as_json:
        output.emit_json(made)
        return
    whose = {"operator": "an operator", "scrape": "scraping metrics"}.get(form["role"], f"{form['role']} of {tenant}")
    output.note(f"token {made['id']} for {whose}: keep it, it is not shown again")
    output.emit(made["token"])


@app.command("list")
@operator_client
def list_(session: Session, tenant: OfTenant = None) -> None:
    """The tokens there are, without their secrets.

    Example: widerow token list --tenant acme
    """
    session.show(session.api.get(TOKENS, tenant=tenant)["tokens"], _draw)


@app.command("revoke")
@operator_client
def revoke(
    session: Session,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="From `widerow token list`.", show_default=False)],
    tenant: OfTenant = None,
) -> None:
    """Revoke a token: other processes of a shared store refuse it within 5 seconds.

    Example: widerow token revoke 3f9a0c1d2e4b5a67
    """
    session.api.ask("DELETE", f"{TOKENS}/{in_path(token_id)}", params={"tenant": tenant})
    session.done({"revoked": token_id}, f"token {token_id} is revoked")


def _draw(tokens: list[dict[str, Any]]) -> None:
    if not tokens:
        output.note("there is no token yet; make one with: widerow token create TENANT --role write")
        return
    output.emit_table(
        ("id", "role", "tenant", "device", "description", "created", "expires"),
        [
            (
                t["id"],
                t["role"],
                t["tenant"] or "(all)",
                t["device"] or "-",
                t["description"] or "-",
                t["created"],
                t["expires"] or "never",
            )
            for t in tokens
        ],
    )
