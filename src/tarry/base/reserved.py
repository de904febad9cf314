"""Tarry's own properties of messages ("tarry.…"), read and written as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.message import PROPERTIES
from tarry.base.properties import entries_of
from tarry.base.types import Int64s

ONLY = "tarry.only"
"""The one group that gets the message; the others pass over it."""


def values_of(properties: pa.Array, name: str) -> tuple[Int64s, pa.Array] | None:
    """The rows that have the property, ascending, and its value in each; None where no row has it."""
    if properties.null_count == len(properties):
        return None
    starts, low, keys, items = entries_of(properties)
    hits = np.flatnonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))
    if not len(hits):
        return None
    rows = np.searchsorted(starts, hits + low, "right") - 1
    valid = properties.is_valid().to_numpy(zero_copy_only=False)[rows]
    return (rows[valid], items.take(pa.array(hits[valid]))) if valid.any() else None


def texts_of(properties: pa.Array, name: str) -> list[str | None]:
    """The property's value in each row, None where it has none."""
    texts: list[str | None] = [None] * len(properties)
    values = values_of(properties, name)
    if values is not None:
        for row, text in zip(values[0].tolist(), values[1].to_pylist(), strict=True):
            texts[row] = text
    return texts


def rewritten(properties: pa.Array, *, without: str, added: Mapping[str, Any]) -> pa.Array:
    """The column without the properties that match the pattern ``without``, and with ``added`` to each row: name →
    one text for all rows, or an array of texts.
    """
    rows = len(properties)
    starts, low, keys, items = entries_of(properties)
    high = low + len(keys)
    owner = np.repeat(np.arange(rows), np.diff([*starts, high]))
    keep = properties.is_valid().to_numpy(zero_copy_only=False)[owner]
    if len(keys):
        keep &= ~pc.match_substring_regex(keys, without).to_numpy(zero_copy_only=False)
    kept = np.flatnonzero(keep)
    owners, all_keys, all_items = [owner[kept]], [keys.take(pa.array(kept))], [items.take(pa.array(kept))]
    for name, value in added.items():
        owners.append(np.arange(rows))
        all_keys.append(pa.array([name] * rows, pa.string()))
        all_items.append(pa.array([value] * rows, pa.string()) if isinstance(value, str) else value)
    joined = np.concatenate(owners)
    arranged = pa.array(np.argsort(joined, kind="stable"))
    ends = np.concatenate([[0], np.cumsum(np.bincount(joined, minlength=rows))])
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()),
        pa.concat_arrays(all_keys).take(arranged),
        pa.concat_arrays(all_items).take(arranged),
    ).cast(PROPERTIES)
