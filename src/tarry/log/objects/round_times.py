"""Answered rounds of an owner: how long each took, and when the last one was answered."""

from __future__ import annotations

from collections.abc import Callable

from tarry.base.histogram import Durations, Histogram


class RoundTimes:
    """One thread notes, any thread asks. ``now_s``: the lease's clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._answered_s = now_s()
        self._took_us = Durations()

    def note(self, begun_s: float) -> None:
        """Note that a round is answered, whose PUT began then."""
        self._answered_s = self._now_s()
        self._took_us.note(round(1_000_000 * (self._answered_s - begun_s)))

    @property
    def silent_s(self) -> float:
        """Seconds since a round was answered; before the first one, since the claim."""
        return self._now_s() - self._answered_s

    def took_us(self) -> Histogram:
        """Return how long rounds took, in microseconds."""
        return self._took_us.histogram()
