"""One version of the table, as plain columns: what there is to read, and up to which seq the intake is in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.store.layout import Int64s

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

    @classmethod
    def of_actions(cls, actions: pa.Table, shard: int) -> FileColumns:
        """The columns, out of ``DeltaTable.get_add_actions(flatten=True)``."""
        if "partition.shard" in actions.column_names:
            actions = actions.filter(pc.equal(actions["partition.shard"], shard))
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


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A consistent view of the store: ``files`` hold every message with ``seq < committed_seq`` that had not fired."""

    root: str
    version: int
    committed_seq: int
    files: FileColumns


def _bound(actions: pa.Table, name: str, missing: int) -> Int64s:
    if name not in actions.column_names:
        return np.full(actions.num_rows, missing, np.int64)
    column = pc.fill_null(actions[name].cast(pa.int64()), missing)
    return np.asarray(column.to_numpy(), np.int64)


def _texts(actions: pa.Table, name: str) -> list[str | None]:
    if name not in actions.column_names:
        return [None] * actions.num_rows
    return list(actions[name].to_pylist())
