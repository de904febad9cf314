"""Structs, arrays and maps as JSON, like Spark's ``to_json``, by columns and without a row in Python.

Null fields of a struct are left out, null elements and map values are ``null``; instants are ISO 8601 in UTC with
microseconds, decimals are numbers with all their digits, binary is base64, NaN and infinities are texts.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_CONTROL = r"[\x00-\x1f\x7f]"


def to_json(column: pa.Array) -> pa.Array:
    """Return a string array with the JSON of each row; null for a null row."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _struct(column)
    if pa.types.is_map(kind):
        return _map(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(column)
    return _leaf(column)


def _struct(column: pa.Array) -> pa.Array:
    parts = [pa.array([""] * len(column), pa.string())]
    for field, values in zip(column.type, column.flatten(), strict=True):
        named = pc.binary_join_element_wise(f",{json.dumps(field.name, ensure_ascii=False)}:", to_json(values), "")
        parts.append(pc.fill_null(named, ""))
    # Every part that is not empty begins with a comma: remove the first.
    inside = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, ""), start=1)
    return _only_valid(pc.binary_join_element_wise("{", inside, "}", ""), column)


def _list(column: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return _joined("[", pc.fill_null(to_json(column.flatten()), "null"), _offsets(lengths), "]", column)


def _map(column: pa.Array) -> pa.Array:
    # The keys and items of a slice are those of the whole array, and offsets point into them.
    offsets = column.offsets.to_numpy().astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    keys, items = column.keys.slice(low, high - low), column.items.slice(low, high - low)
    names = to_json(keys) if pa.types.is_string(keys.type) else pc.binary_join_element_wise('"', _bare(keys), '"', "")
    entries = pc.binary_join_element_wise(names, pc.fill_null(to_json(items), "null"), ":")
    return _joined("{", entries, offsets - low, "}", column)


def _joined(opening: str, texts: pa.Array, offsets: Any, closing: str, column: pa.Array) -> pa.Array:
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts)
    return _only_valid(pc.binary_join_element_wise(opening, pc.binary_join(lists, ","), closing, ""), column)


def _offsets(lengths: Any) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)])


def _only_valid(texts: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _leaf(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text(column.cast(pa.string()))
    if pa.types.is_floating(kind):
        texts = column.cast(pa.string())
        names = pc.if_else(pc.is_nan(column), "NaN", pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity"))
        return pc.if_else(pc.is_finite(column), texts, pc.binary_join_element_wise('"', names, '"', ""))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        # The one type that Arrow cannot convert to text.
        return _quoted(pa.array([None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _quoted(_bare(column))
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    return _bare(column)


def _bare(column: pa.Array) -> pa.Array:
    """Return a value's text without quotes."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        # The session's time zone only changes how an instant is shown.
        if kind.tz is not None:
            return pc.strftime(column.cast(pa.timestamp("us", "UTC")), format="%Y-%m-%dT%H:%M:%SZ")
        return pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
    return column.cast(pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts.cast(pa.string()), '"', "")


def _text(column: pa.Array) -> pa.Array:
    escaped = column
    for character in ("\\", '"'):
        escaped = pc.replace_substring(escaped, character, f"\\{character}")
    rare = pc.fill_null(pc.match_substring_regex(column, _CONTROL), False)
    quoted = _quoted(escaped)
    if not pc.any(rare).as_py():
        return quoted
    spelt = pa.array([json.dumps(v, ensure_ascii=False) for v in column.filter(rare).to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, rare, spelt)
