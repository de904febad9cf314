"""The threads in which the conditions of all groups are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

RunApart: TypeAlias = Callable[[Callable[[], None], bool], object]
"""Calls a function in another thread, soon; the flag says that it was quick the last time. Raises RuntimeError where
nothing is begun any more.
"""


class FilterThreads:
    """Two, however many groups there are: one for filters that were quick the last time, which so do not wait for those
    that were not or are new. They begin when they are needed.
    """

    def __init__(self) -> None:
        self._quick, self._others = (ThreadPoolExecutor(1, "tarry-filters") for _ in range(2))

    def run(self, function: Callable[[], None], was_quick: bool) -> None:
        """See :data:`RunApart`."""
        (self._quick if was_quick else self._others).submit(function)

    def stop(self) -> None:
        """Begin nothing any more."""
        for pool in (self._quick, self._others):
            pool.shutdown(wait=False, cancel_futures=True)
