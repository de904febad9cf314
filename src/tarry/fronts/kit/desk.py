"""The broker as a front on an event loop uses it: operations awaited, messages gathered.

All on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar, TypeVarTuple

import pyarrow as pa

from loopgrpc import UnreadBytes
from tarry.api.audit import AskedBy
from tarry.api.calls import AsyncCalls
from tarry.api.internal_topics import check_open
from tarry.api.local import AnyBroker
from tarry.api.needs import Right
from tarry.api.operation import Operation
from tarry.api.operations import DeleteGroup
from tarry.api.row_queue import RowQueue
from tarry.base.bounded_cache import BoundedCache
from tarry.base.errors import NotFoundError
from tarry.base.event_loop import answer_future
from tarry.fronts.kit.groups import ReceiveQueues
from tarry.fronts.kit.receiving import ReceiveQueue
from tarry.identity.principal import LOCAL, Principal
from tarry.identity.seen import seen_by
from tarry.message.accepted import Accepted
from tarry.message.receipt import Receipt
from tarry.message.row_columns import to_batch
from tarry.message.rows import BODY, Row

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FEW_ROWS = 256
"""Up to so many rows are checked on the loop's thread: handing them over takes longer."""

CALLERS_MAX = 1024
"""Callers whose desks are kept."""


class Desk(AsyncCalls):
    """The operations, awaited.

    Operations that may wait for the disk run in a thread of ``pool``. Messages that are scheduled in one turn of the
    event loop travel together. :meth:`seen_by` is the same desk for one caller.
    """

    principal: Principal = LOCAL
    """The caller that it is for; what this one has no right to is refused."""
    peer: str | None = None
    """Its address, for the audit log; None: it is not known."""

    def __init__(
        self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, pool: Executor, unread: UnreadBytes | None = None
    ) -> None:
        super().__init__()
        self.broker = broker
        self.loop = loop
        self._pool = pool
        self._rows = RowQueue(broker, loop, own_handles=True)
        self._queues = ReceiveQueues(loop)
        self.unread = unread or UnreadBytes()
        """Limit on the bytes of answers that clients have not read."""
        self._seen: BoundedCache[tuple[Principal, str | None], Self] = BoundedCache(CALLERS_MAX)
        self._on_close: list[Callable[[str], None]] = []

    def seen_by(self, principal: Principal, peer: str | None = None) -> Self:
        """Return this desk as a caller sees it. Both have the same queues, of messages of all callers.

        ``peer``: its address, for the audit log.
        """
        if principal.is_local:
            return self
        seen: Self | None = self._seen.get((principal, peer))
        return seen or self._seen.keep((principal, peer), self._made_for(principal, peer))

    def _made_for(self, principal: Principal, peer: str | None) -> Self:
        seen = object.__new__(type(self))
        seen.__dict__.update(self.__dict__)
        AsyncCalls.__init__(seen)  # calls that are gathered are those of one caller
        seen.principal, seen.peer = principal, peer
        seen.broker = seen_by(self.broker, principal, principal.asks(peer))
        return seen

    async def call(self, operation: Operation[R]) -> R:
        """Carry an operation out in a thread, and wait for its result.

        Raises:
            TarryError: it was refused.
        """
        check_open(operation)
        return await self.loop.run_in_executor(self._pool, self.broker.call, operation)

    async def call_by(self, operation: Operation[R], asked: AskedBy) -> R:
        """Carry an operation out as :meth:`call` does, and say in the audit log who asked for it."""
        check_open(operation)
        return await self.loop.run_in_executor(self._pool, self.broker.call_by, operation, asked)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function in a thread, and wait for its result."""
        return await self.loop.run_in_executor(self._pool, function, *args)

    async def receive_queue(
        self, topic: str, group: str, *, start: str | None = None, broadcast: str | None = None
    ) -> ReceiveQueue:
        """Return the queue in which consumers of a group wait without a thread.

        The group is made, durably, when it is new; see :meth:`AnyBroker.group`.

        Raises:
            ForbiddenError: the caller may not consume for this group.
        """
        queue = None if broadcast is not None else self.known_queue(topic, group)
        if queue is None:
            find = partial(self.broker.group, topic, group, start=start, broadcast=broadcast)
            queue = self._queues.of(await self.loop.run_in_executor(self._pool, find))
        return queue

    def known_queue(self, topic: str, group: str) -> ReceiveQueue | None:
        """:meth:`receive_queue`, where it was asked for before; else None."""
        # Another caller may have asked for it.
        self.principal.check(Right.CONSUME, topic, group, peer=self.peer)
        return self._queues.find(topic, group)

    async def forget_queue(self, topic: str, group: str) -> None:
        """Delete a group, and end its waiting receives. Nothing where there is no such group."""
        self.principal.check(Right.MANAGE, topic, group, peer=self.peer)
        self._queues.forget(topic, group)
        with suppress(NotFoundError):
            await self.call(DeleteGroup(topic, group))

    def schedule_row(self, row: Row) -> asyncio.Future[Receipt]:
        """Schedule the message of a row whose values the caller has checked; done when it is durable.

        Messages that are scheduled in one turn of the loop travel together.
        """
        return self._schedule(row)

    async def schedule_rows(self, rows: Sequence[Row]) -> Accepted:
        """Schedule the messages of rows that were checked, all of them or none.

        Raises:
            TarryError: nothing of it was accepted.
        """
        few = len(rows) <= FEW_ROWS
        return await self.submit(to_batch(rows) if few else await self.run(to_batch, rows))

    def on_close(self, call: Callable[[str], None]) -> None:
        """Have ``call`` called, with the reason, when nothing may be sent any more."""
        self._on_close.append(call)

    def close(self) -> None:
        """Refuse messages that are not sent yet; requests that wait for messages get none."""
        for call in (self._rows.close, *self._on_close):
            call("the broker is stopping; try again later")
        self._queues.close()

    async def submit(self, batch: pa.RecordBatch) -> Accepted:
        """Schedule a batch, all of it or nothing (columns: :func:`tarry.message.admission.admit`).

        Raises:
            TarryError: nothing of it was accepted.
        """
        await self.principal.in_turn()
        future: asyncio.Future[Accepted]
        future, on_result = answer_future(self.loop)
        if batch.num_rows <= FEW_ROWS:
            self.broker.submit(batch, on_result)
        else:
            await self.run(self.broker.submit, batch, on_result)
        return await future

    def check_row(self, row: Row) -> None:
        """Refuse a row for a topic to which the caller may not produce.

        Raises:
            ForbiddenError: it may not.
        """
        topic = row[0]
        if not self.principal.rights.is_unlimited and isinstance(topic, str):  # another is refused as invalid
            self.principal.check(Right.PRODUCE, topic, peer=self.peer)

    def _schedule(self, row: Row) -> asyncio.Future[Receipt]:
        self.check_row(row)
        if self.principal.is_bounded:
            return self.loop.create_task(self._schedule_in_turn(row))
        return self._rows.add(row)

    async def _schedule_in_turn(self, row: Row) -> Receipt:
        await self.principal.in_turn()
        self.principal.charge(1, len(row[BODY]), (row[0],))
        return await self._rows.add(row)
