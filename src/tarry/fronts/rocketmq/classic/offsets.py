"""Where groups stand, where queues begin and end, and which offset belongs to a moment.

What consumers commit never goes back: a consumer that lost a queue to another one may still be saying how far it was.
Only INVOKE_BROKER_TO_RESET_OFFSET goes back. Its consumers need some seconds to follow, in which they may commit what
they had read before; that is not taken, or they would find it when they look where to begin.
"""

from __future__ import annotations

import asyncio
import logging

from tarry.api.local import LocalBroker
from tarry.api.operations import AdvanceGroup, FindOffset, FollowQueue, GetQueues
from tarry.base.errors import NotFoundError
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import Answer, Request
from tarry.fronts.rocketmq.classic.routes import check_queue
from tarry.fronts.rocketmq.classic.rows import find_row
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry

log = logging.getLogger(__name__)

RESET_S = 30.0
"""Java's client sleeps for 10 s before it begins anew."""


class Offsets:
    """On the loop's thread."""

    def __init__(
        self,
        broker: LocalBroker,
        loop: asyncio.AbstractEventLoop,
        topics: TopicRegistry,
        run_in_thread: RunInThread,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._topics = topics
        self._run_in_thread = run_in_thread
        self._resets: dict[tuple[str, str], tuple[int, float]] = {}
        """Groups that were reset: the offset that their consumers will commit first, and until when to expect it, as
        the loop's time.
        """

    def expect(self, topic: str, group: str, offset: int) -> None:
        """The group was reset to an offset: until its consumers commit that one, nothing further on counts."""
        self._resets[topic, group] = offset, self._loop.time() + RESET_S

    def _is_outdated(self, topic: str, group: str, offset: int) -> bool:
        """Whether a consumer commits what it had read before its group was reset."""
        expected, until_s = self._resets.get((topic, group), (offset, 0.0))
        if offset <= expected or self._loop.time() > until_s:
            self._resets.pop((topic, group), None)
            return False
        return True

    async def update(self, request: Request) -> Answer:
        """UPDATE_CONSUMER_OFFSET: all below is done with, durably.

        Raises:
            Refusal: INVALID_PARAMETER: the queue does not reach that far.
        """
        topic, group = self._names(request)
        offset = request.fields.whole("commitOffset")
        if self._is_outdated(topic, group, offset):
            return Answer()
        await self._run_in_thread(lambda: self._advance(topic, group, offset))
        return Answer()

    def commit_later(self, topic: str, group: str, offset: int) -> None:
        """:meth:`update`, for which nobody waits."""
        if self._is_outdated(topic, group, offset):
            return
        self._run_in_thread(lambda: self._advance(topic, group, offset)).add_done_callback(
            lambda done: None if done.cancelled() else _note(done.exception())
        )

    async def query(self, request: Request) -> Answer:
        """QUERY_CONSUMER_OFFSET: where a group stands.

        A new group of a topic of which nothing was deleted yet stands at its begin, wherever its consumers say that new
        ones begin: they were there before the messages. This is RocketMQ's rule (``ConsumerManageProcessor``).

        Raises:
            RequestRefused: QUERY_NOT_FOUND: there is no such group; its consumers choose where to begin.
        """
        topic, group = self._names(request)

        def look_up() -> int:
            try:
                self._broker.find_group(topic, group)
            except NotFoundError as error:
                if self._broker.call(GetQueues([topic]))[topic][0] == 0:
                    return 0
                raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
            return self._broker.call(FollowQueue(topic, group))

        return _offset(await self._run_in_thread(look_up))

    async def first(self, request: Request) -> Answer:
        """GET_MIN_OFFSET: the first one that is kept."""
        topic = self._topic(request)
        return _offset((await self._run_in_thread(lambda: self._ends(topic)))[0])

    async def end(self, request: Request) -> Answer:
        """GET_MAX_OFFSET: that of the message that comes next."""
        topic = self._topic(request)
        return _offset((await self._run_in_thread(lambda: self._ends(topic)))[1])

    async def find(self, request: Request) -> Answer:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first that was due at a moment or later."""
        topic, at_ms = self._topic(request), request.fields.whole("timestamp")
        return _offset(await self._run_in_thread(lambda: self._broker.call(FindOffset(topic, at_ms))))

    async def earliest_time(self, request: Request) -> Answer:
        """GET_EARLIEST_MSG_STORETIME: when the first message that is kept fell due; -1: there is none."""
        topic = self._topic(request)

        def look_up() -> int:
            first, end = self._ends(topic)
            if first == end:
                return -1
            row = find_row(self._broker, topic, first)
            return -1 if row is None else int(row["due_ms"])

        return Answer(fields={"timestamp": str(await self._run_in_thread(look_up))})

    def _advance(self, topic: str, group: str, offset: int) -> None:
        """In a thread."""
        try:
            self._broker.call(AdvanceGroup(topic, group, max(0, offset)))
        except NotFoundError:
            # A consumer that has pulled nothing yet says where it begins.
            self._broker.call(FollowQueue(topic, group))
            self._broker.call(AdvanceGroup(topic, group, max(0, offset)))

    def _ends(self, topic: str) -> tuple[int, int]:
        return self._broker.call(GetQueues([topic]))[topic]

    def _topic(self, request: Request) -> str:
        topic = topic_name(request.fields.text("topic"), "")
        check_queue(request.fields.whole("queueId", 0))
        self._topics.check(topic)
        return topic

    def _names(self, request: Request) -> tuple[str, str]:
        return self._topic(request), group_name(request.fields.text("consumerGroup"), "")


def _offset(offset: int) -> Answer:
    return Answer(fields={"offset": str(offset)})


def _note(error: BaseException | None) -> None:
    if isinstance(error, Refusal):
        log.info("an offset that came with a pull was not committed: %s", error.text)
    elif error is not None:
        log.error("an offset that came with a pull was not committed", exc_info=error)
