"""The section `[mqtt]` of the configuration, as the client and the gateway take it."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import unquote

from widerow.codec.mqtt.packets import Subscription
from widerow.config import Mqtt
from widerow.ingest.mqtt.connection import ClientSettings
from widerow.ingest.mqtt.topics import Template, require_distinct
from widerow.model.address import mqtt_url
from widerow.model.errors import ConfigError
from widerow.model.lane import Lane

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_IF_NEW = 1
_BEHIND = {Lane.LIVE: "", Lane.BACKFILL: "-backfill"}
_IF_DENIED = {
    Lane.LIVE: "",
    Lane.BACKFILL: "Nothing is taken from mqtt.backfill_topic, and all else goes on. Write the broker's access rules again "
    "(`widerow mqtt config`), or set mqtt.backfill_topic to empty",
}


def topic_templates(config: Mqtt) -> list[Template]:
    """Of telemetry, status and errors, and of backlog if it has one."""
    names = ["telemetry", "status", "errors", *(["backfill"] if config.backfill_topic else [])]
    found = [Template(f"mqtt.{name}_topic", getattr(config, f"{name}_topic")) for name in names]
    require_distinct(found)
    return found


def client_settings(
    config: Mqtt, reports: Template, status: Template | None = None, *, lane: Lane = Lane.LIVE
) -> ClientSettings:
    """Of the session that takes these reports, and statuses if there are any. Raises `ConfigError` for what cannot be
    connected to.

    Reports are shared among all gateways of the group; without a group the one gateway there is has them for itself, by a
    subscription that brokers keep over a restart, which not all do with shared ones. Status is never shared: a shared
    subscription gets no retained messages, and two gateways that share a device's messages could store `online` and
    `offline` in the wrong order.
    """
    url = mqtt_url(config.url)
    if set(config.group) & set("/+#\0"):
        raise ConfigError(f"mqtt.group is {config.group!r}: give a name without / + #")
    username = config.username or unquote(url.username or "")
    password = config.password or unquote(url.password or "")
    if password and not username:
        raise ConfigError("mqtt.password is given without mqtt.username")
    subscriptions = [Subscription(reports.filter(config.group))]
    if status is not None:
        subscriptions.append(Subscription(status.filter(), retain_handling=_IF_NEW))
    return ClientSettings(
        host=url.hostname or "",
        port=url.port or _PORTS[url.scheme],
        client_id=(config.client_id or "widerow-{host}").replace("{host}", socket.gethostname()) + _BEHIND[lane],
        subscriptions=subscriptions,
        username=username or None,
        password=password.encode() if password else None,
        tls=_tls(config) if url.scheme == "mqtts" else None,
        session_expiry_s=config.session_expiry_s,
        receive_maximum=config.receive_maximum,
        max_packet_bytes=config.max_packet_mib << 20,
        max_unacked_bytes=config.max_unacked_mib << 20,
        keep_alive_s=config.keep_alive_s,
        lane=lane,
        if_denied=_IF_DENIED[lane],
    )


def _tls(config: Mqtt) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.tls_ca or None)
        if config.tls_cert:
            context.load_cert_chain(config.tls_cert, config.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"mqtt.tls_ca, mqtt.tls_cert or mqtt.tls_key cannot be used: {error}") from error
    return context
