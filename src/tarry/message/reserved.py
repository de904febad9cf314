"""Tarry's own properties of messages ("tarry.…"), read and written as columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Int64s
from tarry.message.properties import entries_of, has_none
from tarry.message.schema import PROPERTIES

ONLY = "tarry.only"
"""The one group that gets the message; the others pass over it."""
FIRST = "tarry.first"
"""Of a message that was respawned: the seq and the due time that it had first, ``SEQ:DUE_MS``."""
DEAD = "tarry.dead."
"""Prefix of a dead letter's properties about its end."""
DEAD_TOPIC, DEAD_SEQ, DEAD_DUE_MS = f"{DEAD}topic", f"{DEAD}seq", f"{DEAD}due_ms"
"""Of a dead letter: those of the message that it is a copy of."""
DEAD_GROUP, DEAD_CAUSE, DEAD_ATTEMPTS, DEAD_AT_MS = f"{DEAD}group", f"{DEAD}cause", f"{DEAD}attempts", f"{DEAD}at_ms"
"""Properties of a dead letter: group that gave it up, cause, number of hand-outs, time of its end."""
DEAD_REASON = f"{DEAD}reason"
"""Of a dead letter: what the consumer of its last try said of it."""
DEAD_ID = f"{DEAD}id"
"""Of a dead letter that has an id of its own, not that of the message that it is a copy of: "own"."""
_PLACE = re.compile("(-?[0-9]{1,19}):(-?[0-9]{1,19})")


def values_of(properties: pa.Array, name: str) -> tuple[Int64s, pa.Array] | None:
    """Return the rows that have the property, ascending, and its values; None: no row has it."""
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
    """Return the property's value in each row; None: the row has none."""
    texts: list[str | None] = [None] * len(properties)
    values = values_of(properties, name)
    if values is not None:
        for row, text in zip(values[0].tolist(), values[1].to_pylist(), strict=True):
            texts[row] = text
    return texts


def rewritten(properties: pa.Array, *, without: str, added: Mapping[str, Any]) -> pa.Array:
    """Return the column without the properties that match ``without``, and with ``added`` to each row.

    ``without``: a pattern. ``added``: name →
    one text for all rows, or an array of texts, null where a row does not get it.
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
        items = pa.array([value] * rows, pa.string()) if isinstance(value, str) else value
        owners.append(np.flatnonzero(items.is_valid().to_numpy(zero_copy_only=False)))
        all_keys.append(pa.array([name] * len(owners[-1]), pa.string()))
        all_items.append(items.drop_null())
    joined = np.concatenate(owners)
    arranged = pa.array(np.argsort(joined, kind="stable"))
    ends = np.concatenate([[0], np.cumsum(np.bincount(joined, minlength=rows))])
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()),
        pa.concat_arrays(all_keys).take(arranged),
        pa.concat_arrays(all_items).take(arranged),
    ).cast(PROPERTIES)


def first_places(batch: pa.RecordBatch) -> list[tuple[int, int] | None]:
    """Return the seq and due time that each row had first (columns ``seq``, ``due_ms``, ``properties``).

    They are those of a dead letter's original, those from before a respawn, or its own. None where a text is no such
    number.
    """
    properties = batch.column("properties")
    own: list[tuple[int, int] | None] = list(
        zip(batch.column("seq").to_pylist(), batch.column("due_ms").to_pylist(), strict=True)
    )
    if has_none(properties):
        return own
    seqs, dues, firsts = (texts_of(properties, name) for name in (DEAD_SEQ, DEAD_DUE_MS, FIRST))
    for row, (seq, due, first) in enumerate(zip(seqs, dues, firsts, strict=True)):
        text = first if first is not None else f"{seq}:{due}" if seq is not None else None
        if text is not None:
            found = _PLACE.fullmatch(text)
            own[row] = None if found is None else (int(found[1]), int(found[2]))
    return own
