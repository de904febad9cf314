"""Occurrences of series on their way from the wheel to the ready log, by way of the intake.

The next occurrence must be durable before the current one is handed on. The dispatcher does not wait for that: it gives
the occurrences to :class:`Series`, which has its own thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from tarry.base.errors import TarryError
from tarry.base.waiting import answer_of
from tarry.broker.commands.advance_series import AdvanceSeries, Answer
from tarry.intake import Command
from tarry.queue import ReadyLog
from tarry.wheel import Wheel
from tarry.wheel.due import Due

log = logging.getLogger(__name__)

ROWS_MAX = 1024
"""Most occurrences whose successors share a commit.

Of ten thousand that are due at once, the first need not wait for all.
"""
DRAIN_S = 0.05
"""Longest wait of the dispatcher for a checkpoint."""
RETRY_S = 0.25


@dataclass(eq=False)
class Series:
    """``submit`` gives a command to the intake's writer; it may raise when nothing can be accepted now."""

    _wheel: Wheel
    _ready: ReadyLog
    _submit: Callable[[Command], None]
    _: KW_ONLY
    missed_after_ms: int
    threaded: bool
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _waiting: deque[Due] = field(default_factory=deque)
    _under_way: int = 0
    taken: int = 0
    """Number of times that occurrences were taken."""
    _stopped: bool = False

    def take(self, due: Due) -> None:
        """Take due occurrences from the dispatcher."""
        with self._changed:
            self._waiting.append(due)
            self.taken += 1
            self._changed.notify_all()

    @property
    def waiting(self) -> bool:
        """True if there is something for :meth:`step`."""
        return bool(self._waiting)

    def drain(self) -> bool:
        """Wait a moment until all that was taken is handed on; whether it is."""
        if not self.threaded:
            self.step()
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._under_way, DRAIN_S)

    def run(self) -> None:
        """Until :meth:`stop`: hand on what was taken."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopped)
                if self._stopped:
                    return
            if not self.step():
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, RETRY_S)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def step(self) -> bool:
        """Hand on what was taken; False when the disk did not let us, and it must be tried again."""
        while True:
            with self._changed:
                if not self._waiting:
                    return True
                due = self._waiting.popleft()
                self._under_way += 1
            left = due
            try:
                while left.batch.num_rows:
                    first, rest = left.split(np.arange(left.batch.num_rows) < ROWS_MAX)
                    if not self._hand_on(first):
                        return False
                    left = rest
            finally:
                with self._changed:
                    if left.batch.num_rows:
                        self._waiting.appendleft(left)
                    self._under_way -= 1
                    self._changed.notify_all()

    def _hand_on(self, due: Due) -> bool:
        def begin(done: Callable[[Answer | TarryError], None]) -> None:
            self._submit(AdvanceSeries(due.batch, done, missed_after_ms=self.missed_after_ms))

        try:
            deliver = answer_of(begin)
        except TarryError as error:
            log.warning("the next occurrences of %d series are not stored, trying again: %s", due.batch.num_rows, error)
            return False
        self._append(due, deliver)
        return True

    def _append(self, due: Due, deliver: Answer) -> None:
        ready, _ = due.split(deliver)
        topics = self._ready.append(ready) if ready.batch.num_rows else []
        with self._wheel.lock:
            for seq in due.batch.column("seq").to_pylist():
                self._wheel.advancing.pop(seq, None)
                self._wheel.leaving.discard(seq)
        for topic in topics:
            topic.notify()
