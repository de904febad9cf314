"""Consumers that keep their own offsets: PullMessage and the calls about offsets. Nothing is leased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa

from loopgrpc import Call
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.groups import Groups
from tarry.fronts.rocketmq.names import group_of, topic_of
from tarry.fronts.rocketmq.receiving import BATCH_MAX, poll_s
from tarry.fronts.rocketmq.refusal import OK, Code, Refusal
from tarry.fronts.rocketmq.rows import messages_of
from tarry.fronts.rocketmq.stubs import definition, service
from tarry.fronts.rocketmq.topics import Topics

_POLICY = definition.QueryOffsetPolicy
_EMPTY = definition.Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


class Offsets:
    """On the loop's thread."""

    def __init__(
        self,
        core: Core,
        loop: asyncio.AbstractEventLoop,
        groups: Groups,
        topics: Topics,
        aside: Callable[[Callable[[], Any]], asyncio.Future[Any]],
        host: str,
    ) -> None:
        self._core = core
        self._loop = loop
        self._groups = groups
        self._topics = topics
        self._aside = aside
        self._host = host

    async def pull(self, caller: Caller, request: Any, call: Call) -> AsyncIterator[bytes]:
        """PullMessage: what is in the queue from an offset on, and where to go on.

        Raises:
            Refusal: ILLEGAL_OFFSET.
        """
        topic, group = self._names(caller, request)
        start, rows_max = request.offset, max(1, min(request.batch_size, BATCH_MAX))
        line = await self._groups.line(topic, group, request.filter_expression)
        await self._wait(line.group, topic, start, poll_s(request, call, self._loop.time()))

        def read() -> tuple[list[Any], int]:
            first, end = self._core.queue_state([topic])[topic]
            if not 0 <= start <= end:
                raise Refusal(Code.ILLEGAL_OFFSET, f"offset {start} of topic {topic!r}; allowed: {first} to {end}")
            begin = max(first, start)
            batches = list(self._core.read_queue(topic, begin, min(end, begin + rows_max))) if begin < end else []
            # What the group does not want is passed over, and counts as pulled.
            wanted = [batch.filter(pa.array(line.group.wants(batch))) for batch in batches]
            asked = request.message_queue.topic
            return [m for b in wanted for m in messages_of(b, asked, self._host)], min(end, begin + rows_max)

        messages, following = await self._aside(read)
        yield service.PullMessageResponse(status=OK if messages else _EMPTY).SerializeToString()
        for message in messages:
            yield service.PullMessageResponse(message=message).SerializeToString()
        yield service.PullMessageResponse(next_offset=following).SerializeToString()

    async def _wait(self, group: Any, topic: str, offset: int, wait_s: float) -> None:
        """Until the queue reaches beyond ``offset``, or for ``wait_s``."""
        news = asyncio.Event()
        hush = group.listen(lambda: self._loop.call_soon_threadsafe(news.set))
        try:
            async with asyncio.timeout(wait_s):
                while group.topic.end <= offset:
                    news.clear()
                    await news.wait()
        except TimeoutError:
            pass
        finally:
            hush()

    async def update(self, caller: Caller, request: Any) -> Any:
        """UpdateOffset: all below is done with, durably. It never goes back."""
        topic, group = self._names(caller, request)

        def advance() -> None:
            try:
                self._core.advance_group(topic, group, request.offset)
            except InvalidArgumentError as error:
                raise Refusal(Code.ILLEGAL_OFFSET, str(error)) from error

        await self._aside(advance)
        return service.UpdateOffsetResponse(status=OK)

    async def get(self, caller: Caller, request: Any) -> Any:
        """GetOffset: where a group stands.

        Raises:
            Refusal: OFFSET_NOT_FOUND: there is no such group.
        """
        topic, group = self._names(caller, request)

        def look() -> int:
            try:
                self._core.find_group(topic, group)
            except NotFoundError as error:
                raise Refusal(Code.OFFSET_NOT_FOUND, str(error)) from error
            return self._core.follow_queue(topic, group)

        return service.GetOffsetResponse(status=OK, offset=await self._aside(look))

    async def query(self, caller: Caller, request: Any) -> Any:
        """QueryOffset: the first one that is kept, the next one, or the first that was due at a moment or later."""
        topic = topic_of(request.message_queue.topic, caller.space)
        self._topics.check(topic)
        policy = request.query_offset_policy

        def look() -> int:
            first, end = self._core.queue_state([topic])[topic]
            if policy == _POLICY.TIMESTAMP:
                at = request.timestamp
                return self._core.offset_at(topic, at.seconds * 1000 + at.nanos // 1_000_000)
            return first if policy == _POLICY.BEGINNING else end

        return service.QueryOffsetResponse(status=OK, offset=await self._aside(look))

    def _names(self, caller: Caller, request: Any) -> tuple[str, str]:
        topic = topic_of(request.message_queue.topic, caller.space)
        self._topics.check(topic)
        return topic, group_of(request.group, caller.space)
