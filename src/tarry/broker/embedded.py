"""The broker inside the caller's process, as SQLite is inside its user's: ``tarry.open("dir")``.

:class:`AsyncBroker` is the same for asyncio: many tasks may each wait for one message's durability, and share batches
and fsyncs. What the tasks of one turn of the event loop schedule travels together; while two batches are under way,
rows queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, Unpack

from tarry.api.calls import AsyncCalls
from tarry.api.gathering import Cancelling
from tarry.api.operation import Operation
from tarry.api.outcome import Outcome
from tarry.api.receipt import Accepted, Receipt
from tarry.api.schedule import ID, MessageOptions, Row, make_row, plain_row, to_batch
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.delay import Delay
from tarry.base.errors import ClosedError, InvalidMessageError, TarryError
from tarry.broker import Broker

R = TypeVar("R")

BATCHES_IN_FLIGHT = 2
ROWS_MAX = 4096

Entries = list[tuple[Row, "asyncio.Future[Receipt]"]]


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
        self.broker = broker
        self._loop = asyncio.get_running_loop()
        self._waiting: Entries = []
        self._again: deque[tuple[Entries, int]] = deque()
        self._in_flight = 0
        self._woken = False
        self._cancelling = Cancelling(self.cancel_many)

    async def schedule(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay: Delay | None = None,
        due: datetime | int | None = None,
        **options: Unpack[MessageOptions],
    ) -> Receipt:
        """As :meth:`tarry.broker.Broker.schedule`; returns when the message is durable."""
        # Handing on arguments that are not there takes a twentieth of a call.
        row = make_row(topic, body, delay=delay, due=due, **options) if options else plain_row(topic, body, delay, due)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._waiting.append((row, future))
        if not self._woken and self._in_flight < BATCHES_IN_FLIGHT:
            self._woken = True
            self._loop.call_soon(self._send)
        return await future

    # -- changing ------------------------------------------------------------------------------------------------------

    async def cancel(self, handle: str) -> Outcome:
        """As :meth:`tarry.broker.Broker.cancel`. Calls of several tasks are carried out together."""
        return await self._cancelling.cancel(handle)

    async def call(self, operation: Operation[R]) -> R:
        """Carry an operation out in a thread: it may wait for the disk."""
        return await asyncio.to_thread(self.broker.call, operation)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._woken = False
        while self._in_flight < BATCHES_IN_FLIGHT and (taken := self._take()):
            self._submit(*taken)

    def _take(self) -> tuple[Entries, int] | None:
        if self._again:
            return self._again.popleft()
        entries, self._waiting = self._waiting[:ROWS_MAX], self._waiting[ROWS_MAX:]
        return (entries, 0) if entries else None

    def _submit(self, entries: Entries, refusals: int) -> None:
        def done(answer: Accepted | TarryError) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._answered, entries, refusals, answer)

        self._in_flight += 1
        try:
            self.broker.submit(to_batch([row for row, _ in entries]), done)
        except TarryError as error:
            self._in_flight -= 1
            self._refused(entries, refusals, error)

    def _answered(self, entries: Entries, refusals: int, answer: Accepted | TarryError) -> None:
        self._in_flight -= 1
        if isinstance(answer, TarryError):
            self._refused(entries, refusals, answer)
        else:
            for receipt, (_, future) in zip(answer.receipts([row[ID] for row, _ in entries]), entries, strict=True):
                if not future.done():
                    future.set_result(receipt)
        self._send()

    def _refused(self, entries: Entries, refusals: int, error: TarryError) -> None:
        if not isinstance(error, InvalidMessageError) or error.row is None:
            self._fail(entries, error)
            return
        row = error.row
        # One row is refused, and so nothing was accepted: the others go again without it. Where there is more than one
        # bad row, each on its own, rather than one refusal after the other.
        rest = entries[:row] + entries[row + 1 :]
        if refusals:
            self._again.extend(([entry], 1) for entry in rest)
        elif rest:
            self._again.append((rest, 1))
        self._fail([entries[row]], error.of_row(None))

    def _fail(self, entries: Entries, error: TarryError) -> None:
        for _, future in entries:
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        """Refuse what is not sent yet."""
        waiting, self._waiting = [*chain(*(entries for entries, _ in self._again)), *self._waiting], []
        self._again.clear()
        self._fail(waiting, ClosedError("the broker is closed"))
