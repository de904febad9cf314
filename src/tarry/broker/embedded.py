"""The broker inside the caller's process, as SQLite is inside its user's: ``tarry.open("dir")``.

:class:`AsyncBroker` is the same for asyncio. Many tasks may each wait until their message is durable, and share batches
and fsyncs: the messages scheduled by tasks in one turn of the event loop travel together.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypeVar

from tarry.api.calls import AsyncCalls
from tarry.api.operation import Operation
from tarry.api.row_queue import RowQueue
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.broker import Broker
from tarry.message.receipt import Receipt
from tarry.message.rows import Row

R = TypeVar("R")


def open(directory: str | Path, *, clock: Clock | None = None, **settings: Any) -> Broker:
    """Open a data directory in this process; only one process at a time can.

    No Spark runs: pending messages stay in the intake.

    Args:
        directory: created if it does not exist.
        settings: those of :class:`tarry.base.config.Config`.

    Raises:
        LockedError: another broker has it open.
        CorruptError: it is damaged.
    """
    return Broker.open(Config(data=Path(directory), pipeline="off", **settings), clock=clock)


class AsyncBroker(AsyncCalls):
    """A broker for tasks of the running event loop: scheduling, cancelling, moving.

    For other operations there is ``broker``, whose calls are quick or can be made in a thread. Closing this object
    leaves the broker open.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self._rows = RowQueue(broker, asyncio.get_running_loop())

    def _schedule(self, row: Row) -> asyncio.Future[Receipt]:
        return self._rows.add(row)

    async def call(self, operation: Operation[R]) -> R:
        """Carry an operation out in a thread: it may wait for the disk."""
        return await asyncio.to_thread(self.broker.call, operation)

    async def close(self) -> None:
        """Refuse messages that were not sent yet."""
        self._rows.close("the broker is closed")
