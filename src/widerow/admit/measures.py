"""What is done to reports of hot devices as they come: some are sampled, some are limited.

Rule 1: whether a report is kept by sampling follows from its device, its event time and the span it lies in, and from
nothing else: what is sent again or replayed has the same fate.
Rule 2: sampling comes first. What it drops spends nothing of what the device may send.
Rule 3: a tenant none of whose devices is sampled or limited costs a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from widerow.admit.controls import Control, SampledSpan, What, sampled_by
from widerow.admit.device_limits import DeviceLimits
from widerow.model.arrays import Codes, Flags, Floats, Hashes, Ints
from widerow.model.batch import Batch
from widerow.model.errors import Refusal, Spent
from widerow.model.figures import figure
from widerow.model.hashing import hash_names, mix
from widerow.model.kernel import kernel

SAMPLED, HOT_RATE = "sampled", "hot-rate"
_OPEN_US = 1 << 62


@dataclass(frozen=True, slots=True)
class _Sampling:
    """Spans as columns, for a kernel: `newest` is that of each device, `before` the one before each; -1: none."""

    newest: Codes
    device_hash: Hashes
    before: Codes
    start_us: Ints
    stop_us: Ints
    rate: Floats
    until_us: int
    """Where the last of them ends."""


@dataclass(slots=True)
class Measures:
    """Of one tenant. Safe to share between threads."""

    _limits: DeviceLimits = field(default_factory=DeviceLimits)
    _spans: dict[str, list[SampledSpan]] = field(default_factory=dict)
    _sampling: _Sampling | None = None

    def learn(self, news: Sequence[Control], now_us: int) -> None:
        """What was said of devices since. One thread at a time."""
        for fact in news:
            if fact.what is What.HOT_RATE:
                self._limits.set(fact.device, fact.value, now_us, afresh=True)
            elif fact.what is What.SAMPLE:
                self._spans[fact.device] = sampled_by(self._spans.get(fact.device, []), fact)
        if any(fact.what is What.SAMPLE for fact in news):
            self._sampling = self._columns()

    def admit(self, batch: Batch, now_us: int, refusals: list[Refusal]) -> Batch:
        """What is kept. The others are added to the refusals."""
        sampling = self._sampling
        if sampling is not None and len(batch) and int(batch.time_us.min()) < sampling.until_us:
            batch = self._sample(sampling, batch, refusals)
        return self._by_rate(batch, now_us, refusals)

    def give_back(self, batch: Batch) -> None:
        """What was kept here did not pass after all, for another reason."""
        self._limits.give_back(batch)

    def _sample(self, sampling: _Sampling, batch: Batch, refusals: list[Refusal]) -> Batch:
        dropped = np.zeros(len(batch), np.bool_)
        count = _sample_each(
            self._limits.ids(batch),
            batch.time_us,
            sampling.newest,
            sampling.device_hash,
            sampling.before,
            sampling.start_us,
            sampling.stop_us,
            sampling.rate,
            dropped,
        )
        if not count:
            return batch
        device = batch.device[int(np.flatnonzero(dropped)[0])]
        rate = self._spans[device][-1].rate
        reason = (
            f"device {device!r} sends far too much: about {rate:.0%} of its reports are kept, and this is none of them; do "
            f"not send it again, but see to the device (widerow hot --device {device})"
        )
        refusals.append(Refusal(SAMPLED, reason, batch.position[dropped].tolist(), Spent("sample", rate, 1.0)))
        return batch.take(~dropped)

    def _by_rate(self, batch: Batch, now_us: int, refusals: list[Refusal]) -> Batch:
        over = self._limits.take(batch, now_us)
        if over is None:
            return batch
        reason = (
            f"device {over.device!r} sends far too much, and may send {figure(over.allowed)} reports/s until it has cooled; "
            f"it sent {figure(over.seen)} at once: see to it (widerow hot --device {over.device}), or declare what "
            "it sends in its profile"
        )
        spent = Spent("hot_reports_per_s", over.allowed, over.seen, over.wait_s)
        refusals.append(Refusal(HOT_RATE, reason, batch.position[over.reports].tolist(), spent))
        return batch.take(~over.reports)

    def _columns(self) -> _Sampling:
        each = [(self._limits.id_of(device), span) for device, spans in self._spans.items() for span in spans]
        each = [(d, span) for d, span in each if d >= 0]
        newest, before = np.full(len(self._limits.table), -1, np.int32), np.full(len(each), -1, np.int32)
        for i, (d, _) in enumerate(each):
            before[i], newest[d] = newest[d], i
        stops = [_OPEN_US if span.stop_us is None else span.stop_us for _, span in each]
        return _Sampling(
            newest,
            hash_names(self._limits.table.names()),
            before,
            np.array([span.start_us for _, span in each], np.int64),
            np.array(stops, np.int64),
            np.array([span.rate for _, span in each], np.float64),
            max(stops, default=0),
        )


@kernel
def _sample_each(
    device: Codes,
    time_us: Ints,
    newest: Codes,
    device_hash: Hashes,
    before: Codes,
    start_us: Ints,
    stop_us: Ints,
    rate: Floats,
    dropped: Flags,
) -> int:
    count = 0
    for i in range(len(device)):
        d = device[i]
        s = newest[d] if d < len(newest) else -1  # one that came since has no span yet
        while s >= 0:
            if start_us[s] <= time_us[i] < stop_us[s]:
                # 53 bits of the hash are as many as a float has.
                at = np.float64(mix(device_hash[d], np.uint64(time_us[i])) >> np.uint64(11)) / np.float64(1 << 53)
                if at >= rate[s]:
                    dropped[i] = True
                    count += 1
                break
            s = before[s]
    return count
