"""The broker inside the caller's process, as SQLite is inside its user's: ``tarry.open("dir")``.

:class:`AsyncBroker` is the same for asyncio: many tasks may each wait for one message's durability, and share batches
and fsyncs. What the tasks of one turn of the event loop schedule travels together; while two batches are under way,
rows queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tarry.broker import Accepted, Broker
from tarry.client.rows import ID, Row, make_row, to_batch
from tarry.clock import Clock
from tarry.config import Config
from tarry.delay import Delay
from tarry.errors import ClosedError, InvalidMessageError, TarryError
from tarry.receipt import Receipt, id_of

BATCHES_IN_FLIGHT = 2
ROWS_MAX = 4096

Entries = list[tuple[Row, "asyncio.Future[Receipt]"]]


def open(directory: str | Path, *, clock: Clock | None = None, **settings: Any) -> Broker:
    """Open a data directory in this process; one process at a time may. No Spark runs: what is pending stays in the
    intake.

    Args:
        directory: made if it is not there.
        settings: those of :class:`tarry.config.Config`.

    Raises:
        LockedError: another broker has it open. CorruptError: it is damaged.
    """
    return Broker.open(Config(data=Path(directory), pipeline="off", **settings), clock=clock)


class AsyncBroker:
    """A broker's ``schedule`` for tasks of the running event loop. Closing it leaves the broker open."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._loop = asyncio.get_running_loop()
        self._waiting: Entries = []
        self._in_flight = 0
        self._woken = False

    async def schedule(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay: Delay | None = None,
        due: datetime | int | None = None,
        id: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        ttl: float | str | timedelta | None = None,
        tries: int | None = None,
    ) -> Receipt:
        """As :meth:`tarry.broker.Broker.schedule`; returns when the message is durable."""
        row = make_row(
            topic, body, delay=delay, due=due, id=id, key=key, tag=tag, properties=properties, ttl=ttl, tries=tries
        )
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._waiting.append((row, future))
        if not self._woken and self._in_flight < BATCHES_IN_FLIGHT:
            self._woken = True
            self._loop.call_soon(self._send)
        return await future

    def _send(self) -> None:
        self._woken = False
        while self._waiting and self._in_flight < BATCHES_IN_FLIGHT:
            entries, self._waiting = self._waiting[:ROWS_MAX], self._waiting[ROWS_MAX:]
            self._submit(entries)

    def _submit(self, entries: Entries) -> None:
        def done(answer: Accepted | TarryError) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._answered, entries, answer)

        while entries:
            try:
                self.broker.submit(to_batch([row for row, _ in entries]), done)
            except InvalidMessageError as error:
                if error.row is None:
                    return self._fail(entries, error)
                # One row is refused, and so nothing was accepted: the others go again without it.
                refused = entries.pop(error.row)
                error.args = (str(error).partition(": ")[2],)
                self._fail([refused], error)
            except TarryError as error:
                return self._fail(entries, error)
            else:
                self._in_flight += 1
                return None
        return None

    def _answered(self, entries: Entries, answer: Accepted | TarryError) -> None:
        self._in_flight -= 1
        if isinstance(answer, TarryError):
            self._fail(entries, answer)
        else:
            rows, first, token = len(entries), answer.first_seq, answer.token
            for seq, due, (row, future) in zip(
                range(first, first + rows), answer.due_ms.tolist(), entries, strict=True
            ):
                if not future.done():
                    future.set_result(Receipt(row[ID] or id_of(seq), seq, due, first, rows, token))
        self._send()

    def _fail(self, entries: Entries, error: TarryError) -> None:
        for _, future in entries:
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        """Refuse what is not sent yet."""
        waiting, self._waiting = self._waiting, []
        self._fail(waiting, ClosedError("the broker is closed"))
