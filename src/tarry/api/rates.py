"""Rates, lateness and lag of the past, which the broker keeps by the minute, as points."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """The figures of one step of time, of the broker or of a topic."""

    at_ms: int
    """The step's beginning (UTC milliseconds)."""
    covered_ms: int
    """The time that the counts are of: a rate is a count divided by it.

    It is less than the step where the broker did not run all the while.
    """
    accepted: int
    """Messages accepted; those of a bulk job when it was committed."""
    fired: int
    """Messages that fell due."""
    handed_out: int
    """Messages given to consumers, of all groups, each try counted."""
    acknowledged: int
    """Messages acknowledged, of all groups."""
    pending: int
    """Messages not due yet, at the step's end."""
    ready: int
    """Messages due and not settled by the group that has most of them, at the step's end."""
    dead: int
    """Dead letters, at the step's end."""
    lateness_p50_ms: int | None = None
    """Lateness to waiting consumers: the highest median of a minute. None: nobody waited for any."""
    lateness_p99_ms: int | None = None
    """The highest 99th percentile of a minute."""
    lateness_max_ms: int | None = None
    herd_due_ms: int | None = None
    """The due time of most messages that fell due together; None: of a topic, or none fell due."""
    herd_rows: int = 0
    """Their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateHistory:
    """Points by time, ``step_ms`` apart; one is missing where nobody kept figures: the broker was stopped.

    Of a topic, also where it was not among the busiest of its minute.
    """

    topic: str | None
    since_ms: int
    """The beginning of the first step that was asked for."""
    until_ms: int
    """The end of the last one."""
    step_ms: int
    points: list[RatePoint] = field(default_factory=list)
