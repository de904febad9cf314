"""A consumer for asyncio: something for ``async for``."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Unpack

from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.client.consume_options import CheckedConsumeOptions, ConsumeOptions
from tarry.client.consumer import abandon, begin_feed
from tarry.client.consuming import ConsumingConnections
from tarry.client.delivery import Delivery, reason_of
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.holding import Hand, Holding
from tarry.client.way import WORK_S

log = logging.getLogger(__name__)


class AsyncConsumer:
    """As :class:`tarry.client.Consumer`, for ``async for``."""

    def __init__(
        self,
        connections: ConsumingConnections,
        topic: str,
        group: str,
        calls: ThreadPoolExecutor,
        **options: Unpack[ConsumeOptions],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._options = CheckedConsumeOptions(**options)
        self._inbox = _Inbox(self._loop)
        self._holding = Holding(self._options.prefetch, _who, self._inbox.tell_lost)
        self._feed = begin_feed(self._options, connections, (topic, group), self._holding, self._inbox.put)
        # The feed does not know the consumer: forgotten without close(), it gives back what it holds all the same.
        weakref.finalize(self, abandon, self._feed, self._holding)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """As iterating over :class:`tarry.client.Consumer`."""
        auto_ack, now, check_process = self._options.auto_ack, time.monotonic, self._feed.birthplace.check
        message: Delivery | None = None
        hand = self._holding.begin()
        try:
            for rest in self._holding.rests():
                self._inbox.share(rest)
            while (batch := await self._next()) is not None:
                for message in self._holding.take(hand, batch) or ():
                    check_process()
                    if now() >= batch.until_s:
                        self._holding.drop(batch)
                        break  # the broker has given, or gives, it and the rest of the batch to somebody again
                    yield message
                    if auto_ack:
                        message.ack()
                if self._holding.done(hand):
                    batch.settler.hurry()
        finally:
            self._leave(hand, message)

    async def batches(self) -> AsyncIterator[DeliveryBatch]:
        """As :meth:`tarry.client.Consumer.batches`."""
        hand = self._holding.begin()
        try:
            while (batch := await self._next()) is not None:
                if self._holding.take(hand, batch, whole=True) is not None:
                    yield batch
                    if self._holding.done(hand):
                        batch.settler.hurry()
        finally:
            self._leave(hand, None)

    async def run(self, handle: Callable[[Delivery], Awaitable[object] | object]) -> None:
        """As :meth:`tarry.client.Consumer.run`; what ``handle`` gives is awaited where it can be."""
        async for message in self:
            try:
                with message:
                    result = handle(message)
                    if inspect.isawaitable(result):
                        await result
            except Exception:
                log.exception("message %s of topic %s could not be handled", message.id, message.topic)

    @property
    def is_served(self) -> bool:
        """True if the broker is there, and hands messages to this consumer."""
        return self._feed.is_served

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called in the loop whenever leases of messages in work may have been lost.

        :attr:`Delivery.lost` says which.
        """
        self._inbox.on_lost = callback

    def give_back(self) -> None:
        """Give back what nobody has begun, and take no more: each loop ends after the message that it has.

        What is in work is held as before, and settled; :meth:`close` comes afterwards.
        """
        self._holding.give_back()
        self._inbox.end()

    async def flush(self, timeout: float = 30.0) -> None:
        """As :meth:`tarry.client.Consumer.flush`."""
        await self._loop.run_in_executor(self._calls, self._feed.flush, timeout)

    async def close(self, timeout: float = WORK_S) -> None:
        """As :meth:`tarry.client.Consumer.close`."""
        await self._stop_work(timeout)
        await self._loop.run_in_executor(self._calls, self._feed.close)

    async def fail(self, error: BaseException, timeout: float = WORK_S) -> None:
        """As :meth:`tarry.client.Consumer.fail`."""
        await self._stop_work(timeout)
        self._holding.fail(reason_of(error))
        await self._loop.run_in_executor(self._calls, self._feed.close)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            await self.close()
        else:
            await self.fail(error)

    async def _stop_work(self, timeout: float) -> None:
        self._holding.give_back()
        # Not in one of the client's threads: what is worked on may need those to end.
        await asyncio.to_thread(self._holding.wait_for_work, _who(), timeout)

    def _leave(self, hand: Hand, message: Delivery | None) -> None:
        if (batch := self._holding.leave(hand, message)) is not None:
            self._inbox.put_back(batch)

    async def _next(self) -> DeliveryBatch | None:
        inbox = self._inbox
        while True:
            while inbox.items:
                item = inbox.items.popleft()
                if isinstance(item, DeliveryBatch):
                    if not item.unstarted:
                        continue  # others took it, or it was given back, or its connection was lost
                    if self._holding.is_for_many(item):
                        inbox.share(item)
                    elif inbox.items:
                        inbox.wake()
                    return item
                inbox.end()  # for the other tasks, and for who iterates again
                if isinstance(item, TarryError):
                    raise item
                return None
            since_s = time.monotonic()
            if self._holding.begin_wait() and (settler := self._feed.settler) is not None:
                settler.hurry()
            try:
                await inbox.wait(self._options.timeout)
            except TimeoutError:
                await asyncio.to_thread(self._feed.check_reached, since_s)
                if not inbox.items:
                    return None
            finally:
                self._holding.end_wait()


def _who() -> object:
    """Return the running task, or the thread where there is none."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.get_ident()


class _Inbox:
    """Carries what arrives from the feed's thread into the event loop, where tasks may wait for it.

    One of them is woken for what comes, and wakes the next if it leaves something: not all of them for each message.
    Until it runs no other is woken. A task that is at work takes what comes meanwhile, and the others would wake for
    nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.items: deque[DeliveryBatch | TarryError | None] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._woken: asyncio.Future[None] | None = None
        """Of the task that was woken, and has not run yet."""
        self.on_lost: Callable[[], None] | None = None

    def put(self, item: DeliveryBatch | TarryError | None) -> None:
        """Any thread."""
        post(self._loop, self._arrived, item)

    def tell_lost(self) -> None:
        """Any thread."""
        if self.on_lost is not None:
            post(self._loop, self.on_lost)

    def put_back(self, item: DeliveryBatch) -> None:
        """In the loop: others may have it."""
        self._arrived(item)

    def share(self, item: DeliveryBatch) -> None:
        """In the loop, before a task takes some of it: let others have what it leaves when it waits.

        Where handlers wait for nothing, that is nothing, and no other task is woken.
        """
        self.items.append(item)
        self._loop.call_soon(self._wake_for_rest)

    def end(self) -> None:
        """In the loop: nothing comes any more."""
        self.items.appendleft(None)
        self.wake()

    async def wait(self, timeout_s: float | None) -> None:
        """Wait for something to come; it may be gone when this returns.

        Raises:
            TimeoutError: nothing came.
        """
        came = self._loop.create_future()
        self._waiting.append(came)
        try:
            if timeout_s is None:
                await came
            else:
                async with asyncio.timeout(timeout_s):
                    await came
        except BaseException:
            if came in self._waiting:
                self._waiting.remove(came)
            elif came is self._woken:
                self._woken = None
                self.wake()  # it was woken for something, which it leaves to the next
            raise
        self._woken = None

    def _arrived(self, item: DeliveryBatch | TarryError | None) -> None:
        self.items.append(item)
        self.wake()

    def _wake_for_rest(self) -> None:
        while self.items and isinstance(item := self.items[0], DeliveryBatch) and not item.unstarted:
            self.items.popleft()
        if self.items:
            self.wake()

    def wake(self) -> None:
        """In the loop: have a task look at what there is, unless one is about to."""
        while self._waiting and self._woken is None:
            came = self._waiting.popleft()
            if not came.done():
                came.set_result(None)
                self._woken = came
