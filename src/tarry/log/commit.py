"""Group commit: one round at a time, one fsync for all that waits.

While the writer is busy with the disk, what arrives queues; the next round takes the whole queue. So latency is one to
two rounds, and throughput grows with the number that wait. Without a thread (tests, in-process use with a test clock)
each submission is a round of its own, in the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tarry.base.errors import ClosedError, FatalError, OverloadedError, TarryError
from tarry.base.placement import ANY_CORE, Placement

T = TypeVar("T")

SMALL_BYTES = 64 << 10
"""A round of no more than this is handed from thread to thread and back; a larger one is work in bulk."""


class GroupCommit(Generic[T]):
    """Calls ``commit(items)`` with all that was submitted since the last round, in order, from one thread.

    ``commit`` answers its items itself. When it raises, that is fatal: ``on_fatal(error, items)`` is told, and nothing
    is taken any more. The queue is bounded by the sum of the weights (bytes) of what waits. ``await_turn()`` is called
    before a round takes the queue: what comes until it returns is in that round.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[list[T]], None],
        on_fatal: Callable[[BaseException, list[T]], None],
        *,
        weight_max: int,
        threaded: bool = True,
        placement: Placement = ANY_CORE,
        await_turn: Callable[[], None] | None = None,
    ) -> None:
        self._commit = commit
        self._on_fatal = on_fatal
        self._weight_max = weight_max
        self._placement = placement
        self._await_turn = await_turn
        self._wake = threading.Condition()
        self._queue: list[T] = []
        self._weight = 0
        self._closed = False
        self._busy = False  # a round is under way, in whatever thread
        self._dead: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True) if threaded else None
        if self._thread:
            self._thread.start()

    def submit(self, item: T, weight: int, *, lead: bool = False) -> None:
        """Queue an item for the next round.

        With ``lead``, the caller's thread does the round, unless one is under way: that saves
        handing over to the writer and back, and takes as long as the disk does.

        Raises:
            OverloadedError: when the queue is full. ClosedError: after :meth:`close` or a fatal error.
        """
        with self._wake:
            if self._closed or self._dead:
                raise ClosedError("the log is closed" if not self._dead else f"the log has failed: {self._dead}")
            if self._weight and self._weight + weight > self._weight_max:
                raise OverloadedError(
                    f"{self._weight} bytes wait to be written; allowed: {self._weight_max}; try again"
                )
            self._queue.append(item)
            self._weight += weight
            if self._thread and (self._busy or not lead):
                if not self._busy:
                    self._wake.notify()
                return
            self._busy = True
        self._round()
        with self._wake:
            self._busy = False
            if self._queue or self._closed:
                self._wake.notify()

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._busy or not (self._queue or self._closed):
                    self._wake.wait()
                if not self._queue:
                    return
                self._busy = True
                small = self._weight <= SMALL_BYTES
            (self._placement.together if small else self._placement.apart)()
            alive = self._round()
            self._busy = False  # who finds it set has queued something, which the next look finds
            if not alive:
                return

    def _round(self) -> bool:
        if self._await_turn is not None:
            self._await_turn()
        with self._wake:
            items, self._queue, self._weight = self._queue, [], 0
        if not items:
            return True
        try:
            self._commit(items)
        except BaseException as error:
            with self._wake:
                self._dead = error
                items += self._queue
                self._queue = []
            self._on_fatal(error, items)
            if not self._thread and not isinstance(error, Exception):
                raise
            return False
        return True


def as_tarry_error(error: BaseException, what: str) -> TarryError:
    """``error`` itself when it is a Tarry error, else a :class:`FatalError` that names what failed."""
    return error if isinstance(error, TarryError) else FatalError(f"{what} failed: {error}; the broker has stopped")
