"""How many messages fall due when, told from bounds and row counts alone: of files, and of row groups in the footers.

What lies within one unit of time is counted; what spans several is spread over them evenly, and says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tarry.base.types import Float64s, Int64s, Key
from tarry.store.parquet import Group, groups
from tarry.store.place import Place
from tarry.store.snapshot import Snapshot

MOMENTS_MAX = 100
"""Of so many moments of each part is it noted how many messages are due in them."""

Share = Callable[[str | None, str | None], float]
"""Bounds of topics (inclusive; None: not known) → which part of such messages is wanted."""


class Bounds(NamedTuple):
    """Bounds of the due times and seqs of the messages of a file or row group, inclusive."""

    due_min_ms: int
    due_max_ms: int
    seq_min: int
    seq_max: int

    @property
    def is_one_moment(self) -> bool:
        """Whether all of them are due in the same millisecond."""
        return self.due_min_ms == self.due_max_ms


@dataclass(slots=True)
class Spread:
    """Messages from the place ``after`` on and before ``until_ms``, by unit of ``unit_ms``; the first unit begins at
    ``start_ms``. ``herds``: rows by due time, where many have the same.

    The best guess is the sum of what was ``counted`` and of ``guessed``; ``unsure`` is how many messages, more or less,
    the guesses are about.
    """

    after: Key
    until_ms: int
    start_ms: int
    unit_ms: int
    counted: Int64s = field(init=False)
    guessed: Float64s = field(init=False)
    unsure: Float64s = field(init=False)
    herds: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        units = -(-(self.until_ms - self.start_ms) // self.unit_ms)
        self.counted, self.guessed, self.unsure = np.zeros(units, np.int64), np.zeros(units), np.zeros(units)

    def count(self, due_ms: Int64s) -> None:
        """Messages that are due then, one by one. What is overdue counts in the first unit."""
        due_ms = due_ms[due_ms < self.until_ms]
        self.counted += self._by_unit(due_ms)
        moments, rows = np.unique(due_ms, return_counts=True)
        most = np.argsort(-rows, kind="stable")[:MOMENTS_MAX]
        self.herds.update(dict(zip(moments[most].tolist(), rows[most].tolist(), strict=True)))

    def guess(self, due_ms: Int64s, weight: float) -> None:
        """Messages that are due then, if they are: each counts ``weight``, which may be negative."""
        rows = weight * self._by_unit(due_ms)
        self.guessed += rows
        self.unsure += abs(rows)

    def shrink(self, factor: float) -> None:
        """Only this part of all messages added until now exists, and it is not known which."""
        missing = (self.counted + self.guessed) * (1 - factor)
        self.guessed -= missing
        self.unsure += missing

    def _by_unit(self, due_ms: Int64s) -> Int64s:
        unit = self._unit(due_ms[due_ms < self.until_ms])
        return np.asarray(np.bincount(unit, minlength=len(self.counted)), np.int64)

    def add(self, rows: int, bounds: Bounds, share: float) -> None:
        """Add ``share`` (0 to 1) of ``rows`` messages, which are somewhere within the bounds."""
        if share == 0 or not rows or not self.overlaps(bounds):
            return
        low, high = max(bounds.due_min_ms, self.after[0]), min(bounds.due_max_ms, self.until_ms - 1)
        if low > high:
            return
        whole = self.holds(bounds)
        first, last = self._unit(np.array([low, high])).tolist()
        if whole and share == 1 and first == last:
            self.counted[first] += rows
            if bounds.is_one_moment:
                self.herds[low] += rows
            return
        if bounds.is_one_moment:
            before = 0 if whole else self.after[1] - bounds.seq_min
            parts = np.array([1 - before / (bounds.seq_max + 1 - bounds.seq_min)])
        else:
            edges = self.start_ms + np.arange(first, last + 2, dtype=np.float64) * self.unit_ms
            edges[0], edges[-1] = low, high + 1
            parts = np.diff(edges) / (bounds.due_max_ms + 1 - bounds.due_min_ms)
        self.guessed[first : last + 1] += rows * share * parts
        self.unsure[first : last + 1] += rows * share * parts

    def overlaps(self, bounds: Bounds) -> bool:
        """Whether any of the messages may lie between ``after`` and ``until_ms``."""
        return (bounds.due_max_ms, bounds.seq_max) >= self.after and bounds.due_min_ms < self.until_ms

    def holds(self, bounds: Bounds) -> bool:
        """Whether all of the messages lie between ``after`` and ``until_ms``."""
        return (bounds.due_min_ms, bounds.seq_min) >= self.after and bounds.due_max_ms < self.until_ms

    def is_within_one_unit(self, bounds: Bounds) -> bool:
        """Whether all of the messages are due in the same unit, so that their number is enough to count them."""
        first, last = self._unit(np.array([bounds.due_min_ms, bounds.due_max_ms])).tolist()
        return bool(first == last) and self.holds(bounds)

    def _unit(self, due_ms: Int64s) -> Int64s:
        return np.maximum((due_ms - self.start_ms) // self.unit_ms, 0)


def spread_store(snapshot: Snapshot, spread: Spread, share: Share, *, deadline_s: float, herds: bool = True) -> None:
    """Add what the store has. Until ``deadline_s`` (of :func:`time.monotonic`), footers are read where they tell more;
    with ``herds``, where they may tell of many messages of one moment.

    Raises:
        CorruptError: a file is missing or its footer is damaged.
    """
    files, place, counted = snapshot.files, Place.of(snapshot.root), []
    hits = np.flatnonzero((files.due_max_ms >= spread.after[0]) & (files.due_min_ms < spread.until_ms))
    # The largest first: if time is short, it is there that footers tell most.
    for i in hits[np.argsort(-files.rows[hits], kind="stable")].tolist():
        bounds = Bounds(*(int(x[i]) for x in (files.due_min_ms, files.due_max_ms, files.seq_min, files.seq_max)))
        part = share(files.topic_min[i], files.topic_max[i])
        enough = part in (0, 1) and spread.is_within_one_unit(bounds)
        if enough or time.monotonic() >= deadline_s:
            spread.add(int(files.rows[i]), bounds, part)
            counted += [files.path[i]] if part and not bounds.is_one_moment else []
            continue
        for g in groups(place, files.path[i]):
            spread.add(g.rows, _bounds(g), share(g.topic_min, g.topic_max))
    for path in counted if herds else ():
        if time.monotonic() >= deadline_s:
            return
        for g in groups(place, path):
            if _bounds(g).is_one_moment and spread.holds(_bounds(g)) and share(g.topic_min, g.topic_max) == 1:
                spread.herds[g.due_min_ms] += g.rows


def _bounds(group: Group) -> Bounds:
    return Bounds(group.due_min_ms, group.due_max_ms, group.seq_min, group.seq_max)
