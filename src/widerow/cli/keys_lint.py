"""`widerow keys lint|explain|fleet-example`: a row key is judged before it holds data. Needs no server and no store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.cli.keys import keys
from widerow.model.system import explained

if TYPE_CHECKING:
    from widerow.keylab.design import Design
    from widerow.keylab.lint import Verdict
    from widerow.plan.fleet import Fleet

JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
FleetOption = Annotated[
    Path | None,
    typer.Option(
        "--fleet", metavar="FILE", help="The fleet, in TOML; that of `keys fleet-example` unless given.", show_default=False
    ),
]
Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="A template, classic notation such as sensor#timestamp, or a file with a CREATE TABLE or a design in TOML.",
        show_default=False,
    ),
]


@keys.command("lint")
def lint(spec: Spec, fleet: FleetOption = None, json: JsonOption = False) -> None:
    """Judge a row key: name its faults, show keys that prove them, and suggest a better one. Exit code 1: it has errors.

    Example: widerow keys lint 'timestamp#sensor'

    Example: widerow keys lint '{tenant}#{device}#{reversed:13}' --json

    Example: widerow keys lint 'CREATE TABLE r (id text, ts timestamp, v double, PRIMARY KEY (id, ts))'
    """
    from widerow.keylab.lint import lint as judge  # noqa: PLC0415 - NumPy hangs on it
    from widerow.model.times import SystemClock  # noqa: PLC0415

    described = read_fleet_file(fleet)
    verdict = judge(read_spec(spec), described, SystemClock().now_us())
    if json:
        output.emit_json(_facts(verdict, spec))
    else:
        _print(verdict, "the example fleet" if fleet is None else str(fleet))
    if not verdict.is_good:
        raise typer.Exit(1)


@keys.command("explain")
def explain(
    code: Annotated[str, typer.Argument(metavar="[CODE]", help="The rule's code; all are listed without it.")] = "",
    json: JsonOption = False,
) -> None:
    """Tell a rule of `keys lint` at length: why it is one, and a key that breaks it beside one that does not.

    Example: widerow keys explain time-first

    Example: widerow keys explain
    """
    from widerow.keylab.explain import rules  # noqa: PLC0415

    known = rules()
    if code and code not in known:
        raise Misused(f"there is no rule {code!r}", todo=f"there are {', '.join(known)}")
    chosen = {name: rule for name, rule in known.items() if code in ("", name)}
    if json:
        told = [
            {"code": name, "title": rule.title, "reason": " ".join(rule.reason.split()), "bad": rule.bad, "good": rule.good}
            for name, rule in chosen.items()
        ]
        output.emit_json(told[0] if code else told)
    elif not code:
        output.emit_table(["code", "rule"], [[name, rule.title] for name, rule in chosen.items()])
    else:
        rule = chosen[code]
        output.emit(f"{rule.title}\n\n{rule.reason}\n\nbad   {rule.bad}\ngood  {rule.good}")


@keys.command("fleet-example")
def fleet_example() -> None:
    """Print the description of a fleet, with a remark on each line, to be edited and given to --fleet.

    Example: widerow keys fleet-example
    """
    from widerow.plan.fleet import example  # noqa: PLC0415

    output.emit(example().rstrip())


def read_spec(given: str) -> Design:
    """The design that an argument is, or that the file it names holds."""
    from widerow.keylab.read import read_design  # noqa: PLC0415

    text, source = given, "the spec"
    if given.lower().endswith((".cql", ".toml", ".sql")) and "{" not in given:
        text, source = read_text(Path(given)), given
    with as_misuse():
        return read_design(text, source)


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(explained(error, file), code="file") from None
    except UnicodeDecodeError:
        raise Failed(f"{file} is no text in UTF-8", code="file") from None


def read_fleet_file(file: Path | None) -> Fleet:
    from widerow.plan.fleet import example_fleet, read_fleet  # noqa: PLC0415

    if file is None:
        return example_fleet()
    with as_misuse():
        return read_fleet(read_text(file), str(file))


def _facts(verdict: Verdict, spec: str) -> dict[str, Any]:
    findings = [
        {
            "code": finding.code,
            "severity": finding.severity,
            "message": finding.message,
            "examples": list(finding.examples),
            "suggestion": finding.suggestion,
        }
        for finding in verdict.findings
    ]
    return {"spec": spec, "read_as": verdict.design.template, "findings": findings, "suggestion": verdict.suggestion}


def _print(verdict: Verdict, fleet: str) -> None:
    output.note(f"{verdict.design.text}: read as {verdict.design.template}, with {fleet}")
    for finding in verdict.findings:
        output.emit(f"{finding.severity:<8} {finding.code}: {output.printable(finding.message)}")
        for example in finding.examples:
            output.emit(f"           {output.printable(example)}")
    if verdict.suggestion:
        output.emit(f"better   {verdict.suggestion}")
    elif not verdict.findings:
        output.emit("good     no rule is broken")
    if verdict.findings:
        output.note(f"widerow keys explain {verdict.findings[0].code} tells more")
