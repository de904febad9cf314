"""Settling of messages: AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

Acknowledgements are settled together, group by group, and answered when they are durable. While some are on their way
to the disk, more gather. Those that nobody waits for gather for ``GATHER_S`` seconds in any case.
"""

from __future__ import annotations

import asyncio
from typing import Any

from loopgrpc import Promise
from tarry.api.consuming import ConsumerGroup
from tarry.api.local import AnyBroker
from tarry.base.errors import NotFoundError, TarryError
from tarry.base.event_loop import answer_future
from tarry.fronts.kit.settling import AckGatherer, AckOutcome, Entries, HandOver, lease_columns
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.rights import check_consume
from tarry.fronts.rocketmq.common.stubs import service
from tarry.fronts.rocketmq.common.threads import durably
from tarry.fronts.rocketmq.v5.answer_bytes import ack_answer
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.drafting import ceil_ms
from tarry.fronts.rocketmq.v5.handles import ReceiptHandle, read_receipt, receipt_handle
from tarry.fronts.rocketmq.v5.receiving import INVISIBLE_MS
from tarry.fronts.rocketmq.v5.resources import group_of, topic_of
from tarry.fronts.rocketmq.v5.statuses import OK, overall, status_of

ENTRIES_MAX = 4096
GATHER_S = 0.01
"""Seconds for which acknowledgements gather that nobody waits for.

A push consumer's thread is at the next message long before it is answered. So fewer and larger steps cost it nothing,
and leave the processor to messages that are due.
"""
_STALE = (
    "INVALID_RECEIPT_HANDLE: the receipt handle is stale: its time is up, it was settled before, or it was never given"
)


class AckCall:
    """An AckMessage call under way: the statuses of its entries, as they come in, and its answer."""

    __slots__ = ("_entries", "_missing", "_statuses", "answer")

    def __init__(self, entries: Any) -> None:
        self.answer = Promise()
        self._entries = entries
        self._statuses: list[Any] = [None] * len(entries)
        self._missing = len(entries)

    def set_status(self, place: int, status: Any) -> None:
        """Set the status of one entry. The last one completes the answer."""
        self._statuses[place] = status
        self._missing -= 1
        if not self._missing:
            if len(self._statuses) == 1 and status is OK:
                [entry] = self._entries
                self.answer.set_result(ack_answer(entry.message_id, entry.receipt_handle))
                return
            entries = [
                service.AckMessageResultEntry(message_id=e.message_id, receipt_handle=e.receipt_handle, status=s)
                for e, s in zip(self._entries, self._statuses, strict=True)
            ]
            status = overall({s.code for s in self._statuses})
            self.answer.set_result(service.AckMessageResponse(status=status, entries=entries).SerializeToString())


EntryOfCall = tuple[AckCall, int]
"""A call that acknowledges, and the place of one entry in it."""


class Settler:
    """Answers the calls that settle messages. On the loop's thread."""

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._acks: AckGatherer[ReceiptHandle, EntryOfCall] = AckGatherer(
            loop, self._answer, hand_over=HandOver.ALL, window_s=GATHER_S
        )
        self._stale = Refusal(Code.INVALID_RECEIPT_HANDLE, _STALE)

    # -- acknowledge -------------------------------------------------------------------------------------------------

    def ack(self, caller: CallingClient, request: Any) -> Promise:
        """Answer AckMessage.

        Raises:
            Refusal: nothing was settled.
        """
        entries = request.entries
        if not 1 <= len(entries) <= ENTRIES_MAX:
            raise Refusal(Code.BAD_REQUEST, f"the request has {len(entries)} entries; allowed: 1 to {ENTRIES_MAX}")
        topic, name = topic_of(request.topic, caller.namespace), group_of(request.group, caller.namespace)
        call = AckCall(entries)
        for place, entry in enumerate(entries):
            try:
                receipt = read_receipt(entry.receipt_handle)
                group = self._find_group(caller, receipt.topic or topic, name)
            except Refusal as refusal:
                call.set_status(place, status_of(refusal))
                continue
            urgent = not receipt.pushed or group.waits_for_acks
            self._acks.add(group, receipt, (call, place), urgent=urgent)
        return call.answer

    def _answer(self, entries: Entries[ReceiptHandle, EntryOfCall], held: AckOutcome) -> None:
        if isinstance(held, TarryError):
            failed = status_of(Refusal.of(held))
            for _, (call, place) in entries:
                call.set_status(place, failed)
            return
        stale = status_of(self._stale)
        for (_, (call, place)), was_held in zip(entries, held, strict=True):
            call.set_status(place, OK if was_held else stale)

    # -- retry, or hold longer ---------------------------------------------------------------------------------------

    async def change(self, caller: CallingClient, request: Any) -> Any:
        """Answer ChangeInvisibleDuration.

        From a push consumer it is a failed try: the message comes again after the given time, durably. For other
        consumers, the message stays leased for the given time from now, under a new handle.

        Raises:
            Refusal: ILLEGAL_INVISIBLE_TIME; INVALID_RECEIPT_HANDLE.
        """
        wait_ms = ceil_ms(request.invisible_duration)
        group, receipt = self._delivery_of(caller, request, wait_ms)
        if receipt.pushed and not request.suspend:
            await durably(self._loop, lambda on_result: group.nack(*lease_columns([receipt]), wait_ms, on_result))
            return service.ChangeInvisibleDurationResponse(status=OK, receipt_handle=request.receipt_handle)
        changed: asyncio.Future[int | None]
        changed, on_lease = answer_future(self._loop)
        try:
            group.change_lease(receipt.lease, receipt.offset, wait_ms, on_lease)
            lease = await changed
        except TarryError as error:
            raise Refusal.of(error) from error
        if lease is None:
            raise self._stale
        handle = receipt_handle(lease, receipt.offset, receipt.topic, pushed=receipt.pushed)
        return service.ChangeInvisibleDurationResponse(status=OK, receipt_handle=handle)

    # -- reject ------------------------------------------------------------------------------------------------------

    async def reject(self, caller: CallingClient, request: Any) -> Any:
        """Answer ForwardMessageToDeadLetterQueue: the client has tried often enough.

        Raises:
            Refusal: INVALID_RECEIPT_HANDLE.
        """
        group, receipt = self._delivery_of(caller, request, 0)
        await durably(self._loop, lambda on_result: group.reject(*lease_columns([receipt]), on_result))
        return service.ForwardMessageToDeadLetterQueueResponse(status=OK)

    def _delivery_of(self, caller: CallingClient, request: Any, wait_ms: int) -> tuple[ConsumerGroup, ReceiptHandle]:
        """Return the group and the receipt that a request about one delivery names, and check them."""
        topic, name = topic_of(request.topic, caller.namespace), group_of(request.group, caller.namespace)
        if not 0 <= wait_ms <= INVISIBLE_MS[1]:
            raise Refusal(
                Code.ILLEGAL_INVISIBLE_TIME, f"invisible_duration is {wait_ms} ms; allowed: 0 to {INVISIBLE_MS[1]}"
            )
        receipt = read_receipt(request.receipt_handle)
        return self._find_group(caller, receipt.topic or topic, name), receipt

    def _find_group(self, caller: CallingClient, topic: str, name: str) -> ConsumerGroup:
        try:
            if not caller.principal.rights.is_unlimited:
                check_consume(caller.principal, topic, name, peer=caller.host)
            return self._broker.find_group(topic, name)
        except NotFoundError:
            raise self._stale from None
        except TarryError as error:
            raise Refusal.of(error) from error
