"""The broker inside the caller's process, as SQLite is inside its user's: ``tarry.open("dir")``.

:class:`AsyncBroker` is the same for asyncio: many tasks may each wait for one message's durability, and share batches
and fsyncs: what the tasks of one turn of the event loop schedule travels together.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tarry.api.calls import AsyncCalls
from tarry.api.coalescing import Batch, Coalescer, EndOfTurn, fail_futures
from tarry.api.operation import Operation
from tarry.api.receipt import Accepted, Receipt
from tarry.api.schedule import ID, Row, to_batch
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import TarryError
from tarry.broker import Broker

R = TypeVar("R")

Entry = tuple[Row, "asyncio.Future[Receipt]"]


def open(directory: str | Path, *, clock: Clock | None = None, **settings: Any) -> Broker:
    """Open a data directory in this process; one process at a time may. No Spark runs: what is pending stays in the
    intake.

    Args:
        directory: made if it is not there.
        settings: those of :class:`tarry.base.config.Config`.

    Raises:
        LockedError: another broker has it open. CorruptError: it is damaged.
    """
    return Broker.open(Config(data=Path(directory), pipeline="off", **settings), clock=clock)


class AsyncBroker(AsyncCalls):
    """A broker for tasks of the running event loop: scheduling, cancelling, moving. For the rest there is ``broker``,
    whose calls are quick or can be made in a thread. Closing it leaves the broker open.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self._loop = asyncio.get_running_loop()
        self._coalescer: Coalescer[Entry] = Coalescer(self._send, fail_futures)
        self._end_of_turn = EndOfTurn(self._loop, self._coalescer.pump)

    def _schedule(self, row: Row) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._coalescer.add((row, future))
        self._end_of_turn.plan()
        return future

    async def call(self, operation: Operation[R]) -> R:
        """Carry an operation out in a thread: it may wait for the disk."""
        return await asyncio.to_thread(self.broker.call, operation)

    async def close(self) -> None:
        """Refuse what is not sent yet."""
        self._coalescer.close("the broker is closed")

    def _send(self, batch: Batch[Entry]) -> None:
        def on_result(result: Accepted | TarryError) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._on_result, batch, result)

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
