"""What every application of the HTTP front asks the broker through. All of it is on the loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar, TypeVarTuple

from tarry.api.calls import AsyncCalls
from tarry.api.coalescing import Batch, Coalescer, EndOfTurn, fail_futures
from tarry.api.local import LocalBroker
from tarry.api.operation import Operation
from tarry.api.receipt import Accepted, Receipt
from tarry.api.schedule import ID, Row, to_batch
from tarry.base.errors import TarryError
from tarry.fronts.common.receive_queue import ReceiveQueue
from tarry.fronts.common.threads import post

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Entry = tuple[Row, "asyncio.Future[Receipt]"]


class Services(AsyncCalls):
    """The operations, awaited: what may wait for the disk runs in a thread of ``pool``; messages that are scheduled in
    one turn of the event loop travel together.
    """

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        super().__init__()
        self.broker = broker
        self.loop = loop
        self._pool = pool
        self._coalescer: Coalescer[Entry] = Coalescer(self._send, fail_futures)
        self._end_of_turn = EndOfTurn(loop, self._coalescer.pump)
        self._receive_queues: dict[tuple[str, str], ReceiveQueue] = {}

    async def call(self, operation: Operation[R]) -> R:
        """Carry an operation out in a thread, and wait for its result.

        Raises:
            TarryError: it was refused.
        """
        return await self.loop.run_in_executor(self._pool, self.broker.call, operation)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function in a thread, and wait for its result."""
        return await self.loop.run_in_executor(self._pool, function, *args)

    async def receive_queue(
        self, topic: str, group: str, *, start: str | None = None, broadcast: str | None = None
    ) -> ReceiveQueue:
        """Where consumers of a group wait without a thread. The group is made, durably, when it is new; see
        :meth:`LocalBroker.group`.
        """
        queue = None if broadcast is not None else self._receive_queues.get((topic, group))
        if queue is None or queue.group.closed:
            find = partial(self.broker.group, topic, group, start=start, broadcast=broadcast)
            found = await self.loop.run_in_executor(self._pool, find)
            name = (topic, found.name)  # a broadcast's is another one
            queue = self._receive_queues.get(name)  # another task may have been quicker
            if queue is None or queue.group.closed:
                queue = self._receive_queues[name] = ReceiveQueue(self.loop, found)
        return queue

    def schedule_row(self, row: Row) -> asyncio.Future[Receipt]:
        """Schedule the message of a row whose values the caller has checked; done when it is durable. What is scheduled
        in one turn of the loop travels together.
        """
        return self._schedule(row)

    def schedule_rows(self, rows: Sequence[Row]) -> asyncio.Future[Accepted]:
        """Schedule messages, all of them or none; done when they are durable."""
        future: asyncio.Future[Accepted] = self.loop.create_future()

        def on_result(result: Accepted | TarryError) -> None:
            post(self.loop, _settle, future, result)

        try:
            self.broker.submit(to_batch(rows), on_result)
        except TarryError as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Refuse what is not sent yet; who waits for messages gets none."""
        self._coalescer.close("the front has stopped")
        for queue in self._receive_queues.values():
            queue.close()

    def _schedule(self, row: Row) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self.loop.create_future()
        self._coalescer.add((row, future))
        self._end_of_turn.plan()
        return future

    def _send(self, batch: Batch[Entry]) -> None:
        def on_result(result: Accepted | TarryError) -> None:
            post(self.loop, self._on_result, batch, result)

        self.broker.submit(to_batch([row for row, _ in batch.entries]), on_result)

    def _on_result(self, batch: Batch[Entry], result: Accepted | TarryError) -> None:
        if isinstance(result, TarryError):
            self._coalescer.on_refused(batch, result)
        else:
            receipts = result.receipts([row[ID] for row, _ in batch.entries])
            for receipt, (_, future) in zip(receipts, batch.entries, strict=True):
                if not future.done():
                    future.set_result(receipt)
            self._coalescer.on_accepted(batch)
        self._coalescer.pump()


def _settle(future: asyncio.Future[Accepted], result: Accepted | TarryError) -> None:
    if future.done():
        return  # nobody waits any more
    if isinstance(result, TarryError):
        future.set_exception(result)
    else:
        future.set_result(result)
