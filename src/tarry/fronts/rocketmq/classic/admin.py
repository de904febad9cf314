"""What mqadmin and dashboards ask: the cluster, topics, how far groups have come; and resetting a group to a time."""

from __future__ import annotations

import json
from typing import Any

from tarry.api.local import LocalBroker
from tarry.api.operations import (
    FindOffset,
    FollowQueue,
    GetOverview,
    GetPending,
    GetQueues,
    ListGroups,
    SetGroup,
    SetTopic,
)
from tarry.base.version import VERSION
from tarry.fronts.rocketmq.classic.clients import ClientRegistry
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.connection import Answer, Request
from tarry.fronts.rocketmq.classic.fields import json_object, json_text, to_json
from tarry.fronts.rocketmq.classic.frames import oneway
from tarry.fronts.rocketmq.classic.offsets import Offsets
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.classic.queues import TopicQueues, queue_name
from tarry.fronts.rocketmq.classic.routes import BROKER, CLUSTER, READ_WRITE, broker_data
from tarry.fronts.rocketmq.classic.sending import RETRIES
from tarry.fronts.rocketmq.classic.service import Handler
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.threads import RunInThread

_INTERNAL = "tarry."
_LATEST = -1
"""The time that means the end of a queue."""


class Admin:
    """On the loop's thread."""

    def __init__(
        self,
        broker: LocalBroker,
        clients: ClientRegistry,
        queues: TopicQueues,
        offsets: Offsets,
        positions: Positions,
        run_in_thread: RunInThread,
    ) -> None:
        self._broker = broker
        self._queues = queues
        self._positions = positions
        self._clients = clients
        self._offsets = offsets
        self._run_in_thread = run_in_thread

    # -- the cluster and its topics ------------------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        """What answers each request of administration."""
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.make_topic,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.set_group,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
        }

    def cluster(self, request: Request) -> Answer:
        """GET_BROKER_CLUSTER_INFO."""
        tables = {"brokerAddrTable": {BROKER: broker_data(request)}, "clusterAddrTable": {CLUSTER: [BROKER]}}
        return Answer(body=to_json(tables))

    async def runtime(self, _: Request) -> Answer:
        """GET_BROKER_RUNTIME_INFO: what brokerStatus and clusterList show. Rates and totals by day are not kept, and
        are 0.
        """

        def look_up() -> dict[str, Any]:
            return self._broker.call(GetOverview(most=0))

        overview = await self._run_in_thread(look_up)
        still = "0.0 0.0 0.0"
        table = {
            "brokerActive": "true", "brokerVersionDesc": f"tarry {VERSION}", "brokerVersion": "479", "putTps": still,
            "getTransferredTps": still, "getFoundTps": still, "getMissTps": still, "getTotalTps": still,
            "sendThreadPoolQueueSize": "0", "pullThreadPoolQueueSize": "0", "ackThreadPoolQueueSize": "0",
            "sendThreadPoolQueueHeadWaitTimeMills": "0", "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "ackThreadPoolQueueHeadWaitTimeMills": "0", "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(overview["now_ms"]), "commitLogDiskRatio": "0.0", "timerReadBehind": "0",
            "timerOffsetBehind": "0", "timerCongestNum": "0", "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0",
            "msgPutTotalTodayMorning": "0", "msgPutTotalTodayNow": "0", "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayMorning": "0", "msgGetTotalTodayNow": "0", "msgGetTotalYesterdayMorning": "0",
            "accepted": str(overview["accepted"]), "fired": str(overview["fired"]),
            "diskFreeBytes": str(overview["disk"]["free_bytes"]),
        }  # fmt: skip
        return Answer(body=to_json({"table": table}))

    async def topics(self, _: Request) -> Answer:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER: those that were made, or have messages, ready or pending."""

        def look_up() -> list[str]:
            pending = {topic.topic for topic in self._broker.call(GetPending(next_due=False))}
            names = pending | self._broker.call(GetQueues()).keys()
            return sorted(name for name in names if not name.startswith(_INTERNAL))

        return Answer(body=to_json({"topicList": await self._run_in_thread(look_up)}))

    async def topic_stats(self, request: Request) -> Answer:
        """GET_TOPIC_STATS_INFO: where its queue begins and ends."""
        topic = topic_name(request.fields.text("topic"), "")
        first, end = await self._run_in_thread(lambda: self._broker.call(GetQueues([topic]))[topic])
        now_ms = self._broker.clock.now_ms() if end else 0
        offset = {"lastUpdateTimestamp": now_ms, "maxOffset": end, "minOffset": first}
        return Answer(body=self._table({topic: [offset] * self._queues.count(topic)}, {"topicPutTps": 0.0}))

    async def make_topic(self, request: Request) -> Answer:
        """UPDATE_AND_CREATE_TOPIC. It has as many queues as all, whatever number is asked for."""
        topic = topic_name(request.fields.text("topic"), "")
        await self._run_in_thread(lambda: self._broker.call(SetTopic.of(topic)))
        return Answer()

    async def topic_config(self, request: Request) -> Answer:
        """GET_TOPIC_CONFIG."""
        topic = topic_name(request.fields.text("topic"), "")
        count = self._queues.count(topic)
        config = {
            "topicName": topic, "readQueueNums": count, "writeQueueNums": count, "perm": READ_WRITE,
            "topicSysFlag": 0, "topicFilterType": "SINGLE_TAG", "order": False, "attributes": {},
        }  # fmt: skip
        return Answer(body=to_json(config))

    # -- groups --------------------------------------------------------------------------------------------------------

    async def consume_stats(self, request: Request) -> Answer:
        """GET_CONSUME_STATS: where a group stands, in one topic or in all that it reads.

        Raises:
            RequestRefused: CONSUMER_NOT_ONLINE: there is no such group.
        """
        group, topic = request.fields.text("consumerGroup"), request.fields.text("topic", " ").strip()

        def look_up() -> dict[str, list[dict[str, int]]]:
            return {name: self._progress(name, group) for name in self._topics_of(group) if topic in ("", name)}

        progress = await self._run_in_thread(look_up)
        if not progress:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"there is no consumer group {group!r:.300}")
        return Answer(body=self._table(progress, {"consumeTps": 0.0}))

    def connections(self, request: Request) -> Answer:
        """GET_CONSUMER_CONNECTION_LIST.

        Raises:
            RequestRefused: CONSUMER_NOT_ONLINE.
        """
        name = request.fields.text("consumerGroup")
        group = self._clients.consumers.get(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of group {name!r:.300} is there")
        connections = [
            {"clientId": m.client_id, "clientAddr": c.peer, "language": m.language, "version": m.version}
            for c, m in group.members.items()
        ]
        subscriptions = {
            topic: {
                "topic": topic, "subString": s.expression, "expressionType": s.expression_type,
                "subVersion": s.version, "tagsSet": [], "codeSet": [], "classFilterMode": False,
            }
            for topic, s in group.subscriptions.items()
        }  # fmt: skip
        body = {
            "connectionSet": connections, "subscriptionTable": subscriptions, "consumeType": group.consume_type,
            "messageModel": group.message_model, "consumeFromWhere": group.consume_from,
        }  # fmt: skip
        return Answer(body=to_json(body))

    async def groups_of(self, request: Request) -> Answer:
        """QUERY_TOPIC_CONSUME_BY_WHO: the groups of a topic."""
        topic = topic_name(request.fields.text("topic"), "")
        groups = await self._run_in_thread(lambda: [info.group for info in self._broker.call(ListGroups(topic))])
        return Answer(body=to_json({"groupList": groups}))

    async def set_group(self, request: Request) -> Answer:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: how often a message is tried, in all topics that the group reads.
        Groups come into being when they are named; of other settings there is none.
        """
        config = json_object(request.command.body)
        group, retries = group_name(json_text(config, "groupName"), ""), config.get("retryMaxTimes", RETRIES)
        if type(retries) is not int or not 0 <= retries < 1 << 31:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"retryMaxTimes is {retries!r:.60}; allowed: 0 and more"
            )

        def change() -> None:
            for topic in self._topics_of(group):
                self._broker.call(SetGroup.of(topic, group, tries=retries + 1))

        await self._run_in_thread(change)
        return Answer()

    async def group_config(self, request: Request) -> Answer:
        """GET_SUBSCRIPTIONGROUP_CONFIG."""
        group = request.fields.text("group")

        def look_up() -> int:
            tries = [info.tries for info in self._broker.call(ListGroups()) if info.group == group]
            return tries[0] - 1 if tries and tries[0] else RETRIES

        config = {
            "groupName": group, "consumeEnable": True, "consumeBroadcastEnable": True, "retryQueueNums": 1,
            "retryMaxTimes": await self._run_in_thread(look_up), "brokerId": 0,
        }  # fmt: skip
        return Answer(body=to_json(config))

    async def reset(self, request: Request) -> Answer:
        """INVOKE_BROKER_TO_RESET_OFFSET: the group goes on from what was due at a time or later; without ``isForce``
        only where that is further back. Its consumers are told, and begin there.
        """
        fields = request.fields
        topic, group = topic_name(fields.text("topic"), ""), group_name(fields.text("group"), "")
        at_ms, force = fields.whole("timestamp"), fields.truth("isForce")

        def look_up() -> tuple[int, int]:
            call = self._broker.call
            end = call(GetQueues([topic]))[topic][1]
            return call(FollowQueue(topic, group)), end if at_ms == _LATEST else call(FindOffset(topic, at_ms))

        stands, target = await self._run_in_thread(look_up)
        if target <= stands or force:
            stands = await self._offsets.reset(topic, group, "latest" if at_ms == _LATEST else at_ms)
        body = self._table({topic: [stands] * self._queues.count(topic)})
        reset_fields = {"topic": topic, "group": group, "timestamp": str(at_ms), "isForce": str(force).lower()}
        members = self._clients.consumers.get(group)
        for connection in () if members is None else members.members:
            connection.send(oneway(ToClient.RESET_CONSUMER_CLIENT_OFFSET, reset_fields, body))
        return Answer(body=body)

    def _topics_of(self, group: str) -> list[str]:
        """In a thread: the topics that a group reads; those of its retries, too."""
        return sorted(info.topic for info in self._broker.call(ListGroups()) if info.group == group)

    def _progress(self, topic: str, group: str) -> list[dict[str, int]]:
        """In a thread: of each queue."""
        end = self._broker.call(GetQueues([topic]))[topic][1]
        now_ms = self._broker.clock.now_ms()
        offsets = (self._positions.find(topic, group, queue) or 0 for queue in range(self._queues.count(topic)))
        return [
            {"brokerOffset": end, "consumerOffset": offset, "lastTimestamp": now_ms, "pullOffset": offset}
            for offset in offsets
        ]

    def _table(self, by_topic: dict[str, list[Any]], more: dict[str, Any] | None = None) -> bytes:
        """A body with a table by queue, ``by_topic`` in the order of the queues. Its keys are objects, which is not
        JSON, but what fastjson writes and reads.
        """
        entries = ",".join(
            f"{json.dumps(queue_name(BROKER, topic, number))}:{json.dumps(value)}"
            for topic, values in by_topic.items()
            for number, value in enumerate(values)
        )
        rest = "".join(f',"{key}":{json.dumps(value)}' for key, value in (more or {}).items())
        return f'{{"offsetTable":{{{entries}}}{rest}}}'.encode()
