"""What falls due soon, read and made ready before it does: at its moment a record only has to be handed to Kafka.

Rows are read window after window by due time, in small pieces, between the deliveries; a file that comes later is read
for the windows that are begun. Everything of the ledger that is due by :attr:`Ahead.until_ms`, and was not due when it
was read, is here. Nothing leaves by being asked for, so who has to ask again gets the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tarry.base.types import Key
from tarry.relay.deliver import snapshot_of
from tarry.relay.ledger import File, Ledger
from tarry.relay.positions import OFFSET_BITS
from tarry.relay.sending import Ready
from tarry.relay.settings import Settings
from tarry.store import read_window
from tarry.store.layout import CANCELLED

WINDOW_MS = 10_000
PIECE_ROWS = 2_048
"""Made ready in one go: about 20 ms, for which a delivery may have to wait."""
BYTES_MAX = 128 << 20
_LOWEST = int(np.iinfo(np.int64).min)


@dataclass(slots=True)
class _Reader:
    """What is read of some files, in due order; all that is due by ``done_ms`` was."""

    batches: Iterator[pa.RecordBatch]
    done_ms: int


class Ahead:
    """Of all shards. Shards may ask at the same time, while nobody reads on."""

    def __init__(self, settings: Settings, root: str, start_ms: int) -> None:
        self._settings, self._root = settings, root
        self._rows_max = settings.direct_rows_max
        self.begin(start_ms)

    def begin(self, start_ms: int) -> None:
        """Forget everything; from now on it is what is due after ``start_ms``."""
        self._readers: list[_Reader] = []
        self._ready: dict[int, list[Ready]] = {shard: [] for shard in range(self._settings.shards)}
        self._window_ms = start_ms
        self._rows = self._bytes = 0

    @property
    def until_ms(self) -> int:
        """All that is due by then is here."""
        return min((reader.done_ms for reader in self._readers), default=self._window_ms)

    def _full(self, times: int) -> bool:
        return self._rows >= times * self._rows_max or self._bytes >= times * BYTES_MAX

    def added(self, ledger: Ledger, files: Iterable[File], start_ms: int) -> None:
        """Files have come that have rows due after ``start_ms``, until where everything is delivered."""
        near = [f for f in files if f.due_max_ms > start_ms and f.due_min_ms <= self._window_ms]
        if near:
            self._read(ledger, near, start_ms)

    def more(self, ledger: Ledger, now_ms: int) -> bool:
        """Do a piece of work; false where there is none, or no room: then what is due is to be read otherwise."""
        # What is due already may make it twice as full. Else a late file would wait for those that are due after it.
        if self._full(1 if self.until_ms >= now_ms else 2):
            return False
        if not self._readers:
            if self._window_ms - now_ms >= WINDOW_MS // 2:
                return False
            after_ms = self._window_ms
            self._window_ms = max(now_ms, after_ms) + WINDOW_MS
            self._read(ledger, ledger.files.values(), after_ms)
            return True
        reader = min(self._readers, key=lambda reader: reader.done_ms)
        batch = next(reader.batches, None)
        if batch is None:
            self._readers.remove(reader)
        else:
            self._take(batch)
            # More that is due in the last millisecond may follow.
            reader.done_ms = max(reader.done_ms, batch.column("due_ms")[-1].as_py() - 1)
        return True

    def between(self, shard: int, after_ms: int, until_ms: int) -> Iterator[Ready]:
        """A shard's rows that are due in ``(after_ms, until_ms]``, by due time and seq."""
        found = [part for ready in self._ready[shard] if (part := ready.between(after_ms, until_ms)).records]
        found.sort(key=lambda part: part.place(0))
        if all(a.place(-1) < b.place(0) for a, b in pairwise(found)):
            yield from found
        else:
            yield _merged(found)

    def count(self, shard: int, after_ms: int, until_ms: int) -> int:
        """How many these are."""
        spans = (np.searchsorted(r.due_ms, (after_ms, until_ms), "right") for r in self._ready[shard])
        return sum(int(high - low) for low, high in spans)

    def delivered(self, until_ms: int) -> None:
        """What is due by then is not asked for any more."""
        for shard, some in self._ready.items():
            gone = [ready for ready in some if ready.due_ms[-1] <= until_ms]
            if gone:
                self._rows -= sum(ready.batch.num_rows for ready in gone)
                self._bytes -= sum(ready.batch.nbytes for ready in gone)
                self._ready[shard] = [ready for ready in some if ready.due_ms[-1] > until_ms]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _read(self, ledger: Ledger, files: Iterable[File], after_ms: int) -> None:
        snapshot = snapshot_of(self._root, ledger.version, [f for f in files if f.bucket != CANCELLED])
        batches = read_window(snapshot, Key(after_ms + 1, _LOWEST), self._window_ms + 1, batch_rows=PIECE_ROWS)
        self._readers.append(_Reader(batches, after_ms))

    def _take(self, batch: pa.RecordBatch) -> None:
        shards = (batch.column("seq").to_numpy() >> OFFSET_BITS) % self._settings.shards
        for shard, some in self._ready.items():
            ours = shards == shard
            if ours.any():
                part = batch if ours.all() else batch.filter(pa.array(ours))
                some.append(Ready.of(self._settings, part))
                self._rows += part.num_rows
                self._bytes += part.nbytes


def _merged(found: list[Ready]) -> Ready:
    table = pa.Table.from_batches([part.batch for part in found]).combine_chunks()
    [batch] = table.to_batches()
    order = np.lexsort((batch.column("seq").to_numpy(), batch.column("due_ms").to_numpy()))
    records = [record for part in found for record in part.records]
    sorted_batch = batch.take(pa.array(order))
    return Ready(sorted_batch, [records[i] for i in order.tolist()], sorted_batch.column("due_ms").to_numpy())
