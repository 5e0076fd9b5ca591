"""Networks, queues and people between devices and a store: true reports become deliveries with every kind of trouble.

Reports come late, out of order, twice, and as the backlog of a device that was offline; some are wrong at first and
corrected by a later version; batches are split and merged at will, and several writers take turns.
Rule 1: pure. What happens to a report depends on the seed, its device's name and its time alone, never on the batches or
the order it is given in.
Rule 2: nothing is lost, and the truth wins: of everything delivered, what has the greatest version is the true report.
Rule 3: bounded. A report is under way for `longest_us` at most, and comes at most three times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from widerow.model.arrays import Codes, Flags, Floats, Hashes, Ints, lengths
from widerow.model.batch import Batch, CellKind, Cells, batch_of
from widerow.model.errors import Rejected
from widerow.model.figures import figure
from widerow.model.hashing import hash_names
from widerow.model.merge import merge
from widerow.model.names import Coded, Names
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND
from widerow.simulate.chance import chance, stream_of

_PAUSE_US = 5 * SECOND
"""Between the parts of a backlog."""
_TURN_US = 6 * HOUR
"""How long a device stays with a writer."""
_MISSING, _WRONG = 0.2, 0.7
"""Of the cells of a wrong report a fifth is missing, half are wrong, the others right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosSettings:
    """How much of each kind of trouble. Shares are of reports unless they say otherwise; 0 is none of it."""

    latency_us: int = 2 * SECOND
    """The longest that an untroubled report takes."""
    skewed: float = 0.1
    """Share of devices whose clock is ahead,"""
    skew_us: int = 2 * SECOND
    """by at most so much: their reports arrive before they were made."""
    reordered: float = 0.1
    reorder_us: int = MINUTE
    late: float = 0.03
    """Half of these before they are received, so that their version is new; half behind it, in a queue: theirs is old."""
    late_us: int = 2 * DAY
    """Delays of all orders of magnitude up to this one, from a second on."""
    offline: float = 0.1
    """How likely a device goes offline in any stretch of `offline_us`, which is also the longest it stays so."""
    offline_us: int = DAY
    backlogs: int = 4
    """In how many parts a backlog comes at most."""
    duplicates: float = 0.05
    """Come once more, unchanged and with the same version, in another batch,"""
    duplicate_us: int = DAY
    """up to so much later."""
    corrections: float = 0.03
    """Are wrong at first. The true values have a later version, which need not arrive later,"""
    correction_us: int = DAY
    """and are received up to so much later."""
    writers: int = 2
    batch_reports: int = 1000
    """The most that a batch has."""
    hold_us: int = 30 * SECOND
    """The longest that a report waits for others to share a batch with."""
    versions_travel: bool = True
    """False: for ways without versions, where what comes last wins. A correction then comes after all that it corrects."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _SHARES and not 0 <= value <= 1:
                raise Rejected(f"chaos: {field.name} is {figure(value)}: give a share from 0 to 1", code="simulate")
            if field.name not in _SHARES and value < _LEAST.get(field.name, 0):
                raise Rejected(f"chaos: {field.name} is {value}: give at least {_LEAST.get(field.name, 0)}", code="simulate")

    def longest_us(self) -> int:
        """From when a report was made to its last delivery."""
        first_us = self.latency_us + self.offline_us + self.backlogs * _PAUSE_US + self.late_us + self.reorder_us
        return first_us + max(self.correction_us, self.duplicate_us) + self.hold_us


_SHARES = ("skewed", "reordered", "late", "offline", "duplicates", "corrections")
_LEAST = {"offline_us": MS, "correction_us": MS, "hold_us": 1, "writers": 1, "batch_reports": 1, "backlogs": 1}

CALM = ChaosSettings(skewed=0, reordered=0, late=0, offline=0, duplicates=0, corrections=0)
"""No trouble: everything comes once and soon."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """Reports that reach a writer together. None is in it twice; no version is newer than the delivery."""

    at_us: int
    writer: int
    batch: Batch


def chaos(reports: Batch | Sequence[Batch], seed: int, settings: ChaosSettings) -> list[Delivery]:
    """How the reports are delivered, in order of arrival. They are true: none contradicts another, and versions are ours."""
    truth = merge([reports] if isinstance(reports, Batch) else list(reports) or [batch_of([])])
    if not len(truth):
        return []
    fate = _Fate(truth, seed, settings)
    copies = fate.copies()
    copies = copies.take(np.lexsort((copies.turn, copies.time_us, copies.key, copies.at_us, copies.writer)))
    return _delivered(truth, copies, _cuts(copies, seed, settings), seed)


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    """What is delivered: which report, by whom, when, which version, whether wrong. `turn` tells copies of one apart."""

    report: Ints
    key: Ints
    time_us: Ints
    writer: Ints
    at_us: Ints
    version_us: Ints
    wrong: Flags
    turn: Ints

    def __len__(self) -> int:
        return len(self.report)

    def take(self, which: Ints) -> _Copies:
        return _Copies(*(getattr(self, field.name)[which] for field in fields(self)))


class _Fate:
    """What becomes of each report."""

    def __init__(self, truth: Batch, seed: int, settings: ChaosSettings) -> None:
        self._seed, self._settings = seed, settings
        self._key: Ints = _keys(truth.device)
        self._time_us = truth.time_us

    def copies(self) -> _Copies:
        s = self._settings
        received_us = self._received_us()
        at_us = received_us + self._queued_us()
        wrong, twice = self._drawn("wrong") < s.corrections, self._drawn("twice") < s.duplicates
        again_us = at_us + self._spread("again", s.duplicate_us)
        mended_us = received_us + np.maximum(self._spread("mended", s.correction_us), MS)
        mended_at_us = mended_us + self._jitter("mended late", s.reordered, s.reorder_us)
        if not s.versions_travel:
            mended_at_us = np.maximum(mended_at_us, np.where(twice, again_us, at_us))
        every = np.arange(len(at_us))
        which = [every, np.flatnonzero(twice), np.flatnonzero(wrong)]
        report = np.concatenate(which)
        turn = np.repeat(np.arange(3), [len(w) for w in which])
        arrival_us = np.concatenate([at_us, again_us[which[1]], mended_at_us[which[2]]])
        version_us = np.concatenate([received_us, received_us[which[1]], mended_us[which[2]]])
        key = self._key[report]
        return _Copies(
            report,
            key,
            self._time_us[report],
            self._writer(key, arrival_us, turn),
            arrival_us,
            version_us - version_us % MS,
            wrong[report] & (turn < 2),
            turn,
        )

    def _received_us(self) -> Ints:
        """When the first of ours stamps its version on it."""
        s = self._settings
        ahead = np.where(self._trait("skewed") < s.skewed, self._trait("skew") * s.skew_us, 0.0)
        sent_us = self._time_us + (self._drawn("latency") * s.latency_us - ahead).astype(np.int64)
        online_us = self._online_us(sent_us)
        slow = (self._drawn("late") < s.late) & ~self._queues()
        return online_us + np.where(slow, self._spread("delay", s.late_us), 0)

    def _queued_us(self) -> Ints:
        """From receipt to delivery."""
        s = self._settings
        stuck = (self._drawn("late") < s.late) & self._queues()
        queued_us = np.where(stuck, self._spread("delay", s.late_us), 0)
        return queued_us + self._jitter("reorder", s.reordered, s.reorder_us)

    def _queues(self) -> Flags:
        out: Flags = self._drawn("queues") < 0.5
        return out

    def _online_us(self, sent_us: Ints) -> Ints:
        """When what is to be sent then can be sent. A gap begins in a stretch of time and may reach into the next."""
        s = self._settings
        online_us = sent_us
        for ago in (0, 1):
            stretch = sent_us // s.offline_us - ago

            def drawn(what: str, stretch: Ints = stretch) -> Floats:
                return self._chance(what, stretch)

            start_us = stretch * s.offline_us + (drawn("gap") * s.offline_us).astype(np.int64)
            stop_us = start_us + _magnitude(drawn("gap length"), min(MINUTE, s.offline_us), s.offline_us)
            gap = (drawn("offline") < s.offline) & (start_us <= sent_us) & (sent_us < stop_us)
            parts = 1 + (drawn("parts") * s.backlogs).astype(np.int64)
            part = (self._drawn("part") * parts).astype(np.int64)
            online_us = np.maximum(online_us, np.where(gap, stop_us + part * _PAUSE_US, 0))
        return online_us

    def _writer(self, key: Ints, at_us: Ints, turn: Ints) -> Ints:
        """Devices change their writers; what comes again comes from another. Without versions, each device has one."""
        s = self._settings
        since = at_us // _TURN_US if s.versions_travel else np.zeros(1, np.int64)
        writer = (chance(self._seed, stream_of("chaos/writer"), key, since) * s.writers).astype(np.int64)
        return (writer + (turn if s.versions_travel else 0)) % s.writers

    def _jitter(self, what: str, share: float, most_us: int) -> Ints:
        out: Ints = np.where(self._drawn(what) < share, self._drawn(f"{what} by") * most_us, 0.0).astype(np.int64)
        return out

    def _spread(self, what: str, most_us: int) -> Ints:
        return _magnitude(self._drawn(what), min(SECOND, most_us), most_us)

    def _drawn(self, what: str) -> Floats:
        return self._chance(what, self._time_us)

    def _trait(self, what: str) -> Floats:
        return self._chance(what, np.zeros(1, np.int64))

    def _chance(self, what: str, which: Ints) -> Floats:
        return chance(self._seed, stream_of(f"chaos/{what}"), self._key, which)


def _magnitude(drawn: Floats, least_us: int, most_us: int) -> Ints:
    """All orders of magnitude are equally likely."""
    if not most_us:
        return np.zeros(len(drawn), np.int64)
    out: Ints = (least_us * (most_us / least_us) ** drawn).astype(np.int64)
    return out


def _cuts(copies: _Copies, seed: int, settings: ChaosSettings) -> Ints:
    """Which batch each copy is in. They are in order of writer and arrival, and batches are runs of them."""
    held = copies.at_us // settings.hold_us
    begins = np.ones(len(copies), np.bool_)
    begins[1:] = (np.diff(held) != 0) | (np.diff(copies.writer) != 0)
    # Now and then everything is cut to pieces; mostly batches are long.
    mood = chance(seed, stream_of("chaos/cuts"), copies.writer, held)
    share = float(settings.batch_reports) ** (mood**3 - 1)
    begins |= chance(seed, stream_of("chaos/cut"), copies.key + copies.turn, copies.time_us) < share
    starts = np.flatnonzero(begins)
    place = np.arange(len(copies)) - starts[np.cumsum(begins) - 1]
    return np.cumsum(begins | (place % settings.batch_reports == 0)) - 1


def _delivered(truth: Batch, copies: _Copies, cut: Ints, seed: int) -> list[Delivery]:
    """Batches of the cuts, those cut once more in which a report would stand twice."""
    last = np.append(np.flatnonzero(np.diff(cut)), len(cut) - 1)
    at_us = copies.at_us[last][cut]
    again = _again(cut, copies.key, copies.time_us)
    order = np.lexsort((np.arange(len(cut)), again, cut, copies.writer, at_us))
    copies, cut, again, at_us = copies.take(order), cut[order], again[order], at_us[order]
    begins = np.ones(len(cut), np.bool_)
    begins[1:] = (np.diff(cut) != 0) | (np.diff(again) != 0)
    sent = truth.take(copies.report)
    cells = _spoilt(sent, copies, seed)
    cuts = [*np.flatnonzero(begins).tolist(), len(cut)]
    return [
        Delivery(int(at_us[a]), int(copies.writer[a]), _part(sent, copies.version_us, cells, a, b))
        for a, b in pairwise(cuts)
    ]


def _again(cut: Ints, key: Ints, time_us: Ints) -> Ints:
    """How often the same report has been in the same cut before."""
    order = np.lexsort((np.arange(len(cut)), time_us, key, cut))
    new = np.ones(len(cut), np.bool_)
    new[1:] = (np.diff(cut[order]) != 0) | (np.diff(key[order]) != 0) | (np.diff(time_us[order]) != 0)
    starts = np.flatnonzero(new)
    out = np.empty(len(cut), np.int64)
    out[order] = np.arange(len(cut)) - starts[np.cumsum(new) - 1]
    return out


def _spoilt(sent: Batch, copies: _Copies, seed: int) -> Cells:
    """The cells, with those of wrong reports wrong. Both copies of a wrong report are wrong in the same way."""
    cells = sent.cells
    row = cells.rows()
    at = np.flatnonzero(copies.wrong[row])
    metric = hash_names(cells.names)[cells.name[at]]
    key, time_us = (copies.key[row[at]].astype(np.uint64) ^ metric).astype(np.int64), copies.time_us[row[at]]
    drawn, by = (chance(seed, stream_of(f"chaos/{what}"), key, time_us) for what in ("cell", "by"))
    first = np.zeros(len(cells), np.bool_)
    first[cells.offsets[:-1][lengths(cells.offsets) > 0]] = True
    wrong = first[at] | ((drawn >= _MISSING) & (drawn < _WRONG))
    number, text = cells.number.copy(), cells.text.copy()
    number[at[wrong]] += 1 + np.floor(9 * by[wrong])
    said = at[wrong & (cells.kind[at] == CellKind.TEXT)]
    used = np.unique(text[cells.kind == CellKind.TEXT])
    text[said] = _others(cells.texts, used)[np.searchsorted(used, text[said])]
    kept = np.ones(len(cells), np.bool_)
    kept[at[~first[at] & (drawn < _MISSING)]] = False
    return Cells(cells.offsets, cells.names, cells.name, cells.kind, number, cells.texts, text).keep(kept)


def _others(texts: Names, used: Codes) -> Codes:
    """For each of the codes that of another text: the next by its bytes, so that it does not matter which came first."""
    said = texts.take(used).to_bytes_list()
    by_text = dict(zip(reversed(said), reversed(used.tolist()), strict=True))
    ordered = sorted(by_text)
    after = dict(zip(ordered, [*ordered[1:], *ordered[:1]], strict=True))
    return np.array([by_text[after[text]] for text in said], np.int32)


def _part(sent: Batch, version_us: Ints, cells: Cells, start: int, stop: int) -> Batch:
    """The reports from start to stop as a batch of their own, which knows its own devices only."""
    code, place = np.unique(sent.device.codes[start:stop], return_inverse=True)
    a, b = int(cells.offsets[start]), int(cells.offsets[stop])
    own = Cells(
        cells.offsets[start : stop + 1] - a,
        cells.names,
        cells.name[a:b],
        cells.kind[a:b],
        cells.number[a:b],
        cells.texts,
        cells.text[a:b],
    )
    return Batch(
        Coded(sent.device.names.take(code), place.astype(np.int32)),
        sent.time_us[start:stop],
        version_us[start:stop],
        np.arange(stop - start, dtype=np.int32),
        own,
    )


def _keys(device: Coded) -> Ints:
    """A number for each device, by its name. Two bits short of the hash, so that sums of it stay whole."""
    hashes: Hashes = hash_names(device.names)[device.codes]
    return (hashes >> np.uint64(2)).astype(np.int64)
