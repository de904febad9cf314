"""The columns of the table: a message's own, and those made of them for queries in SQL.

Tarry reads its own columns alone. ``due`` says ``due_ms`` as an instant, as engines count and show it; ``target_seq``
says in a cancellation what its body says to Tarry, so that what is pending is an anti-join. A file of before there were
such columns has null in them.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from tarry.base.message import SCHEMA, cancelled_seqs
from tarry.store.layout import is_on_calendar

FOR_QUERIES = pa.schema([("due", pa.timestamp("us", "UTC")), ("target_seq", pa.int64())])
STORED = pa.schema([*SCHEMA, *FOR_QUERIES])
"""The columns of a file."""
PARTITION_COLUMNS = ["shard", "bucket"]
TABLE = pa.schema([*STORED, ("shard", pa.int32()), ("bucket", pa.string())])

_US_PER_MS = 1000
_DUE_MS_MAX = np.iinfo(np.int64).max // _US_PER_MS
"""Microseconds cannot say a later instant, or one as far before 1970."""


def stored(rows: pa.RecordBatch, *, cancelled: bool) -> pa.RecordBatch:
    """Rows of :data:`tarry.base.message.SCHEMA` as a file has them; ``cancelled``: they are cancellations."""
    targets = pa.array(cancelled_seqs(rows), pa.int64()) if cancelled else pa.nulls(rows.num_rows, pa.int64())
    return pa.RecordBatch.from_arrays([*rows.columns, _instants(rows.column("due_ms")), targets], schema=STORED)


def instant_text(due_ms: int) -> str | None:
    """A due time as statistics in a Delta log say an instant; None where they cannot say it."""
    if not is_on_calendar(due_ms):
        return None
    text = datetime.fromtimestamp(due_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{due_ms % 1000:03d}Z"


def _instants(due_ms: pa.Array) -> pa.Array:
    values = due_ms.to_numpy()
    fits = np.abs(values) <= _DUE_MS_MAX
    # The lowest number has no absolute value of its own, and stays negative: it does not fit either.
    fits &= values > -_DUE_MS_MAX
    mask = None if fits.all() else ~fits
    return pa.array(np.where(fits, values, 0) * _US_PER_MS, pa.int64(), mask=mask).cast(FOR_QUERIES.field("due").type)
