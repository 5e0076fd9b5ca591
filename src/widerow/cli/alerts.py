"""`widerow alerts`: what is wrong now, the rules that say so, and who is told."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.failure import Failed, Misused
from widerow.cli.session import Session, YesOption, client, confirm, duration
from widerow.model.system import explained

ALERTS = "/v1/alerts"
_PREVIEWED = 20
"""Events that a preview shows."""


class _Listing(TyperGroup):
    """`widerow alerts` alone lists."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_Listing, help="Alerts, and the rules that raise them. Without a command: list.")

RuleName = Annotated[str, typer.Argument(metavar="RULE", help="The rule's name.", show_default=False)]
RulesFile = Annotated[Path, typer.Argument(metavar="FILE", help="TOML with [[rules]] and [[webhooks]].", show_default=False)]


@app.command("list")
@client
def list_(
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="pending, firing or resolved. Can be given several times."),
    ] = None,
) -> None:
    """Show alerts that are pending or firing, newest first. An operator without --tenant sees those of all.

    Example: widerow alerts --tenant acme

    Example: widerow alerts list --state firing --json
    """
    session.show(session.api.get(ALERTS, state=state)["alerts"], _draw)


@app.command("history")
@client
def history(
    session: Session,
    last: Annotated[str, typer.Option("--last", metavar="DURATION", help="How far back: 12h, 7d.")] = "1d",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Events to show at most.")] = 100,
) -> None:
    """Show when alerts fired and were resolved, newest first.

    Example: widerow alerts history --tenant acme --last 7d
    """
    duration("--last", last)
    found = session.api.get(f"{ALERTS}/history", start=f"-{last}", limit=limit)
    if found["next"]:
        output.note(f"there are more; these are the newest {limit:,} (--limit)")
    session.show(found["events"], _draw_events)


@app.command("rules")
@client
def rules(session: Session) -> None:
    """Show the rules, those of the operator's file as well.

    Example: widerow alerts rules --tenant acme
    """
    session.show(session.api.get(f"{ALERTS}/rules")["rules"], _draw_rules)


@app.command("apply")
@client
def apply(session: Session, file: RulesFile) -> None:
    """Set the webhooks and rules of a file. Those that the file does not name stay.

    Example: widerow alerts apply rules.toml --tenant acme
    """
    tree = _read(file)
    for what in ("webhooks", "rules"):
        for form in tree.get(what, []):
            session.api.ask("PUT", f"{ALERTS}/{what}/{in_path(_name(form))}", body=form)
    counts = {what: len(tree.get(what, [])) for what in ("webhooks", "rules")}
    session.done(counts, f"{counts['rules']} rules and {counts['webhooks']} webhooks are set")


@app.command("preview")
@client
def preview(
    session: Session,
    rule: RuleName,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Take the rule from this file, as for `apply`.")
    ] = None,
) -> None:
    """Show what a rule would have done with the last day. Nobody is told of anything.

    Example: widerow alerts preview too-hot --file rules.toml --tenant acme
    """
    there = _read(file).get("rules", []) if file else session.api.get(f"{ALERTS}/rules")["rules"]
    form = next((one for one in there if _name(one) == rule), None)
    if form is None:
        raise Failed(f"no rule {rule!r}", code="not-found", todo="see `widerow alerts rules`")
    session.show(session.api.post(f"{ALERTS}/rules/preview", form), _draw_preview)


@app.command("delete")
@client
def delete(
    session: Session,
    rule: RuleName,
    webhook: Annotated[bool, typer.Option("--webhook", help="Remove the webhook of that name.", show_default=False)] = False,
    yes: YesOption = False,
) -> None:
    """Remove a rule. Its alerts go with it.

    Example: widerow alerts delete too-hot --tenant acme --yes
    """
    what = "webhook" if webhook else "rule"
    confirm(f"removing {what} {rule}", yes=yes)
    session.api.delete(f"{ALERTS}/{what}s/{in_path(rule)}")
    session.done({"removed": rule}, f"{what} {rule} is removed")


@app.command("ack")
@client
def ack(
    session: Session,
    alert: Annotated[str, typer.Argument(metavar="ID", help="From `widerow alerts`.", show_default=False)],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="A note for the others.")] = "",
) -> None:
    """Tell the others that you see to an alert.

    Example: widerow alerts ack 65b80cfb2ea894fc --note "a fitter is on the way" --tenant acme
    """
    seen = session.api.post(f"{ALERTS}/{in_path(alert)}/acknowledge", {"note": note})
    session.done(seen, f"{seen['name']} {seen['device']} is acknowledged".replace("  ", " "))


@app.command("silence")
@client
def silence(
    session: Session,
    rule: Annotated[str, typer.Option("--rule", metavar="RULE", help="Only alerts of this rule.")] = "",
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="Only alerts of this device.")] = "",
    for_: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long: 2h, 7d; 30d at most.")] = "1h",
    comment: Annotated[str, typer.Option("--comment", metavar="TEXT", help="The reason.")] = "",
    end: Annotated[
        str | None, typer.Option("--end", metavar="ID", help="End this silence instead, from `widerow alerts silences`.")
    ] = None,
) -> None:
    """Tell nobody of some alerts for a while. Without --rule and --device that is all alerts.

    Example: widerow alerts silence --device press-000017 --for 2h --comment maintenance --tenant acme
    """
    if end is not None:
        session.api.delete(f"{ALERTS}/silences/{in_path(end)}")
        session.done({"ended": end}, f"silence {end} is over")
        return
    duration("--for", for_)
    made = session.api.post(f"{ALERTS}/silences", {"name": rule, "device": device, "until": f"+{for_}", "comment": comment})
    session.done(made, f"silence {made['id']} holds until {made['until']}")


@app.command("silences")
@client
def silences(session: Session) -> None:
    """Show the silences that are not over.

    Example: widerow alerts silences --tenant acme
    """
    session.show(session.api.get(f"{ALERTS}/silences")["silences"], _draw_silences)


@app.command("webhooks")
@client
def webhooks(session: Session) -> None:
    """Show the webhooks, without their secrets.

    Example: widerow alerts webhooks --tenant acme
    """
    session.show(session.api.get(f"{ALERTS}/webhooks")["webhooks"], _draw_webhooks)


@app.command("test")
@client
def test(
    session: Session,
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook's name.", show_default=False)],
) -> None:
    """Send a webhook a notice that says that it is a test. Fails if it is not taken.

    Example: widerow alerts test ops --tenant acme
    """
    sent = session.api.post(f"{ALERTS}/webhooks/{in_path(webhook)}/test")
    session.done(sent, f"webhook {webhook} took the test ({sent['status']})" if sent["delivered"] else "")
    if not sent["delivered"]:
        raise Failed(f"webhook {webhook} did not take the test: {sent['reason']}", code="not-delivered")


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(file.read_text())
    except OSError as error:
        raise Failed(f"cannot read {explained(error, file)}", code="file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misused(f"{file} is not TOML: {error}") from error
    for section in tree:
        if section not in ("rules", "webhooks") or not isinstance(tree[section], list):
            raise Misused(f"{file}: [{section}] is not known: give [[rules]] and [[webhooks]]")
    return tree


def _name(form: dict[str, Any]) -> str:
    name = form.get("name")
    if not isinstance(name, str) or not name:
        raise Misused("each rule and each webhook needs a name")
    return name


def _draw(alerts: list[dict[str, Any]]) -> None:
    if not alerts:
        output.note("no alert is pending or firing")
        return
    output.emit_table(
        ("id", "state", "since", "severity", "alert", "of", "value", "what", "seen to"),
        [
            (
                a["id"],
                a["state"] + (" (silenced)" if a["silenced"] else ""),
                a["since"],
                a["severity"],
                a["name"],
                _of(a),
                _value(a),
                a["summary"],
                (a["acknowledged"]["note"] or a["acknowledged"]["by"]) if a["acknowledged"] else "-",
            )
            for a in alerts
        ],
        right=("value",),
    )


def _of(alert: dict[str, Any]) -> str:
    return "/".join(filter(None, (alert["tenant"], alert["device"], alert["metric"], alert["process"]))) or "this process"


def _value(alert: dict[str, Any]) -> str:
    return "-" if alert["value"] is None else f"{alert['value']:.4g} {alert.get('unit', '')}".strip()


def _draw_events(events: list[dict[str, Any]]) -> None:
    if not events:
        output.note("no alert fired or was resolved in this time")
        return
    output.emit_table(
        ("time", "state", "alert", "of", "value", "what"),
        [(e["time"], e["state"], e["name"], _of(e), _value(e), e["summary"]) for e in events],
        right=("value",),
    )


def _draw_rules(found: list[dict[str, Any]]) -> None:
    if not found:
        output.note("there is no rule yet; write one into a file, and: widerow alerts apply FILE")
        return
    output.emit_table(
        ("rule", "tenant", "kind", "watches", "fires", "for", "severity", "webhooks", "source"),
        [
            (
                *(r["name"], r["tenant"], r["kind"], _watches(r), _fires(r), r["for"], r["severity"]),
                *(", ".join(r["webhooks"]) or "-", r["source"]),
            )
            for r in found
        ],
    )


def _watches(rule: dict[str, Any]) -> str:
    if rule["kind"] == "quota":
        return f"limits.{rule['limit']}"
    devices = rule.get("device") or ("all devices" if rule.get("fleet") else output.shown(rule.get("match")))
    return f"{rule['metric']} of {devices}" if rule.get("metric") else str(devices)


def _fires(rule: dict[str, Any]) -> str:
    if rule["kind"] == "offline":
        return f"no data for {rule['after']}"
    if rule["kind"] == "quota":
        return f"above {rule['percent']:g}%"
    side = "below" if "below" in rule else "above"
    of = rule.get("aggregate", "change a minute")
    clear = f", over at {rule['clear']:g}" if "clear" in rule else ""
    return f"{of} over {rule['window']} {side} {rule[side]:g}{clear}"


def _draw_preview(found: dict[str, Any]) -> None:
    output.note(f"the last day of {found['devices']} devices: {found['would_notify']} notices")
    if found["events"]:
        if len(found["events"]) > _PREVIEWED:
            output.note(f"the last {_PREVIEWED} of {len(found['events'])} events:")
        output.emit_table(
            ("time", "device", "state", "value"),
            [(e["time"], e["device"], e["state"], f"{e['value']:.4g}") for e in found["events"][-_PREVIEWED:]],
            right=("value",),
        )


def _draw_silences(found: list[dict[str, Any]]) -> None:
    if not found:
        output.note("nothing is silenced")
        return
    output.emit_table(
        ("id", "rule", "device", "until", "comment", "by"),
        [(s["id"], s["name"] or "all", s["device"] or "all", s["until"], s["comment"] or "-", s["by"]) for s in found],
    )


def _draw_webhooks(found: list[dict[str, Any]]) -> None:
    if not found:
        output.note("there is no webhook yet; write one into a file, and: widerow alerts apply FILE")
        return
    output.emit_table(
        ("webhook", "url", "signs"), [(w["name"], w["url"], "yes" if w["has_secret"] else "no") for w in found]
    )
