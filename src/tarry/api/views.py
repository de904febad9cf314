"""Results of queries: pages of pending messages, forecasts, histories of messages.

They are the same in-process and through the client. Imports nothing slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tarry.base.record_batch import RecordBatch

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
    """Number of messages that fall due from ``from_ms`` up to the next unit.

    ``rows`` is the best guess; the truth lies between ``rows - unsure`` and ``rows + unsure``. ``unsure`` is 0 if all
    could be counted in the time there was.
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
    """Forecast of the load, as of ``now_ms``.

    Units are of UTC; the first is the one that ``now_ms`` lies in, and also has what is overdue. Messages due at
    ``until_ms`` or later are not included. ``herd`` is the largest herd that was seen, ``herds`` are the 20 largest, by
    due time.
    """

    unit: str
    now_ms: int
    until_ms: int
    loads: list[Load]
    herd: Herd | None
    herds: list[Herd] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of messages of all units."""
        return sum(load.rows for load in self.loads)


@dataclass(frozen=True, slots=True)
class Event:
    """A past or future event of a message.

    ``seq``: the message's number then (a reschedule has another). ``at_ms``: time of the event; None: not known.

    ``event`` is one of: ``accepted``, ``respawned``, ``cancelled``, ``replaced``, ``rescheduled``, ``pending``,
    ``due``, ``group`` (its state in one), ``dead``, ``expired``, ``next`` (of a series); in ledgers, ``delivered``.
    """

    at_ms: float | None
    event: str
    seq: int | None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """Events of a message, by time. ``unknown``: what cannot be told, each as a sentence."""

    what: str
    events: list[Event]
    unknown: list[str]
