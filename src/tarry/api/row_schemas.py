"""Columns of the rows that operations answer with."""

from __future__ import annotations

import pyarrow as pa

from tarry.message.schema import SCHEMA, UNNUMBERED

MESSAGE = SCHEMA
"""A message."""

DELIVERY = pa.schema([*SCHEMA, ("offset", pa.int64()), ("lease", pa.int64()), ("attempt", pa.int32())])
"""Columns of a delivery: the message, its place in the topic, its lease, and its attempt (from 1)."""
DEAD_LETTER = pa.schema([*SCHEMA, ("offset", pa.int64()), ("attempt", pa.int32())])
"""A dead letter as one looks at it: the message, its place, and how many times it had been handed out."""
PEEKED = pa.schema([*SCHEMA, ("offset", pa.int64())])
"""A message that is ready, and its place in the topic."""
FOUND = pa.schema([*SCHEMA, ("offset", pa.int64())])
"""Columns of a found message; ``offset`` is its place in the topic's queue (null: not due yet)."""
QUEUED = PEEKED
"""A message in its topic's queue."""
PLACED_MESSAGE = pa.schema([*SCHEMA, ("offset", pa.int64()), ("state", pa.string()), ("attempt", pa.int32())])
"""Columns of a message and its state for a group, wherever it is.

``offset``: its place in the queue, if it has become due. ``state``: "pending", "ready", "leased", "waiting", "blocked",
"burying" or "dead". ``attempt``: the number of its try (of a dead letter: how many it had); 0: not known.
"""
CANCELLED = pa.schema([("seq", pa.int64()), ("due_ms", pa.int64())])
"""Columns of a cancellation's target."""

__all__ = [
    "CANCELLED",
    "DEAD_LETTER",
    "DELIVERY",
    "FOUND",
    "MESSAGE",
    "PEEKED",
    "PLACED_MESSAGE",
    "QUEUED",
    "UNNUMBERED",
]
