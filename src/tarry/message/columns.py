"""Columns as a producer gives them: checked, brought to plain types, refused with row and value.

Knows nothing of messages; :mod:`tarry.message.schema` says which columns there are and what they may hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.delay import INT64_MAX
from tarry.base.errors import InvalidMessageError, MessageTooLargeError


def check_memory(data: pa.RecordBatch | pa.Table, bytes_max: int) -> None:
    """Refuse a batch whose buffers do not hold together, or that is larger than ``bytes_max``."""
    # Arrow believes what a stream says about offsets, indices and UTF-8, and would read beyond buffers. Checking all of
    # it takes some nanoseconds a row, and comes first: even nbytes reads offsets.
    try:
        data.validate(full=True)
        # A buffer may be behind several columns. Most batches are far from the limit, and nbytes takes its time.
        few = data.get_total_buffer_size() * data.num_columns <= bytes_max
        size = 0 if few else data.nbytes
    except pa.ArrowException as error:
        raise InvalidMessageError(f"the batch is not valid Arrow data: {str(error)[:300]}") from error
    if size > bytes_max:
        raise MessageTooLargeError(f"the batch has {size} bytes; allowed: {bytes_max}")


def stream_bytes(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Batches as an Arrow stream, with their schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


_PLAIN = frozenset((pa.string(), pa.binary(), pa.int64()))
"""Types of most columns; to ask whether one is another costs several times as much."""


def plain(column: pa.Array | pa.ChunkedArray, name: str, bytes_max: int) -> pa.Array:
    """Return one array without chunks and dictionary; above ``bytes_max`` it is refused.

    Far below 2 GiB, every cast is possible.
    """
    try:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        kind = whole.type
        if kind in _PLAIN:
            return whole
        if not (pa.types.is_dictionary(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
            return whole
        # Each row may name the same long text: small on the wire, and huge once it is written out.
        lengths = lengths_of(whole)
        size = 0 if lengths is None else pc.sum(lengths, min_count=0).as_py()
        if size > bytes_max:
            raise MessageTooLargeError(f"column {name!r} has {size} bytes; allowed: {bytes_max} in a batch")
        return whole.dictionary_decode() if pa.types.is_dictionary(kind) else whole
    except (pa.ArrowException, ValueError, TypeError) as error:  # NumPy's, of a buffer that is too short or missing
        raise InvalidMessageError(f"column {name!r} of type {column.type} cannot be read: {error}") from error


def lengths_of(column: pa.Array) -> pa.Array | None:
    """Bytes of each text; None when the type has no texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = lengths_of(column.dictionary)
        return None if lengths is None else lengths.take(column.indices)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # No kernel knows views yet. A view is 16 bytes, the first four its length (Arrow columnar format).
        if not len(column):
            return pa.array([], pa.int64())
        sizes = np.frombuffer(column.buffers()[1], np.int32, 4 * len(column), 16 * column.offset)[::4].astype(np.int64)
        return pa.array(sizes, mask=column.is_null().to_numpy(zero_copy_only=False))
    sized = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return pc.binary_length(column).cast(pa.int64()) if any(test(kind) for test in sized) else None


def cast(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """Return a column of texts or bytes as ``kind``; nothing else is turned into a text."""
    if column.type == kind:
        return column
    if not _compatible(column.type, kind):
        raise InvalidMessageError(f"column {name!r} has type {column.type}; allowed: {kind}")
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidMessageError(f"column {name!r} of type {column.type} does not fit {kind}: {error}") from error


def is_text(given: pa.DataType) -> bool:
    """Return whether it is one of Arrow's string types."""
    return bool(pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given))


def _compatible(given: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(given) or is_text(given):
        return True
    octets = (types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return bool(wanted == pa.binary() and any(test(given) for test in octets))


def no_nulls(column: pa.Array, name: str) -> pa.Array:
    """Return the column itself if each row has a value."""
    if column.null_count:
        row = int(pc.index(column.is_null(), True).as_py())
        raise InvalidMessageError(f"{name} is null; a value is needed", row=row)
    return column


def check_lengths(column: pa.Array, name: str, bytes_max: int) -> None:
    """Refuse a text that is too long; null is not. For columns of the types string and binary."""
    if column.get_total_buffer_size() <= bytes_max:
        return  # all of them together are not: of most small batches that is all there is to ask
    # From the offsets: a third of what a kernel and its result as a scalar cost, for each of several columns.
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    wrong = np.diff(offsets) > bytes_max
    if column.null_count:
        wrong &= column.is_valid().to_numpy(zero_copy_only=False)
    if wrong.any():
        row = int(np.argmax(wrong))
        size = int(offsets[row + 1] - offsets[row])
        raise MessageTooLargeError(f"{name} has {size} bytes; allowed: {bytes_max}", row=row)


def check_not_empty(column: pa.Array, name: str) -> None:
    """Refuse an empty text; null is not one. For a column of the type string."""
    if column.null_count == len(column):
        return
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    wrong = np.diff(offsets) == 0
    if column.null_count:
        wrong &= column.is_valid().to_numpy(zero_copy_only=False)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidMessageError(f"{name} is empty; allowed: a text, or none at all", row=row)


def without_nulls(column: pa.Array, instead: int) -> Any:
    """Return a column of integers as a NumPy array, with ``instead`` for null."""
    # To ask Arrow for a column without nulls takes several times what the rest of it takes for a few rows.
    return (column.fill_null(instead) if column.null_count else column).to_numpy()


def integers(column: pa.Array, name: str, kind: pa.DataType, least: int) -> pa.Array:
    """Return the column as ``kind``, each value at least ``least``; nulls stay."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if not pa.types.is_integer(column.type):
        raise InvalidMessageError(f"column {name!r} has type {column.type}; allowed: {kind}")
    most = INT64_MAX >> (64 - kind.bit_width)
    values = (column.fill_null(least) if column.null_count else column).to_numpy(zero_copy_only=False)
    if column.type == kind and (not len(values) or int(values.min()) >= least):
        return column
    # NumPy compares with a Python int exactly, also where it is outside of the column's type (uint64, int8).
    wrong = values < least
    if column.type != kind:
        wrong |= values > most
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidMessageError(f"{name} is {int(values[row])}; allowed: {least} to {most}", row=row)
    return column if column.type == kind else column.cast(kind)


_PER_MS = {"us": 1_000, "ns": 1_000_000}


def in_ms(column: pa.Array, name: str) -> pa.Array:
    """Return a timestamp or duration column in milliseconds, rounded up so that nothing comes early.

    In whole numbers: Arrow's own casts wrap around silently, or need the time zone database.
    """
    unit = column.type.unit
    values = no_nulls(column, name).cast(pa.int64()).to_numpy(zero_copy_only=False)
    negative = values < 0
    if negative.any():
        row = int(np.argmax(negative))
        allowed = "0 (at once) or more" if name == "delay" else "1970 or later"
        raise InvalidMessageError(f"{name} is {int(values[row])} {unit}; allowed: {allowed}", row=row)
    if unit == "s":
        # What overflows becomes the greatest int64, which every limit refuses.
        values = np.where(values > INT64_MAX // 1000, INT64_MAX, np.minimum(values, INT64_MAX // 1000) * 1000)
    elif unit != "ms":
        whole, rest = np.divmod(values, _PER_MS[unit])
        values = whole + (rest > 0)
    return pa.array(values, pa.int64())
