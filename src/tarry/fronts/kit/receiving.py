"""Who waits for messages of a group: receives, first come, first served; and pulls. None of them has a thread.

A receive costs both ends far more than a message in it. So when a queue of receives has taken all messages that there
were, the group is asked again only after ``GATHER_S``: a receive that comes rarely is served at once, and under load a
receive gets several messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.base.types import Int64s

GATHER_S = 0.004
"""How long messages gather after all that there were have been handed out."""

CROWDED_S = 0.25
"""How often is looked whether a client has read enough of its answers to get more."""

Received: TypeAlias = pa.RecordBatch | TarryError | None
"""What a receive ends with: messages (:data:`tarry.api.views.DELIVERY`), why there are none, or None: the group was
deleted or the front stops, so there is nothing to wait for any more.
"""


class HasRoom(Protocol):
    """What bounds what is handed out; see :class:`tarry.fronts.kit.unread.Room`."""

    @property
    def is_free(self) -> bool:
        """Whether messages may be handed out now. Asked right before they are."""
        ...

    def hold(self, size: int) -> None:
        """So much was handed out."""
        ...


@dataclass(slots=True, eq=False)
class Waiter:
    """A receive that waits. ``on_result`` is called once, on the loop's thread; the waiter has left the queue then."""

    subscription: Subscription
    rows_max: int
    on_result: Callable[[Received], None]
    has_left: Callable[[], bool] = bool
    """Whether it wants nothing any more, and has not been removed yet."""
    room: HasRoom | None = None
    """For what it gets; None: that has a bound elsewhere. While there is none, those behind it are served."""


class ReceiveQueue:
    """The receives that wait for one group. On the loop's thread, but for the group's own call-backs. It listens to the
    group until :meth:`close`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, group: ConsumerGroup) -> None:
        self.group = group
        self._loop = loop
        self._waiting: dict[Waiter, None] = {}  # in the order in which they came
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._emptied_s = 0.0
        """When the last message that there was was handed out, as the loop's time."""
        self._stop_listening = group.listen(self._on_news)

    def __len__(self) -> int:
        """The number of receives that wait."""
        return len(self._waiting)

    def add(self, waiter: Waiter) -> None:
        """Wait. ``on_result`` may be called before this returns."""
        # In the queue before anybody looks: what becomes ready after the look is announced to who is in it.
        self._waiting[waiter] = None
        if not self._planned and next(iter(self._waiting)) is waiter:
            self._planned = True
            self._plan()

    def remove(self, waiter: Waiter) -> None:
        """Wait no more: ``on_result`` is not called any more. Nothing where it has left the queue already."""
        was_first = next(iter(self._waiting), None) is waiter
        self._waiting.pop(waiter, None)
        if was_first:
            waiter.subscription.withdraw()
            if self._waiting and self.group.gathers and not self._planned:
                # A broker elsewhere has been asked for the first one alone.
                self._planned = True
                self._loop.call_soon(self._plan)

    def receive(
        self, subscription: Subscription, rows_max: int, room: HasRoom | None = None
    ) -> asyncio.Future[pa.RecordBatch | None]:
        """Up to ``rows_max`` messages, when there are any; None: see :data:`Received`. Cancel the future to leave.

        Raises:
            TarryError: when it is awaited; see :meth:`Subscription.poll`.
        """
        future: asyncio.Future[pa.RecordBatch | None] = self._loop.create_future()

        def on_result(received: Received) -> None:
            if future.done():
                give_back(self.group, received)  # it was cancelled, and its call-back below has not run yet
            elif isinstance(received, TarryError):
                future.set_exception(received)
            else:
                future.set_result(received)

        # A timer may serve the queue between the cancellation and its call-back: what were handed out then, and given
        # back, would have lost a try.
        waiter = Waiter(subscription, rows_max, on_result, future.done, room)
        future.add_done_callback(lambda _: self.remove(waiter))
        self.add(waiter)
        return future

    def close(self) -> None:
        """Serve nobody any more: who waits gets None."""
        self._stop_listening()
        self._release_all()

    def _on_news(self) -> None:
        # From any thread, often from the dispatcher's, between two messages: nothing is looked at here.
        if self._waiting and not self._planned:
            self._planned = True
            post(self._loop, self._plan)

    def _plan(self) -> None:
        wait_s = self._emptied_s + GATHER_S - self._loop.time()
        if wait_s > 0:
            self._serve_later(wait_s)
        else:
            self._serve()

    def _serve_later(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._serve)

    def _serve(self) -> None:
        self._planned = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiter in list(self._waiting):
            if waiter not in self._waiting or waiter.has_left():
                continue  # the call-back of another one has made it leave, or its own is still to come
            room = waiter.room
            if room is not None and not room.is_free:
                self._serve_later(CROWDED_S)
                continue
            if self.group.closed:
                self._release_all()
                return
            received: Received
            try:
                received, again_s = waiter.subscription.poll(waiter.rows_max)
            except TarryError as error:
                received, again_s = error, None
            if received is None:
                if again_s is not None:
                    self._serve_later(again_s)
                return
            if isinstance(received, pa.RecordBatch) and received.num_rows < waiter.rows_max and not self.group.gathers:
                self._emptied_s = self._loop.time()
            del self._waiting[waiter]
            if room is not None and isinstance(received, pa.RecordBatch):
                room.hold(received.nbytes)
            waiter.on_result(received)

    def _release_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.on_result(None)


def leases_of(batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """What to settle these rows with: leases and offsets, an array of each with one entry a row."""
    leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
    return leases, offsets


def give_back(group: ConsumerGroup, received: Received) -> None:
    """Give back messages that nobody took: they are for others at once."""
    if isinstance(received, pa.RecordBatch) and received.num_rows:
        group.nack(*leases_of(received), 0)


async def poll_now(
    loop: asyncio.AbstractEventLoop, subscription: Subscription, rows_max: int, timeout_s: float
) -> pa.RecordBatch | None:
    """What there is now; where it must be looked at in a thread first, after that, if that ends in time. No other
    thread waits meanwhile.

    Raises:
        TarryError: see :meth:`Subscription.poll`.
    """
    batch, again_s = subscription.poll(rows_max)
    group = subscription.group
    if batch is not None or not (group.is_filtering or again_s == 0):
        return batch
    news = asyncio.Event()
    stop_listening = group.listen(lambda: post(loop, news.set))
    end_s = loop.time() + timeout_s
    try:
        while (left_s := end_s - loop.time()) > 0:
            news.clear()
            batch, again_s = subscription.poll(rows_max)
            if batch is not None or not (group.is_filtering or again_s == 0):
                return batch
            if group.is_filtering:
                async with asyncio.timeout(left_s):
                    await news.wait()
            else:
                await asyncio.sleep(0)  # there is more to be passed over, and others come first
    except TimeoutError:
        pass
    finally:
        stop_listening()
    return None


async def wait_for_rows(loop: asyncio.AbstractEventLoop, group: ConsumerGroup, offset: int, wait_s: float) -> None:
    """For consumers that keep their own offsets: return when the queue of the group's topic ends elsewhere than at
    ``offset``, when the group was closed, or after ``wait_s`` seconds. Nothing is asked in a thread meanwhile.
    """
    news = asyncio.Event()
    # Before the first look, so that what comes after it is noticed.
    stop_listening = group.listen(lambda: post(loop, news.set))
    try:
        async with asyncio.timeout(wait_s):
            while group.queue_ends[1] == offset and not group.closed:
                await news.wait()
                news.clear()
    except TimeoutError:
        pass
    finally:
        stop_listening()
