"""Settling of popped messages: ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.

Acknowledgements are answered when they are durable. While those of a group are on their way to the disk, more of them
gather.

Source: ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor`` of apache/rocketmq. Their answer is the same if the
message was settled before or is held by nobody; here that answer is NO_MESSAGE.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

import numpy as np

from tarry.api.consuming import ConsumerGroup, OnResult
from tarry.api.local import AnyBroker
from tarry.base.errors import ClosedError, NotFoundError, TarryError
from tarry.base.event_loop import answer_future
from tarry.fronts.kit.settling import AckGatherer, AckOutcome, Entries, HandOver, lease_columns
from tarry.fronts.rocketmq.classic.clients import ClientRegistry
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.fields import json_list, json_object, json_text
from tarry.fronts.rocketmq.classic.handles import PopHandle, join_lease, read_pop_handle, split_lease
from tarry.fronts.rocketmq.classic.receiving import check_invisible
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.rights import check_consume
from tarry.fronts.rocketmq.common.threads import durably

ACKS_MAX = 4_096
"""Most acknowledgements of one request."""
PENDING_MAX = 4_096
"""Most acknowledgements that go to the disk together."""


class PopSettler:
    """Settles popped messages. On the loop's thread."""

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, clients: ClientRegistry) -> None:
        self._broker = broker
        self._loop = loop
        self._clients = clients
        self._acks: AckGatherer[PopHandle, asyncio.Future[bool]] = AckGatherer(
            loop, _answer, hand_over=HandOver.GROUP, entries_max=PENDING_MAX
        )

    async def ack(self, request: OpenRequest) -> Reply:
        """Answer ACK_MESSAGE.

        Raises:
            RequestRefused: NO_MESSAGE: the message is not held by this handle.
        """
        fields = request.fields
        handle = read_pop_handle(fields.text("extraInfo"))
        group = self._find(fields.text("topic"), fields.text("consumerGroup"))
        if not await self._acknowledge(group, handle):
            raise _stale(1)
        return Reply()

    async def ack_batch(self, request: OpenRequest) -> Reply:
        """Answer BATCH_ACK_MESSAGE, which may name messages of several groups and topics.

        Those that are held are acknowledged, whatever becomes of the others.

        Raises:
            RequestRefused: NO_MESSAGE: some were not held, or none is given.
        """
        acks = json_list(json_object(request.command.body).get("acks"), "acks")
        named = [named for ack in acks for named in self._read_batch_ack(ack, request)]
        if not 1 <= len(named) <= ACKS_MAX:
            raise RequestRefused(
                ResponseCode.NO_MESSAGE, f"{len(named)} acknowledgements; allowed: 1 to {ACKS_MAX} in one request"
            )
        held = await asyncio.gather(*(self._acknowledge(group, handle) for group, handle in named))
        if not all(held):
            raise _stale(held.count(False))
        return Reply()

    async def change(self, request: OpenRequest) -> Reply:
        """Answer CHANGE_MESSAGE_INVISIBLETIME.

        A push consumer sends it when it could not handle a message. That is a failed try: the message comes again after
        the given time, durably. For other consumers, the message stays leased for the given time from now.

        Raises:
            RequestRefused: NO_MESSAGE: the message is not held by this handle.
        """
        fields = request.fields
        handle, wait_ms = read_pop_handle(fields.text("extraInfo")), check_invisible(fields.whole("invisibleTime"))
        name = fields.text("consumerGroup")
        group = self._find(fields.text("topic"), name)
        lease: int | None = handle.lease
        if self._clients.is_push_consumer(name, request.connection):
            await self._fail(group, handle, wait_ms)
        else:
            # Clients build the new handle with the upper half of the former lease. The upper half changes once in 2**31
            # leases: then the new handle is not valid, and the message comes again when its time is up.
            changed: asyncio.Future[int | None]
            changed, on_lease = answer_future(self._loop)
            group.change_lease(handle.lease, handle.offset, wait_ms, on_lease)
            lease = await changed
        if lease is None:
            raise _stale(1)
        now_ms = self._broker.clock.now_ms()
        return Reply(
            fields={
                "popTime": str(now_ms), "invisibleTime": str(wait_ms), "reviveQid": str(split_lease(lease)[1]),
            }
        )  # fmt: skip

    def _acknowledge(self, group: ConsumerGroup, handle: PopHandle) -> asyncio.Future[bool]:
        """Acknowledge a message, and return a future that is done when that is durable.

        Its result is true if the message was held by this handle. It may raise a Refusal.
        """
        future: asyncio.Future[bool] = self._loop.create_future()
        self._acks.add(group, handle, future)
        return future

    async def _fail(self, group: ConsumerGroup, handle: PopHandle, wait_ms: int) -> None:
        def begin(on_result: OnResult) -> None:
            if not group.nack(*lease_columns([handle]), wait_ms, on_result):
                raise _stale(1)

        await durably(self._loop, begin)

    def _read_batch_ack(self, ack: dict[str, Any], request: OpenRequest) -> list[tuple[ConsumerGroup, PopHandle]]:
        names = [json_text({"topic": ack.get("t", ack.get("topic"))}, "topic")]
        names.append(json_text({"consumerGroup": ack.get("c", ack.get("consumerGroup"))}, "consumerGroup"))
        check_consume(request.principal, *names, peer=request.peer_host)
        group = self._find(*names)
        upper, lower, start = (
            _whole(ack, short, long)
            for short, long in (("q", "queueId"), ("rq", "reviveQueueId"), ("so", "startOffset"))
        )
        lease = join_lease(upper, lower)
        return [(group, PopHandle(lease, start + bit)) for bit in _bits(ack.get("b", ack.get("bitSet")))]

    def _find(self, topic: str, group: str) -> ConsumerGroup:
        try:
            return self._broker.find_group(topic_name(topic, ""), group_name(group, ""))
        except (NotFoundError, ClosedError) as error:
            raise RequestRefused(
                ResponseCode.NO_MESSAGE, f"group {group!r:.300} of topic {topic!r:.300} holds nothing: {error}"
            ) from error


def _answer(entries: Entries[PopHandle, asyncio.Future[bool]], held: AckOutcome) -> None:
    for row, (_, future) in enumerate(entries):
        if future.done():
            continue
        if isinstance(held, TarryError):
            future.set_exception(Refusal.of(held))
        else:
            future.set_result(held[row])


def _stale(count: int) -> RequestRefused:
    return RequestRefused(
        ResponseCode.NO_MESSAGE,
        f"{count} handles hold nothing: their time is up, they were settled before, or never given",
    )


def _whole(values: dict[str, Any], short: str, long: str) -> int:
    value = values.get(short, values.get(long, 0))
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{long} is {value!r:.60}; allowed: 0 and more")
    return value


def _bits(text: object) -> list[int]:
    """Return the places of the bits that are set in a ``BitSet``.

    Its text is base64 of its bytes, the lowest bits first.
    """
    try:
        raw = base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"bitSet is {text!r:.60}: {error}") from error
    if len(raw) > ACKS_MAX:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"bitSet has {len(raw)} bytes; allowed: {ACKS_MAX}")
    places: list[int] = np.flatnonzero(np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")).tolist()
    return places
