"""Administration of groups, as mqadmin and dashboards ask for it: listing, changing, resetting them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tarry.api.audit import AskedBy
from tarry.api.group_info import GroupInfo
from tarry.api.local import AnyBroker
from tarry.api.needs import Right
from tarry.api.operations import DeleteGroup, FindOffset, FollowQueue, GetGroup, GetQueues, ListGroups, SetGroup
from tarry.base.errors import NotFoundError
from tarry.fronts.rocketmq.classic.admin_tables import DATA_VERSION, queue_table
from tarry.fronts.rocketmq.classic.clients import ClientRegistry
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.fields import json_list, json_object, json_text, to_json
from tarry.fronts.rocketmq.classic.frames import oneway
from tarry.fronts.rocketmq.classic.group_lists import only_looks, topics_of
from tarry.fronts.rocketmq.classic.offsets import Offsets
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.sending import RETRIES
from tarry.fronts.rocketmq.classic.service import Handler
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.groups import RETRY
from tarry.fronts.rocketmq.common.names import RETRY_PREFIX, group_name, topic_name
from tarry.fronts.rocketmq.common.rights import check_group
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.identity.principal import Principal
from tarry.identity.seen import seen_by

_LATEST = -1
"""The time that stands for the end of a queue."""
_INTERNAL = "tarry."


@dataclass(eq=False)
class GroupAdmin:
    """Answers requests about groups. On the event loop's thread."""

    _broker_name: str
    _broker: AnyBroker
    _clients: ClientRegistry
    _queues: TopicQueues
    _dead_queues: DeadQueues
    _offsets: Offsets
    _positions: Positions
    _run_in_thread: RunInThread

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers, by request."""
        return {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.group_configs,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.set_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.set_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
        }

    async def groups_of(self, request: OpenRequest) -> Reply:
        """Answer QUERY_TOPIC_CONSUME_BY_WHO: the groups of a topic."""
        topic = topic_name(request.fields.text("topic"), "")
        rights = request.principal.rights

        def look_up() -> list[str]:
            infos = [info for name in self._dead_queues.topics(topic) for info in self._broker.call(ListGroups(name))]
            seen = (info.group for info in infos if rights.allow(Right.LOOK, info.topic, info.group))
            return [group for group in dict.fromkeys(seen) if not only_looks(group)]

        return Reply(body=to_json({"groupList": await self._run_in_thread(look_up)}))

    async def set_group(self, request: OpenRequest) -> Reply:
        """Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: set how often a group's messages are tried.

        It holds in all topics that the group reads, and in those that it will read. A group that nobody has used is
        made. There are no other settings.
        """
        return await self._set([_asked(json_object(request.command.body))], request)

    async def set_groups(self, request: OpenRequest) -> Reply:
        """Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: set several groups, or none if one is not allowed."""
        configs = json_list(json_object(request.command.body).get("groupConfigList"), "groupConfigList")
        return await self._set([_asked(config) for config in configs], request)

    async def _set(self, asked: list[tuple[str, int]], request: OpenRequest) -> Reply:
        principal, by = request.principal, request.asked

        def change() -> None:
            for group, _ in asked:
                _check_manage(principal, [*self._topics_of(group), RETRY_PREFIX + group], group, peer=by.peer)
            for group, retries in asked:
                # A group belongs to a topic. The group on its retry topic, which each group has, keeps the settings for
                # topics to come.
                topics = self._topics_of(group)
                if (own := RETRY_PREFIX + group) not in topics:
                    self._broker.call_by(SetGroup.of(own, group, retry=RETRY, tries=retries + 1), by)
                for topic in topics:
                    self._broker.call_by(SetGroup.of(topic, group, tries=retries + 1), by)

        await self._run_in_thread(change)
        return Reply()

    async def delete_group(self, request: OpenRequest) -> Reply:
        """Answer DELETE_SUBSCRIPTIONGROUP: forget the group in all topics. A missing group is no error."""
        group = group_name(request.fields.text("groupName"), "")

        def delete() -> None:
            topics = self._topics_of(group)
            _check_manage(request.principal, topics, group, peer=request.peer_host)
            for topic in topics:
                self.forget(topic, group, request.asked)

        await self._run_in_thread(delete)
        return Reply()

    def forget(self, topic: str, group: str, asked: AskedBy) -> None:
        """Delete a group of one topic. In a thread."""
        try:
            self._broker.call_by(DeleteGroup(topic, group), asked)
        except NotFoundError:
            pass  # another request was quicker
        self._positions.forget(topic, group)

    async def topics_of(self, request: OpenRequest) -> Reply:
        """Answer QUERY_TOPICS_BY_CONSUMER: the topics that a group reads."""
        group = request.fields.text("group")
        topics = await self._run_in_thread(lambda: self._seen_topics_of(group, request.principal))
        return Reply(body=to_json({"topicList": list(dict.fromkeys(map(self._shown, topics)))}))

    async def group_config(self, request: OpenRequest) -> Reply:
        """Answer GET_SUBSCRIPTIONGROUP_CONFIG; for a group that does not exist, with the defaults."""
        group = request.fields.text("group")

        def look_up() -> dict[str, Any]:
            topics = self._seen_topics_of(group, request.principal)
            return _config(group, self._broker.call(GetGroup(topics[0], group)) if topics else None)

        return Reply(body=to_json(await self._run_in_thread(look_up)))

    async def group_configs(self, request: OpenRequest) -> Reply:
        """Answer GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all groups in one answer."""

        def look_up() -> dict[str, Any]:
            infos = seen_by(self._broker, request.principal).call(ListGroups())
            return {
                i.group: _config(i.group, i)
                for i in infos
                if not i.group.startswith(_INTERNAL) and not i.topic.startswith(_INTERNAL) and not only_looks(i.group)
            }

        table = {"subscriptionGroupTable": await self._run_in_thread(look_up), "dataVersion": DATA_VERSION}
        return Reply(body=to_json(table | {"forbiddenTable": {}}))

    async def reset(self, request: OpenRequest) -> Reply:
        """Answer INVOKE_BROKER_TO_RESET_OFFSET: move a group to the messages due at a time or later.

        Without ``isForce`` it only moves back. Its consumers are notified, and go on from there.
        """
        fields = request.fields
        topic, group = topic_name(fields.text("topic"), ""), group_name(fields.text("group"), "")
        at_ms, force = fields.whole("timestamp"), fields.truth("isForce")

        _check_manage(request.principal, self._dead_queues.topics(topic), group, peer=request.peer_host)
        stands = [
            await self._reset(name, group, at_ms, request.asked, force=force)
            for name in self._dead_queues.topics(topic)
        ]
        body = queue_table(
            self._broker_name, {topic: stands if is_alias(topic) else stands * self._queues.count(topic)}
        )
        reset_fields = {"topic": topic, "group": group, "timestamp": str(at_ms), "isForce": str(force).lower()}
        members = self._clients.consumers.get(group)
        for connection in () if members is None else members.members:
            connection.send(oneway(ToClient.RESET_CONSUMER_CLIENT_OFFSET, reset_fields, body))
        return Reply(body=body)

    async def _reset(self, topic: str, group: str, at_ms: int, asked: AskedBy, *, force: bool) -> int:
        """Reset the group in a topic; return its offset after that."""

        def look_up() -> tuple[int, int]:
            call = self._broker.call
            end = call(GetQueues([topic]))[topic][1]
            return call(FollowQueue(topic, group)), end if at_ms == _LATEST else call(FindOffset(topic, at_ms))

        stands, target = await self._run_in_thread(look_up)
        if target <= stands or force:
            stands = await self._offsets.reset(topic, group, "latest" if at_ms == _LATEST else at_ms, asked)
        return stands

    def _topics_of(self, group: str) -> list[str]:
        """List the topics that a group reads, including its retry topic. In a thread."""
        return topics_of(self._broker, group)

    def _seen_topics_of(self, group: str, principal: Principal) -> list[str]:
        """List those of them that the caller may look at. In a thread."""
        return [topic for topic in self._topics_of(group) if principal.rights.allow(Right.LOOK, topic, group)]

    def _shown(self, topic: str) -> str:
        """Return the name by which clients know a topic."""
        place = self._dead_queues.place(topic)
        return topic if place is None else place[0]


def _check_manage(principal: Principal, topics: list[str], group: str, *, peer: str | None) -> None:
    """Refuse a change of a group in these topics; its retry topic goes by the group's name."""
    if principal.rights.is_unlimited:
        return
    for topic in topics:
        if topic == RETRY_PREFIX + group:
            check_group(principal, Right.MANAGE, group, peer=peer)
        else:
            principal.check(Right.MANAGE, topic, group, peer=peer)


def _asked(config: dict[str, Any]) -> tuple[str, int]:
    """Read a group's name, and its number of retries."""
    group, retries = group_name(json_text(config, "groupName"), ""), config.get("retryMaxTimes", RETRIES)
    topic_name(RETRY_PREFIX + group, "")  # refused if the name is too long for a retry topic
    if type(retries) is not int or not 0 <= retries < 1 << 31:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"retryMaxTimes is {retries!r:.60}; allowed: 0 and more")
    return group, retries


def _config(group: str, info: GroupInfo | None) -> dict[str, Any]:
    return {
        "groupName": group, "consumeEnable": info is None or not info.paused, "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True, "consumeMessageOrderly": info is not None and info.ordered, "retryQueueNums": 1,
        "retryMaxTimes": info.tries - 1 if info is not None and info.tries else RETRIES, "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True, "groupSysFlag": 0,
        "consumeTimeoutMinute": 15, "attributes": {},
    }  # fmt: skip
