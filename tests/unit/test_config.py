"""Configuration: one file, the environment, and errors that name the setting."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from widerow import settings
from widerow.catalog.catalog import CatalogSettings
from widerow.config import Config, build, load
from widerow.engine.bigtable.connection import BigtableSettings
from widerow.engine.cassandra.cluster import CassandraSettings
from widerow.engine.open import rocks_settings
from widerow.ingest.mqtt.connection import ClientSettings
from widerow.model.errors import ConfigError
from widerow.model.times import SECOND
from widerow.rollup.crew import CrewSettings
from widerow.telemetry.store import TelemetrySettings


def test_without_anything_given_the_defaults_hold() -> None:
    assert build({}, {}) == Config()
    assert load(None, {}) == Config()


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "widerow.toml"
    file.write_text('[http]\nport = 9000\nhost = "0.0.0.0"\n[line]\ndevice_tags = ["id"]\n')
    config = load(file, {"WIDEROW_HTTP_PORT": "9001", "WIDEROW_LINE_ATTRIBUTE_TAGS": "site, rack"})
    assert (config.http.host, config.http.port) == ("0.0.0.0", 9001)
    assert config.line.device_tags == ("id",)
    assert config.line.attribute_tags == ("site", "rack")


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
    check({"line": {"attribute_tags": "site"}}, {}, "line.attribute_tags", "list")
    check({"line": {"fold_tags": ["cpu"]}}, {}, "line.fold_tags is gone", "cpu_usage{cpu=cpu0}", "line.attribute_tags")
    check({}, {"WIDEROW_LINE_FOLD_TAGS": "cpu"}, "line.fold_tags is gone")
    check({"prices": {"gib_month": "dear"}}, {}, "prices.gib_month", "a number")
    check({"prices": {"gib_month": float("nan")}}, {}, "prices.gib_month", "0 to")
    check({}, {"WIDEROW_PRICES_GIB_MONTH": "dear"}, "WIDEROW_PRICES_GIB_MONTH", "a number")
    check({"log": {"level": "loud"}}, {}, "log.level", "debug")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load(tmp_path / "missing.toml", {})
    broken = tmp_path / "broken.toml"
    for text in ("[http\n", "http = " + "[" * 2000):
        broken.write_text(text)
        with pytest.raises(ConfigError, match=r"broken\.toml is not TOML"):
            load(broken, {})


def test_a_stage_and_the_configuration_have_the_same_defaults() -> None:
    """A setting's default stands in both: a stage that is used without a configuration behaves as one with it."""
    config = Config()
    pyramid = settings.pyramid_settings(config, rolls=True)
    pipeline = settings.pipeline_settings(config)
    pressure = settings.pressure_settings(config)
    for built in (
        settings.hot_settings(config),
        settings.heat_settings(config),
        settings.observed_settings(config),
        settings.dead_letter_settings(config),
        settings.usage_settings(config),
        settings.storage_settings(config),
        settings.query_settings(config),
        settings.slot_settings(config),
        rocks_settings(config),
        pyramid.rolling,
        pyramid.windows,
        pipeline,
        pressure,
    ):
        required = {f.name: getattr(built, f.name) for f in fields(built) if f.default is MISSING}
        assert built == type(built)(**required)
    assert settings.pyramid_settings(config, rolls=True, crew=True).crew == CrewSettings()
    telemetry = TelemetrySettings(max_future_us=0, refresh_us=0)
    assert telemetry.observed == settings.observed_settings(config)
    assert CatalogSettings().refresh_us == config.time.refresh_s * SECOND
    assert CatalogSettings().max_future_us == config.time.max_future_s * SECOND
    mqtt = ClientSettings(host="", port=0, client_id="", subscriptions=())
    assert mqtt.session_expiry_s == config.mqtt.session_expiry_s
    assert mqtt.receive_maximum == config.mqtt.receive_maximum
    assert (mqtt.max_packet_bytes, mqtt.max_unacked_bytes) == (
        config.mqtt.max_packet_mib << 20,
        config.mqtt.max_unacked_mib << 20,
    )
    assert mqtt.keep_alive_s == config.mqtt.keep_alive_s
    assert BigtableSettings().deadline_s == config.bigtable.timeout_s
    cassandra = CassandraSettings(hosts=())
    assert (cassandra.timeout_s, cassandra.in_flight) == (config.cassandra.timeout_s, config.cassandra.in_flight)
