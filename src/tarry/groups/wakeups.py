"""Wakes threads and event-loop callbacks that wait for a group's messages."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tarry.base.clock import Clock
from tarry.base.listeners import Listeners


class Wakeups:
    """Wake-ups for the consumers and listeners of a group. Any thread.

    Guarded by a condition of its own, not by the group's lock, so that the dispatcher, which calls :meth:`notify`,
    never waits for a consumer that is being served.
    """

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        """Number of wake-ups: read it before looking for messages, and give it to :meth:`wait`."""
        self._clock = clock
        self._changed = threading.Condition()
        self._listeners = Listeners()

    def notify(self) -> None:
        """Wake those who wait: there may be something for them."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        self._listeners.tell()

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        """See :meth:`tarry.api.consuming.ConsumerGroup.listen`."""
        return self._listeners.add(on_news)

    def wait(self, seen: int, timeout_s: float | None) -> None:
        """Wait until :attr:`count` is not ``seen``, or for a time."""
        with self._changed:
            if self.count == seen:
                self._clock.wait(self._changed, timeout_s)
