"""`widerow keys lint|explain|fleet-example`: a row key is judged before it holds data. Needs no server and no store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.failure import USAGE, Failed, Misused, as_misuse
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
    """Judge a row key: name its faults, show keys that prove them, and suggest a better one. A file may hold several tables.

    Words of classic notation: tenant, device (sensor, vehicle, host), metric, type, location, timestamp, day, reversed:13,
    md5:2, shard-NN, sequence; other words are fixed text. Exit code 1: there are errors; 2: the input cannot be read.

    Example: widerow keys lint 'timestamp#sensor'

    Example: widerow keys lint '{tenant}#{device}#{reversed:13}' --json

    Example: widerow keys lint 'CREATE TABLE r (id text, ts timestamp, v double, PRIMARY KEY (id, ts))'
    """
    from widerow.keylab.lint import lint as judge  # noqa: PLC0415 - NumPy hangs on it
    from widerow.model.times import SystemClock  # noqa: PLC0415

    described = read_fleet_file(fleet)
    now_us = SystemClock().now_us()
    verdicts = [judge(design, described, now_us) for design in read_specs(spec)]
    if json:
        facts = [_facts(verdict, spec if len(verdicts) == 1 else verdict.design.text) for verdict in verdicts]
        output.emit_json(facts[0] if len(facts) == 1 else {"tables": facts})
    else:
        for verdict in verdicts:
            _print(verdict, "the example fleet" if fleet is None else str(fleet))
    if not all(verdict.is_good for verdict in verdicts):
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

    with as_misuse():
        return read_design(*_text_of(given))


def read_specs(given: str) -> list[Design]:
    """The same, of a file with any number of tables."""
    from widerow.keylab.read import read_designs  # noqa: PLC0415

    with as_misuse():
        return read_designs(*_text_of(given))


def _text_of(given: str) -> tuple[str, str]:
    """The text of a spec, and its name in errors."""
    is_file = len(given) < 1000 and "{" not in given and "(" not in given and Path(given).is_file()
    if is_file or (given.lower().endswith((".cql", ".toml", ".sql")) and "{" not in given):
        return read_text(Path(given)), given
    return given, "the spec"


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(explained(error, file), code="file", exit_code=USAGE) from None
    except UnicodeDecodeError:
        raise Failed(f"{file} is no text in UTF-8", code="file", exit_code=USAGE) from None


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
    read = {"spec": spec, "read_as": verdict.design.template, "notes": list(_notes(verdict))}
    return {**read, "findings": findings, "suggestion": verdict.suggestion}


def _notes(verdict: Verdict) -> Iterator[str]:
    yield from verdict.design.notes
    if verdict.design.is_aggregate:
        yield "it is read as a table of summaries, for a word in its name: its rows are few and slow"


def _print(verdict: Verdict, fleet: str) -> None:
    output.note(f"{verdict.design.text}: read as {verdict.design.template}, with {fleet}")
    for remark in _notes(verdict):
        output.note(f"note: {output.printable(remark)}")
    for finding in verdict.findings:
        output.emit(f"{finding.severity:<8} {finding.code}: {output.printable(finding.message)}")
        for example in finding.examples:
            output.emit(f"           {output.printable(example)}")
    if verdict.suggestion:
        output.emit(f"better   {verdict.suggestion}")
    elif not verdict.findings:
        output.emit("good     no rule is broken")
    elif any(finding.severity != "advice" for finding in verdict.findings):
        output.emit("better   no better key is known that has no faults of its own")
    if verdict.findings:
        output.note(f"widerow keys explain {verdict.findings[0].code} tells more")
