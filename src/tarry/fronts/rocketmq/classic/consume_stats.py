"""Progress of groups: GET_CONSUME_STATS of one, GET_BROKER_CONSUME_STATS of all.

A queue's ``consumerOffset`` is the one that its consumers commit. ``brokerOffset`` is ahead of it by the number of
messages of that queue that the group has not read. So the difference is as in RocketMQ, and a tool that reads from
``consumerOffset`` finds the next message.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tarry.api.local import AnyBroker
from tarry.api.needs import Right
from tarry.api.operations import GetQueues, ListGroups
from tarry.fronts.rocketmq.classic.admin_tables import queue_table
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.group_lists import only_looks, topics_of
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.classic.queue_lag import QueueLag
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.service import Handler
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.identity.seen import seen_by

Progress = dict[str, list[dict[str, int]]]
"""Progress in each queue, by topic as clients know it."""
_TPS = {"consumeTps": 0.0}
_INTERNAL = "tarry."


@dataclass(eq=False)
class ConsumeStats:
    """Answers requests about groups' progress. On the event loop's thread."""

    _broker_name: str
    _broker: AnyBroker
    _queues: TopicQueues
    _dead_queues: DeadQueues
    _positions: Positions
    _lag: QueueLag
    _run_in_thread: RunInThread

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers, by request."""
        return {
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_all,
        }

    async def of_group(self, request: OpenRequest) -> Reply:
        """Answer GET_CONSUME_STATS: a group's offsets, in one topic or in all that it reads.

        Raises:
            RequestRefused: CONSUMER_NOT_ONLINE: there is no such group.
        """
        group, topic = request.fields.text("consumerGroup"), request.fields.text("topic", " ").strip()

        def look_up() -> Progress:
            rights = request.principal.rights
            topics = [] if only_looks(group) else topics_of(self._broker, group)
            topics = [name for name in topics if rights.allow(Right.LOOK, name, group)]
            return self._progress(group, [name for name in topics if topic in ("", self._shown(name))])

        progress = await self._run_in_thread(look_up)
        if not progress:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"there is no consumer group {group!r:.300}")
        return Reply(body=queue_table(self._broker_name, progress, _TPS))

    async def of_all(self, request: OpenRequest) -> Reply:
        """Answer GET_BROKER_CONSUME_STATS: the offsets of all groups, each as a list of topics."""

        def look_up() -> tuple[list[bytes], int]:
            topics: dict[str, list[str]] = {}
            for info in seen_by(self._broker, request.principal).call(ListGroups()):
                if not (only_looks(info.group) or info.group.startswith(_INTERNAL) or info.topic.startswith(_INTERNAL)):
                    topics.setdefault(info.group, []).append(info.topic)
            parts, diff = [], 0
            for group, names in topics.items():
                progress = self._progress(group, names)
                diff += sum(q["brokerOffset"] - q["consumerOffset"] for queues in progress.values() for q in queues)
                tables = b",".join(queue_table(self._broker_name, {t: queues}, _TPS) for t, queues in progress.items())
                parts.append(b"{%b:[%b]}" % (json.dumps(group).encode(), tables))
            return parts, diff

        parts, diff = await self._run_in_thread(look_up)
        address = json.dumps(request.connection.local).encode()
        body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":0}'
        return Reply(body=body % (address, b",".join(parts), diff))

    def _progress(self, group: str, topics: list[str]) -> Progress:
        """Return a group's progress. In a thread. ``topics``: the broker's names."""
        shown = dict.fromkeys(map(self._shown, topics))
        names = {topic: self._dead_queues.topics(topic) if is_alias(topic) else [topic] for topic in shown}
        ends = self._broker.call(GetQueues(list({name for some in names.values() for name in some})))
        now_ms = self._broker.clock.now_ms()
        return {
            topic: [stand for name in some for stand in self._stands(name, group, ends[name], now_ms)]
            for topic, some in names.items()
        }

    def _stands(self, topic: str, group: str, ends: tuple[int, int], now_ms: int) -> list[dict[str, int]]:
        offsets = self._positions.glance(topic, group) or [0] * self._queues.count(topic)
        if is_alias(topic):
            offsets = offsets[:1]  # its other queues are topics of their own
        unread = self._lag.unread(topic, offsets, ends)
        return [
            {
                "brokerOffset": offset + lag, "consumerOffset": offset, "lastTimestamp": now_ms, "pullOffset": offset,
            }
            for offset, lag in zip((max(offset, ends[0]) for offset in offsets), unread, strict=True)
        ]  # fmt: skip

    def _shown(self, topic: str) -> str:
        """Return the name by which clients know a topic."""
        place = self._dead_queues.place(topic)
        return topic if place is None else place[0]
