"""The client for asyncio: the same names, to be awaited.

    async with AsyncClient("localhost:7611") as client:
        await client.schedule("orders", b"unpaid?", delay="30m")
        async for message in client.consume("orders", group="billing"):
            message.ack()

``schedule`` is the fast way to schedule single messages: what many tasks schedule at the same time travels together,
several batches under way at once, and all of a batch's tasks wake up by one call into the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, Unpack

from tarry.api.calls import AsyncCalls
from tarry.api.operation import Operation
from tarry.base.errors import ClosedError, TarryError
from tarry.base.event_loop import settle_future
from tarry.batching.pacing import SOON_MS, Pace, PacedTurns
from tarry.client.aio_consumer import AsyncConsumer
from tarry.client.bulk import Progress
from tarry.client.connection import BrokerConnection
from tarry.client.consume_options import ConsumeOptions, ReceiveOptions
from tarry.client.consuming import ConsumingConnections
from tarry.client.delivery import Delivery
from tarry.client.producing import Producer
from tarry.client.questions import no_answer
from tarry.client.sync import CHUNK_ROWS, Client
from tarry.client.way import IN_DOUBT
from tarry.link.peer import OnAnswer
from tarry.link.places import BrokerPlaces
from tarry.link.tls import ClientTls
from tarry.message.accepted import Accepted
from tarry.message.message import Message
from tarry.message.receipt import Receipt
from tarry.message.rows import DUE_MS, Row

R = TypeVar("R")
T = TypeVar("T")

THREADS_MAX = 32
"""Threads of one client: for bulk, for waiting until acknowledgements are durable, and for closing."""


class AsyncClient(AsyncCalls):
    """As :class:`tarry.client.Client`, for asyncio; one event loop at a time."""

    def __init__(
        self,
        address: str = "localhost:7611",
        *,
        timeout: float = 30.0,
        tls: ClientTls | None = None,
        token: str | None = None,
    ) -> None:
        """Make a client as :class:`tarry.client.Client`."""
        super().__init__()
        self._timeout_s = timeout
        self._client = Client(address, timeout=timeout, tls=tls, token=token)
        self.address = self._client.address
        self._native = self._client.native("for AsyncClient")
        self._consuming = ConsumingConnections(self._client.places)
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="tarry-aio")
        self._closed = False
        self._sender: _Sender | None = None
        self._consumers: weakref.WeakSet[AsyncConsumer] = weakref.WeakSet()

    async def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out; see :class:`tarry.api.calls.AsyncCalls`."""
        self._check_open()
        return await self._native.carrier.call_async(operation)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the client of {self.address} is closed")

    async def _in_thread(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self._check_open()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, functools.partial(function, *args, **kwargs))

    # -- producing -----------------------------------------------------------------------------------------------------

    def _schedule(self, row: Row) -> asyncio.Future[Receipt]:
        """Schedule a message; a cancelled call may have scheduled it."""
        if self._sender is None or self._sender.loop.is_closed():  # one program may run several loops, in turn
            self._check_open()
            self._sender = _Sender(self._client.places, self._timeout_s)
        future: asyncio.Future[Receipt] = self._sender.loop.create_future()
        self._sender.add(row, future)
        return future

    async def schedule_many(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Receipt]:
        """As :meth:`tarry.client.Client.schedule_many`; ``messages`` is read in another thread."""
        return await self._in_thread(self._client.schedule_many, messages)

    async def schedule_batch(
        self, data: Any, *, chunk_rows: int = CHUNK_ROWS, progress: Progress | None = None
    ) -> list[Accepted]:
        """As :meth:`tarry.client.Client.schedule_batch`; ``progress`` is called in another thread."""
        return await self._in_thread(self._client.schedule_batch, data, chunk_rows=chunk_rows, progress=progress)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def consume(self, topic: str, *, group: str, **options: Unpack[ConsumeOptions]) -> AsyncConsumer:
        """As :meth:`tarry.client.Client.consume`, for ``async for``."""
        self._check_open()
        consumer = AsyncConsumer(self._consuming, topic, group, self._pool, **options)
        self._consumers.add(consumer)
        return consumer

    async def receive(self, topic: str, *, group: str, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """As :meth:`tarry.client.Client.receive`."""
        self._check_open()
        return await self._native.receiver().receive_async((topic, group), **options)

    async def flush(self) -> None:
        """As :meth:`tarry.client.Client.flush`."""
        await self._in_thread(self._client.flush)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Wait for answers under way, send the last acks, close the consumers."""
        if self._closed:
            return
        self._closed = True
        for consumer in list(self._consumers):
            await consumer.close()
        loop = asyncio.get_running_loop()
        if self._sender is not None and not self._sender.loop.is_closed():
            await self._sender.close()
        await loop.run_in_executor(self._pool, self._client.close)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            for consumer in list(self._consumers):
                await consumer.fail(error)
        await self.close()


class _Sender:
    """Single messages of an event loop, on a connection of that loop: no thread hands over to another."""

    def __init__(self, places: BrokerPlaces, timeout_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._connection = BrokerConnection(places, self.loop)
        self._producer: Producer[asyncio.Future[Receipt]] = Producer(self._submit, _resolve, Pace())
        self._turns = PacedTurns(self.loop, self._producer.coalescer)

    def add(self, row: Any, future: asyncio.Future[Receipt]) -> None:
        due_ms = row[DUE_MS]
        # A relative delay begins when the broker has it.
        urgent = due_ms is None or due_ms < time.time() * 1000 + SOON_MS
        self._producer.add(row, future, urgent=urgent)
        self._turns.plan()

    def _submit(self, rows: bytes, on_answer: OnAnswer) -> None:
        """Send a batch; it is answered in time, by the broker or by an error."""
        is_over = False

        def answered(answer: memoryview | TarryError) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                on_answer(answer)

        address, timeout_s = self._connection.address, self._timeout_s
        timer = self.loop.call_later(timeout_s, lambda: answered(no_answer(address, timeout_s, IN_DOUBT)))
        self._connection.submit_here(rows, answered)

    async def close(self) -> None:
        # It waits for answers, which come on the loop.
        await self.loop.run_in_executor(None, self._producer.close)
        self._connection.close()


def _resolve(answers: list[tuple[asyncio.Future[Receipt], Receipt | TarryError]]) -> None:
    for future, answer in answers:
        settle_future(future, answer)
