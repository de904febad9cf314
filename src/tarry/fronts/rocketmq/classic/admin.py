"""Administration of the cluster and its topics, as mqadmin and dashboards ask for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tarry.api.audit import AskedBy
from tarry.api.local import AnyBroker
from tarry.api.operations import GetOverview, GetPending, GetQueues, GetTopic, HasTopic, ListGroups, SetTopic
from tarry.api.settings import QUEUES_MAX
from tarry.base.delay import parse_levels
from tarry.fronts.rocketmq.classic.admin_tables import DATA_VERSION, queue_table
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.fields import json_list, json_object, json_text, json_whole, to_json
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.routes import READ_WRITE, broker_data
from tarry.fronts.rocketmq.classic.runtime_table import runtime_table
from tarry.fronts.rocketmq.classic.service import Handler
from tarry.fronts.rocketmq.common.broker_names import BrokerNames
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.delay_topics import LEVELS_TOPIC, WHEEL_TOPIC, delay_queues
from tarry.fronts.rocketmq.common.names import topic_name
from tarry.fronts.rocketmq.common.rights import may_look
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.settings import RocketMQSettings
from tarry.identity.principal import Principal

_INTERNAL = "tarry."


class TopicAdmin:
    """Answers requests about the cluster and its topics. On the event loop's thread."""

    def __init__(
        self,
        names: BrokerNames,
        broker: AnyBroker,
        queues: TopicQueues,
        dead_queues: DeadQueues,
        forget_group: Callable[[str, str, AskedBy], None],
        run_in_thread: RunInThread,
    ) -> None:
        """``forget_group``: deletes a group of a topic; called in a thread."""
        self._names = names
        self._broker = broker
        self._started_ms = broker.clock.now_ms()
        self._queues = queues
        self._dead_queues = dead_queues
        self._forget_group = forget_group
        self._run_in_thread = run_in_thread

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers, by request."""
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
            RequestCode.GET_BROKER_CONFIG: self.configuration,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.topic_configs,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.make_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.make_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.nothing_to_do,
            RequestCode.DELETE_KV_CONFIG: self.nothing_to_do,
            RequestCode.GET_KV_CONFIG: self.no_config,
        }

    def cluster(self, request: OpenRequest) -> Reply:
        """Answer GET_BROKER_CLUSTER_INFO."""
        cluster, broker = self._names
        table = {broker: broker_data(request, self._names)}
        return Reply(body=to_json({"brokerAddrTable": table, "clusterAddrTable": {cluster: [broker]}}))

    def configuration(self, request: OpenRequest) -> Reply:
        """Answer GET_BROKER_CONFIG: Tarry's settings that RocketMQ has, too, under its names, a line each."""
        config, (host, _, port) = self._broker.config, request.connection.local.rpartition(":")
        rocketmq = RocketMQSettings.of(config)
        settings = {
            "brokerName": self._names.broker, "brokerClusterName": self._names.cluster,
            "brokerId": "0", "brokerRole": "ASYNC_MASTER",
            "brokerIP1": host, "listenPort": port, "flushDiskType": "SYNC_FLUSH",
            "maxMessageSize": config.body_bytes_max, "messageDelayLevel": config.delay_levels,
            "timerMaxDelaySec": config.delay_ms_max // 1000,
            "defaultTopicQueueNums": rocketmq.remoting_queues, "fileReservedTime": config.retention_ms // 3_600_000,
            "autoCreateTopicEnable": str(rocketmq.rocketmq_create_topics == "on").lower(),
        }  # fmt: skip
        return Reply(body="".join(f"{name}={value}\n" for name, value in settings.items()).encode())

    async def runtime(self, _: OpenRequest) -> Reply:
        """Answer GET_BROKER_RUNTIME_INFO, which brokerStatus and clusterList show.

        Rates and daily totals are not kept, and are 0.
        """

        def look_up() -> dict[str, Any]:
            return self._broker.call(GetOverview(most=0))

        overview = await self._run_in_thread(look_up)
        levels = len(parse_levels(self._broker.config.delay_levels))
        return Reply(body=to_json({"table": runtime_table(overview, self._started_ms, levels)}))

    async def topics(self, request: OpenRequest) -> Reply:
        """Answer GET_ALL_TOPIC_LIST_FROM_NAMESERVER and GET_TOPICS_BY_CLUSTER."""
        topics = await self._run_in_thread(lambda: self._all_topics(request.principal))
        return Reply(body=to_json({"topicList": topics}))

    def _all_topics(self, principal: Principal) -> list[str]:
        """List the topics that were made, have groups, or have messages, ready or pending. In a thread.

        Those are left out that the caller may not look at.
        """
        call = self._broker.call
        queues = call(GetQueues())
        names = {topic.topic for topic in call(GetPending(next_due=False)) if topic.pending}
        names |= {info.topic for info in call(ListGroups())}
        names |= {topic for topic, (first, end) in queues.items() if first < end}
        # The broker still knows a deleted topic.
        names |= {topic for topic in queues.keys() - names if call(GetTopic(topic)).declared}
        return sorted(name for name in names if not name.startswith(_INTERNAL) and may_look(principal.rights, name))

    def system_topics(self, _: OpenRequest) -> Reply:
        """Answer GET_SYSTEM_TOPIC_LIST_FROM_NS: topics that are no user's."""
        return Reply(body=to_json({"topicList": [*self._names.own_topics, LEVELS_TOPIC, WHEEL_TOPIC]}))

    async def topic_stats(self, request: OpenRequest) -> Reply:
        """Answer GET_TOPIC_STATS_INFO: where a topic's queue begins and ends."""
        name = request.fields.text("topic")
        if (count := delay_queues(name, self._broker.config)) is not None:
            pending = await self._pending(name)
            stands = [self._offsets(0, pending)] * count
            return Reply(body=queue_table(self._names.broker, {name: stands}, {"topicPutTps": 0.0}))
        topic = topic_name(request.fields.text("topic"), "")
        names = [topic] * self._queues.count(topic)
        if is_alias(topic):
            found = await self._run_in_thread(lambda: self._dead_queues.look(topic))
            names = [name for name in found if may_look(request.principal.rights, name)]
        ends = await self._run_in_thread(lambda: self._broker.call(GetQueues(list(set(names)))))
        return Reply(
            body=queue_table(
                self._names.broker, {topic: [self._offsets(*ends[name]) for name in names]}, {"topicPutTps": 0.0}
            )
        )

    async def _pending(self, topic: str) -> int:
        """Count the messages that RocketMQ would hold in a topic of delayed messages.

        RocketMQ's topic of levels is left at 0: the level with which a pending message was sent is not counted.
        """
        if topic != WHEEL_TOPIC:
            return 0

        def look_up() -> int:
            return sum(found.pending for found in self._broker.call(GetPending(next_due=False)))

        return await self._run_in_thread(look_up)

    def _offsets(self, first: int, end: int) -> dict[str, int]:
        now_ms = self._broker.clock.now_ms() if end else 0
        return {"lastUpdateTimestamp": now_ms, "maxOffset": end, "minOffset": first}

    async def make_topic(self, request: OpenRequest) -> Reply:
        """Answer UPDATE_AND_CREATE_TOPIC: make a topic, or change its number of queues.

        Without a number, a topic keeps the one it has, or gets the default. Consumers have to read each queue, so the
        larger of the two given numbers counts.
        """
        fields = request.fields
        asked = max(fields.whole("readQueueNums", 0), fields.whole("writeQueueNums", 0))
        return await self._make({topic_name(fields.text("topic"), ""): asked}, request.asked)

    async def make_topics(self, request: OpenRequest) -> Reply:
        """Answer UPDATE_AND_CREATE_TOPIC_LIST: make several topics, or none if one is not allowed."""
        configs = json_list(json_object(request.command.body).get("topicConfigList"), "topicConfigList")
        return await self._make(
            {
                topic_name(json_text(config, "topicName"), ""): max(
                    json_whole(config, "readQueueNums", 0), json_whole(config, "writeQueueNums", 0)
                )
                for config in configs
            },
            request.asked,
        )

    async def _make(self, queues: dict[str, int], by: AskedBy) -> Reply:
        for topic, asked in queues.items():
            if not 0 <= asked <= QUEUES_MAX:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER, f"topic {topic!r:.300}: {asked} queues; allowed: 1 to {QUEUES_MAX}"
                )

        def make() -> None:
            for topic, asked in queues.items():
                self._broker.call_by(SetTopic.of(topic, declared=True, queues=asked or None), by)
                self._queues.look_again(topic)

        await self._run_in_thread(make)
        return Reply()

    async def delete_topic(self, request: OpenRequest) -> Reply:
        """Answer DELETE_TOPIC_IN_BROKER: forget the topic's groups, and list it only while it has messages.

        Its messages are kept as long as any others, and pending ones are delivered to groups that are made anew, as in
        RocketMQ.
        """
        topic = topic_name(request.fields.text("topic"), "")

        def delete() -> None:
            if not self._broker.call(HasTopic(topic)):
                return
            for info in self._broker.call(ListGroups(topic)):
                if not info.group.startswith(_INTERNAL):
                    self._forget_group(topic, info.group, request.asked)
            self._broker.call_by(SetTopic.of(topic, declared=False, queues=0), request.asked)
            self._queues.look_again(topic)

        await self._run_in_thread(delete)
        return Reply()

    def nothing_to_do(self, _: OpenRequest) -> Reply:
        """Answer a request about state that a name server keeps, and this one does not."""
        return Reply()

    def no_config(self, request: OpenRequest) -> Reply:
        """Answer GET_KV_CONFIG.

        Raises:
            RequestRefused: QUERY_NOT_FOUND, always.
        """
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"no configuration {request.fields.text('key', '')!r:.300}")

    def topic_config(self, request: OpenRequest) -> Reply:
        """Answer GET_TOPIC_CONFIG."""
        name = request.fields.text("topic")
        count = delay_queues(name, self._broker.config)
        return Reply(body=to_json(self._config(name if count is not None else topic_name(name, ""), count)))

    async def topic_configs(self, request: OpenRequest) -> Reply:
        """Answer GET_ALL_TOPIC_CONFIG: all topics in one answer."""
        topics = await self._run_in_thread(lambda: self._all_topics(request.principal))
        table = {"topicConfigTable": {topic: self._config(topic) for topic in topics}, "dataVersion": DATA_VERSION}
        return Reply(body=to_json(table))

    def _config(self, topic: str, count: int | None = None) -> dict[str, Any]:
        count = self._queues.count(topic) if count is None else count
        return {
            "topicName": topic, "readQueueNums": count, "writeQueueNums": count, "perm": READ_WRITE,
            "topicSysFlag": 0, "topicFilterType": "SINGLE_TAG", "order": False, "attributes": {},
        }  # fmt: skip
