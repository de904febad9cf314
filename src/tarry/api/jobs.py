"""Bulk jobs as users see them: what is known of one, and what cancelling it came to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tarry.api.outcome import Outcome


class JobState(StrEnum):
    """What state the last attempt of a job is in."""

    OPEN = "open"
    """It is being loaded; nothing of it is there yet."""
    COMMITTING = "committing"
    COMMITTED = "committed"
    CANCELLED = "cancelled"
    ABORTED = "aborted"
    """It was given up, or another attempt of the job has begun."""


@dataclass(frozen=True, slots=True)
class Job:
    """An attempt of a bulk job: ``number`` is the attempt's, ``reserved`` how many seqs were given out for it; ``rows``
    and ``topics`` (messages by topic) are what was committed, ``cancelled`` how many of them were cancelled with the
    job. ``keys``: how many of them have a key; None until all of these are registered. Times are UTC milliseconds.
    """

    number: int
    job: str
    state: JobState
    reserved: int
    rows: int
    topics: dict[str, int]
    due_min_ms: int | None
    due_max_ms: int | None
    begun_ms: int
    committed_ms: int | None
    cancelled: int
    keys: int | None


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """``outcome``: "done" (what was pending of it will never be delivered), "delivered" (nothing was pending any more),
    "cancelled" (it was before) or "unknown". ``cancelled``: how many messages were pending; ``rows``: how many the job
    had.
    """

    outcome: Outcome
    cancelled: int
    rows: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is durably there but not in the table yet. ``path`` is relative to the table's root; bounds are
    inclusive.
    """

    path: str
    shard: int
    bucket: str
    rows: int
    size: int
    due_min_ms: int
    due_max_ms: int
    seq_min: int
    seq_max: int
    topic_min: str
    topic_max: str
