"""A service that cannot be opened, or not be closed in good order, leaves nothing behind that runs on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from widerow.config import Config, Store
from widerow.model.errors import Unavailable
from widerow.service import Service

PLACES = [
    "widerow.service.bring_up",
    "widerow.service.StoreSink",
    "widerow.service.Pipeline",
    "widerow.codec.line.LineDecoders",  # after the pipeline's threads have begun
    "widerow.service.QuestionSlots",
    "widerow.service.Adapting.start",
    "widerow.service.Pyramid.start",
    "widerow.service.HotDevices.start",
]


def raising(error: BaseException) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


def config_at(folder: Path) -> Config:
    return Config(store=Store(url=f"rocksdb:{folder / 'store'}", reserve_mib=0))


@pytest.mark.parametrize("error", [KeyboardInterrupt, Unavailable], ids=["interrupted", "failed"])
@pytest.mark.parametrize("place", PLACES)
def test_a_start_that_ends_early_leaves_no_thread_and_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: type[BaseException]
) -> None:
    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(place, raising(error("on purpose")))
        with pytest.raises(error, match="on purpose"):
            Service.open(config_at(tmp_path), rolls=True)
    assert not set(threading.enumerate()) - before
    Service.open(config_at(tmp_path)).close()  # the store is free


@pytest.mark.parametrize("place", ["Pipeline.close", "HotDevices.stop", "DeadLetters.close", "Pyramid.stop"])
def test_what_fails_while_closing_does_not_keep_the_rest_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    service = Service.open(config_at(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(f"widerow.service.{place}", raising(Unavailable("on purpose")))
        with pytest.raises(Unavailable, match="on purpose"):
            service.close()
    Service.open(config_at(tmp_path)).close()
    service.pipeline.close()
    service.dead_letters.close()
    service.hot.stop()
