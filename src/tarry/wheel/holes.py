"""Parts of the store that the loader could not read and skipped: damaged row groups, missing files.

Their messages stay pending. While there is a hole, no checkpoint is taken, so that nothing that holds them is deleted
or expired, and a restart brings them once the file is whole. A running broker checks whether the file has changed, and
then brings them itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from tarry.base.errors import CorruptError
from tarry.base.types import Int64s, Key, at_or_after, before
from tarry.message.bulk import among
from tarry.store.damaged import Damaged

log = logging.getLogger(__name__)


class FilesView(Protocol):
    """The store's files, for reading damaged ones again."""

    def state_of(self, path: str) -> tuple[int, ...]:
        """Return something that changes when the file does."""
        ...

    def groups_of(self, path: str) -> list[int]:
        """Return the row groups of a file. Raises CorruptError."""
        ...

    def read_group(self, path: str, number: int) -> pa.RecordBatch:
        """Return the rows of one row group. Raises CorruptError."""
        ...


@dataclass(frozen=True, slots=True)
class _Hole:
    """The rows of one row group with ``low <= (due_ms, seq) < high``, which could not be read.

    With ``numbers``, only those of these bulk jobs. ``keys``: due times and seqs of the missing rows, if known.
    ``state``: the file's state when it could not be read.
    """

    path: str
    number: int
    numbers: frozenset[int]
    low: Key
    high: Key
    rows: int
    keys: tuple[Int64s, Int64s] | None
    error: CorruptError
    state: tuple[int, ...]

    def below(self, key: Key) -> _Hole | None:
        """Return the part of the hole before ``key``; None if there is none."""
        if self.low >= key:
            return None
        keys = self.keys
        if keys is not None:
            kept = before(*keys, key)
            keys = keys[0][kept], keys[1][kept]
        return replace(self, high=min(self.high, key), keys=keys)

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that belong to the hole."""
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        wanted = at_or_after(due, seq, self.low) & before(due, seq, self.high)
        if self.numbers:
            wanted &= among(seq, list(self.numbers))
        return batch.filter(pa.array(wanted))


class Holes:
    """All holes, changed by one thread; any thread reads :attr:`unreadable`, :meth:`has`, :attr:`error`."""

    def __init__(self) -> None:
        self._holes: list[_Hole] = []
        self._seqs: Int64s = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._holes)

    @property
    def unreadable(self) -> int:
        """Number of missing messages; where it is unknown, all rows of the row groups are counted."""
        return len(self._seqs) + sum(max(1, hole.rows) for hole in self._holes if hole.keys is None)

    @property
    def error(self) -> CorruptError | None:
        """The error of the latest hole; None if there are no holes."""
        holes = self._holes
        return holes[-1].error if holes else None

    def has(self, seq: int) -> bool:
        """Return whether this message is known to be in a hole."""
        return bool(len(self._seqs) and (self._seqs == seq).any())

    def add(
        self,
        damaged: Damaged,
        keys: tuple[Int64s, Int64s] | None,
        low: Key,
        high: Key,
        numbers: frozenset[int],
        view: FilesView,
    ) -> None:
        """Note an unreadable part of a window; ``keys`` are its missing messages, if known."""
        state = view.state_of(damaged.path)
        where = damaged.path, damaged.number, numbers
        new = _Hole(*where, low, high, damaged.rows, keys, damaged.error, state)
        for at, hole in enumerate(self._holes):
            if (hole.path, hole.number, hole.numbers, hole.high) == (*where, low):
                # The next window came to the same row group.
                both = None
                if hole.keys is not None and keys is not None:
                    both = np.concatenate([hole.keys[0], keys[0]]), np.concatenate([hole.keys[1], keys[1]])
                self._holes[at] = replace(new, low=hole.low, keys=both)
                break
        else:
            self._holes.append(new)
        self._changed()

    def truncate(self, key: Key) -> None:
        """Forget the holes from ``key`` on: everything there is loaded again, which will find them again."""
        self._holes = [part for hole in self._holes if (part := hole.below(key)) is not None]
        self._changed()

    def mended(self, view: FilesView) -> Iterator[pa.RecordBatch]:
        """Yield the rows of holes that can be read by now, one hole after the other.

        A hole is removed before its rows are yielded.
        """
        for hole in list(self._holes):
            if hole.state != (state := view.state_of(hole.path)):
                yield from self._read_again(hole, state, view)

    def _read_again(self, hole: _Hole, state: tuple[int, ...], view: FilesView) -> Iterator[pa.RecordBatch]:
        try:
            if hole.number < 0:
                # Row group by row group, for one of them may still be damaged. Those are read next time.
                parts = [replace(hole, number=n, rows=0, state=()) for n in view.groups_of(hole.path)]
                self._replace(hole, parts)
                for part in parts:
                    yield from self._read_again(part, state, view)
                return
            batch = view.read_group(hole.path, hole.number)
        except CorruptError as error:
            self._replace(hole, [replace(hole, state=state, error=error)])
            return
        log.info("%s: row group %d can be read again", hole.path, hole.number)
        self._replace(hole, [])
        yield hole.rows_of(batch)

    def _replace(self, hole: _Hole, parts: list[_Hole]) -> None:
        self._holes = [*(each for each in self._holes if each is not hole), *parts]
        self._changed()

    def _changed(self) -> None:
        known = [hole.keys[1] for hole in self._holes if hole.keys is not None]
        self._seqs = np.unique(np.concatenate(known)) if known else np.empty(0, np.int64)
