"""What the process counts: the metrics of `GET /metrics`, explained in docs/reference/metrics.md (a test checks that)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BATCHES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Counters:
    """One set per process, passed to whoever counts. Labels are tenants, codes and routes: all bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.reports = Counter("widerow_reports_accepted", "Reports made durable.", ["tenant"], registry=r)
        self.values = Counter("widerow_values_accepted", "Values and tags of reports made durable.", ["tenant"], registry=r)
        self.refused = Counter("widerow_reports_refused", "Reports refused, by code.", ["tenant", "code"], registry=r)
        self.shadowed = Counter(
            "widerow_reports_shadowed", "Reports that a limit in shadow would have refused.", ["tenant", "limit"], registry=r
        )
        self.hot_devices = Gauge(
            "widerow_hot_devices",
            "Devices that are hot, and the steps taken about them.",
            ["tenant", "step"],
            registry=r,
        )
        self.hot_partitions = Gauge(
            "widerow_hot_partitions", "Devices whose partition takes far too many writes, of all tenants.", registry=r
        )
        self.hot_turns = Counter(
            "widerow_hot_turns", "Steps that this process took against hot devices.", ["tenant", "turn"], registry=r
        )
        self.received_bytes = Counter("widerow_received_bytes", "Bytes of request bodies taken in.", ["tenant"], registry=r)
        self.requests = Counter("widerow_http_requests", "Requests answered.", ["route", "status"], registry=r)
        self.request_seconds = Histogram(
            "widerow_http_request_seconds", "Time from request to answer.", ["route"], buckets=_SECONDS, registry=r
        )
        self.query_waiting = Gauge("widerow_query_waiting", "Requests that wait to be worked on.", ["tenant"], registry=r)
        self.query_running = Gauge("widerow_query_running", "Requests that are worked on.", ["tenant"], registry=r)
        self.query_refused = Counter(
            "widerow_query_refused",
            "Questions refused before they were begun, or while they waited.",
            ["tenant", "code"],
            registry=r,
        )
        self.query_shadowed = Counter(
            "widerow_query_shadowed", "Questions that a limit in shadow would have refused.", ["tenant"], registry=r
        )
        self.query_rows = Counter("widerow_query_rows", "Rows read for questions.", ["tenant"], registry=r)
        self.query_wait_seconds = Histogram(
            "widerow_query_wait_seconds", "How long requests waited until they were begun.", buckets=_SECONDS, registry=r
        )
        self.commits = Counter("widerow_commits", "Group commits.", registry=r)
        self.commit_seconds = Histogram("widerow_commit_seconds", "Time of a group commit.", buckets=_SECONDS, registry=r)
        self.commit_reports = Histogram("widerow_commit_reports", "Reports of a group commit.", buckets=_BATCHES, registry=r)
        self.commit_failures = Counter("widerow_commit_failures", "Commits that failed.", ["code"], registry=r)
        self.writer = Gauge("widerow_writer", "1 if this process may write to its store.", registry=r)
        self.in_flight = Gauge("widerow_in_flight_bytes", "Bytes taken in and not yet answered.", registry=r)
        self.pressure_healthy = Gauge("widerow_pressure_healthy", "1 if the process keeps up, 0 if degraded.", registry=r)
        self.pressure_pending = Gauge("widerow_pressure_pending", "Requests in flight.", ["lane"], registry=r)
        self.pressure_bytes = Gauge("widerow_pressure_pending_bytes", "Bytes in flight.", ["lane"], registry=r)
        self.pressure_oldest = Gauge(
            "widerow_pressure_oldest_seconds", "For how long the oldest request has been in flight.", ["lane"], registry=r
        )
        self.pressure_events = Counter(
            "widerow_pressure_events", "Turns of the process's health, and refusals for want of room.", ["event"], registry=r
        )
        self.tenant_memory = Gauge(
            "widerow_tenant_memory_bytes", "Memory held for a tenant, about.", ["tenant", "what"], registry=r
        )
        self.disk = Gauge("widerow_store_disk_bytes", "Bytes on disk.", registry=r)
        self.memory = Gauge("widerow_store_memory_bytes", "Memory of the engine.", registry=r)
        self.windows = Gauge("widerow_store_windows", "Time windows on disk.", registry=r)
        self.compactions = Gauge("widerow_store_pending_compactions", "Compactions that run or wait.", registry=r)
        self.syncs = Gauge("widerow_store_syncs", "Times the log was synced to disk since the start.", registry=r)
        self.dropped_windows = Counter("widerow_expired_windows", "Time windows dropped because they expired.", registry=r)
        self.rolled = Counter(
            "widerow_rollup_windows",
            "Windows of devices rolled, by what they were rolled from.",
            ["level", "source"],
            registry=r,
        )
        self.rollup_unreadable = Counter(
            "widerow_rollup_unreadable",
            "Times a window of a shard was not rolled, since bytes that it is rolled from cannot be read.",
            ["level"],
            registry=r,
        )
        self.rollup_pending = Gauge(
            "widerow_rollup_pending_windows", "Windows of shards that are marked and not rolled.", ["level"], registry=r
        )
        self.rollup_behind = Gauge(
            "widerow_rollup_behind_seconds", "For how long the oldest window has been due.", ["level"], registry=r
        )
        self.rollup_margin = Gauge(
            "widerow_rollup_margin_seconds", "How long what is to be rolled is still there; a week at most.", registry=r
        )
        self.audit_failures = Counter("widerow_audit_failures", "Actions that could not be recorded.", registry=r)
        self.audit_dropped = Counter("widerow_audit_dropped", "Entries of the audit log beyond a day's bound.", registry=r)
        self.alerts = Gauge("widerow_alerts", "Alerts that are pending or firing.", ["tenant", "state"], registry=r)
        self.alerts_dropped = Counter(
            "widerow_alerts_dropped", "Alerts that were not stored: too many, or the store failed.", ["tenant"], registry=r
        )
        self.alerts_unjudged = Counter(
            "widerow_alerts_unjudged_reports",
            "Reports that no rule of an alert looked at, since too many waited or a lookup failed.",
            registry=r,
        )
        self.alert_notices = Counter(
            "widerow_alert_notices", "Notices of alerts to webhooks, by what became of them.", ["result"], registry=r
        )
        self.adapted = Counter(
            "widerow_adapted_buckets", "Changes of a device's buckets for what it was seen to send.", ["tenant"], registry=r
        )
        self.dead_letters = Counter("widerow_dead_letters", "Dead letters filed.", ["tenant", "code"], registry=r)
        self.dead_letters_dropped = Counter(
            "widerow_dead_letters_dropped",
            "Dead letters that were over a cap, or could not be written.",
            ["tenant"],
            registry=r,
        )
        self.rollup_cache = Gauge("widerow_rollup_cache_bytes", "Memory of reports of open minutes.", registry=r)
        self.mqtt_connected = Gauge(
            "widerow_mqtt_connected", "1 if there is a connection to the MQTT broker.", ["lane"], registry=r
        )
        self.mqtt_connections = Counter(
            "widerow_mqtt_connections", "Connections to the MQTT broker that were made.", ["lane", "session"], registry=r
        )
        self.mqtt_messages = Counter("widerow_mqtt_messages", "Messages received from the broker.", ["kind"], registry=r)
        self.mqtt_again = Counter("widerow_mqtt_again", "Messages that the broker delivered again.", registry=r)
        self.mqtt_refused = Counter("widerow_mqtt_refused", "Messages refused, whole or in part.", ["code"], registry=r)
        self.mqtt_retries = Counter("widerow_mqtt_retries", "Messages held back to be tried again.", ["code"], registry=r)
        self.mqtt_errors = Counter("widerow_mqtt_errors", "Refusals for `errors` topics.", ["result"], registry=r)
        self.mqtt_unacked = Gauge(
            "widerow_mqtt_unacked_bytes", "Memory of messages received and not acknowledged.", ["lane"], registry=r
        )

        self.kafka_sent = Counter("widerow_kafka_sent_messages", "Messages that Kafka confirmed.", ["topic"], registry=r)
        self.kafka_sent_bytes = Counter("widerow_kafka_sent_bytes", "Bytes of their values.", ["topic"], registry=r)
        self.kafka_send_failures = Counter(
            "widerow_kafka_send_failures", "Messages that Kafka did not confirm.", ["topic", "code"], registry=r
        )
        self.kafka_taken = Counter("widerow_kafka_taken_messages", "Messages taken from Kafka.", ["topic"], registry=r)
        self.kafka_taken_bytes = Counter("widerow_kafka_taken_bytes", "Bytes of their values.", ["topic"], registry=r)
        self.kafka_skipped = Counter(
            "widerow_kafka_skipped_messages", "Messages that belong to no tenant we know.", ["topic", "code"], registry=r
        )
        self.kafka_missed = Counter(
            "widerow_kafka_missed_messages", "Messages that Kafka deleted before they were taken.", ["topic"], registry=r
        )
        self.kafka_retries = Counter(
            "widerow_kafka_retries", "Times that messages were handed to the store again.", ["topic", "code"], registry=r
        )
        self.kafka_rebalances = Counter(
            "widerow_kafka_rebalances", "Times that partitions came, went or were lost.", ["topic", "event"], registry=r
        )
        self.kafka_pauses = Counter(
            "widerow_kafka_pauses", "Times that taking messages paused because enough were in flight.", ["topic"], registry=r
        )
        self.kafka_in_flight = Gauge(
            "widerow_kafka_in_flight_bytes", "Messages taken from Kafka and not yet stored.", ["topic"], registry=r
        )
        self.kafka_lag = Gauge(
            "widerow_kafka_lag", "Messages of a partition that are not yet stored.", ["topic", "partition"], registry=r
        )

    def exposition(self) -> bytes:
        """The text format of Prometheus."""
        return generate_latest(self.registry)
