"""Time enters here and nowhere else: the wall clock for due times, a monotonic clock for waiting.

A due time is a wall-clock instant (UTC milliseconds), so "is it due?" asks the wall clock. How long a lease or a
back-off lasts is a duration; it too is kept as a wall-clock instant, because it must survive a restart, and a step of
the wall clock can then only make a redelivery come sooner or later, never lose it.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """The broker's source of time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC, rounded down: never ahead of the true time."""
        ...

    def start_ms(self) -> int:
        """Return :meth:`now_ms` rounded up: a delay counted from here is never shorter than asked for."""
        ...

    def seconds_until(self, due_ms: int) -> float:
        """Return the time until :meth:`now_ms` reaches ``due_ms``, in fine steps; negative once it has."""
        ...

    def elapsed_s(self) -> float:
        """Return seconds that pass evenly, from any beginning: for durations that no restart has to keep."""
        ...

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> None:
        """Wait on ``condition`` (held) until notified, or until ``timeout_s`` of this clock may have passed."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def start_ms(self) -> int:
        return -(-time.time_ns() // 1_000_000)

    def seconds_until(self, due_ms: int) -> float:
        return due_ms / 1000 - time.time()

    def elapsed_s(self) -> float:
        return time.monotonic()

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> None:
        condition.wait(timeout_s)


class TestClock:
    """A clock that stands still until :meth:`set_ms` or :meth:`advance_ms` moves it, in either direction.

    It only keeps the time; who drives a broker with it calls :meth:`tarry.broker.Broker.step` after moving it
    (``tarry.testing`` does both).
    """

    __test__ = False  # not a test case, whatever pytest makes of the name

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def start_ms(self) -> int:
        return self._now_ms

    def set_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def advance_ms(self, by_ms: int) -> None:
        self._now_ms += by_ms

    def seconds_until(self, due_ms: int) -> float:
        return (due_ms - self._now_ms) / 1000

    def elapsed_s(self) -> float:
        return self._now_ms / 1000

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> None:
        # Real waiting would hang a test whose clock nobody moves; return at once, the caller looks again.
        condition.wait(0.001 if timeout_s is None else min(timeout_s, 0.001))


class StandingClock(TestClock):
    """A test clock for a broker with threads, which wait for as long as on a real clock."""

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> None:
        condition.wait(timeout_s)  # who moves the clock notifies
