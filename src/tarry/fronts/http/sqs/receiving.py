"""ReceiveMessage: up to ten messages, now or when there are some."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa

from tarry.base.bounded_cache import BoundedCache
from tarry.base.event_loop import settle_future
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.errors import SqsError
from tarry.fronts.http.sqs.names import GROUP
from tarry.fronts.http.sqs.queue_attributes import VISIBILITY_S_MAX, WAIT_S_MAX, Queue
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.received import SYSTEM, SqsDelivery, deliveries_of, message_of
from tarry.fronts.http.sqs.redriving import Redriving
from tarry.fronts.http.sqs.request import SqsRequest, texts_of
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import FILTERING_S, ReceiveQueue, give_back, poll_now, receive_within
from tarry.fronts.kit.unread import Room

COUNT_MAX = 10
FIRST_MAX = 120_000
"""Messages of which it is remembered when they were handed out first."""


class Receiving:
    """On the event loop's thread."""

    def __init__(self, services: HttpServices, table: QueueTable, landing: Landing, redriving: Redriving) -> None:
        self._services = services
        self._table = table
        self._landing = landing
        self._redriving = redriving
        self._first: BoundedCache[tuple[str, int], int] = BoundedCache(FIRST_MAX)

    async def receive(self, request: SqsRequest) -> dict[str, Any]:
        """Hand messages out, for the visibility time-out."""
        queue = self._table.asked(request)
        count = request.whole("MaxNumberOfMessages", 1, 1, COUNT_MAX)
        visibility_s = request.whole("VisibilityTimeout", queue.visibility_s, 0, VISIBILITY_S_MAX)
        wait_s = request.whole("WaitTimeSeconds", queue.wait_s, 0, WAIT_S_MAX)
        system = {
            *texts_of(request.parameters, "AttributeNames"),
            *texts_of(request.parameters, "MessageSystemAttributeNames"),
        }
        unknown = system - {*SYSTEM, "All"}
        if unknown:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {min(unknown):.60}.")
        wanted = texts_of(request.parameters, "MessageAttributeNames")
        room = Room(self._services.unread, request.http.host)
        room.check()
        deliveries = await self._receive(request, queue, count, max(1, visibility_s * 1000), wait_s, room)
        try:
            return self._answer(request, queue, deliveries, system, wanted)
        finally:
            room.release()  # it is written at once, and counted by its connection

    def _answer(
        self, request: SqsRequest, queue: Queue, deliveries: list[SqsDelivery], system: set[str], wanted: list[str]
    ) -> dict[str, Any]:
        if not deliveries:
            return {}
        self._landing.arrived(queue.name, max(each.held.seq for each in deliveries))
        now_ms = self._services.broker.clock.now_ms()
        return {
            "Messages": [
                message_of(
                    queue, each, request.region, self._first_ms(queue, each, now_ms) if system else 0, system, wanted
                )
                for each in deliveries
            ]
        }

    def _first_ms(self, queue: Queue, delivery: SqsDelivery, now_ms: int) -> int:
        """Return when a message was handed out first; of what was before a restart, when it could have been."""
        place = queue.name, delivery.held.offset
        if delivery.attempt == 1:
            return self._first.keep(place, now_ms)
        return self._first.get(place) or max(delivery.held.due_ms, delivery.born_ms)

    async def _receive(
        self, request: SqsRequest, queue: Queue, count: int, lease_ms: int, wait_s: float, room: Room
    ) -> list[SqsDelivery]:
        receives = await request.desk.receive_queue(queue.name, GROUP)
        loop, http = self._services.loop, request.http
        left: asyncio.Future[None] = loop.create_future()
        http.on_disconnect(lambda: settle_future(left, None))
        # Whoever is not known any more waits no longer: it is answered that there is no message.
        self._services.callers.add(http, request.desk.principal, lambda _: http.stop_waiting())
        try:
            end_s = loop.time() + wait_s
            while True:
                batch = await self._poll(request, receives, count, lease_ms, end_s, room, left)
                if left.done():
                    give_back(receives.group, batch)
                    return []
                deliveries = [] if batch is None else deliveries_of(queue, batch)
                # Those that were handed out too often go to the dead-letter queue instead, and others may be behind.
                kept = await self._redriving.sift(queue, receives.group, deliveries)
                if kept and holds_back(receives.group, batch):
                    return []
                if kept or not deliveries:
                    return kept
        finally:
            self._services.callers.remove(http)

    async def _poll(
        self,
        request: SqsRequest,
        receives: ReceiveQueue,
        count: int,
        lease_ms: int,
        end_s: float,
        room: Room,
        left: asyncio.Future[None],
    ) -> pa.RecordBatch | None:
        loop = self._services.loop
        account = request.desk.principal.account
        subscription = receives.group.subscribe(prefetch=count, lease_ms=lease_ms, account=account)
        wait_s = max(0.0, end_s - loop.time())
        if not wait_s:
            batch = await poll_now(loop, subscription, count, FILTERING_S)
            if batch is not None:
                room.hold(batch.nbytes)
                return batch
            # A client that does not want to wait also gets what is being put into the queue just now.
            wait_s = self._landing.left_s(receives.group.topic_name)
            if not wait_s:
                return None
        return await receive_within(receives, subscription, count, wait_s, room, left)
