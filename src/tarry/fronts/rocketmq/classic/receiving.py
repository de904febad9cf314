"""POP_MESSAGE leases messages to any consumer of a group; NOTIFICATION waits without taking any.

Source: ``PopMessageProcessor``, ``NotificationProcessor`` of apache/rocketmq. There, unacknowledged messages go to
topics of retries. Here they are in their own topic again, and a message that has failed all tries is a dead letter of
the group, as with any other consumer that leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from tarry.api.local import AnyBroker
from tarry.api.operations import FollowQueue, GetGroup, GetQueues
from tarry.base.bounded_cache import BoundedCache
from tarry.base.errors import NotFoundError
from tarry.base.event_loop import post
from tarry.fronts.kit.held_back import check_held_back, wait_or_rest
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import ReceiveQueue, give_back
from tarry.fronts.kit.unread import Room
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.fields import Fields
from tarry.fronts.rocketmq.classic.filters import GroupFilters
from tarry.fronts.rocketmq.classic.handles import PopHandle, pop_handle
from tarry.fronts.rocketmq.classic.message_bytes import StoredMessage, address_bytes, encode_message, stored_messages
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.properties import POP_HANDLE
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry

MESSAGES_MAX = 1024
ANSWER_BYTES_MAX = 8 << 20
"""Limit of an answer's messages together; one larger message goes alone.

Clients refuse frames above 16 MiB.
"""
INVISIBLE_MS = (1, 12 * 3_600_000)
WAIT_S_MAX = 60.0
_FROM_END = 1
"""``initMode`` of a new group that begins with the messages from now on."""
_GROUPS_KEPT = 10_000


class _Pop(NamedTuple):
    """A consumer's request."""

    topic: str
    group: str
    queue: int
    """-1 for any."""
    rows_max: int
    invisible_ms: int
    wait_s: float


@dataclass(eq=False)
class Popper:
    """Answers POP_MESSAGE and NOTIFICATION. On the event loop's thread."""

    _broker_name: str
    _broker: AnyBroker
    _loop: asyncio.AbstractEventLoop
    _groups: ClientGroups
    _topics: TopicRegistry
    _queues: TopicQueues
    _filters: GroupFilters
    _run_in_thread: RunInThread
    _largest: BoundedCache[tuple[str, str], int] = field(default_factory=lambda: BoundedCache(_GROUPS_KEPT), init=False)
    """Size in bytes of a group's largest recent message, by topic and group.

    It tells how many fit into an answer.
    """

    async def pop(self, request: OpenRequest) -> Reply:
        """Answer POP_MESSAGE. Whichever queue is asked for, messages of all queues are handed out.

        A group's consumers share the topic.

        Raises:
            Refusal, RequestRefused: INVALID_PARAMETER, SUBSCRIPTION_NOT_EXIST, SUBSCRIPTION_PARSE_FAILED.
        """
        fields = request.fields
        if fields.truth("order"):
            raise RequestRefused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "order is true; allowed: false. What has a sharding key comes in its order anyway",
            )
        pop = self._read(fields)
        expression = fields.text("exp", " ").strip()
        given = (expression, fields.text("expType", "TAG")) if expression else None
        queue = await self._prepare(pop, await self._filters.find(pop.topic, pop.group, given), fields)
        room = request.connection.room()
        try:
            batch = await self._receive(pop, queue, request, room)
            reply = None if batch is None else self._answer(pop, queue, batch, request)
            return self._nothing(pop) if reply is None or holds_back(queue.group, batch) else reply
        finally:
            # The bytes that are written next are counted by the connection.
            self._loop.call_soon(room.release)

    async def notify(self, request: OpenRequest) -> Reply:
        """Answer NOTIFICATION: return whether there is a message for the group, as soon as there is one."""
        fields = request.fields
        topic, name = topic_name(fields.text("topic"), ""), group_name(fields.text("consumerGroup"), "")
        self._check_queue(topic, fields.whole("queueId", -1))
        try:
            group = self._broker.find_group(topic, name)
        except NotFoundError as error:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {name!r:.300} of topic {topic!r:.300} does not exist"
            ) from error
        news = asyncio.Event()
        # Before the first look, so that later messages are noticed.
        stop_listening = group.listen(lambda: post(self._loop, news.set))
        try:
            async with asyncio.timeout(_wait_s(fields)):
                while not (has_some := await self._has_some(topic, name)):
                    await news.wait()
                    news.clear()
        except TimeoutError:
            has_some = False
        finally:
            stop_listening()
        return Reply(fields={"hasMsg": str(has_some).lower(), "pollingFull": "false"})

    async def _has_some(self, topic: str, group: str) -> bool:
        return await self._run_in_thread(lambda: self._broker.call(GetGroup(topic, group)).ready > 0)

    def _read(self, fields: Fields) -> _Pop:
        topic, group = topic_name(fields.text("topic"), ""), group_name(fields.text("consumerGroup"), "")
        number = self._check_queue(topic, fields.whole("queueId"))
        self._topics.check(topic)
        invisible_ms = fields.whole("invisibleTime")
        check_invisible(invisible_ms)
        rows_max = max(1, min(fields.whole("maxMsgNums"), MESSAGES_MAX))
        return _Pop(topic, group, number, rows_max, invisible_ms, _wait_s(fields))

    def _check_queue(self, topic: str, number: int) -> int:
        return -1 if number < 0 else self._queues.check(topic, number)

    async def _prepare(self, pop: _Pop, filter: str, fields: Fields) -> ReceiveQueue:
        queue = self._groups.find_queue(pop.topic, pop.group, filter)
        if queue is not None:
            return queue
        if fields.whole("initMode", 0) == _FROM_END:
            await self._run_in_thread(lambda: self._begin_at_end(pop))
        return await self._groups.prepare_queue(pop.topic, pop.group, filter)

    def _begin_at_end(self, pop: _Pop) -> None:
        """Have a new group begin with the messages from now on. In a thread.

        If no message of the topic was deleted so far, it begins at the first one: it was there before the messages.
        This is RocketMQ's rule, as for consumers that pull.
        """
        try:
            self._broker.find_group(pop.topic, pop.group)
        except NotFoundError:
            if self._broker.call(GetQueues([pop.topic]))[pop.topic][0] > 0:
                self._broker.call(FollowQueue(pop.topic, pop.group, "latest"))

    async def _receive(self, pop: _Pop, queue: ReceiveQueue, request: OpenRequest, room: Room) -> pa.RecordBatch | None:
        """Receive messages, leased; return None if none came in time."""
        largest = self._largest.get((pop.topic, pop.group), 0)
        rows_max = min(pop.rows_max, max(1, ANSWER_BYTES_MAX // max(1, largest)))
        # A client that does not take its answers gets no more of them: they would be kept here.
        await request.connection.wait_until_writable()
        account = request.principal.account
        subscription = queue.group.subscribe(prefetch=rows_max, lease_ms=pop.invisible_ms, account=account)
        received = queue.receive(subscription, rows_max, room)
        try:
            await wait_or_rest([received], subscription, max(pop.wait_s, queue.least_wait_s))
        except asyncio.CancelledError:
            # The connection has ended: give back messages that were handed out for it in this same turn.
            if not received.cancel() and received.exception() is None:
                give_back(queue.group, received.result())
            raise
        if received.done() or not received.cancel():
            return received.result()
        check_held_back(subscription, pop.wait_s)
        return None

    def _nothing(self, pop: _Pop) -> Reply:
        return Reply(ResponseCode.POLLING_TIMEOUT, self._fields(pop, 0), remark="nothing has come in time")

    def _answer(self, pop: _Pop, queue: ReceiveQueue, batch: pa.RecordBatch, request: OpenRequest) -> Reply:
        """Return an answer with leased messages. Give back those that would make it too long."""
        host, pop_ms = address_bytes(request.connection.local), self._broker.clock.now_ms()
        parts, offsets, size = list[bytes](), dict[int, list[int]](), 0
        for message in self._messages(pop, batch, pop_ms):
            part = encode_message(message, host)
            self._note_size(pop, len(part))
            if parts and size + len(part) > ANSWER_BYTES_MAX:
                give_back(queue.group, batch.slice(len(parts)))
                break
            parts.append(part)
            size += len(part)
            offsets.setdefault(message.queue, []).append(message.queue_offset)
        rest = max(0, queue.group.queue_ends[1] - 1 - max(offset for some in offsets.values() for offset in some))
        fields = self._fields(pop, pop_ms, rest) | {
            "startOffsetInfo": ";".join(f"0 {number} {some[0]}" for number, some in offsets.items()),
            "msgOffsetInfo": ";".join(f"0 {number} {','.join(map(str, some))}" for number, some in offsets.items()),
        }
        return Reply(fields=fields, body=b"".join(parts))

    def _messages(self, pop: _Pop, batch: pa.RecordBatch, pop_ms: int) -> Iterator[StoredMessage]:
        leases, attempts = batch.column("lease").to_pylist(), batch.column("attempt").to_pylist()
        first = batch.column("offset")[0].as_py()
        messages = stored_messages(batch, pop.topic, self._queues.numbers(batch, pop.topic))
        for message, lease, attempt in zip(messages, leases, attempts, strict=True):
            handle = pop_handle(
                self._broker_name, PopHandle(lease, message.queue_offset), first, pop_ms, pop.invisible_ms
            )
            yield replace(
                message,
                properties={**message.properties, POP_HANDLE: handle},
                reconsume_times=message.reconsume_times + attempt - 1,
            )

    def _note_size(self, pop: _Pop, size: int) -> None:
        key = pop.topic, pop.group
        if size > self._largest.get(key, 0):
            self._largest.keep(key, size)

    def _fields(self, pop: _Pop, pop_ms: int, rest: int = 0) -> dict[str, str]:
        return {
            "popTime": str(pop_ms or self._broker.clock.now_ms()), "invisibleTime": str(pop.invisible_ms),
            "reviveQid": "0", "restNum": str(rest),
        }  # fmt: skip


def check_invisible(invisible_ms: int) -> int:
    """Check an invisible time, and return it.

    Raises:
        RequestRefused: INVALID_PARAMETER: no message may be held for so long.
    """
    low, high = INVISIBLE_MS
    if not low <= invisible_ms <= high:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, f"invisibleTime is {invisible_ms} ms; allowed: {low} to {high}"
        )
    return invisible_ms


def _wait_s(fields: Fields) -> float:
    return max(0.0, min(fields.whole("pollTime", 0) / 1000, WAIT_S_MAX))
