"""Spacing of small batches: while messages arrive steadily, a batch waits a little for more of them.

A batch costs nearly the same with one message as with ten, so a steady stream of single messages is cheaper in fewer
batches. But who waits for an answer before it sends more is slowed down by that. Which of the two it is shows in how
many come: so it is tried for a moment, again and again, and messages are held back only while as many come as when they
are not. What comes alone, and what is due soon, is never held back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tarry.base.back_off import BackOff
from tarry.batching.coalescing import Coalescer

HOLD_S = 0.005
"""Between the starts of two small batches. At 2,000 messages a second it is ten of them."""
ROWS_ENOUGH = 16
"""So many are not held back."""
SOON_MS = 50
"""Messages due sooner than this are not held back."""
PER_S_MIN = 200.0
"""Of fewer messages a second nothing is held back: they rarely meet."""
SLOWED = 0.8
"""If less than this part comes while messages are held back, somebody waits for the answers."""
LOOK_S = 0.1
"""Seconds of one measurement of the rate of arrival, with messages held back and without."""
HOLDING_S = 2.0
"""After which it is looked again whether more would come."""
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 8.0
"""For how long is nothing held back where somebody waits; doubled each time."""


class Pace:
    """Spaces the batches of one coalescer while calls arrive steadily.

    One thread adds; the other methods may be called by any thread. A race costs a batch that goes too early, or
    :data:`HOLD_S` too late.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._sent_s = float("-inf")
        self._urgent = False
        """Something that waits is."""
        # A span of time, in which messages are held back or not:
        self._holds = False
        self._began_s, self._ends_s = float("-inf"), float("-inf")
        self._rows = 0
        # What is known from those before it:
        self._free_per_s = 0.0
        self._judged = False
        self._back_off = BackOff(PAUSE_S_MIN, PAUSE_S_MAX)

    def on_added(self, *, urgent: bool) -> None:
        """Something waits, which, where it is ``urgent``, goes at once with all that waits."""
        now_s = self._now_s()
        if now_s >= self._ends_s:
            self._next_span(now_s)
        self._rows += 1
        if urgent:
            self._urgent = True

    def hold_s(self, rows: int) -> float:
        """For how long ``rows`` messages that wait are still held back; 0: they may go."""
        if not self._holds or self._urgent or rows >= ROWS_ENOUGH:
            return 0.0
        return max(0.0, self._sent_s + HOLD_S - self._now_s())

    def on_sent(self) -> None:
        """Note that the waiting messages were sent."""
        self._sent_s = self._now_s()
        self._urgent = False

    def _next_span(self, now_s: float) -> None:
        per_s = self._rows / (now_s - self._began_s)
        span_s = LOOK_S
        if not self._holds:
            self._free_per_s, self._judged = per_s, False
            self._holds = per_s >= PER_S_MIN
        elif self._judged:
            self._holds = False
        elif per_s >= SLOWED * self._free_per_s:
            self._judged, span_s = True, HOLDING_S
            self._back_off.reset()
        else:
            self._holds, span_s = False, self._back_off.fail()
        self._began_s, self._ends_s, self._rows = now_s, now_s + span_s, 0


class PacedTurns:
    """Sends a coalescer's entries at the end of the loop's turn, or once they are no longer held back.

    On the loop's thread.
    """

    __slots__ = ("_coalescer", "_loop", "_planned", "_pump", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, coalescer: Coalescer[Any], pump: Callable[[], None] | None = None
    ) -> None:
        self._loop = loop
        self._coalescer = coalescer
        self._pump = pump or coalescer.pump
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None

    def plan(self) -> None:
        """Something was added, or an answer has come: to be called after each."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._planned = False
        # Before the pump: afterwards, what it has held back might be so no longer, and nobody would come for it. What a
        # send in between holds back comes along with that one's answer.
        hold_s = self._coalescer.hold_s()
        self._pump()
        if hold_s > 0 and self._timer is None:
            self._timer = self._loop.call_later(hold_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._run()
