"""Which partition a report belongs to.

Rule 1: placement depends only on the device's epochs and the report's event time, never on the time of arrival.
Rule 2: `partitions(epochs, span)` names every partition that `place` could have used for a time in the span.
Rule 3: epochs are only ever added, and start in the future of every writer and reader, so both rules hold in all processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from widerow.model.arrays import Codes, Ints
from widerow.model.device import MAX_SUB_BUCKETS, Profile
from widerow.model.figures import figure
from widerow.model.hashing import SEED, mix
from widerow.model.kernel import inlined, kernel
from widerow.model.tenant import WIDTHS_US
from widerow.model.times import HOUR, MS, SECOND, TimeSpan

DECLARED = "declared "
"""How the reason of an epoch begins that follows from a device's profile, ..."""
OBSERVED = "observed "
"""... and of one that follows from what the device was seen to send (`telemetry.observed`)."""
HOT = "hot: "
"""How the reason of an epoch begins that spreads a device because it is hot, or because somebody pinned that, ..."""
COOLED = "cooled: "
"""... and of one that takes that back."""


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """From this event time on, a device has this bucket width and this many sub-buckets."""

    from_us: int
    width_us: int = HOUR
    sub_buckets: int = 1
    reason: str = ""

    def __post_init__(self) -> None:
        if self.width_us not in WIDTHS_US:
            raise ValueError(f"bucket width must be one of {WIDTHS_US}")
        if not 1 <= self.sub_buckets <= MAX_SUB_BUCKETS:
            raise ValueError(f"sub-buckets must be 1 to {MAX_SUB_BUCKETS}")
        if self.from_us % MS:
            raise ValueError("an epoch starts at a whole millisecond")


FIRST_EPOCH = Epoch(0)
"""What holds for a device before any epoch was recorded for it."""


def declared_epoch(epochs: Sequence[Epoch], profile: Profile, earliest_us: int) -> Epoch | None:
    """What a device's profile adds to its epochs: nothing, if the newest is what the profile calls for.

    Width and spread are the profile's, but what has another reason than a profile is respected, for whoever gave it saw
    more than was declared: its spread is never made narrower, and its width is left if the profile names no rate. Buckets
    that were made narrower because of what the device was seen to send are not made wider by a profile that names less.
    (The other way round, what is observed never leaves a device with less than its profile names: `observed_epoch`.)
    """
    newest, known = epochs[-1] if epochs else FIRST_EPOCH, standing(epochs)
    other = [e for e in known if not e.reason.startswith(DECLARED)]
    seen = other[-1:] if other and other[-1].reason.startswith(OBSERVED) else []
    sub_buckets = max([profile.sub_buckets(), *(e.sub_buckets for e in other[-1:])])
    if profile.reports_per_s:
        width_us = min([profile.bucket_width_us(), *(e.width_us for e in seen)])
    else:
        is_other = bool(other) and known[-1] is other[-1]
        width_us = newest.width_us if is_other else seen[0].width_us if seen else profile.bucket_width_us()
    if (newest.width_us, newest.sub_buckets) == (width_us, sub_buckets):
        return None
    rate = f"{figure(profile.reports_per_s)} reports/s" if profile.reports_per_s else "unknown"
    values = f" of {profile.metrics_per_report} values" if profile.metrics_per_report else ""
    return following(newest, earliest_us, width_us, sub_buckets, f"{DECLARED}rate: {rate}{values}")


def cooled_epoch(epochs: Sequence[Epoch], profile: Profile, earliest_us: int, reason: str) -> Epoch | None:
    """What takes back the spread that a device got because it was hot, or because of a pin; None: it has none.

    It is then spread as before, or as its profile calls for where that is more. If others called for more meanwhile than it
    got, that stays; what is too much of it, `observed_epoch` finds.
    """
    ended = _cooled_at(epochs)
    given = [i for i, e in enumerate(epochs) if i > ended and e.reason.startswith(HOT)]
    if not given:
        return None
    newest, before = epochs[-1], epochs[given[0] - 1] if given[0] else FIRST_EPOCH
    if newest.sub_buckets > epochs[given[-1]].sub_buckets:
        sub_buckets = newest.sub_buckets
    else:
        sub_buckets = max(before.sub_buckets, profile.sub_buckets())
    return following(newest, earliest_us, newest.width_us, sub_buckets, f"{COOLED}{reason}")


def standing(epochs: Sequence[Epoch]) -> list[Epoch]:
    """The epochs as reasons for what comes: of what was taken back when a device had cooled nothing is left, not even what
    others took over from it.
    """
    ended = _cooled_at(epochs)
    if ended < 0:  # the usual case
        return list(epochs)
    most = epochs[ended].sub_buckets
    before = (e for e in epochs[:ended] if not e.reason.startswith((HOT, COOLED)))
    return [*(replace(e, sub_buckets=min(e.sub_buckets, most)) for e in before), *epochs[ended + 1 :]]


def _cooled_at(epochs: Sequence[Epoch]) -> int:
    """The last epoch that takes a spread back; -1: there is none."""
    return max((i for i, e in enumerate(epochs) if e.reason.startswith(COOLED)), default=-1)


def following(newest: Epoch, earliest_us: int, width_us: int, sub_buckets: int, reason: str) -> Epoch:
    """An epoch behind the newest, not before `earliest_us`, from a whole second on."""
    start_us = max(earliest_us, newest.from_us + 1)  # two that start together would be ordered by their widths
    return Epoch(start_us + -start_us % SECOND, width_us, sub_buckets, reason)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A partition of a device's raw reports, but for tenant and device."""

    bucket: int
    sub_bucket: int


def segments(epochs: Sequence[Epoch], span: TimeSpan) -> Iterator[tuple[Epoch, TimeSpan]]:
    """The parts of a span with the epoch that holds in each, oldest first. `epochs` are sorted by start."""
    every = (FIRST_EPOCH, *epochs)
    for epoch, following in zip(every, (*every[1:], None), strict=True):
        start = max(span.start_us, epoch.from_us)
        stop = span.stop_us if following is None else min(span.stop_us, following.from_us)
        if start < stop:
            yield epoch, TimeSpan(start, stop)


def partitions(epochs: Sequence[Epoch], span: TimeSpan) -> Iterator[Place]:
    """Every partition that may hold a report of the span, oldest first. One may come twice, from two epochs."""
    for epoch, part in segments(epochs, span):
        first = part.start_us - part.start_us % epoch.width_us
        for bucket in range(first, part.stop_us, epoch.width_us):
            for sub_bucket in range(epoch.sub_buckets):
                yield Place(bucket, sub_bucket)


def place(epochs: Sequence[Epoch], time_us: int) -> Place:
    """Where one report belongs. The plain version of the kernel below; tests hold the two together."""
    epoch = [e for e in (FIRST_EPOCH, *epochs) if e.from_us <= time_us][-1]
    sub = int(_spread(time_us, epoch.sub_buckets)) if epoch.sub_buckets > 1 else 0
    return Place(time_us - time_us % epoch.width_us, sub)


@inlined
def _spread(time_us: int, sub_buckets: int) -> int:
    return np.int64(mix(SEED, np.uint64(time_us)) % np.uint64(sub_buckets))  # type: ignore[return-value]


@kernel
def place_all(
    device: Codes,
    time_us: Ints,
    newest: Codes,
    from_us: Ints,
    width_us: Ints,
    subs: Ints,
    before: Codes,
    bucket: Ints,
    sub_bucket: Ints,
    epoch: Codes,
) -> None:
    """Place reports by the epoch of their time.

    Epochs are rows of `from_us`, `width_us`, `subs`; `newest` is that of each device, `before` the one before each. Row 0
    is what holds before any was recorded, for all devices.
    """
    for i in range(len(device)):
        t = time_us[i]
        e = newest[device[i]]
        while e > 0 and t < from_us[e]:
            e = before[e]
        epoch[i] = e
        bucket[i] = t - t % width_us[e]
        sub_bucket[i] = 0 if subs[e] == 1 else _spread(t, subs[e])
