"""Configuration: one file, the environment, and errors that name the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from widerow.config import Config, build, load
from widerow.model.errors import ConfigError


def test_without_anything_given_the_defaults_hold() -> None:
    assert build({}, {}) == Config()
    assert load(None, {}) == Config()


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "widerow.toml"
    file.write_text('[http]\nport = 9000\nhost = "0.0.0.0"\n[line]\ndevice_tags = ["id"]\n')
    config = load(file, {"WIDEROW_HTTP_PORT": "9001", "WIDEROW_LINE_FOLD_TAGS": "cpu, disk"})
    assert (config.http.host, config.http.port) == ("0.0.0.0", 9001)
    assert config.line.device_tags == ("id",)
    assert config.line.fold_tags == ("cpu", "disk")


def test_a_price_may_be_whole_or_not() -> None:
    config = build({"prices": {"gib_month": 2, "gib_read": 0.5}}, {"WIDEROW_PRICES_GIB_WRITTEN": "1.5"})
    assert (config.prices.gib_month, config.prices.gib_read, config.prices.gib_written) == (2.0, 0.5, 1.5)


def test_what_is_wrong_is_named() -> None:
    def check(tree: dict[str, object], environment: dict[str, str], *words: str) -> None:
        with pytest.raises(ConfigError) as caught:
            build(tree, environment)
        assert all(word in str(caught.value) for word in words), str(caught.value)

    check({"htpp": {}}, {}, "htpp", "http")
    check({"http": {"prot": 1}}, {}, "prot", "port")
    check({"http": 5}, {}, "[http]")
    check({"http": {"port": "80"}}, {}, "http.port", "whole number")
    check({"http": {"port": True}}, {}, "http.port")
    check({"http": {"port": 70000}}, {}, "http.port", "0 to 65535")
    check({}, {"WIDEROW_HTTP_PORT": "many"}, "WIDEROW_HTTP_PORT", "whole number")
    check({"line": {"fold_tags": "cpu"}}, {}, "line.fold_tags", "list")
    check({"prices": {"gib_month": "dear"}}, {}, "prices.gib_month", "a number")
    check({"prices": {"gib_month": float("nan")}}, {}, "prices.gib_month", "0 to")
    check({}, {"WIDEROW_PRICES_GIB_MONTH": "dear"}, "WIDEROW_PRICES_GIB_MONTH", "a number")
    check({"log": {"level": "loud"}}, {}, "log.level", "debug")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load(tmp_path / "missing.toml", {})
    broken = tmp_path / "broken.toml"
    broken.write_text("[http\n")
    with pytest.raises(ConfigError, match=r"broken\.toml is not TOML"):
        load(broken, {})
