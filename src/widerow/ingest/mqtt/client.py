"""A subscriber of an MQTT 5 broker, in a thread of its own, that speaks in blocks of messages.

Rule 1: a message is acknowledged to the broker when `done` was called for it, and after all that came before it (`window`).
Whoever calls has made it durable, or knows that it never will be.
Rule 2: the session outlives the connection. After a failure we connect again, waiting longer each time; what was not
acknowledged is delivered again.
Rule 3: memory is bounded: by the receive maximum, which the broker keeps, and by bytes, beyond which nothing is read.
Rule 4: `stop` reads nothing more, waits a while for what is under way, and leaves the session as it is.
Rule 5: a subscription that the broker refuses is a failure like others; unless we can do without it (`if_denied`): then that
is said once, and it is asked for again now and then, since access rules change.
"""

from __future__ import annotations

import logging
import math
import random
import select
import threading
import time
from collections.abc import Callable

import numpy as np

from widerow.codec.mqtt import MqttFault, Publishes
from widerow.ingest.mqtt.connection import Bell, ClientSettings, Connection, Denied, Shared
from widerow.ingest.mqtt.outbox import Outbox
from widerow.ingest.mqtt.window import Block, Window
from widerow.model.arrays import Ints
from widerow.model.lane import Lane
from widerow.model.times import Clock
from widerow.ops.counters import Counters

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 15.0
_DENIED_PAUSE_S = 60.0


class Client:
    """Calls `received` with each block, from its own thread. All methods may be called from any thread."""

    def __init__(
        self, settings: ClientSettings, received: Callable[[Block], None], clock: Clock, counters: Counters
    ) -> None:
        self.settings = settings
        self.trouble = "not connected yet"
        """Why there is no connection; empty if there is one."""
        self.is_denied = False
        """Whether the broker refused the subscription when it was last asked."""
        self._received, self._clock, self._counters = received, clock, counters
        self.window, self._bell = Window(), Bell()
        self._shared = Shared(self.window, Outbox(settings.most_queued), self._bell, self._take, self._begin)
        self._connected = threading.Event()
        self._lane = settings.lane.value
        self._where = f"{settings.host}:{settings.port}"
        self._what_for = "" if settings.lane is Lane.LIVE else " for backlog"
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{self._lane}")

    def start(self) -> None:
        self._thread.start()

    def leave(self, by_s: float) -> None:
        """Begin to stop, and be gone by then, on the clock `time.monotonic`."""
        self._shared.stop_by_s = by_s
        self._bell.ring()

    def stop(self, grace_s: float = 10.0) -> bool:
        """Disconnect, at the latest after so long. Whether everything that was received was acknowledged."""
        self.leave(time.monotonic() + grace_s)
        self._thread.join()
        return self.window.is_empty()

    def wait_connected(self, within_s: float) -> bool:
        """Until the subscriptions are in force."""
        return self._connected.wait(within_s)

    def done(self, block: Block, rows: Ints) -> None:
        """These messages of a block are durable, or refused for good. Harmless a second time, and after `stop`."""
        if self.window.done(block, rows):
            self._bell.ring()

    def publish(self, topic: bytes, payload: bytes, *, retain: bool = False) -> bool:
        """Send a message at quality of service 1, some time. False: the queue is full, and it was dropped."""
        if not self._shared.outbox.put(topic, payload, retain=retain):
            return False
        self._bell.ring()
        return True

    # -- the thread

    def _take(self, messages: Publishes) -> None:
        again = int(np.count_nonzero(messages.dup))
        if again:
            self._counters.mqtt_again.inc(again)
        self._received(self.window.add(messages, self._clock.now_us()))

    def _begin(self, resumed: bool) -> None:
        self.trouble, self.is_denied = "", False
        self._counters.mqtt_connected.labels(self._lane).set(1)
        self._counters.mqtt_connections.labels(self._lane, "resumed" if resumed else "new").inc()
        session = "found as we left it" if resumed else "new"  # its name is not told: who has it can take the session over
        log.info("MQTT broker %s: connected%s, the session is %s", self._where, self._what_for, session)
        self._connected.set()

    def _stopping(self) -> bool:
        return self._shared.stop_by_s is not None

    def _run(self) -> None:
        failures = 0
        while not self._stopping():
            self._connect()
            if self._stopping():
                break
            failures = 0 if self._connected.is_set() else failures + 1
            self._connected.clear()
            pause_s = _DENIED_PAUSE_S if self.is_denied else _pause_after(failures)
            pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 - spread
            if not self.is_denied:
                log.warning("MQTT broker %s%s: %s; again in %.1fs", self._where, self._what_for, self.trouble, pause_s)
            self._pause(pause_s)
        self._connected.clear()

    def _connect(self) -> None:
        """One connection, until it ends for whatever reason."""
        try:
            connection = Connection(self.settings, self._shared)
            try:
                connection.run()
            finally:
                connection.close()
        except (OSError, MqttFault) as error:
            self.trouble = str(error) or type(error).__name__
            denied = isinstance(error, Denied) and bool(self.settings.if_denied)
            if denied and not self.is_denied:
                log.warning("MQTT broker %s: %s. %s", self._where, self.trouble, self.settings.if_denied)
            self.is_denied = denied
        except Exception as error:  # the thread must go on: nothing was acknowledged, and all of it comes again
            log.exception("the MQTT client failed")
            self.trouble = f"internal error: {type(error).__name__}"
        finally:
            self._counters.mqtt_connected.labels(self._lane).set(0)

    def _pause(self, seconds: float) -> None:
        until_s, poll = time.monotonic() + seconds, select.poll()  # `select` knows no handles beyond 1023
        poll.register(self._bell.handle, select.POLLIN)
        while not self._stopping() and (left_s := until_s - time.monotonic()) > 0:
            poll.poll(math.ceil(1000 * left_s))
            self._bell.hush()


def _pause_after(failures: int) -> float:
    """For how long to wait after so many failures in a row, of which there may be any number."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures, 10))
