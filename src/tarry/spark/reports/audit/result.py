"""The result of an audit as plain values: counts, percentiles, and some messages of each failure.

No Spark here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}

UNITS_MS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
"""Units of time in which load and lateness are counted."""

FAILURES = {
    "lost": "accepted, due, and never delivered",
    "early": "delivered before the due time",
    "foreign": "delivered, and never accepted",
    "cancelled_delivered": "delivered although cancelled",
    "mixed_up": "delivered as another message than was accepted under that number",
}
"""Outcomes that must not happen; each by the name of its count."""

REMARKS = {
    "due_changed": "delivered with another due time than was accepted",
    "duplicated": "handed out again to a group that had it",
    "unanswered_delivered": "delivered though the producer had no answer: it may come or not",
    "missed": "delivered to some groups of their topic, and not to each",
}
"""Outcomes that are allowed, and worth knowing; each by the name of its count."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of messages, except those of rows or hand-outs."""

    accepted: int = 0
    """Different messages that the broker has confirmed to the producer."""
    accepted_rows: int = 0
    """Rows of the ledger about them: a producer's retries are more than one."""
    rescheduled: int = 0
    """Accepted with several due times; the last accepted counts."""
    delivered: int = 0
    """Accepted, and handed out at least once."""
    handouts: int = 0
    """All hand-outs, those of foreign messages as well."""
    lost: int = 0
    pending: int = 0
    """Not due when the observation ended."""
    expired: int = 0
    """Not delivered, and no longer of use when the observation ended."""
    cancelled: int = 0
    """Cancelled, and not delivered."""
    cancelled_delivered: int = 0
    early: int = 0
    foreign: int = 0
    unanswered: int = 0
    """Sent without an answer, and not delivered."""
    unanswered_delivered: int = 0
    """Sent without an answer, and delivered.

    Or delivered under a seq that the producer never got, with an id that it sent.
    """
    duplicated: int = 0
    """Hand-outs to a group that had had the message."""
    retried: int = 0
    """Those of them that are marked as another try (attempt 2 and above)."""
    due_changed: int = 0
    mixed_up: int = 0
    missed: int = 0
    """Delivered to some groups of their topic, due, and not delivered to each of them."""
    unread_accepted: int = 0
    """Rows without an id or a due time that can be read: they are not compared."""
    unread_delivered: int = 0
    dead_letters: int = 0
    """Hand-outs of dead letters, which are copies and are not compared."""


@dataclass(frozen=True, slots=True)
class Late:
    """Percentiles of the first hand-outs in milliseconds, by name; empty without any.

    The names are in :data:`PERCENTILES`.
    """

    count: int = 0
    ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicRow:
    """Counts of a topic."""

    topic: str
    counts: Counts
    late: Late


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Counts of a group of a topic.

    ``missing``: messages that were delivered or lost, and not handed out to it.
    """

    topic: str
    group: str
    delivered: int
    duplicated: int
    missing: int


@dataclass(frozen=True, slots=True)
class UnitRow:
    """Counts of one unit of the audit, such as an hour of UTC.

    Messages that were accepted in it, fell due in it, were lost and early of those, and were first handed out in it;
    and the lateness of those that fell due in it.
    """

    from_ms: int
    accepted: int
    due: int
    delivered: int
    lost: int
    early: int
    late: Late


@dataclass(frozen=True, slots=True)
class Example:
    """One message of a failure."""

    topic: str
    ident: str
    id: str | None
    due_ms: int | None
    accepted_ms: int | None
    delivered_ms: float | None
    note: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of :func:`tarry.spark.reports.audit.audit`."""

    by: str
    until_ms: float
    skew_ms: int
    grace_ms: int
    every_group: bool
    unit: str
    counts: Counts
    late: Late
    early_most_ms: float
    """Milliseconds by which the earliest of the early ones was too early."""
    histogram: list[tuple[float, float, int]]
    """Lateness: (from, to, messages), in milliseconds; bounds in equal steps of the logarithm."""
    topics: list[TopicRow]
    topics_count: int
    """Number of topics; ``topics`` has those with failures first, then the largest."""
    groups: list[GroupRow]
    units: list[UnitRow]
    units_left_out: int
    examples: dict[str, list[Example]]
    late_max_ms: int | None = None
    """Milliseconds above which a message is late; None: no limit was given."""
    late_over: int = 0
    """First hand-outs that were later than that."""

    @property
    def failures(self) -> dict[str, int]:
        """Failures with their counts; empty when all is well."""
        names = [*FAILURES, "missed"] if self.every_group else list(FAILURES)
        found = {name: count for name in names if (count := getattr(self.counts, name))}
        return {**found, "late": self.late_over} if self.late_over else found

    @property
    def good(self) -> bool:
        """True if there is no failure."""
        return not self.failures

    def verdict(self) -> list[str]:
        """Return the result in plain words: one sentence, or more if there is more to know."""
        c = self.counts
        judged = c.delivered + c.lost
        if self.good:
            sentences = [_good(c, judged)]
        else:
            meanings = (
                FAILURES | REMARKS | {"late": f"handed out more than {self.late_max_ms or 0:,} ms after the due time"}
            )
            sentences = [f"{_count(n, name)}: {meanings[name]}." for name, n in self.failures.items()]
        if c.early:
            sentences.append(f"The earliest came {self.early_most_ms:,.3f} ms before its time.")
        if self.late.count:
            said = "no limit was said (--late-max)" if self.late_max_ms is None else f"allowed: {self.late_max_ms:,} ms"
            sentences.append(
                f"The latest was handed out {self.late.ms['max']:,.0f} ms after its due time, 99 of 100 within "
                f"{self.late.ms['p99']:,.0f} ms; {said}."
            )
        if c.unread_accepted or c.unread_delivered:
            sentences.append(
                f"Nothing can be said of {c.unread_accepted:,} accepted and {c.unread_delivered:,} delivered rows: "
                "they have no identity, or no time that can be read."
            )
        return sentences

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {"good": self.good, "verdict": self.verdict(), "failures": self.failures, **asdict(self)}


def _good(c: Counts, judged: int) -> str:
    if not judged:
        return "Nothing was due yet: there is nothing to judge."
    again = f"; {c.duplicated:,} hand-outs were repeats" if c.duplicated else ", none twice"
    return f"All {judged:,} messages that were due were delivered, none before its time{again}."


def _count(n: int, name: str) -> str:
    words = {"cancelled_delivered": "cancelled", "mixed_up": "mixed up"}.get(name, name)
    return f"{n:,} {words}"
