"""Receives of a client: each waits in its group's queue for the first message, without a thread.

What a receive has got stays leased when the connection ends, as the client may have passed it on.
"""

from __future__ import annotations

import asyncio

import pyarrow as pa

from tarry.api.audit import AskedBy
from tarry.api.consuming import Subscription
from tarry.api.operations import Receive
from tarry.api.parsing import from_json
from tarry.api.row_schemas import DELIVERY
from tarry.api.wire import decode_request
from tarry.base.errors import OverloadedError
from tarry.fronts.kit.known_errors import known
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import FILTERING_S, WAIT_S_MAX, lease_ms_of, poll_now, receive_within
from tarry.fronts.link.groups import ServedGroup
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.shared import Shared
from tarry.identity.checks import check_request
from tarry.identity.principal import Principal
from tarry.link.frames import FrameKind, error_frame, frame
from tarry.message.columns import stream_bytes


class Receives:
    """The receives of one connection, up to ``receives_max`` at a time. On the loop's thread."""

    def __init__(
        self, shared: Shared, out: Outgoing, receives_max: int, principal: Principal, asked: AskedBy | None = None
    ) -> None:
        self._shared, self._out, self._receives_max = shared, out, receives_max
        self._principal, self._asked = principal, asked
        self._answered: dict[int, Subscription] = {}
        """Of the last receives with messages, by number, what gives them back."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._withdrawn: dict[int, asyncio.Future[None]] = {}
        """Of each receive under way, by number: done when it is to wait no longer."""

    def __len__(self) -> int:
        return len(self._tasks)

    def receive(self, number: int, payload: memoryview) -> None:
        """Carry out a RECEIVE: its answer is ROWS."""
        operation = from_json(Receive, decode_request(payload))
        check_request(self._principal, operation, self._asked)
        if len(self._tasks) >= self._receives_max:
            raise OverloadedError(f"one receive more; allowed on a connection at a time: {self._receives_max}")
        withdrawn = self._withdrawn[number] = self._shared.loop.create_future()
        task = self._shared.loop.create_task(self._answer(number, operation, withdrawn))
        self._tasks.add(task)

        def done(_: object) -> None:
            self._tasks.discard(task)
            self._withdrawn.pop(number, None)

        task.add_done_callback(done)

    def withdraw(self, number: int) -> None:
        """Answer a receive now, with no messages where it has none yet."""
        withdrawn = self._withdrawn.get(number)
        if withdrawn is not None and not withdrawn.done():
            withdrawn.set_result(None)

    def subscription(self, number: int) -> Subscription | None:
        """Return what gives back the messages of an answered receive; None: it is not known (any more)."""
        return self._answered.get(number)

    def stop_waiting(self) -> None:
        """Answer all receives now."""
        for number in self._withdrawn:
            self.withdraw(number)

    def end(self) -> None:
        """Give back what no client took: the connection is lost."""
        for task in list(self._tasks):
            task.cancel()

    async def _answer(self, number: int, operation: Receive, withdrawn: asyncio.Future[None]) -> None:
        try:
            subscription, batch = await self._receive(operation, withdrawn)
            encoded = stream_bytes(DELIVERY, [] if batch is None else [batch])
            if batch is not None and holds_back(subscription.group, batch):
                encoded = stream_bytes(DELIVERY, [])
            elif batch is not None:
                self._note(number, subscription)
            self._out.write(frame(FrameKind.ROWS, number, encoded))
        except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
            self._out.write(error_frame(number, known(error)))

    def _note(self, number: int, subscription: Subscription) -> None:
        """Note who gives the messages of a receive back, in the place of the oldest if there are too many."""
        self._answered.pop(number, None)
        if len(self._answered) >= self._receives_max:
            del self._answered[next(iter(self._answered))]
        self._answered[number] = subscription

    async def _receive(
        self, operation: Receive, withdrawn: asyncio.Future[None]
    ) -> tuple[Subscription, pa.RecordBatch | None]:
        served = await self._group(operation)
        subscribe, group = operation.subscription, served.group  # it checks the lease
        lease_ms = lease_ms_of(group, self._shared.broker, operation.lease_ms)
        account = self._principal.account
        subscription = group.subscribe(prefetch=subscribe.prefetch, lease_ms=lease_ms, account=account)
        rows_max = operation.max_messages
        if not operation.wait_ms:
            batch = await poll_now(self._shared.loop, subscription, rows_max, FILTERING_S)
            if batch is not None:
                self._out.hold(batch.nbytes)
            return subscription, batch
        wait_s = min(operation.wait_ms / 1000, WAIT_S_MAX)
        return subscription, await receive_within(served.queue, subscription, rows_max, wait_s, self._out, withdrawn)

    async def _group(self, operation: Receive) -> ServedGroup:
        """Return the group, which is made if it is new: in a thread, since that waits for the disk."""
        broker, groups = self._shared.broker, self._shared.groups
        if operation.broadcast is None and (served := groups.named(operation.topic, operation.group)) is not None:
            return served
        topic, name, start, broadcast = operation.topic, operation.group, operation.start, operation.broadcast
        group = await self._shared.run_in_thread(lambda: broker.group(topic, name, start=start, broadcast=broadcast))
        return groups.get_or_add(group)
