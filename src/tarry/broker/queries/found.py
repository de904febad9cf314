"""Finds one message by its number and due time, in wheel, intake, store, or its topic's queue."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from tarry.api.row_schemas import FOUND
from tarry.broker.queries.history import HistorySources
from tarry.message.schema import SCHEMA
from tarry.names import NameEntry
from tarry.queue.search import find

LOOK_S = 1.0
"""Time for searching the queues."""


def find_message(sources: HistorySources, seq: int, due_ms: int) -> pa.RecordBatch:
    """Return the message as a batch of one row; of none if not found.

    Columns: :data:`tarry.api.row_schemas.FOUND`.
    """
    row = sources.finder.find([NameEntry(seq, due_ms, 0)], SCHEMA.names).get(seq)
    topic = None if row is None else row.column("topic")[0].as_py()
    # A message that has fallen due may still be where it was, too; only its queue knows its offset.
    hits, _ = find(
        sources.ready,
        lambda batch: np.asarray(batch.column("seq").to_numpy() == seq),
        topic=topic,
        due_ms=due_ms,
        deadline_s=time.monotonic() + LOOK_S,
    )
    if hits:
        row = hits[0].row
    if row is None:
        return pa.RecordBatch.from_pylist([], schema=FOUND)
    offset = pa.array([hits[0].offset if hits else None], pa.int64())
    return pa.RecordBatch.from_arrays([*(row.column(name) for name in SCHEMA.names), offset], schema=FOUND)
