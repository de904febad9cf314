"""Dead letters as rows: copies of messages with the cause of their end, and messages made of these.

A dead letter is a copy in a topic of its own, an ordinary one, with the cause in its properties.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from tarry.base.types import Int32s, Int64s
from tarry.message.dead_topics import DEAD_LETTER_GROUP, dead_topic
from tarry.message.reserved import (
    DEAD_AT_MS,
    DEAD_ATTEMPTS,
    DEAD_CAUSE,
    DEAD_DUE_MS,
    DEAD_GROUP,
    DEAD_ID,
    DEAD_REASON,
    DEAD_SEQ,
    DEAD_TOPIC,
    FIRST,
    ONLY,
    first_places,
    rewritten,
    values_of,
)
from tarry.message.schema import UNNUMBERED

TRIES, EXPIRED = "tries", "expired"
"""Causes."""
_OWN = r"^tarry\.(dead\..*|only)$"
_BEFORE = r"^tarry\.(dead\..*|only|first)$"


def dead_letter_copies(
    batch: pa.RecordBatch,
    *,
    topic: str,
    group: str,
    cause: str,
    attempts: Int32s,
    now_ms: int,
    own_ids: bool = False,
    reasons: list[str | None] | None = None,
) -> pa.RecordBatch:
    """Return copies of messages for a group's dead letters, due at once.

    ``batch`` is of :data:`tarry.message.schema.SCHEMA`. ``attempts``: how many times each was handed out. Body, key,
    tag, id, tries, born_ms and properties are kept; expiry and repetition are not. ``own_ids``: the ids of the copies,
    by which a second copy is recognised. ``reasons``: the reasons of the last tries' failures, where they are known.
    """
    properties = rewritten(
        batch.column("properties"),
        without=_OWN,
        added={
            DEAD_TOPIC: topic,
            DEAD_GROUP: group,
            DEAD_CAUSE: cause,
            DEAD_ATTEMPTS: _texts(attempts),
            DEAD_DUE_MS: _texts(batch.column("due_ms").to_numpy()),
            DEAD_AT_MS: str(now_ms),
            DEAD_SEQ: _texts(batch.column("seq").to_numpy()),
            **({DEAD_ID: "own"} if own_ids else {}),
            **({DEAD_REASON: pa.array(reasons, pa.string())} if reasons else {}),
        },
    )
    return _unnumbered(batch, dead_topic(topic, group), np.full(batch.num_rows, now_ms, np.int64), properties)


def renewed(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Return copies of dead letters, for the list of dead letters alone.

    Other groups of their topic had the originals.
    """
    properties = rewritten(batch.column("properties"), without=f"^{re.escape(ONLY)}$", added={ONLY: DEAD_LETTER_GROUP})
    topic = batch.column("topic")[0].as_py()
    return _unnumbered(batch, topic, np.full(batch.num_rows, now_ms, np.int64), properties)


def respawned(
    batch: pa.RecordBatch,
    *,
    topic: str,
    group: str,
    due_ms: Int64s,
    tries: int | None = None,
    ttl_ms: int | None = None,
) -> pa.RecordBatch:
    """Return dead letters as messages of their topic again, each due at ``due_ms``, for their group alone.

    The group is the one that had failed. Each has as many tries as before, or ``tries``, and never expires, or
    ``ttl_ms`` after it is due.
    """
    firsts = [None if place is None else f"{place[0]}:{place[1]}" for place in first_places(batch)]
    added = {ONLY: group, FIRST: pa.array(firsts, pa.string()).fill_null("")}
    properties = rewritten(batch.column("properties"), without=_BEFORE, added=added)
    rows = _unnumbered(batch, topic, due_ms, properties)
    changed = {
        "tries": None if tries is None else pa.array([tries] * rows.num_rows, pa.int32()),
        "expire_ms": None if ttl_ms is None else pa.array(due_ms + ttl_ms, pa.int64()),
    }
    for name, column in changed.items():
        if column is not None:
            rows = rows.set_column(rows.schema.get_field_index(name), UNNUMBERED.field(name), column)
    return rows


def attempts_of(batch: pa.RecordBatch) -> pa.Array:
    """Return how many times each dead letter was handed out (int32); 0 for messages of a producer."""
    attempts = np.zeros(batch.num_rows, np.int32)
    counts = values_of(batch.column("properties"), DEAD_ATTEMPTS)
    if counts is not None:
        # Not a cast: messages loaded into the store in bulk may have any text here.
        attempts[counts[0]] = [int(t) if re.fullmatch("[0-9]{1,9}", t) else 0 for t in counts[1].to_pylist()]
    return pa.array(attempts, pa.int32())


def _texts(values: np.ndarray) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _unnumbered(batch: pa.RecordBatch, topic: str, due_ms: Int64s, properties: pa.Array) -> pa.RecordBatch:
    rows = batch.num_rows
    changed = {
        "topic": pa.array([topic] * rows, pa.string()),
        "due_ms": pa.array(due_ms, pa.int64()),
        "properties": properties,
        "expire_ms": pa.nulls(rows, pa.int64()),
        "repeat": pa.nulls(rows, pa.string()),
    }
    columns = [changed[f.name] if f.name in changed else batch.column(f.name) for f in UNNUMBERED]
    return pa.RecordBatch.from_arrays(columns, schema=UNNUMBERED)
