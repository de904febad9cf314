"""Next due times of topics, found by a few columns, in due order, without reading a body."""

from __future__ import annotations

import heapq

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Int64s, Key, Mask, at_or_after
from tarry.store.parquet import RowGroup, groups, read_group
from tarry.store.place import Place
from tarry.store.scan import Alive
from tarry.store.snapshot import Snapshot

_LOWEST = np.iinfo(np.int64).min
COLUMNS = ("due_ms", "seq", "topic")


def next_due(snapshot: Snapshot, from_ms: int, topics: set[str], *, alive: Alive | None = None) -> dict[str, int]:
    """Return the earliest ``due_ms >= from_ms`` of each of ``topics``; topics without any are left out.

    Reads until all are found, skipping files and row groups whose bounds rule the missing topics out: ask only for
    topics that have something pending, because proving that a topic has nothing reads every row group that might hold
    it.

    Raises:
        CorruptError: a file is missing or damaged.
    """
    firsts, first_ms = Firsts(snapshot, Key(from_ms, _LOWEST), alive or _all_alive), dict[str, int]()
    while (frontier := firsts.frontier) is not None:
        missing = {topic for topic in topics if first_ms.get(topic, frontier + 1) > frontier}
        if not missing:
            break
        firsts.advance(missing, first_ms)
    return first_ms


class Firsts:
    """Looks for the first living messages of topics, through the store in due order from ``after`` on.

    A step looks at a file or row group.
    """

    def __init__(self, snapshot: Snapshot, after: Key, alive: Alive) -> None:
        files = snapshot.files
        self._place, self._paths = Place.of(snapshot.root), files.path
        self._topics = list(zip(files.topic_min, files.topic_max, strict=True))
        self._after, self._alive = after, alive
        # (lower bound of due_ms, file, row group, its bounds); row group -1 is a file as a whole.
        self._waiting: list[tuple[int, int, int, RowGroup | None]] = [
            (max(int(files.due_min_ms[i]), after[0]), int(i), -1, None)
            for i in np.flatnonzero(files.due_max_ms >= after[0])
        ]
        heapq.heapify(self._waiting)

    @property
    def frontier(self) -> int | None:
        """Due time before which all messages were looked at; None: all messages were."""
        return self._waiting[0][0] if self._waiting else None

    def advance(self, wanted: set[str], first_ms: dict[str, int]) -> None:
        """Look at the next file or row group, and note sooner due times of ``wanted`` topics in ``first_ms``."""
        _, file, number, group = heapq.heappop(self._waiting)
        low, high = self._topics[file] if group is None else (group.topic_min, group.topic_max)
        if low is not None and high is not None and not any(low <= topic <= high for topic in wanted):
            return
        if group is None:
            for each in groups(self._place, self._paths[file]):
                if (each.due_max_ms, each.seq_max) >= self._after:
                    bound = max(each.due_min_ms, self._after[0])
                    heapq.heappush(self._waiting, (bound, file, each.number, each))
            return
        batch = read_group(self._place, self._paths[file], number, COLUMNS)
        note_firsts(batch, self._after, wanted, self._alive, first_ms)


def note_firsts(batch: pa.RecordBatch, after: Key, topics: set[str], alive: Alive, first_ms: dict[str, int]) -> None:
    """Note the first living row of each of ``topics`` in a batch of :data:`COLUMNS`, from ``after`` on."""
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    of_topics = pc.is_in(batch.column("topic"), value_set=pa.array(sorted(topics))).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(of_topics & at_or_after(due, seq, after))
    rows = rows[np.lexsort((seq[rows], due[rows]))]
    first = _first_of_each(batch, rows)
    # Seldom is one of them cancelled, and only then all the others are asked about.
    if not alive(due[first], seq[first]).all():
        first = _first_of_each(batch, rows[alive(due[rows], seq[rows])])
    for topic, moment in zip(batch.column("topic").take(pa.array(first)).to_pylist(), due[first].tolist(), strict=True):
        first_ms[topic] = min(moment, first_ms.get(topic, moment))


def _first_of_each(batch: pa.RecordBatch, rows: Int64s) -> Int64s:
    codes = batch.column("topic").take(pa.array(rows, pa.int64())).dictionary_encode().indices.to_numpy()
    return rows[np.unique(codes, return_index=True)[1]]


def _all_alive(due_ms: Int64s, seq: Int64s) -> Mask:
    return np.ones(len(seq), np.bool_)
