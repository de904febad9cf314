"""Bulk jobs as users see them: what is known of one, and what cancelling it came to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tarry.api.outcome import Outcome


class JobState(StrEnum):
    """State of a job's last attempt."""

    OPEN = "open"
    """The attempt is being loaded; nothing of it can be seen yet."""
    COMMITTING = "committing"
    COMMITTED = "committed"
    CANCELLED = "cancelled"
    ABORTED = "aborted"
    """The attempt was given up, or another attempt of the job has begun."""


@dataclass(frozen=True, slots=True)
class Job:
    """An attempt of a bulk job.

    ``number`` is the attempt's, ``reserved`` the number of seqs that were reserved for it. ``rows`` and ``topics``
    (messages by topic) count what was committed, ``cancelled`` those of them that were cancelled with the job.
    ``keys``: number of its messages that have a key; None until all of these keys are registered. Times are UTC
    milliseconds.
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
    """Outcome of the cancellation of a job.

    ``outcome``: "done" (its pending messages will never be delivered), "delivered" (nothing was pending any more),
    "cancelled" (it was cancelled before) or "unknown". ``cancelled``: number of messages that were pending; ``rows``:
    number of messages that the job had.
    """

    outcome: Outcome
    cancelled: int
    rows: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A durable file that is not in the table yet.

    ``path`` is relative to the table's root; bounds are inclusive.
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
