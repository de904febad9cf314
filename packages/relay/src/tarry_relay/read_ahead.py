"""Records that fall due soon, read and converted ahead: when they are due they only have to be sent.

Rows are read window after window by due time, in small pieces, between the deliveries; a file that comes later is read
for the windows that are begun. All rows of the store's files that are due by :attr:`ReadAhead.until_ms`, and were not
due when they were read, are here. Asking for records does not remove them: a delivery that is repeated gets the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tarry.base.types import Key
from tarry.store import read_window
from tarry.store.layout import CANCELLED
from tarry_relay.deliver import snapshot_of
from tarry_relay.files import File, FileTracker
from tarry_relay.positions import OFFSET_BITS
from tarry_relay.sending import ReadyRecords
from tarry_relay.settings import RelaySettings

WINDOW_MS = 10_000
PIECE_ROWS = 2_048
"""Rows read and converted in one go: about 20 ms, for which a delivery may have to wait."""
BYTES_MAX = 128 << 20
_LOWEST = int(np.iinfo(np.int64).min)


@dataclass(slots=True)
class _Reader:
    """The rows of some files, in due order; those due by ``done_ms`` have been read."""

    batches: Iterator[pa.RecordBatch]
    done_ms: int


class ReadAhead:
    """The rows of one shard that were read ahead, within its part of the memory. One thread."""

    def __init__(self, settings: RelaySettings, root: str, shard: int, start_ms: int) -> None:
        self._settings, self._root, self._shard = settings, root, shard
        self._rows_max, self._bytes_max = settings.direct_rows_max // settings.shards, BYTES_MAX // settings.shards
        self.begin(start_ms)

    def begin(self, start_ms: int) -> None:
        """Drop everything, and begin with what is due after ``start_ms``."""
        self._readers: list[_Reader] = []
        self._ready: list[ReadyRecords] = []
        self._window_ms = start_ms
        self._rows = self._bytes = 0

    @property
    def until_ms(self) -> int:
        """Time up to which all due rows have been read."""
        return min((reader.done_ms for reader in self._readers), default=self._window_ms)

    def _full(self, times: int) -> bool:
        return self._rows >= times * self._rows_max or self._bytes >= times * self._bytes_max

    def add_files(self, tracker: FileTracker, files: Iterable[File], start_ms: int) -> None:
        """Add files that came later. Everything due by ``start_ms`` is delivered."""
        near = [f for f in files if f.due_max_ms > start_ms and f.due_min_ms <= self._window_ms]
        if near:
            self._read(tracker, near, start_ms)

    def more(self, tracker: FileTracker, now_ms: int) -> bool:
        """Read one piece.

        Returns False if nothing is left, or there is no room: due rows must then be read without this.
        """
        # For rows that are due already there is twice the room. Otherwise a late file would wait for rows due after it.
        if self._full(1 if self.until_ms >= now_ms else 2):
            return False
        if not self._readers:
            if self._window_ms - now_ms >= WINDOW_MS // 2:
                return False
            after_ms = self._window_ms
            self._window_ms = max(now_ms, after_ms) + WINDOW_MS
            self._read(tracker, tracker.files.values(), after_ms)
            return True
        reader = min(self._readers, key=lambda reader: reader.done_ms)
        batch = next(reader.batches, None)
        if batch is None:
            self._readers.remove(reader)
        else:
            self._add(batch)
            # More rows that are due in the last millisecond may follow.
            reader.done_ms = max(reader.done_ms, batch.column("due_ms")[-1].as_py() - 1)
        return True

    def between(self, after_ms: int, until_ms: int) -> Iterator[ReadyRecords]:
        """Yield the rows that are due in ``(after_ms, until_ms]``, by due time and seq."""
        parts = [part for ready in self._ready if (part := ready.between(after_ms, until_ms)).records]
        parts.sort(key=lambda part: part.place(0))
        if all(a.place(-1) < b.place(0) for a, b in pairwise(parts)):
            yield from parts
        else:
            yield _merged(parts)

    def count(self, after_ms: int, until_ms: int) -> int:
        """Count the rows that :meth:`between` yields."""
        spans = (np.searchsorted(r.due_ms, (after_ms, until_ms), "right") for r in self._ready)
        return sum(int(high - low) for low, high in spans)

    def drop_until(self, until_ms: int) -> None:
        """Drop rows due by then: they are delivered."""
        delivered = [ready for ready in self._ready if ready.due_ms[-1] <= until_ms]
        if delivered:
            self._rows -= sum(ready.batch.num_rows for ready in delivered)
            self._bytes -= sum(ready.batch.nbytes for ready in delivered)
            self._ready = [ready for ready in self._ready if ready.due_ms[-1] > until_ms]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _read(self, tracker: FileTracker, files: Iterable[File], after_ms: int) -> None:
        shards = self._settings.shards
        own = [f for f in files if f.bucket != CANCELLED and self._shard in f.shards(shards)]
        snapshot = snapshot_of(self._root, tracker.version, own)
        batches = read_window(snapshot, Key(after_ms + 1, _LOWEST), self._window_ms + 1, batch_rows=PIECE_ROWS)
        self._readers.append(_Reader(batches, after_ms))

    def _add(self, batch: pa.RecordBatch) -> None:
        of_shard = (batch.column("seq").to_numpy() >> OFFSET_BITS) % self._settings.shards == self._shard
        if of_shard.any():
            part = batch if of_shard.all() else batch.filter(pa.array(of_shard))
            self._ready.append(ReadyRecords.of(self._settings, part))
            self._rows += part.num_rows
            self._bytes += part.nbytes


def _merged(parts: list[ReadyRecords]) -> ReadyRecords:
    table = pa.Table.from_batches([part.batch for part in parts]).combine_chunks()
    [batch] = table.to_batches()
    order = np.lexsort((batch.column("seq").to_numpy(), batch.column("due_ms").to_numpy()))
    records = [record for part in parts for record in part.records]
    sorted_batch = batch.take(pa.array(order))
    return ReadyRecords(sorted_batch, [records[i] for i in order.tolist()], sorted_batch.column("due_ms").to_numpy())
