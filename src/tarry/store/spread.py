"""Counts of the store's messages by due time, as exact as time allows.

There are three sources, each for what the one before leaves open: the counts in a file's footer (``due_counts.py``),
the bounds and row counts of row groups, and rows. Rows are read of row groups that an end of a unit, an end of the
requested span, or a cancelled message lies in. What time does not allow is spread evenly between its bounds, and makes
the certain and the possible numbers differ.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.base.delay import INT64_MAX
from tarry.base.types import Int64s, Mask
from tarry.message.bulk import first_seq
from tarry.message.criteria import Criteria
from tarry.store.parquet import RowGroup, due_counts_of, groups, read_group
from tarry.store.place import Place
from tarry.store.scan import Alive
from tarry.store.snapshot import Snapshot
from tarry.store.tally import Tally

HERD_ROWS_SEEN = 8
"""Rows of one instant, where rows are read, from which on it is noted as a possible herd."""

Share = Callable[[str | None, str | None], float]
"""Bounds of topics (inclusive; None: not known) → which part of such messages is wanted, at a guess."""


@dataclass(frozen=True, slots=True)
class Dead:
    """Rows of files that are not pending.

    ``due_ms`` and ``seq``, in that order: messages that were cancelled, which files may have or not; from
    ``listed_until_ms`` on they are not complete. ``alive`` knows these and all others. Up to ``doubtful_until_ms``
    there may be others; ``jobs`` are bulk jobs that were cancelled as a whole.
    """

    due_ms: Int64s
    seq: Int64s
    alive: Alive
    doubtful_until_ms: int
    jobs: list[int]
    listed_until_ms: int = INT64_MAX


@dataclass(slots=True)
class _SpreadFile:
    """A file, and the parts of it that are still open.

    ``open_spans``: numbers of spans of ``span_ms`` that its counts do not settle (``span_ms`` 0: it has no counts;
    None: all of it). ``open_rows``: (low_ms, high_ms, rows) of these, of which an estimated ``share`` is wanted.
    ``dead``: the messages of :class:`Dead` that it may have. ``lists_herds``: its counts list those that are wanted;
    they do not of one of many small topics.
    """

    number: int
    span_ms: int
    open_spans: Int64s | None
    open_rows: tuple[Int64s, Int64s, Int64s]
    share: float
    dead: Int64s
    lists_herds: bool

    @property
    def weight(self) -> int:
        return int(self.open_rows[2].sum()) + len(self.dead)

    def is_open(self, due_ms: Int64s) -> Mask:
        """Return which of these due times its counts do not settle."""
        if self.open_spans is None:
            return np.ones(len(due_ms), np.bool_)
        if not len(self.open_spans):
            return np.zeros(len(due_ms), np.bool_)
        return np.isin(due_ms // self.span_ms, self.open_spans)

    def open_share(self, low_ms: int, high_ms: int) -> float:
        """Return the part of the spans between two due times that is open: from 0 to 1."""
        if self.open_spans is None or not len(self.open_spans):
            return 1.0 if self.open_spans is None else 0.0
        low, high = low_ms // self.span_ms, high_ms // self.span_ms
        start, end = np.searchsorted(self.open_spans, low), np.searchsorted(self.open_spans, high, "right")
        return float(end - start) / (high - low + 1)


@dataclass(eq=False)
class StoreSpread:
    """Adds a snapshot's messages to a tally.

    Reads footers until ``footers_s`` and rows until ``rows_s``, moments of :func:`time.monotonic`. ``share`` is for the
    best guess alone.
    """

    snapshot: Snapshot
    tally: Tally
    wanted: Criteria
    share: Share
    dead: Dead
    footers_s: float
    rows_s: float
    may_be_herds: Counter[int] = field(default_factory=Counter)
    """Instants that have many messages, and how many of them were met while looking."""
    found: Mask = field(init=False)
    """Mask of the messages of ``dead`` that were found in files."""
    unknown: Mask = field(init=False)
    """Mask of the messages of ``dead`` that files may have."""
    dead_at: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of found and wanted messages of ``dead``, by file and due time."""

    def __post_init__(self) -> None:
        self.found = np.zeros(len(self.dead.seq), np.bool_)
        self.unknown = np.zeros(len(self.dead.seq), np.bool_)
        self._place = Place.of(self.snapshot.root)
        # By file: kept, for to decode all that it counts takes longer than to look an instant up.
        self._herds: dict[int, Int64s] = {}
        self._columns = ["due_ms", "seq", *self.wanted.columns]
        self._dead_seq = np.sort(self.dead.seq)
        self._order = np.argsort(self.dead.seq)

    def run(self) -> None:
        """Look at everything.

        Raises:
            CorruptError: a file is missing or its footer is damaged.
        """
        files, tally = self.snapshot.files, self.tally
        hits = np.flatnonzero((files.due_max_ms >= tally.after.due_ms) & (files.due_min_ms < tally.until_ms))
        # The largest files first: if time is short, their footers are worth most.
        largest = hits[np.argsort(-files.rows[hits], kind="stable")].tolist()
        for file in sorted((self._open(i) for i in largest), key=lambda file: -file.weight):
            if file.weight:
                self._look(file)
            if not file.lists_herds:
                self._look_for_herds(file.number)

    def rows_at(self, due_ms: int) -> int:
        """Return a lower bound of the messages of that instant: all of them, if time allowed."""
        files = self.snapshot.files
        hits = np.flatnonzero((files.due_min_ms <= due_ms) & (files.due_max_ms >= due_ms)).tolist()
        return sum(self._rows_at(i, due_ms) for i in hits)

    # -- a file's counts ---------------------------------------------------------------------------------------------

    def _open(self, i: int) -> _SpreadFile:
        """Count what is certain of a file; what else there is to look at."""
        files, due_min, due_max = self.snapshot.files, *self._bounds(i)
        dead, is_doubtful = self._dead_in(i, due_min, due_max), self._has_cancelled_jobs(i)
        nothing = np.empty(0, np.int64)
        if self._topics_rule_out(files.topic_min[i], files.topic_max[i]):
            return _SpreadFile(i, 1, nothing, (nothing, nothing, nothing), 0.0, nothing, lists_herds=True)
        is_topic = self.wanted.topic is None or files.topic_min[i] == files.topic_max[i] == self.wanted.topic
        low, high, rows = (np.array([x], np.int64) for x in (due_min, due_max, int(files.rows[i])))
        counts = due_counts_of(self._place, files.path[i]) if time.monotonic() < self.footers_s else None
        if counts is not None:
            cells, is_topic = counts.cells_of(self.wanted.topic)
            starts = cells[:, 0] * counts.span_ms
            low, high, rows = np.maximum(starts, due_min), np.minimum(starts + counts.span_ms - 1, due_max), cells[:, 1]
            listed = self._herds[i] = counts.herds_of(self.wanted.topic).copy()
            within = (listed[:, 0] >= self.tally.after.due_ms) & (listed[:, 0] < self.tally.until_ms)
            self.may_be_herds.update(dict(listed[within].tolist()))
        sure = self.tally.is_one_unit(low, high, int(files.seq_min[i])) & is_topic & (not is_doubtful)
        sure &= low > self.dead.doubtful_until_ms
        self.tally.count(low[sure], rows[sure])
        left = ~sure & (high >= self.tally.after.due_ms) & (low < self.tally.until_ms)
        low, high, rows = low[left], high[left], rows[left]
        share = 1.0 if is_topic else self.share(files.topic_min[i], files.topic_max[i])
        span_ms = 0 if counts is None else counts.span_ms
        spans = np.unique(low // span_ms) if span_ms else None if len(low) else nothing
        return _SpreadFile(
            i, span_ms, spans, (low, high, rows), share, dead, lists_herds=counts is not None and is_topic
        )

    def _bounds(self, i: int) -> tuple[int, int]:
        return int(self.snapshot.files.due_min_ms[i]), int(self.snapshot.files.due_max_ms[i])

    def _topics_rule_out(self, low: str | None, high: str | None) -> bool:
        return not self.wanted.may_be_in(0, 0, low, high)

    def _has_cancelled_jobs(self, i: int) -> bool:
        files = self.snapshot.files
        low, high = int(files.seq_min[i]), int(files.seq_max[i])
        return any(first_seq(job) <= high and low < first_seq(job + 1) for job in self.dead.jobs)

    def _dead_in(self, i: int, due_min: int, due_max: int) -> Int64s:
        files, dead = self.snapshot.files, self.dead
        low, high = max(due_min, self.tally.after.due_ms), min(due_max, self.tally.until_ms - 1)
        start, end = np.searchsorted(dead.due_ms, low), np.searchsorted(dead.due_ms, high, "right")
        seq = dead.seq[start:end]
        return start + np.flatnonzero((seq >= files.seq_min[i]) & (seq <= files.seq_max[i]))

    # -- row groups --------------------------------------------------------------------------------------------------

    def _look(self, file: _SpreadFile) -> None:
        """Look at a file's row groups for what its counts left open."""
        if time.monotonic() >= self.rows_s:
            self.tally.spread(*file.open_rows, file.share)
            self.unknown[file.dead] = True
            return
        for group in groups(self._place, self.snapshot.files.path[file.number]):
            self._look_at_group(file, group)

    def _look_at_group(self, file: _SpreadFile, group: RowGroup) -> None:
        due, seq = self.dead.due_ms[file.dead], self.dead.seq[file.dead]
        within = (due >= group.due_min_ms) & (due <= group.due_max_ms)
        dead = file.dead[within & (seq >= group.seq_min) & (seq <= group.seq_max)]
        is_open = file.open_share(group.due_min_ms, group.due_max_ms) > 0
        if not (is_open or len(dead)) or self._topics_rule_out(group.topic_min, group.topic_max):
            return
        low, high, rows = (np.array([x], np.int64) for x in (group.due_min_ms, group.due_max_ms, group.rows))
        if high[0] < self.tally.after.due_ms or low[0] >= self.tally.until_ms:
            return
        if not len(dead) and self._is_settled(file, group) and self.tally.is_one_unit(low, high, group.seq_min)[0]:
            self.tally.count(low, rows)
        elif time.monotonic() < self.rows_s:
            batch = read_group(self._place, self.snapshot.files.path[file.number], group.number, self._columns)
            self._count_rows(file, batch)
        else:
            if is_open:
                self.tally.spread(low, high, rows, self.share(group.topic_min, group.topic_max))
            self.unknown[dead] = True

    def _is_settled(self, file: _SpreadFile, group: RowGroup) -> bool:
        """Return whether the row group's size is the number of its pending, wanted messages that are open."""
        if self._has_doubts(file.number, group) or not self._is_wanted(group):
            return False
        return file.open_share(group.due_min_ms, group.due_max_ms) == 1

    def _is_wanted(self, group: RowGroup) -> bool:
        """Return whether all of its messages are wanted, by their topic."""
        return self.wanted.topic is None or group.topic_min == group.topic_max == self.wanted.topic

    def _has_doubts(self, i: int, group: RowGroup) -> bool:
        return group.due_min_ms <= self.dead.doubtful_until_ms or self._has_cancelled_jobs(i)

    def _count_rows(self, file: _SpreadFile, batch: pa.RecordBatch) -> None:
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        between = self.tally.wanted(due, seq)
        cancelled = self._note_dead(due, seq, between)
        within = between & self.wanted.mask(batch)
        self.dead_at.update((file.number, moment) for moment in due[within & cancelled].tolist())
        is_open = file.is_open(due)
        pending = within & is_open
        pending[pending] = self.dead.alive(due[pending], seq[pending])
        self.tally.count(due[pending])
        self.tally.count(due[within & ~is_open & cancelled], -1)
        self._note_herds(due[pending])

    def _note_dead(self, due: Int64s, seq: Int64s, between: Mask) -> Mask:
        """Return which of these rows are messages of ``dead``, and note that they were found."""
        if not len(self._dead_seq):
            return np.zeros(len(seq), np.bool_)
        at = np.minimum(np.searchsorted(self._dead_seq, seq), len(self._dead_seq) - 1)
        cancelled: Mask = between & (self._dead_seq[at] == seq)
        self.found[self._order[at[cancelled]]] = True
        return cancelled

    def _note_herds(self, due: Int64s) -> None:
        moments, rows = np.unique(due, return_counts=True)
        many = rows >= HERD_ROWS_SEEN
        self.may_be_herds.update(dict(zip(moments[many].tolist(), rows[many].tolist(), strict=True)))

    def _look_for_herds(self, i: int) -> None:
        """Look for row groups that lie in one instant, in a file that does not list its herds."""
        if time.monotonic() < self.footers_s:
            for group in groups(self._place, self.snapshot.files.path[i]):
                if group.due_min_ms == group.due_max_ms and self._is_wanted(group):
                    self.may_be_herds[group.due_min_ms] += group.rows

    # -- one instant -------------------------------------------------------------------------------------------------

    def _rows_at(self, i: int, due_ms: int) -> int:
        """Messages of an instant in a file, as far as there is time to look."""
        files, tally = self.snapshot.files, self.tally
        if self._topics_rule_out(files.topic_min[i], files.topic_max[i]):
            return 0
        dead = self._dead_in(i, due_ms, due_ms)
        has_doubts = due_ms <= max(tally.after.due_ms, self.dead.doubtful_until_ms) or self._has_cancelled_jobs(i)
        has_doubts |= due_ms >= self.dead.listed_until_ms
        listed = self._herds.get(i)
        if listed is not None and not has_doubts and (rows := int(listed[listed[:, 0] == due_ms, 1].sum())):
            perhaps = int((self.unknown & ~self.found)[dead].sum())
            return max(0, rows - self.dead_at[i, due_ms] - perhaps)
        if time.monotonic() >= self.rows_s:
            return 0
        counts = due_counts_of(self._place, files.path[i])
        if counts is not None and not counts.may_have(self.wanted.topic, due_ms):
            return 0
        return self._read_rows_at(i, due_ms, may_lack=has_doubts or len(dead) > 0)

    def _read_rows_at(self, i: int, due_ms: int, *, may_lack: bool) -> int:
        rows = 0
        for group in self._groups_at(i, due_ms):
            if self._is_wanted(group) and group.due_min_ms == group.due_max_ms and not may_lack:
                rows += group.rows
            elif time.monotonic() < self.rows_s:
                batch = read_group(self._place, self.snapshot.files.path[i], group.number, self._columns)
                due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
                pending = (due == due_ms) & self.tally.wanted(due, seq) & self.wanted.mask(batch)
                pending[pending] = self.dead.alive(due[pending], seq[pending])
                rows += int(pending.sum())
        return rows

    def _groups_at(self, i: int, due_ms: int) -> Iterable[RowGroup]:
        for group in groups(self._place, self.snapshot.files.path[i]):
            is_there = group.due_min_ms <= due_ms <= group.due_max_ms
            if is_there and not self._topics_rule_out(group.topic_min, group.topic_max):
                yield group
