"""DeleteMessage and ChangeMessageVisibility, of one message or of up to ten.

A lease whose time was changed has another number. A client goes on with the receipt handle that it has; so the newest
lease by the first is remembered here until it ends. Of a message whose lease nobody remembers, or has ended, the handle
still says which message it is: it is deleted wherever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tarry.api.consuming import ConsumerGroup
from tarry.api.operations import DiscardMessage
from tarry.base.bounded_cache import BoundedCache
from tarry.base.errors import TarryError
from tarry.base.event_loop import post, settle_future
from tarry.batching.coalescing import copy_of
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.errors import SqsError, missing
from tarry.fronts.http.sqs.handles import SqsHeld, held_by
from tarry.fronts.http.sqs.names import GROUP
from tarry.fronts.http.sqs.queue_attributes import VISIBILITY_S_MAX, Queue
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.request import Parameters, SqsRequest, whole_of
from tarry.fronts.http.sqs.sending import check_entries, failure, results_of
from tarry.fronts.kit.settling import AckGatherer, AckOutcome, Entries

CHANGED_MAX = 120_000
"""Changed leases that are remembered: as many as AWS lets a queue have messages in flight."""


class SqsSettling:
    """On the event loop's thread, except the groups' callbacks."""

    def __init__(self, services: HttpServices, table: QueueTable) -> None:
        self._services = services
        self._table = table
        self._changed: BoundedCache[tuple[str, int, int], int] = BoundedCache(CHANGED_MAX)
        """Newest lease by queue, first lease and offset."""
        self._acks: AckGatherer[SqsHeld, asyncio.Future[bool]] = AckGatherer(services.loop, _answer)

    async def delete(self, request: SqsRequest) -> None:
        """Delete a message; as if it had been there, if it is not."""
        queue = self._table.asked(request)
        await self._delete(request, queue, request.parameters)

    async def delete_batch(self, request: SqsRequest) -> dict[str, Any]:
        """Delete up to ten messages."""
        return await self._each(request, "DeleteMessageBatchRequestEntry", self._delete)

    async def change(self, request: SqsRequest) -> None:
        """Hold a message for another time from now; 0: give it back."""
        queue = self._table.asked(request)
        await self._change(request, queue, request.parameters)

    async def change_batch(self, request: SqsRequest) -> dict[str, Any]:
        """Hold up to ten messages for other times."""
        return await self._each(request, "ChangeMessageVisibilityBatchRequestEntry", self._change)

    async def settle(self, group: ConsumerGroup, held: SqsHeld) -> bool:
        """Acknowledge a message; return whether it was still held. Durable then."""
        future: asyncio.Future[bool] = self._services.loop.create_future()
        self._acks.add(group, held, future)
        return await future

    # ------------------------------------------------------------------------------------------------------------------

    async def _each(
        self, request: SqsRequest, element: str, carry: Callable[[SqsRequest, Queue, Parameters], Awaitable[None]]
    ) -> dict[str, Any]:
        queue = self._table.asked(request)
        entries = check_entries(request.entries(), element)
        results = await results_of([carry(request, queue, entry) for entry in entries])
        done, failed = [], []
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, BaseException):
                failed.append({**failure(entry, result), **_text_of(entry, result)})
            else:
                done.append({"Id": entry["Id"]})
        return {"Successful": done, **({"Failed": failed} if failed else {})}

    async def _delete(self, request: SqsRequest, queue: Queue, given: Parameters) -> None:
        first = held_by(queue.name, given.get("ReceiptHandle"))
        group = (await request.desk.receive_queue(queue.name, GROUP)).group
        if not await self.settle(group, self._newest(queue, first)):
            await request.desk.call(DiscardMessage(queue.name, GROUP, first.seq, first.due_ms))

    async def _change(self, request: SqsRequest, queue: Queue, given: Parameters) -> None:
        first = held_by(queue.name, given.get("ReceiptHandle"))
        if given.get("VisibilityTimeout") is None:
            raise missing("VisibilityTimeout")
        visible_s = whole_of(given, "VisibilityTimeout", 0, 0, VISIBILITY_S_MAX)
        group = (await request.desk.receive_queue(queue.name, GROUP)).group
        held = self._newest(queue, first)
        if visible_s:
            lease = await self._change_lease(group, held, visible_s * 1000)
            if lease is not None:
                self._changed.keep((queue.name, first.lease, first.offset), lease)
                return
        elif await self._give_back(group, held):
            return
        raise SqsError(
            "MessageNotInflight",
            "The specified message isn't in flight: its visibility time-out has passed, or it was deleted.",
        )

    def _newest(self, queue: Queue, held: SqsHeld) -> SqsHeld:
        lease = self._changed.get((queue.name, held.lease, held.offset))
        return held if lease is None else held._replace(lease=lease)

    async def _change_lease(self, group: ConsumerGroup, held: SqsHeld, lease_ms: int) -> int | None:
        loop = self._services.loop
        future: asyncio.Future[int | None] = loop.create_future()

        def on_lease(lease: int | TarryError | None) -> None:
            post(loop, settle_future, future, copy_of(lease) if isinstance(lease, TarryError) else lease)

        group.change_lease(held.lease, held.offset, lease_ms, on_lease)
        return await future

    async def _give_back(self, group: ConsumerGroup, held: SqsHeld) -> bool:
        loop = self._services.loop
        future: asyncio.Future[bool] = loop.create_future()

        def on_result(error: TarryError | None) -> None:
            post(loop, settle_future, future, error is None)

        group.nack(np.array([held.lease], np.int64), np.array([held.offset], np.int64), 0, on_result)
        return await future


def _text_of(entry: Parameters, error: BaseException) -> dict[str, str]:
    """Return the text of an error that has another one in a batch."""
    if not isinstance(error, SqsError) or error.code != "ReceiptHandleIsInvalid":
        return {}
    return {"Message": f'The input receipt handle "{entry["ReceiptHandle"]!s:.1024}" is not a valid receipt handle.'}


def _answer(entries: Entries[SqsHeld, asyncio.Future[bool]], settled: AckOutcome) -> None:
    for row, (_, future) in enumerate(entries):
        settle_future(future, copy_of(settled) if isinstance(settled, TarryError) else settled[row])
