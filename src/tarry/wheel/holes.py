"""What the loader could not read of the store and passed over: row groups that are damaged, and files that are missing.

Their messages stay pending. While there is a hole no checkpoint is taken, so that nothing is deleted or expired that
holds them, and a restart brings them once the file is whole. A broker that serves looks whether the file has changed,
and then brings them itself.
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
    """The store's files, to be looked at again."""

    def state_of(self, path: str) -> tuple[int, ...]:
        """Something that changes when the file does."""
        ...

    def groups_of(self, path: str) -> list[int]:
        """The row groups of a file. Raises CorruptError."""
        ...

    def read_group(self, path: str, number: int) -> pa.RecordBatch:
        """The rows of one. Raises CorruptError."""
        ...


@dataclass(frozen=True, slots=True)
class _Hole:
    """Of a row group, the rows with ``low <= (due_ms, seq) < high``; where there are ``numbers``, of these bulk jobs
    alone. ``seqs``: those that are missing, where that is known. ``state``: the file's when it could not be read.
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
        """What of it comes before ``key``."""
        if self.low >= key:
            return None
        keys = self.keys
        if keys is not None:
            kept = before(*keys, key)
            keys = keys[0][kept], keys[1][kept]
        return replace(self, high=min(self.high, key), keys=keys)

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that belong to it."""
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        wanted = at_or_after(due, seq, self.low) & before(due, seq, self.high)
        if self.numbers:
            wanted &= among(seq, list(self.numbers))
        return batch.filter(pa.array(wanted))


class Holes:
    """One thread changes it; any thread asks :attr:`unreadable`, :meth:`has` and :attr:`error`."""

    def __init__(self) -> None:
        self._holes: list[_Hole] = []
        self._seqs: Int64s = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._holes)

    @property
    def unreadable(self) -> int:
        """How many messages are missing; where that cannot be told, as many as the row groups have."""
        return len(self._seqs) + sum(max(1, hole.rows) for hole in self._holes if hole.keys is None)

    @property
    def error(self) -> CorruptError | None:
        """What keeps the last of them from being read."""
        holes = self._holes
        return holes[-1].error if holes else None

    def has(self, seq: int) -> bool:
        """Whether this message is known to be in one."""
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
        """Note what could not be read of a window; of its ``keys``, those that are missing."""
        state = view.state_of(damaged.path)
        where = damaged.path, damaged.number, numbers
        new = _Hole(*where, low, high, damaged.rows, keys, damaged.error, state)
        for at, hole in enumerate(self._holes):
            if (hole.path, hole.number, hole.numbers, hole.high) == (*where, low):
                # A window after the other comes to the same row group.
                both = None
                if hole.keys is not None and keys is not None:
                    both = np.concatenate([hole.keys[0], keys[0]]), np.concatenate([hole.keys[1], keys[1]])
                self._holes[at] = replace(new, low=hole.low, keys=both)
                break
        else:
            self._holes.append(new)
        self._changed()

    def truncate(self, key: Key) -> None:
        """From ``key`` on everything is loaded again, and will be met again."""
        self._holes = [part for hole in self._holes if (part := hole.below(key)) is not None]
        self._changed()

    def mended(self, view: FilesView) -> Iterator[pa.RecordBatch]:
        """What can be read by now: the rows of one hole after the other, each of which is none any more when its rows
        are given.
        """
        for hole in list(self._holes):
            if hole.state != (state := view.state_of(hole.path)):
                yield from self._read_again(hole, state, view)

    def _read_again(self, hole: _Hole, state: tuple[int, ...], view: FilesView) -> Iterator[pa.RecordBatch]:
        try:
            if hole.number < 0:
                # Row group by row group, for one of them may be damaged still; they are read next time.
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
