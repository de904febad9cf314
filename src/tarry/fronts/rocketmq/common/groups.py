"""Consumer groups, created when a client first names them, with the queues of their waiting receives.

In RocketMQ a group reads several topics; here each topic has its own group of that name.
"""

from __future__ import annotations

import asyncio

from tarry.api.group_info import GroupInfo
from tarry.api.local import AnyBroker
from tarry.api.operations import GetGroup, GetTopic, SetGroup
from tarry.base.bounded_cache import BoundedCache
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.fronts.kit.groups import ReceiveQueues
from tarry.fronts.kit.receiving import ReceiveQueue
from tarry.fronts.rocketmq.common.names import RETRY_PREFIX
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.message.dead_topics import is_dead_topic
from tarry.message.filter import EVERYTHING, as_tags, parse_filter

TRIES = 17
"""Tries of a group that is created here: RocketMQ's 16 retries after the first try."""
RETRY = "rocketmq"
_FILTERS_MAX = 4096


class ClientGroups:
    """The groups that clients have named, each with its queue of receives. On the loop's thread."""

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, run_in_thread: RunInThread) -> None:
        self._broker = broker
        self._run_in_thread = run_in_thread
        self._queues = ReceiveQueues(loop)
        self.waiting_receives = self._queues.waiting
        """Return the number of receives that wait for messages of a group. Any thread."""
        self._in_creation: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._filters: BoundedCache[tuple[str, bool], str] = BoundedCache(_FILTERS_MAX)

    def find_queue(self, topic: str, group: str, filter: str) -> ReceiveQueue | None:
        """Return the queue of a group; None where :meth:`prepare_queue` has to create or change something."""
        queue = self._queues.find(topic, group)
        return queue if queue is not None and filter == _filter_of(queue) else None

    async def prepare_queue(self, topic: str, group: str, filter: str) -> ReceiveQueue:
        """Return the queue of a group, and create the group if there is none.

        From now on the group has this filter, as :meth:`filter_text` returns it. As in RocketMQ, the filter of the last
        consumer counts for all.

        Raises:
            Refusal: the group could not be created or changed.
        """
        queue = self._queues.find(topic, group)
        if queue is None:
            await self._prepare_group(topic, group)
            queue = self._queues.of(self._broker.group(topic, group))
        if filter != _filter_of(queue):
            await self._run_in_thread(lambda: self._broker.call(SetGroup.of(topic, group, filter=filter)))
        return queue

    def filter_text(self, expression: str, *, sql: bool) -> str:
        """Return a filter of RocketMQ as the broker writes it.

        ``expression`` is a tag expression, or with ``sql`` a condition.

        Raises:
            Refusal: ILLEGAL_FILTER_EXPRESSION.
        """
        key = (expression, sql)
        text = self._filters.get(key)
        if text is None:
            text = expression.strip() or EVERYTHING
            if sql and text != EVERYTHING:
                text = f"sql:{text}"
            elif not sql:
                text = as_tags(text)
            try:
                text = parse_filter(text).text
            except InvalidArgumentError as error:
                raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from error
            self._filters.keep(key, text)
        return text

    async def describe(self, topics: list[str], group: str) -> tuple[str, int, bool]:
        """Return a group's back-off, its tries, and whether it keeps the order of ordering keys.

        The back-off is written as in :mod:`tarry.api.retry`; tries 0: no limit. For a group that does not exist, return
        the settings that it will be created with.
        """

        def describe() -> tuple[str, int, bool]:
            infos = [info for topic in topics if (info := self._find_info(topic, group)) is not None]
            retry, tries = (infos[0].retry, infos[0].tries) if infos else (RETRY, self._new_tries(group))
            ordered = any(i.ordered for i in infos) or any(self._broker.call(GetTopic(t)).ordered for t in topics)
            return retry, tries, ordered

        return await self._run_in_thread(describe)

    def close(self) -> None:
        """Stop serving: all waiting receives end."""
        self._queues.close()

    async def _prepare_group(self, topic: str, group: str) -> None:
        key = (topic, group)
        if key not in self._in_creation:
            self._in_creation[key] = self._run_in_thread(lambda: self._make_if_new(topic, group))
            self._in_creation[key].add_done_callback(lambda _: self._in_creation.pop(key, None))
        # Others may wait for the same group: a caller that leaves does not cancel its creation.
        await asyncio.shield(self._in_creation[key])

    def _make_if_new(self, topic: str, group: str) -> None:
        if self._find_info(topic, group) is None:
            # Dead letters have no limit of tries.
            tries = None if is_dead_topic(topic) else self._new_tries(group)
            self._broker.call(SetGroup.of(topic, group, retry=RETRY, tries=tries))

    def _new_tries(self, group: str) -> int:
        """Return the tries of a group that is new in a topic.

        These are the tries set for all of its topics (mqadmin's updateSubGroup), else :data:`TRIES`.
        """
        told = self._find_info(RETRY_PREFIX + group, group)
        return TRIES if told is None else told.tries

    def _find_info(self, topic: str, group: str) -> GroupInfo | None:
        try:
            return self._broker.call(GetGroup(topic, group))
        except NotFoundError:
            return None


def _filter_of(queue: ReceiveQueue) -> str:
    return queue.group.settings.filter or EVERYTHING
