"""Asking before something is gone for good."""

from __future__ import annotations

import io

import pytest

from widerow.cli.failure import Failed, Misused
from widerow.cli.session import confirm, pairs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{text}\n"))


def test_only_a_yes_is_a_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer(monkeypatch, "y")
    confirm("deleting all", yes=False)
    for text in ("n", ""):
        answer(monkeypatch, text)
        with pytest.raises(Failed, match="nothing was changed"):
            confirm("deleting all", yes=False)
    captured = capsys.readouterr()
    assert "deleting all cannot be undone" in captured.err
    assert captured.out == ""


def test_where_nobody_can_be_asked_the_answer_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(Misused, match="--yes"):
        confirm("deleting all", yes=False)
    confirm("deleting all", yes=True)


def test_pairs() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "--tag") == {"a": "1", "b": "x=y", "c": ""}
    assert pairs(None, "--tag") == {}
    for bad in ("a", "=1"):
        with pytest.raises(Misused, match="name=value"):
            pairs([bad], "--tag")
