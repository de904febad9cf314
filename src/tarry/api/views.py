"""What queries of a broker give: pages of pending messages, the load to come, what happened to one message. The same
in-process and through the client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tarry.base.record_batch import RecordBatch
from tarry.message.schema import SCHEMA

DELIVERY = pa.schema([*SCHEMA, ("offset", pa.int64()), ("lease", pa.int64()), ("attempt", pa.int32())])
"""What a consumer gets: the message, its place in the topic, the lease to settle it with, and which try it is (1 is the
first).
"""

DEAD_LETTER = pa.schema([*SCHEMA, ("offset", pa.int64()), ("attempt", pa.int32())])
"""A dead letter as one looks at it: the message, its place, and how many times it had been handed out."""

PEEKED = pa.schema([*SCHEMA, ("offset", pa.int64())])
"""A message that is ready, and its place in the topic."""
FOUND = pa.schema([*SCHEMA, ("offset", pa.int64())])
"""A message wherever it is; its place in the topic's queue, where it has fallen due (null: it has not)."""
QUEUED = PEEKED
"""A message in its topic's queue."""
PLACED_MESSAGE = pa.schema([*SCHEMA, ("offset", pa.int64()), ("state", pa.string()), ("attempt", pa.int32())])
"""A message wherever it is: its offset where it has become due, where it is for a group ("pending", "ready", "leased",
"waiting", "blocked", "burying", "dead"), and which try it is (of a dead letter: how many it had); 0: not known.
"""
CANCELLED = pa.schema([("seq", pa.int64()), ("due_ms", pa.int64())])
"""What a cancellation names."""

UNITS_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
"""The units of a forecast."""


@dataclass(frozen=True, slots=True)
class Page:
    """Pending messages (:data:`tarry.message.schema.SCHEMA`) in the order in which they fall due.

    ``cursor`` is what to ask on with; None: there are no more. A page may have few rows, or none, and still a cursor:
    the broker looks for about half a second a call, however much there is to look through.
    """

    rows: RecordBatch
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Load:
    """How many messages fall due from ``from_ms`` up to the next unit. ``rows`` is the best guess, and the truth lies
    between ``rows - unsure`` and ``rows + unsure``: 0 where all could be counted in the time there was.
    """

    from_ms: int
    rows: int
    unsure: int


@dataclass(frozen=True, slots=True)
class Herd:
    """At least ``rows`` messages that fall due in the same millisecond."""

    due_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The load to come, as at ``now_ms``. Units are of UTC; the first is the one that ``now_ms`` lies in, and has what
    is overdue, too. What falls due at ``until_ms`` or later is not in it. ``herd`` is the largest that was seen,
    ``herds`` are the 20 largest, by due time.
    """

    unit: str
    now_ms: int
    until_ms: int
    loads: list[Load]
    herd: Herd | None
    herds: list[Herd] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """All of it."""
        return sum(load.rows for load in self.loads)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a message, or will. ``seq``: of which of its numbers (a reschedule has another).
    ``at_ms``: when; None where that is not known.

    ``event`` is one of: ``accepted``, ``respawned``, ``cancelled``, ``replaced``, ``rescheduled``, ``pending``,
    ``due``, ``group`` (its state in one), ``dead``, ``expired``, ``next`` (of a series); in ledgers, ``delivered``.
    """

    at_ms: float | None
    event: str
    seq: int | None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """What happened to a message, in the order of time. ``unknown``: what cannot be told, each as a sentence."""

    what: str
    events: list[Event]
    unknown: list[str]
