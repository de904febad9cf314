"""What clients asked, and were answered or handed: see also ``tests/takeover/events.py``."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.takeover.events import Ack, Call, Delivery, Event, Placing

PLAIN, ORDERED, SERIES = TOPICS = ("plain", "ordered", "series")
GROUP, SEEKING = "g", "s"
"""A group that consumes everything, and one of PLAIN that is moved to and fro."""
DEFAULT_TRIES = 16


@dataclass
class Known:
    """A message that was accepted, as clients know it."""

    placing: Placing
    handle: str
    key: str | None
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek(Call):
    """SEEKING is moved to the end of PLAIN. Answer: done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancel(Call):
    """A bulk job is cancelled. Answers: done, delivered, cancelled, unknown."""

    job: str
    cancelled: int = 0


@dataclass
class History:
    """All that was seen so far, in the order in which it ended."""

    calls: list[Event] = field(default_factory=list)
    """Sends and changes of messages, and claims."""
    seen: dict[str, list[Delivery | Ack]] = field(default_factory=lambda: {GROUP: [], SEEKING: []})
    """By group."""
    seeks: list[Seek] = field(default_factory=list)
    """Also those to another place, whose answer is not "done": what was skipped may come again from then on."""
    known: list[Known] = field(default_factory=list)
    tries: dict[str, set[int]] = field(default_factory=lambda: {topic: {DEFAULT_TRIES} for topic in TOPICS})
    """What the setting of each topic's group may be."""
    jobs: dict[str, list[Placing]] = field(default_factory=dict)
    """The messages of each bulk job that was committed."""
    job_cancels: list[JobCancel] = field(default_factory=list)
