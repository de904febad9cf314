"""One version of the table, as plain columns: its files, and the seq up to which it has the intake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Int64s
from tarry.message.bulk import first_seq
from tarry.store.layout import CANCELLED

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class FileColumns:
    """The data files of one shard, ascending by ``due_min_ms``; entry i of every column is about file i.

    ``path`` is relative to the table's root, as in the Delta log. A bound that a foreign writer left out is the widest
    possible.
    """

    path: list[str]
    due_min_ms: Int64s
    due_max_ms: Int64s
    seq_min: Int64s
    seq_max: Int64s
    rows: Int64s
    size: Int64s
    topic_min: list[str | None]
    topic_max: list[str | None]

    def __len__(self) -> int:
        return len(self.path)

    def take(self, rows: Iterable[int]) -> FileColumns:
        """Return some of the files, in the order given."""
        at = np.fromiter(rows, np.int64)
        columns: dict[str, Any] = {}
        for each in fields(self):
            values = getattr(self, each.name)
            columns[each.name] = [values[i] for i in at] if isinstance(values, list) else values[at]
        return FileColumns(**columns)

    @classmethod
    def of_actions(cls, actions: pa.Table, shard: int) -> tuple[FileColumns, FileColumns]:
        """Return the files of messages, and those of cancellations.

        ``actions`` are from ``DeltaTable.get_add_actions(flatten=True)``.
        """
        messages, cancelled = _of_shard(actions, shard)
        return cls._of(messages), cls._of(cancelled)

    @classmethod
    def _of(cls, actions: pa.Table) -> FileColumns:
        if not actions.num_rows:  # of cancellations there are mostly none
            return no_files()
        due_min = _bound(actions, "min.due_ms", _LOWEST)
        order = np.lexsort((_bound(actions, "min.seq", _LOWEST), due_min))
        actions = actions.take(pa.array(order))
        return cls(
            path=actions["path"].to_pylist(),
            due_min_ms=due_min[order],
            due_max_ms=_bound(actions, "max.due_ms", _HIGHEST),
            seq_min=_bound(actions, "min.seq", _LOWEST),
            seq_max=_bound(actions, "max.seq", _HIGHEST),
            rows=_bound(actions, "num_records", 0),
            size=_bound(actions, "size_bytes", 0),
            topic_min=_texts(actions, "min.topic"),
            topic_max=_texts(actions, "max.topic"),
        )


def no_files() -> FileColumns:
    """Columns without an entry."""
    none = np.empty(0, np.int64)
    return FileColumns([], none, none, none, none, none, none, [], [])


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A consistent view of the store.

    ``files`` hold every message with ``seq < committed_seq`` that had not fired, and the files ``cancellations`` the
    cancellations among them.
    """

    root: str
    version: int
    committed_seq: int
    files: FileColumns
    cancellations: FileColumns = field(default_factory=no_files)

    @property
    def cancelled(self) -> list[str]:
        """The paths of the files of cancellations."""
        return self.cancellations.path

    def of_jobs(self, numbers: Sequence[int]) -> Snapshot:
        """Return the snapshot with only those files that may have messages of these bulk jobs."""
        which = np.zeros(len(self.files), np.bool_)
        for number in numbers:
            which |= (self.files.seq_max >= first_seq(number)) & (self.files.seq_min < first_seq(number + 1))
        return replace(self, files=self.files.take(np.flatnonzero(which).tolist()))


def _of_shard(actions: pa.Table, shard: int) -> tuple[pa.Table, pa.Table]:
    """Return the shard's files of messages, and those of cancellations."""
    if "partition.shard" in actions.column_names:
        actions = actions.filter(pc.equal(actions["partition.shard"], shard))
    if "partition.bucket" not in actions.column_names:
        return actions, actions.slice(0, 0)
    cancelled = pc.fill_null(pc.equal(actions["partition.bucket"], CANCELLED), False)
    return actions.filter(pc.invert(cancelled)), actions.filter(cancelled)


def _bound(actions: pa.Table, name: str, missing: int) -> Int64s:
    if name not in actions.column_names:
        return np.full(actions.num_rows, missing, np.int64)
    column = pc.fill_null(actions[name].cast(pa.int64()), missing)
    return np.asarray(column.to_numpy(), np.int64)


def _texts(actions: pa.Table, name: str) -> list[str | None]:
    if name not in actions.column_names:
        return [None] * actions.num_rows
    return list(actions[name].to_pylist())
