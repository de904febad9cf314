"""Who waits for messages of a group: a line of receives, first come, first served, without a thread for any of them.

A receive costs both ends far more than a message in it. So a line that has just been emptied is looked at again only
after ``GATHER_S``: who comes rarely is served at once, and under load a receive has several messages.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pyarrow as pa

from tarry.errors import TarryError
from tarry.ready import Group, Subscription

GATHER_S = 0.004


@dataclass(slots=True, eq=False)
class Waiter:
    """A receive: for whom, how much, and where to tell it; None is told when there is nothing to wait for any more."""

    holder: Subscription
    rows_max: int
    future: asyncio.Future[pa.RecordBatch | None]


class Line:
    """On the loop's thread, but for what the group tells. It listens as long as it exists: see :meth:`close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, group: Group) -> None:
        self.group = group
        self._loop = loop
        self._waiting: dict[Waiter, None] = {}  # in the order in which they came; whoever is told leaves by itself
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._emptied_s = 0.0
        """When the last message that there was was given, as the loop's time."""
        self._hush = group.listen(self._told)

    def receive(self, holder: Subscription, rows_max: int) -> asyncio.Future[pa.RecordBatch | None]:
        """Up to ``rows_max`` messages for ``holder``, when there are any. Cancel it to wait no more; if it has been
        given something then, that is the caller's to give back.
        """
        waiter = Waiter(holder, rows_max, self._loop.create_future())
        waiter.future.add_done_callback(lambda _: self._waiting.pop(waiter, None))
        # In the line before anybody looks: what becomes ready after the look is told to who is in it.
        self._waiting[waiter] = None
        # Those that are told, or have given up, leave the line only with the loop's next turn.
        if not self._planned and next(other for other in self._waiting if not other.future.done()) is waiter:
            self._planned = True
            self._plan()
        return waiter.future

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Nobody is served any more."""
        self._hush()
        self._let_go()

    def _told(self) -> None:
        # From any thread, often from the dispatcher's, between two messages: nothing is looked at here.
        if self._waiting and not self._planned:
            self._planned = True
            try:
                self._loop.call_soon_threadsafe(self._plan)
            except RuntimeError:
                return  # the loop is closed: the front has stopped

    def _plan(self) -> None:
        wait_s = self._emptied_s + GATHER_S - self._loop.time()
        if wait_s > 0:
            self._look_again(wait_s)
        else:
            self._serve()

    def _look_again(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._serve)

    def _serve(self) -> None:
        self._planned = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiter in list(self._waiting):
            if waiter.future.done():
                continue
            if self.group.closed:
                self._let_go()
                return
            try:
                batch, again_s = self.group.poll(waiter.holder, waiter.rows_max)
            except TarryError as error:
                waiter.future.set_exception(error)
                continue
            if batch is None:
                if again_s is not None:
                    self._look_again(again_s)
                return
            if batch.num_rows < waiter.rows_max:
                self._emptied_s = self._loop.time()
            waiter.future.set_result(batch)

    def _let_go(self) -> None:
        for waiter in self._waiting:
            if not waiter.future.done():
                waiter.future.set_result(None)
