"""What consumers say of messages that they hold: done, not yet, or never.

Acknowledgements are settled together, group by group, and answered when they are durable. While some are on their way
to the disk, more gather; those that nobody waits for gather for ``GATHER_S`` in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from loopgrpc import Promise
from tarry.base.errors import NotFoundError, TarryError
from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.clients import Client, Clients
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.draft import ceil_ms
from tarry.fronts.rocketmq.handles import Receipt, read_receipt, receipt_handle
from tarry.fronts.rocketmq.names import group_of, topic_of
from tarry.fronts.rocketmq.receiving import INVISIBLE_MS
from tarry.fronts.rocketmq.refusal import OK, Code, Refusal, overall
from tarry.fronts.rocketmq.stubs import service
from tarry.fronts.rocketmq.wire import acked
from tarry.groups import Group

log = logging.getLogger(__name__)

ENTRIES_MAX = 4096
GATHER_S = 0.01
"""A push consumer has given its thread to the next message long before it is answered: fewer and larger steps cost it
nothing, and leave the processor to what is due.
"""
_STALE = "the receipt handle is stale: its time is up, it was settled before, or it was never given"


class Ack:
    """One AckMessage on its way: its entries, as they become known, and who waits."""

    __slots__ = ("answer", "entries", "left", "statuses")

    def __init__(self, entries: Any) -> None:
        self.entries = entries
        self.answer = Promise()
        self.statuses: list[Any] = [None] * len(entries)
        self.left = len(entries)

    def told(self, place: int, status: Any) -> None:
        """What became of one of them."""
        self.statuses[place] = status
        self.left -= 1
        if not self.left:
            if len(self.statuses) == 1 and status is OK:
                [entry] = self.entries
                self.answer.set_result(acked(entry.message_id, entry.receipt_handle))
                return
            entries = [
                service.AckMessageResultEntry(message_id=e.message_id, receipt_handle=e.receipt_handle, status=s)
                for e, s in zip(self.entries, self.statuses, strict=True)
            ]
            status = overall({s.code for s in self.statuses})
            self.answer.set_result(service.AckMessageResponse(status=status, entries=entries).SerializeToString())


Waiting = tuple[Receipt, Ack, int]


class Settler:
    """On the loop's thread."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop, clients: Clients) -> None:
        self._core = core
        self._loop = loop
        self._clients = clients
        self._waiting: dict[Group, list[Waiting]] = {}
        self._urgent = False
        """Somebody may wait for one of those."""
        self._soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._on_way = 0
        self._stale = Refusal(Code.INVALID_RECEIPT_HANDLE, _STALE)

    # -- done --------------------------------------------------------------------------------------------------------

    def ack(self, caller: Caller, request: Any) -> Promise:
        """AckMessage.

        Raises:
            Refusal: nothing was settled.
        """
        entries = request.entries
        if not 1 <= len(entries) <= ENTRIES_MAX:
            raise Refusal(Code.BAD_REQUEST, f"the request has {len(entries)} entries; allowed: 1 to {ENTRIES_MAX}")
        topic, group = topic_of(request.topic, caller.space), group_of(request.group, caller.space)
        client = self._clients.find(caller.id, caller.space)
        ack = Ack(entries)
        for place, entry in enumerate(entries):
            try:
                receipt = read_receipt(entry.receipt_handle)
                found = self._group(receipt.topic or topic, group)
            except Refusal as refusal:
                ack.told(place, refusal.status())
                continue
            self._waiting.setdefault(found, []).append((receipt, ack, place))
            self._urgent = self._urgent or not _pushed(client, found) or found.waits_for_acks
        self._plan()
        return ack.answer

    def _plan(self) -> None:
        if not self._waiting or self._on_way or self._soon:
            return
        if self._urgent:
            self._soon = True
            self._loop.call_soon(self._settle)
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._settle)

    def _settle(self) -> None:
        self._soon = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_way or not self._waiting:
            return  # the timer and another plan came in the same turn
        self._urgent = False
        waiting, self._waiting = self._waiting, {}
        self._on_way = len(waiting)
        for group, acks in waiting.items():
            leases, offsets = _columns([receipt for receipt, _, _ in acks])
            held: list[bool] = []
            try:
                # Filled before the loop can turn, whenever it is told.
                held += group.ack_each(leases, offsets, self._teller(acks, held)).tolist()
            except TarryError as error:
                self._settled(acks, held, error)
            except Exception as error:
                # Who waits is told, and later ones are not kept waiting for these.
                log.exception("acknowledging %d messages of %s failed", len(acks), group.name)
                self._settled(acks, held, TarryError(f"acknowledging failed: {error}; see the server's log"))

    def _teller(self, acks: list[Waiting], held: list[bool]) -> Callable[[TarryError | None], None]:
        def tell(error: TarryError | None) -> None:
            self._loop.call_soon_threadsafe(self._settled, acks, held, error)

        return tell

    def _settled(self, acks: list[Waiting], held: list[bool], error: TarryError | None) -> None:
        self._on_way -= 1
        self._plan()
        failed = None if error is None else Refusal.of(error).status()
        stale = self._stale.status()
        for row, (_, ack, place) in enumerate(acks):
            ack.told(place, failed or (OK if held[row] else stale))

    # -- not yet -----------------------------------------------------------------------------------------------------

    async def change(self, caller: Caller, request: Any) -> Any:
        """ChangeInvisibleDuration: a push consumer's is a try that failed, to come again after that time, durably;
        another's holds the message for so long from now, under a new handle.

        Raises:
            Refusal: ILLEGAL_INVISIBLE_TIME; INVALID_RECEIPT_HANDLE.
        """
        topic, group = topic_of(request.topic, caller.space), group_of(request.group, caller.space)
        wait_ms = ceil_ms(request.invisible_duration)
        if not 0 <= wait_ms <= INVISIBLE_MS[1]:
            raise Refusal(
                Code.ILLEGAL_INVISIBLE_TIME, f"invisible_duration is {wait_ms} ms; allowed: 0 to {INVISIBLE_MS[1]}"
            )
        receipt = read_receipt(request.receipt_handle)
        found = self._group(receipt.topic or topic, group)
        if _pushed(self._clients.find(caller.id, caller.space), found) and not request.suspend:
            await self._failed(found, receipt, wait_ms)
            return service.ChangeInvisibleDurationResponse(status=OK, receipt_handle=request.receipt_handle)
        lease = found.change_lease(receipt.lease, receipt.offset, wait_ms)
        if lease is None:
            raise self._stale
        handle = receipt_handle(lease, receipt.offset, receipt.topic)
        return service.ChangeInvisibleDurationResponse(status=OK, receipt_handle=handle)

    async def _failed(self, group: Group, receipt: Receipt, wait_ms: int) -> None:
        """Its try failed: durably when this returns."""
        await self._durably(lambda done: group.nack(*_columns([receipt]), wait_ms, done))

    # -- never -------------------------------------------------------------------------------------------------------

    async def bury(self, caller: Caller, request: Any) -> Any:
        """ForwardMessageToDeadLetterQueue: the client has tried often enough.

        Raises:
            Refusal: INVALID_RECEIPT_HANDLE.
        """
        topic, group = topic_of(request.topic, caller.space), group_of(request.group, caller.space)
        receipt = read_receipt(request.receipt_handle)
        found = self._group(receipt.topic or topic, group)
        await self._durably(lambda done: found.reject(*_columns([receipt]), done))
        return service.ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def _durably(self, begin: Any) -> None:
        future: asyncio.Future[None] = self._loop.create_future()

        def tell(error: TarryError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(Refusal.of(error))

        begin(lambda error: self._loop.call_soon_threadsafe(tell, error))
        await future

    def _group(self, topic: str, group: str) -> Group:
        try:
            return self._core.find_group(topic, group)
        except NotFoundError:
            raise self._stale from None
        except TarryError as error:
            raise Refusal.of(error) from error


def _pushed(client: Client | None, group: Group) -> bool:
    """Whether it is one of the group's push consumers."""
    return client is not None and (group.topic_name, group.name) in client.subscriptions


def _columns(receipts: list[Receipt]) -> tuple[Any, Any]:
    return np.array([r.lease for r in receipts], np.int64), np.array([r.offset for r in receipts], np.int64)
