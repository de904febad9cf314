"""PULL_MESSAGE: the messages of a queue from an offset on, for which a consumer may wait.

Nothing is leased.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from tarry.api.accounts import QuotaAccount
from tarry.api.consuming import ConsumerGroup
from tarry.api.local import AnyBroker
from tarry.api.operations import DeleteGroup
from tarry.base.errors import TarryError
from tarry.fronts.kit.held_back import receivable_in_turn
from tarry.fronts.rocketmq.classic.chunks import ChunkCache
from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, RemotingConnection, Reply
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.filters import GroupFilters
from tarry.fronts.rocketmq.classic.group_lists import only_looks
from tarry.fronts.rocketmq.classic.offsets import Offsets
from tarry.fronts.rocketmq.classic.queue_reader import Pull, QueueReader
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.common.delay_topics import delay_queues
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.settings import RocketMQSettings

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
"""Flags of a pull: it has an offset to commit; it may wait; it has a filter."""
WAIT_S_MAX = 60.0


class Inspection(NamedTuple):
    """A tool that looks at a topic, until its connection ends."""

    topic: str
    group: str
    connection: RemotingConnection


@dataclass(eq=False)
class Puller:
    """Answers pulls, until :meth:`close`. On the event loop's thread."""

    _broker: AnyBroker
    _loop: asyncio.AbstractEventLoop
    _groups: ClientGroups
    _topics: TopicRegistry
    _queues: TopicQueues
    _filters: GroupFilters
    _offsets: Offsets
    _dead_queues: DeadQueues
    _run_in_thread: RunInThread
    _rows_max: int = field(init=False)
    """Messages of one pull, at most."""
    _chunks: ChunkCache = field(default_factory=ChunkCache, init=False)
    _readers: dict[str, QueueReader] = field(default_factory=dict, init=False)
    _looking: dict[tuple[str, str], set[RemotingConnection]] = field(default_factory=dict, init=False)
    """The connections that look, by topic and group of a tool."""

    def __post_init__(self) -> None:
        self._rows_max = RocketMQSettings.of(self._broker.config).remoting_pull_max

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def pull(self, request: OpenRequest) -> Awaitable[Reply | None] | None:
        """Answer PULL_MESSAGE, now or later.

        Raises:
            Refusal, RequestRefused: SUBSCRIPTION_NOT_EXIST: the group has named no filter for the topic, and the broker
                does not know one from before.
        """
        fields = request.fields
        if delay_queues(fields.text("topic"), self._broker.config) is not None:
            nothing = {"suggestWhichBrokerId": "0", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
            request.answer(Reply(ResponseCode.PULL_NOT_FOUND, nothing))
            return None
        topic, name = topic_name(fields.text("topic"), ""), group_name(fields.text("consumerGroup"), "")
        if only_looks(name):
            self._note_look(topic, name, request.connection)
        number = self._queues.check(topic, fields.whole("queueId"))
        self._topics.check(topic)
        flags = fields.whole("sysFlag", 0)
        filter = self._filters.find_said(topic, name, _given(request, flags))
        if flags & COMMIT and (commit := fields.whole("commitOffset", 0)) > 0:
            self._offsets.commit_later(topic, name, number, commit)
        queue = None if filter is None else self._groups.find_queue(topic, name, filter)
        if queue is None:
            return self._pull_when_known(request, topic, name, filter)
        return self._begin(request, topic, queue.group, number, flags)

    def _note_look(self, topic: str, group: str, connection: RemotingConnection) -> None:
        """Have a tool's group forgotten when the last connection that uses it ends.

        Nobody else would forget it, and it would stand still for ever.
        """
        looking = self._looking.setdefault((topic, group), set())
        if connection not in looking:
            looking.add(connection)
            connection.hold(Inspection(topic, group, connection), self._on_looked)

    def _on_looked(self, look: Inspection) -> None:
        topic, group, connection = look
        looking = self._looking.get((topic, group), set())
        looking.discard(connection)
        if looking:
            return
        self._looking.pop((topic, group), None)

        def forget() -> None:
            # A tool that looks again meanwhile makes it anew.
            with suppress(TarryError):
                self._broker.call(DeleteGroup(topic, group))

        self._run_in_thread(forget)
        self._offsets.forget_later(topic, group)

    async def _pull_when_known(self, request: OpenRequest, topic: str, name: str, filter: str | None) -> None:
        """Pull for a group that is new, or has another filter, or whose filter only the broker may know."""
        fields = request.fields
        known = await self._filters.find(topic, name, None) if filter is None else filter
        if self._groups.find_queue(topic, name, known) is None:
            await self._offsets.meet(topic, name)
        queue = await self._groups.prepare_queue(topic, name, known)
        begun = self._begin(request, topic, queue.group, fields.whole("queueId"), fields.whole("sysFlag", 0))
        if begun is not None:
            await begun

    def _begin(
        self, request: OpenRequest, topic: str, group: ConsumerGroup, number: int, flags: int
    ) -> Awaitable[None] | None:
        fields = request.fields
        wait_s = min(fields.whole("suspendTimeoutMillis", 0) / 1000, WAIT_S_MAX) if flags & SUSPEND else 0.0
        rows_max = max(1, min(fields.whole("maxMsgNums", 32), self._rows_max))
        account = request.principal.account
        pull = Pull(request, group, number, fields.whole("queueOffset"), rows_max, wait_s, account)
        if account is not None and account.limits_consuming:
            return self._read_in_turn(topic, pull, account)
        self._read(topic, pull)
        return None

    async def _read_in_turn(self, topic: str, pull: Pull, account: QuotaAccount) -> None:
        """Read when the quotas of the caller let it have something."""
        begun_s = self._loop.time()
        pull.rows_max = await receivable_in_turn(self._loop, pull.group, account, pull.rows_max, pull.wait_s)
        pull.wait_s = max(0.0, pull.wait_s - (self._loop.time() - begun_s))
        self._read(topic, pull)

    def _read(self, topic: str, pull: Pull) -> None:
        reader = self._readers.get(topic)
        if reader is None:
            reader = self._readers[topic] = QueueReader(
                self._broker, self._loop, topic, self._queues, self._chunks, self._run_in_thread, self._pass_over,
                self._dead_queues.place(topic),
            )  # fmt: skip
        reader.add(pull)

    def _pass_over(self, pull: Pull) -> None:
        self._offsets.pass_over_later(pull.group.topic_name, pull.group.name, pull.queue, pull.start, pull.at)


def _given(request: OpenRequest, flags: int) -> tuple[str, str] | None:
    """Return the filter in a pull, and its type."""
    if not flags & SUBSCRIPTION:
        return None
    return request.fields.text("subscription", "*"), request.fields.text("expressionType", "TAG")
