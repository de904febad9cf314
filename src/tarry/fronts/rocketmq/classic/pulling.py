"""PULL_MESSAGE: what is in a topic's queue from an offset on, for which a consumer may wait. Nothing is leased."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pyarrow as pa

from tarry.api.consuming import ConsumerGroup
from tarry.api.local import LocalBroker
from tarry.api.operations import GetGroup, GetQueues, ReadQueue
from tarry.base.errors import NotFoundError
from tarry.fronts.rocketmq.classic.clients import ClientRegistry, Subscription
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import Answer, Request
from tarry.fronts.rocketmq.classic.message_bytes import address_bytes, encode_message, stored_messages
from tarry.fronts.rocketmq.classic.offsets import Offsets
from tarry.fronts.rocketmq.classic.routes import check_queue
from tarry.fronts.rocketmq.common.groups import GroupRegistry
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
"""Flags of a pull: it says an offset to commit; it may wait; it says what it wants."""
MESSAGES_MAX = 1024
ANSWER_BYTES = 256 << 10
"""An answer is ended by the message that makes it longer. RocketMQ's ``maxTransferBytesOnMessageInMemory``."""
SCANNED_MAX = 8192
"""Rows that are looked through for one pull."""
WAIT_S_MAX = 60.0


class _Read(NamedTuple):
    """Part of a queue: the messages, and where to go on."""

    body: bytes
    next_offset: int


class Puller:
    """On the loop's thread."""

    def __init__(
        self,
        broker: LocalBroker,
        loop: asyncio.AbstractEventLoop,
        groups: GroupRegistry,
        topics: TopicRegistry,
        clients: ClientRegistry,
        offsets: Offsets,
        run_in_thread: RunInThread,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._groups = groups
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._run_in_thread = run_in_thread

    async def pull(self, request: Request) -> Answer:
        """
        Raises:
            Refusal, RequestRefused: SUBSCRIPTION_NOT_EXIST: the group has not said what it wants of the topic, and the
                broker does not know it from before.
        """
        fields = request.fields
        topic, name = topic_name(fields.text("topic"), ""), group_name(fields.text("consumerGroup"), "")
        check_queue(fields.whole("queueId"))
        self._topics.check(topic)
        start, flags = fields.whole("queueOffset"), fields.whole("sysFlag", 0)
        rows_max = max(1, min(fields.whole("maxMsgNums", 32), MESSAGES_MAX))
        filter = await self._filter(request, topic, name, flags)
        queue = self._groups.find_queue(topic, name, filter)
        group = (queue or await self._groups.prepare_queue(topic, name, filter)).group
        if flags & COMMIT and (commit := fields.whole("commitOffset", 0)) > 0:
            self._offsets.commit_later(topic, name, commit)
        wait_s = fields.whole("suspendTimeoutMillis", 0) / 1000 if flags & SUSPEND else 0.0
        first, end = await self._wait(group, start, min(wait_s, WAIT_S_MAX))
        if not first <= start <= end:
            return _answer(ResponseCode.PULL_OFFSET_MOVED, first if start < first else end, first, end)
        if start == end:
            return _answer(ResponseCode.PULL_NOT_FOUND, start, first, end)
        # A client that does not take its answers gets no more of them to keep here.
        await request.connection.wait_until_writable()
        host = address_bytes(request.connection.local)
        read = await self._run_in_thread(lambda: self._read(group, start, end, rows_max, host))
        code = ResponseCode.SUCCESS if read.body else ResponseCode.PULL_RETRY_IMMEDIATELY
        return _answer(code, read.next_offset, first, end, read.body)

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

    def _read(self, group: ConsumerGroup, start: int, end: int, rows_max: int, host: bytes) -> _Read:
        """In a thread. What the group does not want is passed over."""
        parts: list[bytes] = []
        size, stop = 0, min(end, start + SCANNED_MAX)
        for batch in self._broker.call(ReadQueue(group.topic_name, start, stop)):
            for message in stored_messages(batch.filter(pa.array(group.wants(batch))), group.topic_name):
                parts.append(encode_message(message, host))
                size += len(parts[-1])
                if len(parts) == rows_max or size >= ANSWER_BYTES:
                    return _Read(b"".join(parts), message.queue_offset + 1)
        return _Read(b"".join(parts), stop)

    async def _wait(self, group: ConsumerGroup, offset: int, wait_s: float) -> tuple[int, int]:
        """The first offset and the end of the group's queue, once it reaches beyond ``offset``, or after ``wait_s``."""
        news = asyncio.Event()

        def on_news() -> None:
            try:
                self._loop.call_soon_threadsafe(news.set)
            except RuntimeError:
                pass  # the loop is closed: the front has stopped

        # Before the first look, so that what comes after it is noticed.
        stop_listening = group.listen(on_news)
        until_s = self._loop.time() + wait_s
        try:
            while True:
                news.clear()
                first, end = await self._run_in_thread(lambda: self._ends(group.topic_name))
                if end != offset:
                    return first, end
                try:
                    async with asyncio.timeout_at(until_s):
                        await news.wait()
                except TimeoutError:
                    return first, end
        finally:
            stop_listening()

    def _ends(self, topic: str) -> tuple[int, int]:
        return self._broker.call(GetQueues([topic]))[topic]


def _answer(code: int, next_offset: int, first: int, end: int, body: bytes = b"") -> Answer:
    fields = {
        "suggestWhichBrokerId": "0", "nextBeginOffset": str(next_offset), "minOffset": str(first),
        "maxOffset": str(end),
    }  # fmt: skip
    return Answer(code, fields, body)
