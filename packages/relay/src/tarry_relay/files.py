"""Files of the store that a delivery reads: those that each version added, and their due rows.

A delivery from ``(t0, v0)`` to ``(t1, v1)`` is ``{version <= v1, due <= t1}`` minus ``{version <= v0, due <= t0}``: of
a file that was there at v0, the rows due in ``(t0, t1]``; of one that came later, all rows due by t1. Late rows are
thus delivered once, whatever the two queries do at the same time::

            due <= t0     t0 < due <= t1
    old       done           wanted
    new      wanted          wanted

A commit that only rewrites files (it removes some, or its ``dataChange`` is false: a compaction) brings nothing new:
its files count as old. That holds only if all that went into them was old, so no delivery reaches across such a commit:
one ends just before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tarry.base.errors import CorruptError, UnavailableError
from tarry.base.lru_cache import LruCache
from tarry.base.types import Int64s
from tarry.store.layout import CANCELLED
from tarry.store.locallog import sync_entries
from tarry.store.parquet import RowGroup, groups, read_group
from tarry.store.place import Place
from tarry_relay.positions import number_of, shard_of

DUE_BYTES_MAX = 32 << 20
"""Memory for the due times of row groups that are near."""

_LOWEST, _HIGHEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, order=True)
class Reached:
    """A place of the deliver query.

    Everything of version ``v`` and below that was due by ``t`` is delivered.
    """

    t: int
    v: int

    def joined(self, other: Reached) -> Reached:
        """Return the place that covers both deliveries, one of which began at the other place."""
        return Reached(max(self.t, other.t), max(self.v, other.v))


@dataclass(frozen=True, slots=True)
class File:
    """A data file; bounds are inclusive.

    ``version`` is the one that added it, 0 for a file that only rewrote others.
    """

    path: str
    version: int
    bucket: str
    rows: int
    size: int
    due_min_ms: int
    due_max_ms: int
    seq_min: int
    seq_max: int

    def shards(self, shards: int) -> set[int]:
        """Return the shards that may have rows in the file."""
        first, last = number_of(self.seq_min), number_of(self.seq_max)
        return {shard_of(n, shards) for n in range(first, min(last, first + shards - 1) + 1)}

    def due(self, start: Reached, end: Reached) -> tuple[int, int] | None:
        """Return the span of its due times that a delivery reads, ``(after, until]``; None for none."""
        after = start.t if self.version <= start.v else _LOWEST
        return (after, end.t) if self.due_min_ms <= end.t and self.due_max_ms > after else None


class FileTracker:
    """The files of one shard of a store at a version, followed from version to version.

    Raises:
        UnavailableError: the store cannot be read. CorruptError: its log no longer has the versions that are needed.
    """

    def __init__(self, root: str, store_shard: int, version: int) -> None:
        self._place = Place.of(root)
        self._shard = str(store_shard)
        self.version = version
        self.held_up = False
        """True if the next version rewrites files, and was not followed for that reason."""
        try:
            table = DeltaTable(self._place.uri, version=version)
            actions = pa.table(table.get_add_actions(flatten=True))
        except (DeltaError, OSError) as error:
            raise CorruptError(
                f"version {version} of the store at {root} cannot be read, though delivery has got no further: {error}"
            ) from error
        self.files = {f.path: f for f in _of_actions(actions, self._shard, version)}
        self._due = _DueTimes(self._place)

    def follow(self, start: Reached) -> bool:
        """Follow later versions, but none that a delivery from ``start`` may not reach.

        Returns whether there were any. They are durable when this returns.
        """
        before, self.held_up = self.version, False
        while True:
            entry = self._entry(self.version + 1)
            self.held_up = entry is not None and _rewrites(entry) and start.v < self.version
            if entry is None or self.held_up:
                break
            self.version += 1
            self._apply(entry)
        if self.version > before and self._place.local is not None:
            # A version that was seen is not yet durable. A delivery must not name one that a power failure takes back.
            sync_entries(self._place.local, before + 1, self.version)
        return self.version > before

    def wanted(self, start: Reached, end: Reached) -> list[File]:
        """Return the files that a delivery reads, by due time."""
        files = (f for f in self.files.values() if f.bucket != CANCELLED and f.due(start, end) is not None)
        return sorted(files, key=lambda f: (f.due_min_ms, f.seq_min))

    def cancelled(self, end: Reached) -> list[str]:
        """Return the files of cancellations that may still matter."""
        return sorted(f.path for f in self.files.values() if f.bucket == CANCELLED and f.due_max_ms >= end.t)

    def count(self, file: File, start: Reached, end: Reached) -> int:
        """Count the rows of a file that a delivery reads.

        Reads the due times of near row groups, once.
        """
        span = file.due(start, end)
        return 0 if span is None else self._due.count(file, *span)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _entry(self, version: int) -> list[dict[str, Any]] | None:
        try:
            with self._place.filesystem.open_input_file(self._place.path(f"_delta_log/{version:020d}.json")) as file:
                return [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UnavailableError(f"version {version} of the store's log cannot be read: {error}") from error

    def _apply(self, entry: Sequence[dict[str, Any]]) -> None:
        version = 0 if _rewrites(entry) else self.version
        for action in entry:
            if "remove" in action:
                self.files.pop(action["remove"]["path"], None)
                self._due.forget(action["remove"]["path"])
        for action in entry:
            if "add" in action and action["add"]["partitionValues"].get("shard") == self._shard:
                file = _of_add(action["add"], version)
                self.files[file.path] = file


def _rewrites(entry: Sequence[dict[str, Any]]) -> bool:
    # A relay's own commits only add.
    return any("remove" in action or not action.get("add", {}).get("dataChange", True) for action in entry)


def _of_add(add: dict[str, Any], version: int) -> File:
    stats = json.loads(add.get("stats") or "{}")
    low, high = stats.get("minValues", {}), stats.get("maxValues", {})
    return File(
        path=add["path"],
        version=version,
        bucket=add["partitionValues"].get("bucket") or "",
        rows=stats.get("numRecords", 0),
        size=add["size"],
        due_min_ms=low.get("due_ms", _LOWEST),
        due_max_ms=high.get("due_ms", _HIGHEST),
        seq_min=low.get("seq", 0),
        seq_max=high.get("seq", _HIGHEST),
    )


_COLUMNS = {
    "path": "path",
    "bucket": "partition.bucket",
    "rows": "num_records",
    "size": "size_bytes",
    "due_min_ms": "min.due_ms",
    "due_max_ms": "max.due_ms",
    "seq_min": "min.seq",
    "seq_max": "max.seq",
}
_MISSING = {"rows": 0, "due_min_ms": _LOWEST, "due_max_ms": _HIGHEST, "seq_min": 0, "seq_max": _HIGHEST}


def _of_actions(actions: pa.Table, shard: str, version: int) -> list[File]:
    if "partition.shard" not in actions.column_names:
        return []
    shards = actions["partition.shard"].to_pylist()
    columns = {
        name: actions[column].to_pylist() if column in actions.column_names else [None] * actions.num_rows
        for name, column in _COLUMNS.items()
    }
    rows: Iterator[dict[str, Any]] = (
        {n: _MISSING.get(n) if v is None else v for n, v in zip(columns, values, strict=True)}
        for values in zip(*columns.values(), strict=True)
    )
    return [File(version=version, **row) for row, of in zip(rows, shards, strict=True) if str(of) == shard]


class _DueTimes:
    """Sorted due times of row groups, the last used ones cached.

    They show without a batch that nothing is due.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._groups: dict[str, list[RowGroup]] = {}
        self._due: LruCache[tuple[str, int], Int64s] = LruCache(DUE_BYTES_MAX, lambda due: due.nbytes)

    def count(self, file: File, after: int, until: int) -> int:
        if after < file.due_min_ms and file.due_max_ms <= until:
            return file.rows
        of_file = self._groups.get(file.path)
        if of_file is None:
            of_file = self._groups[file.path] = groups(self._place, file.path)
        return sum(self._in_group(file.path, g, after, until) for g in of_file)

    def forget(self, path: str) -> None:
        self._groups.pop(path, None)

    def _in_group(self, path: str, group: RowGroup, after: int, until: int) -> int:
        if group.due_min_ms > until or group.due_max_ms <= after:
            return 0
        if after < group.due_min_ms and group.due_max_ms <= until:
            return group.rows
        low, high = np.searchsorted(self._of(path, group.number), (after, until), "right")
        return int(high - low)

    def _of(self, path: str, number: int) -> Int64s:
        due = self._due.get((path, number))
        if due is None:
            due = np.sort(read_group(self._place, path, number, ["due_ms"]).column("due_ms").to_numpy())
            self._due.put((path, number), due)
        return due
