"""A consumer for asyncio: something for ``async for``."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Unpack

from tarry.base.errors import TarryError
from tarry.client.consumer import ConsumeOptions, Consuming
from tarry.client.delivery import Delivery, DeliveryBatch
from tarry.client.feed import Feed


class AsyncConsumer:
    """As :class:`tarry.client.Consumer`, for ``async for``."""

    def __init__(
        self, address: str, topic: str, group: str, calls: ThreadPoolExecutor, **options: Unpack[ConsumeOptions]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._options = Consuming(**options)
        self._worked_rows = 0
        self._inbox = _Inbox(self._loop)
        self._feed = Feed(address, self._options.command(topic, group), self._inbox.put)
        # The feed does not know the consumer: forgotten without close(), it gives back what it holds all the same.
        weakref.finalize(self, self._feed.abandon)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """As iterating over :class:`tarry.client.Consumer`."""
        async for batch in self.batches():
            settler, auto_ack = batch.settler, self._options.auto_ack
            for message in batch.messages():
                if settler.closed:
                    break  # the connection was lost: the broker delivers the rest of the batch again
                yield message
                if auto_ack:
                    message.ack()

    async def batches(self) -> AsyncIterator[DeliveryBatch]:
        """As :meth:`tarry.client.Consumer.batches`."""
        while (batch := await self._next()) is not None:
            yield batch
            self._worked_rows += len(batch)
            if self._worked_rows >= self._options.push_rows:
                self._worked_rows = 0
                batch.settler.hurry()

    async def flush(self, timeout: float = 30.0) -> None:
        """As :meth:`tarry.client.Consumer.flush`."""
        await self._loop.run_in_executor(self._calls, self._feed.flush, timeout)

    async def close(self) -> None:
        """As :meth:`tarry.client.Consumer.close`."""
        await self._loop.run_in_executor(self._calls, self._feed.close)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _next(self) -> DeliveryBatch | None:
        inbox = self._inbox
        while True:
            while inbox.items:
                item = inbox.items.popleft()
                if isinstance(item, DeliveryBatch):
                    if not item.settler.closed:
                        return item
                    continue  # of a connection that was lost; it comes again
                inbox.items.appendleft(None)  # for who iterates again
                if isinstance(item, TarryError):
                    raise item
                return None
            inbox.came.clear()
            try:
                await asyncio.wait_for(inbox.came.wait(), self._options.timeout)
            except TimeoutError:
                return None


class _Inbox:
    """Carries what arrives from the feed's thread into the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.items: deque[DeliveryBatch | TarryError | None] = deque()
        self.came = asyncio.Event()

    def put(self, item: DeliveryBatch | TarryError | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._arrived, item)

    def _arrived(self, item: DeliveryBatch | TarryError | None) -> None:
        self.items.append(item)
        self.came.set()
