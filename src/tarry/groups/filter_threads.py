"""The threads in which the conditions of all groups are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

RunApart: TypeAlias = Callable[[Callable[[], None], bool], object]
"""Function that calls another in another thread, soon; the flag: it was quick the last time.

Raises RuntimeError if nothing is begun any more.
"""


class FilterThreads:
    """Two threads for the filters of all groups, begun when they are needed.

    One is for filters that were quick the last time, so that these do not wait for slow or new ones.
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
