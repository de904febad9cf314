"""Reading a window of due time: a streaming merge of sorted files, by columns.

The unit is the row group. A heap holds the lower bound of every row group (at first: of every file) that is not read
yet; what has been read and lies below the heap's lowest bound can have nothing before it, and is handed out in order.
So a file is opened when the merge reaches it, a herd of one due time spread over many files is read one row group after
the other (bounds are (due_ms, seq)), and memory is about one row group for each file that overlaps *there*. Rows
outside the window are dropped at once, by a copy where most of a group goes.

Files that another writer left unsorted (an ``OPTIMIZE``, say) cost memory and time, not correctness.

Where the caller says what to do with damage (``on_damage``), a row group that cannot be read is told of when the merge
comes to it, before any row that may come behind its first, and all others go on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.base.types import Int64s, Key, at_or_after, count_before, is_in_order
from tarry.message.schema import SCHEMA
from tarry.store.damaged import OnDamage, find_damaged
from tarry.store.layout import cut_by_size
from tarry.store.parquet import RowGroup, groups, read_group
from tarry.store.place import Place
from tarry.store.snapshot import Snapshot

BATCH_BYTES_MAX = 8 << 20
"""A batch is cut here however many rows were asked for: a body may have megabytes."""

_LOWEST = np.iinfo(np.int64).min


@dataclass(slots=True)
class _Run:
    """Sorted rows that were read and not handed out yet."""

    due_ms: Int64s
    seq: Int64s
    batch: pa.RecordBatch

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Run:
        """Return a run of rows that are in order."""
        return cls(batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy(), batch)

    def below(self, bound: Key | None) -> int:
        """Return how many of the rows come before ``bound``; all, if there is none."""
        if bound is None:
            return len(self.due_ms)
        return count_before(self.due_ms, self.seq, bound)

    def take(self, rows: int) -> _Run:
        """Split off the first ``rows``."""
        head = _Run(self.due_ms[:rows], self.seq[:rows], self.batch.slice(0, rows))
        self.due_ms, self.seq, self.batch = self.due_ms[rows:], self.seq[rows:], self.batch.slice(rows)
        return head


def read_window(
    snapshot: Snapshot, after: Key, until_ms: int, *, batch_rows: int, on_damage: OnDamage | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows with ``(due_ms, seq) >= after`` and ``due_ms < until_ms``, in that order.

    They are of :data:`tarry.message.schema.SCHEMA`.

    A batch has 1 to ``batch_rows`` rows (fewer where they are large). Abandoning the iterator leaves nothing open.

    Raises:
        InvalidArgumentError: ``batch_rows`` is below 1.
        CorruptError: while iterating, when a file is missing or damaged, without ``on_damage``.
    """
    if batch_rows < 1:
        raise InvalidArgumentError(f"batch_rows is {batch_rows}; allowed: 1 or more")
    return _Merge(snapshot, after, until_ms, batch_rows, on_damage).batches()


class _Merge:
    def __init__(
        self, snapshot: Snapshot, after: Key, until_ms: int, batch_rows: int, on_damage: OnDamage | None
    ) -> None:
        files = snapshot.files
        self._on_damage = on_damage
        self._rows = files.rows
        self._place = Place.of(snapshot.root)
        self._paths = files.path
        self._after = after
        self._until_ms = until_ms
        self._batch_rows = batch_rows
        self._runs: list[_Run] = []
        # (due_ms, seq, file, row group); row group -1 is a file whose groups are not known yet. (due_ms, seq) is a
        # lower bound.
        last = at_or_after(files.due_max_ms, files.seq_max, after)
        hits = np.flatnonzero(last & (files.due_min_ms < until_ms))
        self._waiting = [(*max((int(files.due_min_ms[i]), int(files.seq_min[i])), after), int(i), -1) for i in hits]
        heapq.heapify(self._waiting)

    def batches(self) -> Iterator[pa.RecordBatch]:
        # ``held`` counts, in batches, the rows that were read and not handed out. Looking for rows that may go costs a
        # search in each run; doing it only once ``held`` has grown by a quarter keeps a thousand small runs cheap, and
        # memory within a quarter of the least.
        held, look_at = 0.0, 1.0
        while self._waiting or self._runs:
            if self._waiting and held < look_at:
                held += self._load(*heapq.heappop(self._waiting)[2:])
                continue
            bound = Key(*self._waiting[0][:2]) if self._waiting else None
            counts = [run.below(bound) for run in self._runs]
            ready = sum(counts)
            if ready and (ready >= self._batch_rows or bound is None or held >= 2):
                heads = [run.take(count) for run, count in zip(self._runs, counts, strict=True) if count]
                self._runs = [run for run in self._runs if len(run.due_ms)]
                yield from _merged(heads, self._batch_rows)
                held = sum(self._weight(run) for run in self._runs)
            look_at = max(1.0, 1.25 * held)

    def _weight(self, run: _Run) -> float:
        return len(run.due_ms) / self._batch_rows + int(run.batch.nbytes) / BATCH_BYTES_MAX

    def _load(self, file: int, number: int) -> float:
        """Read a row group into a run, or a file's footer into the heap; the weight of what came in."""
        try:
            return self._read(file, number)
        except CorruptError as error:
            if self._on_damage is None:
                raise
            path, rows = self._paths[file], int(self._rows[file])
            until = Key(self._until_ms, _LOWEST)
            self._on_damage(find_damaged(self._place, path, number, rows, self._after, until, error))
            return 0.0

    def _read(self, file: int, number: int) -> float:
        if number < 0:
            for group in groups(self._place, self._paths[file]):
                if self._wanted(group):
                    bound = max((group.due_min_ms, group.seq_min), self._after)
                    heapq.heappush(self._waiting, (*bound, file, group.number))
            return 0.0
        run = _in_order(read_group(self._place, self._paths[file], number))
        rows = len(run.due_ms)
        start, stop = run.below(self._after), run.below(Key(self._until_ms, _LOWEST))
        if stop <= start:
            return 0.0
        run.take(start)
        run = run.take(stop - start)
        if 2 * (stop - start) < rows:  # let go of the rest of the row group
            run = _Run.of(run.batch.take(pa.array(np.arange(stop - start))))
        self._runs.append(run)
        return self._weight(run)

    def _wanted(self, group: RowGroup) -> bool:
        return (group.due_max_ms, group.seq_max) >= self._after and group.due_min_ms < self._until_ms


def _in_order(batch: pa.RecordBatch) -> _Run:
    run = _Run.of(batch)
    if is_in_order(run.due_ms, run.seq):
        return run
    return _Run.of(batch.take(pa.array(np.lexsort((run.seq, run.due_ms)))))


def _merged(runs: list[_Run], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several sorted runs in order, in batches.

    Each batch is copied only out of the slices that it needs.
    """
    due = np.concatenate([run.due_ms for run in runs])
    seq = np.concatenate([run.seq for run in runs])
    order = np.lexsort((seq, due))
    origin = np.repeat(np.arange(len(runs)), [len(run.due_ms) for run in runs])[order]
    bytes_per_row = np.concatenate([_body_bytes(run.batch) for run in runs])[order]
    for start, stop in cut_by_size(bytes_per_row, rows_max=batch_rows, bytes_max=BATCH_BYTES_MAX):
        counts = np.bincount(origin[start:stop], minlength=len(runs))
        heads = [runs[i].take(int(counts[i])) for i in np.flatnonzero(counts)]
        if len(heads) == 1:
            yield heads[0].batch
            continue
        sort = np.lexsort((np.concatenate([h.seq for h in heads]), np.concatenate([h.due_ms for h in heads])))
        yield pa.concat_batches([h.batch for h in heads]).take(pa.array(sort))


def _body_bytes(batch: pa.RecordBatch) -> Int64s:
    lengths = pc.binary_length(batch.column(SCHEMA.get_field_index("body")))
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
