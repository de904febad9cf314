"""Properties of messages: texts by name, a map column; checked, and completed by Tarry's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import InvalidMessageError, MessageTooLargeError
from tarry.base.printable import shown
from tarry.base.types import Int64s
from tarry.message.columns import is_text, lengths_of
from tarry.message.schema import PROPERTIES, no_properties
from tarry.message.topics import RESERVED


def check_properties(column: pa.Array, *, row_bytes_max: int, bytes_max: int, exempt: Sequence[str] = ()) -> pa.Array:
    """Return the column as :data:`tarry.message.schema.PROPERTIES`, checked.

    A struct of texts, which a column of dicts becomes, is taken, too: what is null in it is no property. Checked are:
    no null name or value, no empty name, no reserved name but ``exempt`` ones, and of names and values at most
    ``row_bytes_max`` bytes in a row and ``bytes_max`` in all.

    Raises:
        InvalidMessageError: names the row and what is wrong.
    """
    if pa.types.is_null(column.type):
        return no_properties(len(column))
    if _is_struct_of_texts(column.type):
        column = _of_structs(column, bytes_max)
    kind = column.type
    if not pa.types.is_map(kind) or not (is_text(kind.key_type) and is_text(kind.item_type)):
        raise InvalidMessageError(
            f"column 'properties' has type {kind!s:.200}; allowed: {PROPERTIES}, "
            "as of pa.array([[('name', 'text')]], pa.map_(pa.string(), pa.string())), or dicts of texts"
        )
    if column.null_count == len(column):
        return no_properties(len(column))
    # Of a slice, keys and items are those of the whole array, and offsets point into them; a null row may span some.
    offsets = column.offsets.to_numpy().astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    empty = column.is_null().to_numpy(zero_copy_only=False)
    if len(starts) and int(starts[0]) < int(ends[-1]):
        low, high = int(starts[0]), int(ends[-1])
        keys, items = column.keys.slice(low, high - low), column.items.slice(low, high - low)
        if keys.null_count or items.null_count:
            _check_no_null_property(keys, items, starts - low, ends - low, empty)
        _check_reserved(keys, starts - low, ends - low, empty, exempt)
        names, values = (_lengths(side) for side in (keys, items))
        if not names.all():
            _check_no_empty_name(names, starts - low, ends - low, empty)
        sizes = names + values
        totals = np.concatenate([[0], np.cumsum(sizes)])
        _check_all(int(totals[-1]), bytes_max)
        per_row = np.where(empty, 0, totals[ends - low] - totals[starts - low])
        if per_row.max() > row_bytes_max:
            row = int(per_row.argmax())
            text = f"properties have {int(per_row[row])} bytes; allowed: {row_bytes_max}"
            raise MessageTooLargeError(text, row=row)
    try:
        return column if kind == PROPERTIES else column.cast(PROPERTIES)
    except pa.ArrowException as error:
        raise InvalidMessageError(f"column 'properties' of type {kind} does not fit {PROPERTIES}: {error}") from error


def _is_struct_of_texts(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    return pa.types.is_struct(kind) and all(any(test(field.type) for test in texts) for field in kind)


def _of_structs(column: pa.Array, bytes_max: int) -> pa.Array:
    """Return structs of texts as maps.

    Fields may share their buffers, so that what is made of them is bounded before it is made.
    """
    rows = len(column)
    size = 8 * rows * column.type.num_fields
    _check_all(size, bytes_max)
    try:
        names = [field.name for field in column.type]
    except UnicodeDecodeError as error:
        raise InvalidMessageError(f"the name of a property is {error.object!r:.80}; allowed: UTF-8") from error
    given = [(name, texts) for name, texts in zip(names, column.flatten(), strict=True) if texts.null_count < rows]
    for name, texts in given:
        size += int(_lengths(texts).sum()) + len(name.encode()) * (rows - texts.null_count)
    _check_all(size, bytes_max)
    present = np.array([texts.is_valid() for _, texts in given], np.bool_).reshape(len(given), rows).T
    # The texts lie field by field; in the map they lie row by row.
    cells = np.arange(len(given) * rows).reshape(len(given), rows).T[present]
    values = pa.concat_arrays([pa.array([], pa.string()), *(texts.cast(pa.string()) for _, texts in given)]).take(cells)
    keys = pa.array([name for name, _ in given], pa.string()).take(np.nonzero(present)[1])
    ends = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    is_null = np.append(column.is_null().to_numpy(zero_copy_only=False), False)
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32(), mask=is_null), keys, values)


def _check_all(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise MessageTooLargeError(f"properties have {size} bytes in all; allowed: {bytes_max}")


def with_property(properties: pa.Array | None, name: str, values: pa.Array) -> pa.Array:
    """Return the properties with one more, in the rows where ``values`` has a text."""
    texts = values.to_pylist()
    given = [None] * len(texts) if properties is None else properties.to_pylist()
    joined = [p if text is None else [*(p or []), (name, text)] for p, text in zip(given, texts, strict=True)]
    return pa.array(joined, PROPERTIES)


def has_none(properties: pa.Array) -> bool:
    """Return whether no row has a property of Tarry's own."""
    if properties.null_count == len(properties):
        return True
    _, _, keys, _ = entries_of(properties)
    if len(keys) <= _FEW_ENTRIES:
        return not any(key.startswith(RESERVED) for key in keys.to_pylist())
    return not pc.any(pc.starts_with(keys, RESERVED)).as_py()


_FEW_ENTRIES = 64
"""Up to here, a look at each takes less time than a kernel."""


def entries_of(properties: pa.Array) -> tuple[Int64s, int, pa.Array, pa.Array]:
    """Return each row's start of entries, the first of these, and names and values from there on.

    Of a slice of a map column, names and values are those of the whole array, and offsets point into them; a null row
    may span some.
    """
    offsets = properties.offsets.to_numpy().astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    return offsets[:-1], low, properties.keys.slice(low, high - low), properties.items.slice(low, high - low)


def _lengths(texts: pa.Array) -> Int64s:
    lengths = lengths_of(texts)
    assert lengths is not None
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _check_no_empty_name(names: Int64s, starts: Int64s, ends: Int64s, empty: Any) -> None:
    """Check the lengths of ``names``; an entry of a null row is nothing."""
    counts = np.concatenate([[0], np.cumsum(names == 0)])
    bad = ~empty & (counts[ends] > counts[starts])
    if bad.any():
        raise InvalidMessageError(
            "the name of a property is empty; allowed: 1 character or more", row=int(np.argmax(bad))
        )


def _check_no_null_property(keys: pa.Array, items: pa.Array, starts: Int64s, ends: Int64s, empty: Any) -> None:
    for side, entries in (("name", keys), ("value", items)):
        nulls = np.concatenate([[0], np.cumsum(entries.is_null().to_numpy(zero_copy_only=False))])
        bad = ~empty & (nulls[ends] > nulls[starts])
        if bad.any():
            raise InvalidMessageError(f"a property's {side} is null; a text is needed", row=int(np.argmax(bad)))


def _check_reserved(keys: pa.Array, starts: Int64s, ends: Int64s, empty: Any, exempt: Sequence[str]) -> None:
    is_reserved = pc.starts_with(keys, RESERVED).fill_null(False).to_numpy(zero_copy_only=False)
    if exempt and is_reserved.any():
        is_reserved = is_reserved & ~pc.is_in(keys, value_set=pa.array(exempt, keys.type)).to_numpy(
            zero_copy_only=False
        )
    if is_reserved.any():
        counts = np.concatenate([[0], np.cumsum(is_reserved)])
        bad = ~empty & (counts[ends] > counts[starts])
        if bad.any():
            row = int(np.argmax(bad))
            name = next(
                k
                for k in keys[int(starts[row]) : int(ends[row])].to_pylist()
                if k.startswith(RESERVED) and k not in exempt
            )
            raise InvalidMessageError(
                f"property {shown(name)} is reserved; allowed: names without {RESERVED!r}", row=row
            )
