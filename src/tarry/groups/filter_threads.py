"""The threads in which the conditions of all groups are evaluated."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

RunApart: TypeAlias = Callable[[Callable[[], None], bool, object], object]
"""Function that calls another in another thread, soon.

The flag: it was quick the last time. The last argument: for whom it is; they take turns.

Raises RuntimeError if nothing is begun any more.
"""


class FilterThreads:
    """Two threads for the filters of all groups, begun when they are needed.

    One is for filters that were quick the last time, so that these do not wait for slow or new ones. In each, all who
    wait come in turn: who has many groups, or one, gets the same share.
    """

    def __init__(self) -> None:
        self._quick, self._others = _InTurn(), _InTurn()

    def run(self, function: Callable[[], None], was_quick: bool, whose: object) -> None:
        """See :data:`RunApart`."""
        (self._quick if was_quick else self._others).run(function, whose)

    def stop(self) -> None:
        """Begin nothing any more."""
        self._quick.stop()
        self._others.stop()


class _InTurn:
    """A thread for functions of several callers, one of each in turn."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "tarry-filters")
        self._lock = threading.Lock()
        self._waiting: dict[object, deque[Callable[[], None]]] = {}
        """By caller; the next one's first."""

    def run(self, function: Callable[[], None], whose: object) -> None:
        with self._lock:
            self._pool.submit(self._run_next)  # first: it may raise
            self._waiting.setdefault(whose, deque()).append(function)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run_next(self) -> None:
        with self._lock:
            whose = next(iter(self._waiting))
            functions = self._waiting.pop(whose)
            function = functions.popleft()
            if functions:
                self._waiting[whose] = functions  # behind all others
        function()
