"""Requests about offsets: of groups, of the ends of queues, and of times.

Committed offsets never go back: a consumer that lost a queue to another one may still commit its old progress. Only
INVOKE_BROKER_TO_RESET_OFFSET goes back. Consumers need some seconds to follow, in which they may commit messages that
they had read before. Such commits are ignored, or consumers would find them when they ask where to begin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tarry.api.audit import AskedBy
from tarry.api.local import AnyBroker
from tarry.api.operations import FindOffset, GetQueues
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.commits import Commits
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.positions import SAVE_S, Positions
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.rows import find_row
from tarry.fronts.rocketmq.common.delay_topics import delay_queues
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry

log = logging.getLogger(__name__)

RESET_S = 30.0
"""Time after a reset in which old commits are ignored.

Java's client sleeps for 10 s before it begins anew.
"""


class Offsets:
    """Answers requests about offsets, until :meth:`close`. On the event loop's thread."""

    def __init__(
        self,
        broker: AnyBroker,
        loop: asyncio.AbstractEventLoop,
        topics: TopicRegistry,
        queues: TopicQueues,
        positions: Positions,
        run_in_thread: RunInThread,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._topics = topics
        self._queues = queues
        self._positions = positions
        self._run_in_thread = run_in_thread
        self._resets: dict[tuple[str, str, int], tuple[int, float]] = {}
        """Queues of groups that were reset: the first offset consumers will commit, and a deadline for it.

        The deadline is in the loop's time.
        """
        self._commits = Commits(loop, positions, run_in_thread)
        self._saving = loop.call_later(SAVE_S, self._save)

    def close(self) -> None:
        """Save the positions of all groups."""
        self._saving.cancel()
        self._commits.close()
        self._positions.save()

    async def meet(self, topic: str, group: str) -> None:
        """Note a group before it is made."""
        await self._run_in_thread(lambda: self._positions.meet(topic, group))

    async def update(self, request: OpenRequest) -> Reply:
        """Answer UPDATE_CONSUMER_OFFSET: everything below the offset is done.

        It is durable if the client waits for the answer; else queues that are ahead of others are saved together with
        the next ones.

        Raises:
            Refusal: INVALID_PARAMETER: the queue does not reach that far.
        """
        topic, group, queue = self._names(request)
        offset = request.fields.whole("commitOffset")

        def commit() -> None:
            self._positions.commit(topic, group, queue, max(0, offset))
            if not request.command.is_oneway:
                # Commits that come meanwhile wait for this one, and are then written together.
                self._positions.save()

        if not self._is_outdated(topic, group, queue, offset):
            await self._run_in_thread(commit)
        return Reply()

    def commit_later(self, topic: str, group: str, queue: int, offset: int) -> None:
        """Commit as :meth:`update` does, for a client that does not wait."""
        if not self._is_outdated(topic, group, queue, offset):
            self._commits.commit(topic, group, queue, offset)

    def forget_later(self, topic: str, group: str) -> None:
        """Forget a group that no longer exists."""
        self._commits.discard(topic, group)
        self._do_later(lambda: self._positions.forget(topic, group))

    def pass_over_later(self, topic: str, group: str, queue: int, start: int, stop: int) -> None:
        """Note that a pull from ``start`` found nothing of the queue below ``stop``.

        A consumer that has committed up to ``start`` has then reached ``stop``.
        """
        self._commits.pass_over(topic, group, queue, start, stop)

    async def reset(self, topic: str, group: str, to: int | str, asked: AskedBy) -> int:
        """Have a group go on from a time, or from the "latest"; return the offset.

        Until its consumers commit that offset, later ones are ignored.
        """
        self._commits.discard(topic, group)
        await self._commits.flush()
        offset = await self._run_in_thread(lambda: self._positions.reset(topic, group, to, asked))
        for queue in range(self._queues.count(topic)):
            self._resets[topic, group, queue] = offset, self._loop.time() + RESET_S
        return offset

    async def query(self, request: OpenRequest) -> Reply:
        """Answer QUERY_CONSUMER_OFFSET: a group's offset in a queue.

        If no message of the topic was deleted so far, a new group begins at the first one, wherever its consumers want
        new groups to begin: it was there before the messages. This is RocketMQ's rule (``ConsumerManageProcessor``).

        Raises:
            RequestRefused: QUERY_NOT_FOUND: there is no such group; its consumers choose where to begin.
        """
        topic, group, queue = self._names(request)
        await self._commits.flush()  # the client may be the consumer that goes on with the queue

        def look_up() -> int:
            offset = self._positions.find(topic, group, queue)
            if offset is None and self._ends(topic)[0] == 0:
                return 0
            if offset is None:
                raise RequestRefused(
                    ResponseCode.QUERY_NOT_FOUND, f"group {group!r:.300} has not begun with queue {queue} of {topic!r}"
                )
            return offset

        return _offset(await self._run_in_thread(look_up))

    def _is_outdated(self, topic: str, group: str, queue: int, offset: int) -> bool:
        """Return whether a consumer commits progress from before its group was reset."""
        expected, until_s = self._resets.get((topic, group, queue), (offset, 0.0))
        if offset <= expected or self._loop.time() > until_s:
            self._resets.pop((topic, group, queue), None)
            return False
        return True

    def _do_later(self, work: Callable[[], None]) -> None:
        self._run_in_thread(work).add_done_callback(lambda done: None if done.cancelled() else _note(done.exception()))

    def _save(self) -> None:
        self._do_later(self._positions.save)
        self._saving = self._loop.call_later(SAVE_S, self._save)

    async def first(self, request: OpenRequest) -> Reply:
        """Answer GET_MIN_OFFSET: the first offset that is kept."""
        topic = self._topic(request)
        return _offset((await self._run_in_thread(lambda: self._ends(topic)))[0])

    async def end(self, request: OpenRequest) -> Reply:
        """Answer GET_MAX_OFFSET: the offset of the next message."""
        topic = self._topic(request)
        return _offset((await self._run_in_thread(lambda: self._ends(topic)))[1])

    async def find(self, request: OpenRequest) -> Reply:
        """Answer SEARCH_OFFSET_BY_TIMESTAMP: the first offset due at a time or later."""
        topic, at_ms = self._topic(request), request.fields.whole("timestamp")
        return _offset(await self._run_in_thread(lambda: self._broker.call(FindOffset(topic, at_ms))))

    async def earliest_time(self, request: OpenRequest) -> Reply:
        """Answer GET_EARLIEST_MSG_STORETIME: the due time of the first kept message; -1 if there is none."""
        topic = self._topic(request)

        def look_up() -> int:
            first, end = self._ends(topic)
            if first == end:
                return -1
            row = find_row(self._broker, topic, first)
            return -1 if row is None else int(row["due_ms"])

        return Reply(fields={"timestamp": str(await self._run_in_thread(look_up))})

    def _ends(self, topic: str) -> tuple[int, int]:
        return self._broker.call(GetQueues([topic]))[topic]

    def _topic(self, request: OpenRequest) -> str:
        name = request.fields.text("topic")
        if delay_queues(name, self._broker.config) is not None:
            return name  # unknown to the broker: no message, no group
        topic = topic_name(request.fields.text("topic"), "")
        self._queues.check(topic, request.fields.whole("queueId", 0))
        self._topics.check(topic)
        return topic

    def _names(self, request: OpenRequest) -> tuple[str, str, int]:
        fields = request.fields
        return self._topic(request), group_name(fields.text("consumerGroup"), ""), fields.whole("queueId")


def _offset(offset: int) -> Reply:
    return Reply(fields={"offset": str(offset)})


def _note(error: BaseException | None) -> None:
    if isinstance(error, Refusal):
        log.info("an offset was not committed: %s", error.text)
    elif error is not None:
        log.error("an offset was not committed", exc_info=error)
