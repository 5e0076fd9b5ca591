"""MQTT 5 without sockets, made for whole buffers: thousands of packets at a time.

`scan` finds the packets of received bytes, `answers` reads those that are no PUBLISH, `packets` makes what a client sends.
"""

from widerow.codec.mqtt.fault import MqttFault
from widerow.codec.mqtt.scan import Publishes, Scanned, Scanner, warm_up

__all__ = ["MqttFault", "Publishes", "Scanned", "Scanner", "warm_up"]
