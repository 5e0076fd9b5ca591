"""The section `[mqtt]` of the configuration, as the client and the gateway take it."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import unquote, urlsplit

from widerow.codec.mqtt.packets import Subscription
from widerow.config import Mqtt
from widerow.ingest.mqtt.connection import ClientSettings
from widerow.ingest.mqtt.topics import Template
from widerow.model.errors import ConfigError

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_IF_NEW = 1


def client_settings(config: Mqtt, telemetry: Template, status: Template) -> ClientSettings:
    """Raises `ConfigError` for what cannot be connected to.

    Telemetry is shared among all gateways of the group; without a group the one gateway there is has it for itself, by a
    subscription that brokers keep over a restart, which not all do with shared ones. Status is never shared: a shared
    subscription gets no retained messages, and two gateways that share a device's messages could store `online` and
    `offline` in the wrong order.
    """
    try:
        url = urlsplit(config.url)
        port = url.port
    except ValueError as error:
        raise ConfigError(f"mqtt.url cannot be read: {error}") from None
    if url.scheme not in _PORTS or not url.hostname or url.path.strip("/") or url.query:
        raise ConfigError(
            f"mqtt.url is of {url.scheme!r} and {url.hostname!r}: give mqtt://[USER@]HOST[:PORT], or mqtts:// for TLS"
        )
    if set(config.group) & set("/+#\0"):
        raise ConfigError(f"mqtt.group is {config.group!r}: give a name without / + #")
    username = config.username or unquote(url.username or "")
    password = config.password or unquote(url.password or "")
    if password and not username:
        raise ConfigError("mqtt.password is given without mqtt.username")
    return ClientSettings(
        host=url.hostname,
        port=port or _PORTS[url.scheme],
        client_id=(config.client_id or "widerow-{host}").replace("{host}", socket.gethostname()),
        subscriptions=(
            Subscription(telemetry.filter(config.group) if config.group else telemetry.filter()),
            Subscription(status.filter(), retain_handling=_IF_NEW),
        ),
        username=username or None,
        password=password.encode() if password else None,
        tls=_tls(config) if url.scheme == "mqtts" else None,
        session_expiry_s=config.session_expiry_s,
        receive_maximum=config.receive_maximum,
        max_packet_bytes=config.max_packet_mib << 20,
        max_unacked_bytes=config.max_unacked_mib << 20,
        keep_alive_s=config.keep_alive_s,
    )


def _tls(config: Mqtt) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.tls_ca or None)
        if config.tls_cert:
            context.load_cert_chain(config.tls_cert, config.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"mqtt.tls_ca, mqtt.tls_cert or mqtt.tls_key cannot be used: {error}") from error
    return context
