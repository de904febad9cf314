"""Finds messages by due time and seq: a few row groups are read, whatever the store holds.

Each file is sorted by (due time, seq). The files of a task of the schedule query hold a range of seqs that no others
have; where files were merged, seqs are mixed, but those of one run do not overlap in due time. So the bounds of files
and of row groups leave about one row group for each message and overlapping run: one or few in the near future, a
logarithm of the store's size in the far future (``upkeep.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s
from tarry.message.schema import SCHEMA
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry.store.snapshot import Snapshot


def find(
    snapshot: Snapshot, due_ms: Int64s, seq: Int64s, columns: Sequence[str] = SCHEMA.names
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are there, in no order; ``columns`` must have ``due_ms`` and ``seq``.

    Raises:
        CorruptError: a file is missing or damaged.
    """
    place = Place.of(snapshot.root)
    for file, wanted in _by_file(snapshot, due_ms, seq).items():
        yield from _in_file(place, snapshot.files.path[file], due_ms[wanted], seq[wanted], columns)


def _by_file(snapshot: Snapshot, due_ms: Int64s, seq: Int64s) -> dict[int, list[int]]:
    files = snapshot.files
    rows_by_file: dict[int, list[int]] = defaultdict(list)
    for row, (due, number) in enumerate(zip(due_ms.tolist(), seq.tolist(), strict=True)):
        hits = (files.seq_min <= number) & (files.seq_max >= number)
        hits &= (files.due_min_ms <= due) & (files.due_max_ms >= due)
        for file in np.flatnonzero(hits).tolist():
            rows_by_file[file].append(row)
    return rows_by_file


def _in_file(place: Place, path: str, due_ms: Int64s, seq: Int64s, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for group in groups(place, path):
        wanted = (due_ms >= group.due_min_ms) & (due_ms <= group.due_max_ms)
        wanted &= (seq >= group.seq_min) & (seq <= group.seq_max)
        if not wanted.any():
            continue
        batch = read_group(place, path, group.number, columns)
        here = np.isin(batch.column("seq").to_numpy(), seq[wanted])
        if here.any():
            yield batch.filter(pa.array(here))
