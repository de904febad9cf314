"""The message: one Arrow schema for the whole system.

Batches of columns move through the core. :class:`~tarry.message.message.Message` exists for producers who send one at a
time and for consumers; :func:`rows_to_batch` turns many into columns at once. What producers send is checked at the
only way in, :func:`tarry.message.admission.admit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import InvalidMessageError
from tarry.base.printable import shown
from tarry.base.types import Int64s
from tarry.message.columns import without_nulls
from tarry.message.message import Message
from tarry.message.topics import OWN_TOPICS


class Kind(IntEnum):
    """Kind of a row of the intake.

    A cancellation names its target: see :func:`cancellations`. The last two are about bulk jobs: see
    :mod:`tarry.message.bulk`.
    """

    MESSAGE = 0
    CANCEL = 1
    JOB = 2
    JOB_CANCELLED = 3


PROPERTIES = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("topic", pa.string()),
        ("due_ms", pa.int64()),
        ("id", pa.string()),
        ("key", pa.string()),
        ("tag", pa.string()),
        ("properties", PROPERTIES),
        ("body", pa.binary()),
        ("born_ms", pa.int64()),
        ("expire_ms", pa.int64()),
        ("tries", pa.int32()),
        ("repeat", pa.string()),
        ("kind", pa.int8()),
    ]
)
"""A message, everywhere: intake frames, store files, ready frames, Flight, Spark."""

UNNUMBERED = pa.schema(list(SCHEMA)[1:])
"""Schema of :func:`tarry.message.admission.admit`: before the intake has assigned ``seq``."""


def in_own_topics(topics: pa.Array) -> pa.Array:
    """Mark topics that are Tarry's own, for many at a time."""
    return reduce(pc.or_, (pc.starts_with(topics, prefix) for prefix in OWN_TOPICS))


def rows_to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return many messages as columns, as :func:`tarry.message.admission.admit` takes them.

    Columns that no message uses are left out.

    Raises:
        InvalidMessageError: a field has a type or value that its column cannot hold.
    """
    columns: dict[str, pa.Array] = {}
    for name, kind in _FIELDS.items():
        values = [getattr(m, name) for m in messages]
        if name in _ALWAYS or any(v is not None for v in values):
            columns[name] = _field(name, values, kind)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


_ALWAYS = ("topic", "due_ms", "body")
_FIELDS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "due_ms": pa.int64(),
    "body": pa.binary(),
    "id": pa.string(),
    "key": pa.string(),
    "tag": pa.string(),
    "properties": PROPERTIES,
    "ttl_ms": pa.int64(),
    "tries": pa.int32(),
    "on_key": pa.string(),
    "if_seq": pa.int64(),
    "repeat": pa.string(),
    "order_key": pa.string(),
    "late": pa.string(),
}
_MISFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def _field(name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    def build(some: list[Any]) -> pa.Array:
        if name == "properties":
            some = [None if v is None else list(v.items()) for v in some]
        return pa.array(some, kind)

    try:
        return build(values)
    except _MISFIT:
        for row, value in enumerate(values):
            try:
                build([value])
            except _MISFIT as error:
                text = f"{name} is {shown(value)} ({type(value).__name__}); allowed: {kind}"
                raise InvalidMessageError(text, row=row if len(values) > 1 else None) from error
        raise


_NO_ENTRIES = pa.nulls(0, pa.struct([PROPERTIES.key_field, PROPERTIES.item_field]))


def no_properties(rows: int) -> pa.Array:
    """Return a column of :data:`PROPERTIES` that is null in each row.

    The one of ``pa.nulls`` has entries for each row, which nobody sees, and of which a slice of one row takes all along
    when it is written.
    """
    nulls, offsets = bytes(-(-rows // 8)), bytes(4 * (rows + 1))
    buffers = [pa.py_buffer(nulls), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(PROPERTIES, rows, buffers, null_count=rows, children=[_NO_ENTRIES])


def absent_columns(rows: int) -> dict[str, pa.Array]:
    """Return the columns of :data:`UNNUMBERED` that a producer left out: nulls, and the kind message."""
    columns = {f.name: pa.nulls(rows, f.type) for f in UNNUMBERED}
    columns["properties"] = no_properties(rows)
    columns["kind"] = pa.array(np.full(rows, Kind.MESSAGE, np.int8), pa.int8())
    return columns


# Most columns of most batches; making them anew takes longer than the rest of a small one. Not slices of longer ones:
# written to a file, those take all of their length.
_ABSENT_ROWS = 256
_absent_few = lru_cache(maxsize=_ABSENT_ROWS)(absent_columns)


def absent(rows: int) -> dict[str, pa.Array]:
    """:func:`absent_columns`, of which those for small batches are cached: Arrow arrays never change."""
    return _absent_few(rows) if rows <= _ABSENT_ROWS else absent_columns(rows)


_BORN = SCHEMA.get_field_index("born_ms")


def accepted_ms(batch: pa.RecordBatch) -> Int64s:
    """Return the time at which each row of :data:`SCHEMA` was accepted; long ago if it is unknown."""
    return np.asarray(without_nulls(batch.column(_BORN), 0))


def cancellations(targets: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Rows of :data:`UNNUMBERED` that cancel ``targets`` (columns ``seq``, ``due_ms``, ``topic``).

    Each has its target's topic and due time, so that it is found where its target is, and its target's seq as body.
    """
    rows = targets.num_rows
    seqs = np.ascontiguousarray(targets.column("seq").to_numpy(), "<i8")
    offsets = np.arange(0, 8 * rows + 1, 8, dtype=np.int32)
    body = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(seqs)])
    columns = dict(absent(rows))
    columns |= {name: targets.column(name) for name in ("topic", "due_ms")}
    columns |= {
        "body": body,
        "born_ms": pa.array(np.full(rows, now_ms, np.int64), pa.int64()),
        "kind": pa.array(np.full(rows, Kind.CANCEL, np.int8), pa.int8()),
    }
    return pa.RecordBatch.from_arrays([columns[f.name] for f in UNNUMBERED], schema=UNNUMBERED)


def cancelled_seqs(rows: pa.RecordBatch) -> Int64s:
    """Return the targets of rows that are all cancellations."""
    return np.array([int.from_bytes(body, "little", signed=True) for body in rows.column("body").to_pylist()], np.int64)


def kinds_of(batch: pa.RecordBatch) -> npt.NDArray[np.int8]:
    """Return the kind of each row; null, as other programs write it, is a message."""
    kinds = batch.column("kind")
    if kinds.null_count:
        kinds = pc.fill_null(kinds, int(Kind.MESSAGE))
    return np.asarray(kinds.to_numpy(), np.int8)


def messages_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without rows that are no messages; itself if it has none."""
    kinds = kinds_of(batch)
    return batch.filter(pa.array(kinds == Kind.MESSAGE)) if kinds.any() else batch


def concat(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of many; a single one is passed through."""
    parts = list(batches)
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


_FEW_ROWS = 256


def count_topics(topics: pa.Array | pa.ChunkedArray, counts: Counter[str]) -> None:
    """Add to ``counts`` how often each topic is among ``topics``."""
    if len(topics) <= _FEW_ROWS:
        counts.update(topics.to_pylist())
        return
    for entry in pc.value_counts(topics):
        counts[entry["values"].as_py()] += entry["counts"].as_py()


def numbered(rows: pa.RecordBatch | pa.Table, first_seq: int) -> pa.RecordBatch | pa.Table:
    """Rows of :data:`UNNUMBERED` with the seqs from ``first_seq`` on, as :data:`SCHEMA` has them."""
    seq = pa.array(np.arange(first_seq, first_seq + rows.num_rows, dtype=np.int64), pa.int64())
    return rows.add_column(0, SCHEMA.field(0), seq)


def chunks(
    batches: Iterable[pa.RecordBatch], bytes_max: int, rows_max: int | None = None
) -> Iterator[list[pa.RecordBatch]]:
    """Batches put together until they have so many bytes, or rows."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size >= bytes_max or (rows_max is not None and rows >= rows_max):
            yield held
            held, rows, size = [], 0, 0
    if held:
        yield held
