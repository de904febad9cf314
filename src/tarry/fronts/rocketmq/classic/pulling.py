"""PULL_MESSAGE: what is in a topic's queue from an offset on, for which a consumer may wait. Nothing is leased."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tarry.api.consuming import ConsumerGroup
from tarry.api.local import LocalBroker
from tarry.api.operations import GetGroup, GetQueues, ReadQueue
from tarry.base.errors import NotFoundError
from tarry.fronts.common.receive_queue import wait_for_rows
from tarry.fronts.rocketmq.classic.clients import ClientRegistry, Subscription
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import Answer, Request
from tarry.fronts.rocketmq.classic.message_bytes import address_bytes, encode_message, stored_messages
from tarry.fronts.rocketmq.classic.offsets import Offsets
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.common.groups import GroupRegistry
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
"""Flags of a pull: it says an offset to commit; it may wait; it says what it wants."""
MESSAGES_MAX = 1024
ANSWER_BYTES = 256 << 10
"""An answer is ended by the message that makes it longer. RocketMQ's ``maxTransferBytesOnMessageInMemory``."""
ROWS_MIN = 1024
"""Rows that are looked through at a time, at least."""
LOOK_S = 1.0
"""How long is looked for a message before a client is told how far it was in vain."""
WAIT_S_MAX = 60.0


class _Read(NamedTuple):
    """Part of a queue: the messages, and where to go on."""

    body: bytes
    next_offset: int
    ends: tuple[int, int]
    """The first offset that is kept, and that of the message that comes next."""


class _Pull(NamedTuple):
    """What a consumer asks for."""

    group: ConsumerGroup
    queue: int
    start: int
    rows_max: int
    wait_s: float


class Puller:
    """On the loop's thread."""

    def __init__(
        self,
        broker: LocalBroker,
        loop: asyncio.AbstractEventLoop,
        groups: GroupRegistry,
        topics: TopicRegistry,
        queues: TopicQueues,
        clients: ClientRegistry,
        offsets: Offsets,
        positions: Positions,
        run_in_thread: RunInThread,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._groups = groups
        self._topics = topics
        self._queues = queues
        self._clients = clients
        self._offsets = offsets
        self._positions = positions
        self._run_in_thread = run_in_thread

    async def pull(self, request: Request) -> Answer:
        """
        Raises:
            Refusal, RequestRefused: SUBSCRIPTION_NOT_EXIST: the group has not said what it wants of the topic, and the
                broker does not know it from before.
        """
        fields = request.fields
        topic, name = topic_name(fields.text("topic"), ""), group_name(fields.text("consumerGroup"), "")
        number = self._queues.check(topic, fields.whole("queueId"))
        self._topics.check(topic)
        start, flags = fields.whole("queueOffset"), fields.whole("sysFlag", 0)
        group = await self._group(topic, name, await self._filter(request, topic, name, flags))
        if flags & COMMIT and (commit := fields.whole("commitOffset", 0)) > 0:
            self._offsets.commit_later(topic, name, number, commit)
        suspended_s = min(fields.whole("suspendTimeoutMillis", 0) / 1000, WAIT_S_MAX) if flags & SUSPEND else 0.0
        rows_max = max(1, min(fields.whole("maxMsgNums", 32), MESSAGES_MAX))
        return await self._find(_Pull(group, number, start, rows_max, suspended_s), request)

    async def _find(self, pull: _Pull, request: Request) -> Answer:
        """What there is of a pull's queue, or comes within its time; what is not for it is passed over."""
        begun_s, host, start = self._loop.time(), address_bytes(request.connection.local), pull.start
        while True:
            waited_s = self._loop.time() - begun_s
            await wait_for_rows(self._loop, pull.group, start, pull.wait_s - waited_s)
            if pull.group.queue_ends[1] == start:
                return _answer(ResponseCode.PULL_NOT_FOUND, start, pull.group.queue_ends)
            # A client that does not take its answers gets no more of them to keep here.
            await request.connection.wait_until_writable()
            read = await self._run_in_thread(lambda: self._read(pull, start, host))  # noqa: B023  awaited here
            if not read.ends[0] <= start <= read.ends[1]:
                return _answer(ResponseCode.PULL_OFFSET_MOVED, read.next_offset, read.ends)
            if read.body:
                return _answer(ResponseCode.SUCCESS, read.next_offset, read.ends, read.body)
            start = read.next_offset
            if self._loop.time() - begun_s > (LOOK_S if start < read.ends[1] else max(LOOK_S, pull.wait_s)):
                return _answer(ResponseCode.PULL_RETRY_IMMEDIATELY, start, read.ends)

    async def _group(self, topic: str, name: str, filter: str) -> ConsumerGroup:
        queue = self._groups.find_queue(topic, name, filter)
        if queue is None:
            await self._offsets.meet(topic, name)
            queue = await self._groups.prepare_queue(topic, name, filter)
        return queue.group

    async def _filter(self, request: Request, topic: str, group: str, flags: int) -> str:
        """What the group wants: by this request, by its heartbeats, or, after a restart, as the broker knows it."""
        fields = request.fields
        if flags & SUBSCRIPTION:
            expression, kind = fields.text("subscription", "*"), fields.text("expressionType", "TAG")
            return self._clients.filter_text(Subscription(topic, expression, kind, 0))
        if (subscription := self._clients.subscription(group, topic)) is not None:
            return self._clients.filter_text(subscription)

        def look_up() -> str:
            try:
                return self._broker.call(GetGroup(topic, group)).filter
            except NotFoundError as error:
                raise RequestRefused(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST,
                    f"consumer group {group!r:.300} has not said in a heartbeat what it wants of topic {topic!r:.300}",
                ) from error

        return await self._run_in_thread(look_up)

    def _read(self, pull: _Pull, start: int, host: bytes) -> _Read:
        """In a thread: the next messages of the queue that the group wants; or none, and how far was looked."""
        topic, parts, size = pull.group.topic_name, list[bytes](), 0
        # A client may write down what it is told of offsets: they have to be durable.
        ends = first, end = self._broker.call(GetQueues([topic]))[topic]
        if not first <= start <= end:
            return _Read(b"", first if start < first else end, ends)
        stop = min(end, start + max(ROWS_MIN, pull.rows_max * self._queues.count(topic)))
        for batch in self._broker.call(ReadQueue(topic, start, stop)):
            numbers = self._queues.numbers(batch, topic)
            places = np.flatnonzero((numbers == pull.queue) & pull.group.wants(batch))[: pull.rows_max - len(parts)]
            for message in stored_messages(batch.take(pa.array(places)), topic, numbers[places]):
                parts.append(encode_message(message, host))
                size += len(parts[-1])
                if len(parts) == pull.rows_max or size >= ANSWER_BYTES:
                    return _Read(b"".join(parts), message.queue_offset + 1, ends)
        if not parts:
            self._positions.pass_over(topic, pull.group.name, pull.queue, pull.start, stop)
        return _Read(b"".join(parts), stop, ends)


def _answer(code: int, next_offset: int, ends: tuple[int, int], body: bytes = b"") -> Answer:
    fields = {
        "suggestWhichBrokerId": "0", "nextBeginOffset": str(next_offset), "minOffset": str(ends[0]),
        "maxOffset": str(ends[1]),
    }  # fmt: skip
    return Answer(code, fields, body)
