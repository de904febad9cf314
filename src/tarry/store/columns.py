"""The columns of the table: a message's own, and those made of them for queries in SQL.

Tarry reads its own columns alone. ``due`` says ``due_ms`` as an instant, as engines count and show it; ``target_seq``
says in a cancellation what its body says to Tarry, so that what is pending is an anti-join. A file of before there were
such columns has null in them.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from tarry.message.schema import SCHEMA, cancelled_seqs
from tarry.store.layout import is_on_calendar

FOR_QUERIES = pa.schema([("due", pa.timestamp("us", "UTC")), ("target_seq", pa.int64())])
STORED = pa.schema([*SCHEMA, *FOR_QUERIES])
"""The columns of a file."""
PARTITION_COLUMNS = ["shard", "bucket"]
_COMMENTS = {
    "seq": "number of the message, given when it was accepted; of a bulk job from 2^62 on",
    "topic": "queue that the message is for",
    "due_ms": "when it is due: milliseconds since the Unix epoch, UTC",
    "id": "the producer's id of the message",
    "key": "the producer's name for the schedule, within its topic",
    "tag": "the producer's tag, for filters",
    "properties": "the producer's properties; names that begin with tarry. are the broker's",
    "body": "content of the message; of a cancellation, seq and due_ms of its message",
    "born_ms": "when it was scheduled: milliseconds since the Unix epoch, UTC",
    "expire_ms": "when it is of no use any more: milliseconds since the Unix epoch, UTC",
    "tries": "most deliveries to a group before it is a dead letter",
    "repeat": "rule and state of the series that it belongs to, as JSON",
    "kind": "0: message, 1: cancellation",
    "due": "due_ms as a timestamp",
    "target_seq": "of a cancellation, seq of the message that it cancels",
    "shard": "part of the store, one broker's",
    "bucket": "span of due time that the file is in, or 'cancelled'",
}
TABLE = pa.schema(
    field.with_metadata({"comment": _COMMENTS[field.name]})
    for field in [*STORED, pa.field("shard", pa.int32()), pa.field("bucket", pa.string())]
)
"""The columns of the table, each with a comment for who looks at it in SQL."""

_US_PER_MS = 1000
_DUE_MS_MAX = np.iinfo(np.int64).max // _US_PER_MS
"""Microseconds cannot say a later instant, or one as far before 1970."""


def stored(rows: pa.RecordBatch, *, cancelled: bool) -> pa.RecordBatch:
    """Return rows of :data:`tarry.message.schema.SCHEMA` in the columns of a file.

    ``cancelled``: they are cancellations.
    """
    targets = pa.array(cancelled_seqs(rows), pa.int64()) if cancelled else pa.nulls(rows.num_rows, pa.int64())
    return pa.RecordBatch.from_arrays([*rows.columns, _instants(rows.column("due_ms")), targets], schema=STORED)


def instant_text(due_ms: int) -> str | None:
    """Return a due time as statistics in a Delta log write an instant; None if they cannot."""
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
