"""Who waits for messages of a group: a line of receives, first come, first served, without a thread for any of them.

A receive costs both ends far more than a message in it. So a line that has just been emptied is looked at again only
after ``GATHER_S``: who comes rarely is served at once, and under load a receive has several messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.base.types import Int64s
from tarry.groups import Group, Subscription

GATHER_S = 0.004


Told: TypeAlias = pa.RecordBatch | TarryError | None
"""What becomes of a receive; None: there is nothing to wait for any more."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A receive: for whom, how much, and whom to tell. It is told once, and is not in the line any more then."""

    holder: Subscription
    rows_max: int
    tell: Callable[[Told], None]


class Line:
    """On the loop's thread, but for what the group tells. It listens as long as it exists: see :meth:`close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, group: Group) -> None:
        self.group = group
        self._loop = loop
        self._waiting: dict[Waiter, None] = {}  # in the order in which they came
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._emptied_s = 0.0
        """When the last message that there was was given, as the loop's time."""
        self._hush = group.listen(self._told)

    def wait(self, waiter: Waiter) -> None:
        """Stand in line. It may be told before this returns."""
        # In the line before anybody looks: what becomes ready after the look is told to who is in it.
        self._waiting[waiter] = None
        if not self._planned and next(iter(self._waiting)) is waiter:
            self._planned = True
            self._plan()

    def leave(self, waiter: Waiter) -> None:
        """Wait no more. It is not told of anything then."""
        self._waiting.pop(waiter, None)

    def receive(self, holder: Subscription, rows_max: int) -> asyncio.Future[pa.RecordBatch | None]:
        """Up to ``rows_max`` messages for ``holder``, when there are any."""
        future: asyncio.Future[pa.RecordBatch | None] = self._loop.create_future()

        def tell(told: Told) -> None:
            if future.done():
                give_back(self.group, told)  # cancelled, and this is before it could leave
            elif isinstance(told, TarryError):
                future.set_exception(told)
            else:
                future.set_result(told)

        waiter = Waiter(holder, rows_max, tell)
        future.add_done_callback(lambda _: self.leave(waiter))
        self.wait(waiter)
        return future

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
            if waiter not in self._waiting:
                continue  # what one was told has made another leave
            if self.group.closed:
                self._let_go()
                return
            told: Told
            try:
                told, again_s = waiter.holder.poll(waiter.rows_max)
            except TarryError as error:
                told, again_s = error, None
            if told is None:
                if again_s is not None:
                    self._look_again(again_s)
                return
            if isinstance(told, pa.RecordBatch) and told.num_rows < waiter.rows_max:
                self._emptied_s = self._loop.time()
            del self._waiting[waiter]
            waiter.tell(told)

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.tell(None)


def leases_of(batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """What to settle these rows with: leases and offsets."""
    leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
    return leases, offsets


def give_back(group: Group, told: Told) -> None:
    """Nobody took them: they are for others at once."""
    if isinstance(told, pa.RecordBatch) and told.num_rows:
        group.nack(*leases_of(told), 0)
