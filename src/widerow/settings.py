"""What the stages are set to, out of the configuration: its units for people become those of the stages."""

from __future__ import annotations

import socket

from widerow.admit.escalation import HotSettings
from widerow.admit.heat import HeatSettings
from widerow.admit.pressure import PressureSettings
from widerow.admit.question_slots import SlotSettings
from widerow.alerts.alerts import AlertSettings
from widerow.alerts.builtin import BuiltinSettings
from widerow.config import Config
from widerow.model.store import is_shared
from widerow.model.times import DAY, SECOND
from widerow.pipeline.dead_letters import DeadLetterSettings
from widerow.pipeline.pipeline import PipelineSettings
from widerow.query.budget import QuerySettings
from widerow.rollup.crew import CrewSettings
from widerow.rollup.pyramid import PyramidSettings
from widerow.rollup.rolling import RollingSettings
from widerow.rollup.windows import WindowSettings
from widerow.telemetry.observed import ObservedSettings
from widerow.usage.record import UsageSettings
from widerow.usage.storage import StorageSettings


def pressure_settings(config: Config) -> PressureSettings:
    pressure = config.pressure
    return PressureSettings(
        max_bytes=config.pipeline.max_in_flight_mib << 20,
        max_backfill_bytes=config.backfill.max_in_flight_mib << 20,
        max_items=pressure.max_items,
        high=pressure.high_percent / 100,
        low=pressure.low_percent / 100,
        stall_s=pressure.stall_s,
        recover_s=pressure.recover_s,
    )


def pipeline_settings(config: Config, *, crew: bool = False) -> PipelineSettings:
    return PipelineSettings(
        max_future_us=config.time.max_future_s * SECOND,
        max_in_flight_bytes=config.pipeline.max_in_flight_mib << 20,
        max_tenant_in_flight_bytes=config.pipeline.max_tenant_in_flight_mib << 20,
        decoders=config.pipeline.decoders,
        # Behind Kafka the topic decides: a worker that has to catch up with live reports is not late for them.
        backfill_after_us=0 if crew else config.backfill.after_s * SECOND,
        max_backfill_bytes=config.backfill.max_in_flight_mib << 20,
        backfill_share=config.backfill.share_percent / 100,
    )


def hot_settings(config: Config) -> HotSettings:
    hot = config.hot
    return HotSettings(
        reports_per_s=hot.reports_per_s,
        declared_times=hot.declared_times,
        share=hot.share_percent / 100,
        share_from_per_s=hot.share_from_per_s,
        least_per_s=hot.least_per_s,
        cool_intervals=hot.cool_intervals,
        sample=hot.sample_percent / 100,
    )


def heat_settings(config: Config) -> HeatSettings:
    return HeatSettings(
        tracked=config.hot.tracked,
        least_per_s=config.hot.least_per_s,
        interval_us=config.hot.interval_s * SECOND,
        backlog_us=config.backfill.after_s * SECOND,
    )


def pyramid_settings(config: Config, *, rolls: bool, crew: bool = False, shared: bool = False) -> PyramidSettings:
    lateness_us, settle_us = config.rollup.lateness_s * SECOND, config.rollup.settle_s * SECOND
    several = CrewSettings(share_us=config.rollup.share_s * SECOND) if crew else None
    if several:  # before that nothing of what was marked last is taken
        settle_us = max(settle_us, several.ripe_us)
    return PyramidSettings(
        max_future_us=config.time.max_future_s * SECOND,
        rolls=rolls,
        rolling=RollingSettings(lateness_us=lateness_us, settle_us=settle_us),
        windows=WindowSettings(
            max_bytes=config.rollup.cache_mib << 20,
            lateness_us=lateness_us,
            late_us=config.backfill.after_s * SECOND,
        ),
        crew=several,
        shared=shared,
    )


def observed_settings(config: Config) -> ObservedSettings:
    placement = config.placement
    return ObservedSettings(
        interval_us=placement.interval_s * SECOND,
        fast_intervals=placement.fast_intervals,
        slow_us=placement.slow_after_s * SECOND,
        hold_us=placement.hold_s * SECOND,
    )


def dead_letter_settings(config: Config) -> DeadLetterSettings:
    limits = config.dead_letters
    return DeadLetterSettings(
        enabled=bool(limits.enabled),
        max_per_s=limits.max_per_s,
        max_bytes_per_day=limits.max_mib_per_day << 20,
        max_body_bytes=limits.max_body_kib << 10,
        max_unpacked_bytes=config.http.max_body_mib << 20,
        keep_us=limits.keep_days * DAY,
    )


def usage_settings(config: Config) -> UsageSettings:
    usage = config.usage
    return UsageSettings(
        flush_s=float(usage.flush_s), keep_us=usage.keep_days * DAY, detail_us=min(usage.detail_days, usage.keep_days) * DAY
    )


def storage_settings(config: Config) -> StorageSettings:
    return StorageSettings(refresh_s=float(config.usage.refresh_s), disk_ratio=config.usage.disk_percent / 100)


def query_settings(config: Config) -> QuerySettings:
    limits = config.query
    return QuerySettings(
        max_rows=limits.max_rows,
        max_answer_bytes=limits.max_answer_mib << 20,
        max_work_bytes=max(8 * limits.max_answer_mib, 256) << 20,
        timeout_s=float(limits.timeout_s),
        readers=2 if is_shared(config.store.url) else 1,
    )


def slot_settings(config: Config) -> SlotSettings:
    query = config.query
    return SlotSettings(
        at_once=query.at_once,
        long_at_once=query.long_at_once,
        max_waiting=query.max_waiting,
        max_wait_s=float(query.max_wait_s),
    )


def alert_settings(config: Config) -> AlertSettings:
    alerts, shared = config.alerts, is_shared(config.store.url)
    return AlertSettings(
        every_s=float(alerts.every_s),
        for_us=alerts.for_s * SECOND,
        keep_us=alerts.keep_days * DAY,
        lateness_us=config.rollup.lateness_s * SECOND,
        most_bytes=alerts.cache_mib << 20,
        builtin=BuiltinSettings(
            window_s=float(alerts.window_s),
            baseline_s=float(alerts.baseline_s),
            rate_part=alerts.rate_percent / 100,
            rate_from_per_s=float(alerts.rate_from_per_s),
            latency_s=alerts.latency_ms / 1000,
            batch_size=float(alerts.batch_size),
            batch_from_per_s=float(alerts.batch_from_per_s),
            quota_part=alerts.quota_percent / 100,
            compactions=float(alerts.compactions),
        ),
        webhooks=alerts.webhooks,
        webhook_networks=alerts.webhook_networks,
        rules=alerts.rules,
        process=alerts.process.replace("{host}", socket.gethostname()) if shared else "",
        shared=shared,
    )
