"""Many callers, few batches: what they ask one at a time travels together.

While as many batches as are allowed wait for their answers, entries queue; the next answer takes the queue along.
Alone, an entry goes at once; with many callers waiting, batches grow by themselves to what is worth a round trip.

A batch is accepted whole or not at all. Where it is refused because of one entry, that one's caller gets the error, and
the others' entries, which certainly were not accepted, go again without it. A batch whose answer never comes is not
sent again: it may have been accepted.

What waits is bounded by the callers, each of whom waits for the answer to its own entry.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tarry.base.errors import (
    ClosedError,
    ForbiddenError,
    InvalidArgumentError,
    InvalidMessageError,
    KeyExistsError,
    TarryError,
)

log = logging.getLogger(__name__)

BATCHES_MAX = 2
LATE_S = 0.02
"""Answers that take longer than this are late: the broker's log, or the broker, is far away."""
LATE_BATCHES = 8
"""So many times as many batches may wait for late answers: who waits to be sent waits for two."""
ROWS_MAX = 4096

E = TypeVar("E")


@dataclass(slots=True, eq=False)
class Batch(Generic[E]):
    """Entries that travel together."""

    entries: list[E]
    is_retry: bool = False
    """Another entry, without which these go again, was refused."""


Send = Callable[[Batch[E]], None]
"""Callback that sends a batch.

Its answer is given to the coalescer once, from any thread; also before this returns.
What this raises is the answer, too: nothing was sent.
"""
Refuse = Callable[[list[E], TarryError], None]
"""Tells the callers of some entries that these were not accepted, or may not have been. Never raises."""


class Pacing(Protocol):
    """Holds back what waits for a moment; see :class:`tarry.batching.pacing.Pace`."""

    def on_added(self, *, urgent: bool) -> None: ...

    def hold_s(self, rows: int) -> float: ...

    def on_sent(self) -> None: ...


class Coalescer(Generic[E]):
    """Entries of many callers, sent in the order in which they were added, but for those sent again.

    Any thread.

    It sends in :meth:`pump` alone, which the owner calls after :meth:`add` and after each answer, in a thread that may
    send, and as late as it likes: what is added until then comes along. Who sends is who gets the sending lock; a
    second one leaves its entries to the first, who looks again after letting go of the lock.
    """

    def __init__(
        self,
        send: Send[E],
        refuse: Refuse[E],
        *,
        batches_max: int = BATCHES_MAX,
        rows_max: int = ROWS_MAX,
        rows_beside_min: int = 1,
        size_of: Callable[[E], int] | None = None,
        bytes_max: int = 0,
        pace: Pacing | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a coalescer.

        Args:
            batches_max: how many batches may wait for their answers; one that waits for :data:`LATE_S` may have another
                beside it, up to :data:`LATE_BATCHES` as many, but where it is 1.
            rows_max: how many entries a batch has at most.
            rows_beside_min: how many entries there must be for a batch to go while another one waits for its answer.
            size_of, bytes_max: the bytes of an entry, and after how many a batch ends; without them it ends by rows.
            pace: holds entries back; then the owner pumps again after :meth:`hold_s`.
            now_s: the clock of late answers.
        """
        self._send = send
        self._refuse = refuse
        self._batches_max = batches_max
        self._late_batches_max = batches_max * LATE_BATCHES if batches_max > 1 else batches_max
        self._now_s, self._sent_s = now_s, 0.0
        self._rows_max = rows_max
        self._rows_beside_min = rows_beside_min
        self._size_of = size_of
        self._bytes_max = bytes_max
        self._pace = pace
        self._waiting: deque[E] = deque()
        self._again: deque[Batch[E]] = deque()
        self._sending = threading.Lock()
        self._counting = threading.Lock()
        self._in_flight = 0
        """Batches whose answer has not come; changed under ``_counting``."""
        self._ended = threading.Condition()
        """For :meth:`close`, which waits for batches to end."""
        self._closed_why: str | None = None
        self._closed = False

    def add(self, entry: E, *, urgent: bool = False) -> None:
        """Queue an entry; :meth:`pump` sends it. An ``urgent`` one is not held back.

        Raises:
            ClosedError: after :meth:`close`.
        """
        if self._closed_why is not None:
            raise ClosedError(self._closed_why)
        self._waiting.append(entry)
        if self._pace is not None:
            self._pace.on_added(urgent=urgent)

    def hold_s(self) -> float:
        """For how many seconds what waits is still held back."""
        rows = len(self._waiting)
        return 0.0 if self._pace is None or not rows else self._pace.hold_s(rows)

    @property
    def is_ready(self) -> bool:
        """Return whether :meth:`pump` would send something now."""
        in_flight = self._in_flight
        if in_flight >= self._batches_max and (
            in_flight >= self._late_batches_max or self._now_s() - self._sent_s < LATE_S
        ):
            return False
        if self._again:
            return True
        return len(self._waiting) >= (self._rows_beside_min if in_flight else 1) and not self.hold_s()

    def pump(self) -> None:
        """Send what waits, as far as there is room."""
        # Looking again after the release: an entry may have been added by one who found the lock taken.
        while self.is_ready and not self._closed and self._sending.acquire(blocking=False):
            try:
                while (batch := self._next()) is not None:
                    self._send_or_refuse(batch)
            finally:
                self._sending.release()
        if self._closed:
            self._refuse_waiting()  # what was added by one who had looked before it was closed

    def close(self, why: str, wait_s: float = 0.0) -> None:
        """Wait up to ``wait_s`` seconds for entries to be answered, then refuse those that were not sent.

        The answers to what was sent may come later.
        """
        self._closed_why = why
        with self._ended:
            self._ended.wait_for(lambda: not (self._in_flight or self._waiting or self._again), wait_s)
        self._closed = True
        self._refuse_waiting()

    # -- answers: one for each batch -----------------------------------------------------------------------------------

    def on_accepted(self, batch: Batch[E]) -> None:
        """All of it was accepted, and its callers know."""
        self._end()

    def on_refused(self, batch: Batch[E], error: TarryError) -> None:
        """Nothing of it was accepted; what an error about one entry does not concern goes again."""
        entries = batch.entries
        row = error.row if isinstance(error, InvalidMessageError) else None
        if isinstance(error, InvalidMessageError) and row is not None and 0 <= row < len(entries):
            rest = entries[:row] + entries[row + 1 :]
            if batch.is_retry:
                # More than one bad entry among them: each on its own, rather than one refusal after the other.
                self._again.extend(Batch([entry], True) for entry in rest)
            elif rest:
                self._again.append(Batch(rest, True))
            if isinstance(error, KeyExistsError) and row:
                # An entry before it may have taken the key, and was refused with it. So it is asked for again, alone.
                self._again.append(Batch([entries[row]], True))
                self._end()
            else:
                self.on_failed(Batch([entries[row]]), error.of_row(None))
        elif isinstance(error, InvalidArgumentError | ForbiddenError) and len(entries) > 1:
            # It does not say which one is to blame.
            self._again.extend(Batch([entry], True) for entry in entries)
            self._end()
        else:
            self.on_failed(batch, error)

    def on_failed(self, batch: Batch[E], error: TarryError) -> None:
        """Handle a batch that was refused as a whole, or whose answer will not come."""
        try:
            self._refuse(batch.entries, error)
        finally:
            self._end()

    def _end(self) -> None:
        with self._counting:
            self._in_flight -= 1
        # Who closes says so before it looks: it sees this batch ended, or is notified.
        if self._closed_why is not None:
            with self._ended:
                self._ended.notify_all()

    # -- sending -------------------------------------------------------------------------------------------------------

    def _next(self) -> Batch[E] | None:
        """Take the next batch, which counts as on its way from now on. Under the sending lock."""
        if self._closed or not self.is_ready:
            return None
        batch = self._take()
        if batch is not None:
            if self._pace is not None:
                self._pace.on_sent()
            self._sent_s = self._now_s()
            with self._counting:
                self._in_flight += 1
        return batch

    def _take(self) -> Batch[E] | None:
        entries: list[E] = []
        try:
            if self._again:
                return self._again.popleft()
            for _ in range(min(len(self._waiting), self._rows_max)):
                entries.append(self._waiting.popleft())
        except IndexError:
            pass  # it was closed between the look and the taking
        if self._size_of is not None and len(entries) > 1:
            self._put_back_excess(entries, list(map(self._size_of, entries)))
        return Batch(entries) if entries else None

    def _put_back_excess(self, entries: list[E], sizes: list[int]) -> None:
        if sum(sizes) <= self._bytes_max:
            return
        rows = size = 0
        while size < self._bytes_max:
            size += sizes[rows]
            rows += 1
        self._waiting.extendleft(reversed(entries[rows:]))
        del entries[rows:]

    def _send_or_refuse(self, batch: Batch[E]) -> None:
        try:
            self._send(batch)
        except TarryError as error:
            self.on_refused(batch, error)
        except Exception as error:
            log.exception("a batch could not be sent")
            self.on_failed(batch, TarryError(f"internal error: {error}"))  # nobody may wait for ever

    def _refuse_waiting(self) -> None:
        left: list[E] = []
        try:
            while True:
                left += self._again.popleft().entries if self._again else [self._waiting.popleft()]
        except IndexError:  # also where another thread was quicker
            pass
        if left:
            self._refuse(left, ClosedError(f"{self._closed_why}; this was not sent"))


class EndOfTurn:
    """Work that is done once at the end of the event loop's present turn, however often it is asked for.

    What other tasks add in this turn comes along. On the loop's thread.
    """

    __slots__ = ("_loop", "_planned", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
        self._loop = loop
        self._work = work
        self._planned = False

    def plan(self) -> None:
        """Have it done."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._planned = False
        self._work()


def copy_of(error: TarryError) -> TarryError:
    """Return the same error for another caller: one that several raise collects all their tracebacks."""
    return copy(error)


def fail_futures(entries: list[tuple[Any, asyncio.Future[Any]]], error: TarryError) -> None:
    """Refuse entries whose callers wait for futures, which may have been cancelled. On the loop's thread."""
    for _, future in entries:
        if not future.done():
            future.set_exception(copy_of(error))
