"""Connected clients: producers by group, consumers by group with their subscriptions.

A client sends a heartbeat every 30 s. It counts as connected until it says goodbye, its connection ends, or it is
silent for :data:`SILENT_S`. Whenever a group's consumers change, all of them are told, so that they share out its
queues anew. Source: ``ConsumerManager``, ``ProducerManager`` of apache/rocketmq.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tarry.api.needs import Right
from tarry.base.errors import ForbiddenError
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.connection import OpenRequest, RemotingConnection, Reply
from tarry.fronts.rocketmq.classic.fields import json_list, json_object, json_text, to_json
from tarry.fronts.rocketmq.classic.frames import oneway
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.names import RETRY_PREFIX, group_name
from tarry.fronts.rocketmq.common.rights import check_group, may_consume
from tarry.identity.rights import Rights

SILENT_S = 120.0
SWEEP_S = 10.0
GATHER_S = 0.05
"""Time for which changes of groups are gathered before their consumers are notified."""
SQL = "SQL92"
PUSH = "CONSUME_PASSIVELY"
"""Type of a consumer with a listener, whether it pulls or pops."""
GROUPS_MAX = 1_000
"""Groups of producers, and of consumers, that one connection may belong to."""


@dataclass(slots=True)
class GroupMember:
    """A client on one connection. ``seen_s``: its last heartbeat, in the loop's time."""

    client_id: str
    language: str
    version: int
    seen_s: float
    consume_type: str = ""
    topics: frozenset[str] | None = None
    """Topics that a consumer reads and may read; None: any."""

    def reads(self, topic: str) -> bool:
        """Return whether it is one of those that share out a topic's queues."""
        return self.topics is None or topic in self.topics


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """A consumer group's subscription to a topic, as its consumers write it."""

    topic: str
    expression: str
    expression_type: str
    version: int


@dataclass(slots=True)
class ConsumerMembers:
    """A group's connected consumers, and the content of their last heartbeat."""

    members: dict[RemotingConnection, GroupMember] = field(default_factory=dict)
    subscriptions: dict[str, TopicSubscription] = field(default_factory=dict)
    consume_type: str = ""
    message_model: str = ""
    consume_from: str = ""


class ClientRegistry:
    """All connected clients, until :meth:`close`. On the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, groups: ClientGroups) -> None:
        self._loop = loop
        self._groups = groups
        self.consumers: dict[str, ConsumerMembers] = {}
        self.producers: dict[str, dict[RemotingConnection, GroupMember]] = {}
        self._sweep = loop.call_later(SWEEP_S, self._drop_silent)
        self._changed: set[str] = set()
        """Groups whose consumers are to be notified."""
        self._telling: asyncio.TimerHandle | None = None

    def close(self) -> None:
        self._sweep.cancel()
        if self._telling is not None:
            self._telling.cancel()

    def heartbeat(self, request: OpenRequest) -> Reply:
        """Answer HEART_BEAT, which names all groups of a client each time."""
        data = json_object(request.command.body)
        client_id = json_text(data, "clientID")
        now_s, command = self._loop.time(), request.command
        for producer in json_list(data.get("producerDataSet"), "producerDataSet"):
            name = json_text(producer, "groupName")
            _check_room(name, [n for n, members in self.producers.items() if request.connection in members])
            members = self.producers.setdefault(name, {})
            members[request.connection] = GroupMember(client_id, command.language, command.version, now_s)
        forbidden: ForbiddenError | None = None
        for consumer in json_list(data.get("consumerDataSet"), "consumerDataSet"):
            kind = str(consumer.get("consumeType", ""))
            member = GroupMember(client_id, command.language, command.version, now_s, kind)
            try:
                self._on_consumer(consumer, request, member)
            except ForbiddenError as error:
                forbidden = error  # the client's other groups count all the same
        if forbidden is not None:
            raise forbidden
        return Reply()

    def _on_consumer(self, consumer: dict[str, Any], request: OpenRequest, member: GroupMember) -> None:
        connection, rights = request.connection, request.principal.rights
        name = group_name(json_text(consumer, "groupName"), "")
        _check_room(name, [n for n, group in self.consumers.items() if connection in group.members])
        subscriptions = {}
        for item in json_list(consumer.get("subscriptionDataSet"), "subscriptionDataSet"):
            subscription = _subscription(item)
            # What a group's consumers want of a topic counts for all of them, so only those may say who may consume it.
            if may_consume(rights, subscription.topic, name):
                subscriptions[subscription.topic] = subscription
        if not subscriptions:
            check_group(request.principal, Right.CONSUME, name, peer=request.peer_host)
        group = self.consumers.setdefault(name, ConsumerMembers())
        connection.groups.add(name)
        changed = connection not in group.members or subscriptions.keys() != group.subscriptions.keys()
        group.members[connection] = member
        # As in RocketMQ, the last consumer's subscriptions count for all; but not for topics that it may not read,
        # which consumers of another identity may read for a group of the same name.
        others = {} if rights.is_unlimited else _of_others(group.subscriptions, rights, name)
        group.subscriptions = others | subscriptions
        if not rights.is_unlimited:
            member.topics = frozenset(subscriptions)
        group.consume_type = member.consume_type
        group.message_model = str(consumer.get("messageModel", ""))
        group.consume_from = str(consumer.get("consumeFromWhere", ""))
        if changed:
            self._notify(name)

    def unregister(self, request: OpenRequest) -> Reply:
        """Answer UNREGISTER_CLIENT: leave a group of producers, of consumers, or both."""
        producer_group = request.fields.text("producerGroup", " ").strip()
        consumer_group = request.fields.text("consumerGroup", " ").strip()
        if producer_group:
            self._remove_producer(producer_group, request.connection)
        if consumer_group:
            self._remove_consumer(consumer_group, request.connection)
        return Reply()

    def list_consumers(self, request: OpenRequest) -> Reply:
        """Answer GET_CONSUMER_LIST_BY_GROUP: the ids of a group's clients."""
        group = self.consumers.get(name := request.fields.text("consumerGroup"))
        if group is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer of group {name!r:.300} is there")
        rights = request.principal.rights
        ids = sorted({member.client_id for member in group.members.values() if _may_see(rights, name, member)})
        return Reply(body=to_json({"consumerIdList": ids}))

    def check_filter(self, request: OpenRequest) -> Reply:
        """Answer CHECK_CLIENT_CONFIG: check a consumer's filter.

        Raises:
            Refusal: the filter is invalid.
        """
        data = json_object(request.command.body).get("subscriptionData")
        if isinstance(data, dict):
            self.filter_text(_subscription(data))
        return Reply()

    def filter_text(self, subscription: TopicSubscription) -> str:
        """Return a subscription's filter in the broker's syntax.

        Raises:
            Refusal: ILLEGAL_FILTER_EXPRESSION.
        """
        return self._groups.filter_text(subscription.expression, sql=subscription.expression_type == SQL)

    def subscription(self, group: str, topic: str) -> TopicSubscription | None:
        """Return the subscription of a group's connected consumers to a topic."""
        members = self.consumers.get(group)
        return None if members is None else members.subscriptions.get(topic)

    def client_ids(self, group: str, topic: str) -> list[str]:
        """Return the ids of a group's connected consumers that read a topic, sorted."""
        members = self.consumers.get(group, ConsumerMembers()).members.values()
        return sorted({member.client_id for member in members if member.reads(topic)})

    def is_push_consumer(self, group: str, connection: RemotingConnection) -> bool:
        """Return whether a client hands a group's messages to a listener, by its heartbeats."""
        member = self.consumers.get(group, ConsumerMembers()).members.get(connection)
        return member is not None and member.consume_type == PUSH

    def notify(self, group: str) -> None:
        """Have the consumers of a group look anew which queues they are to read."""
        self._notify(group)

    def producer(self, group: str, topic: str) -> RemotingConnection | None:
        """Return any one of a group's producers that may produce to a topic.

        Clients name their groups as they like, and who is asked about a transaction sees its message.
        """
        members = (connection for connection in self.producers.get(group, {}) if not connection.closed)
        return next((connection for connection in members if _may_produce(connection, topic)), None)

    def consumer(self, group: str, client_id: str) -> RemotingConnection | None:
        """Return the connection of a group's consumer, by the client's own id."""
        members = self.consumers.get(group, ConsumerMembers()).members
        return next((c for c, member in members.items() if member.client_id == client_id and not c.closed), None)

    def client(self, client_id: str, may: Callable[[RemotingConnection], bool]) -> RemotingConnection | None:
        """Return the connection of a producer, by its own id, which others may have taken, too."""
        return next(
            (
                connection
                for members in self.producers.values()
                for connection, member in members.items()
                if member.client_id == client_id and not connection.closed and may(connection)
            ),
            None,
        )

    def on_closed(self, connection: RemotingConnection) -> None:
        """Forget the clients of a connection that has ended."""
        for name in [name for name, members in self.producers.items() if connection in members]:
            self._remove_producer(name, connection)
        for name in [name for name, group in self.consumers.items() if connection in group.members]:
            self._remove_consumer(name, connection)

    def _remove_producer(self, name: str, connection: RemotingConnection) -> None:
        members = self.producers.get(name, {})
        members.pop(connection, None)
        if not members:
            self.producers.pop(name, None)

    def _remove_consumer(self, name: str, connection: RemotingConnection) -> None:
        group = self.consumers.get(name)
        connection.groups.discard(name)
        if group is None or group.members.pop(connection, None) is None:
            return
        if group.members:
            self._notify(name)
        else:
            del self.consumers[name]

    def _notify(self, name: str) -> None:
        """Notify a group's consumers soon: once if many change together."""
        self._changed.add(name)
        if self._telling is None:
            self._telling = self._loop.call_later(GATHER_S, self._notify_changed)

    def _notify_changed(self) -> None:
        self._telling = None
        changed, self._changed = self._changed, set()
        for name in changed:
            for connection in self.consumers.get(name, ConsumerMembers()).members:
                connection.send(oneway(ToClient.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name}))

    def _drop_silent(self) -> None:
        self._sweep = self._loop.call_later(SWEEP_S, self._drop_silent)
        before_s = self._loop.time() - SILENT_S
        for connection, member in list(self._members()):
            if member.seen_s < before_s:
                connection.abort(f"client {member.client_id!r:.100} has been silent for {SILENT_S:.0f} s")

    def _members(self) -> Iterator[tuple[RemotingConnection, GroupMember]]:
        for members in self.producers.values():
            yield from members.items()
        for group in self.consumers.values():
            yield from group.members.items()


def _of_others(subscriptions: dict[str, TopicSubscription], rights: Rights, group: str) -> dict[str, TopicSubscription]:
    return {topic: each for topic, each in subscriptions.items() if not may_consume(rights, topic, group)}


def _may_see(rights: Rights, group: str, member: GroupMember) -> bool:
    """Return whether a caller may know of a member: by a topic that it reads, but for retries."""
    if rights.is_unlimited or member.topics is None:
        return True
    topics = (topic for topic in member.topics if not topic.startswith(RETRY_PREFIX))
    return any(rights.allow(Right.LOOK, topic, group) for topic in topics)


def _may_produce(connection: RemotingConnection, topic: str) -> bool:
    return any(principal.rights.allow(Right.PRODUCE, topic) for principal in connection.principals)


def _check_room(name: str, names: list[str]) -> None:
    """Check that a client that is in so many groups may be in another one.

    Raises:
        RequestRefused: INVALID_PARAMETER: it is in too many.
    """
    if len(names) >= GROUPS_MAX and name not in names:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, f"group {name!r:.300} is one more than {GROUPS_MAX} of this connection"
        )


def _subscription(item: dict[str, Any]) -> TopicSubscription:
    version = item.get("subVersion")
    return TopicSubscription(
        json_text(item, "topic"),
        str(item.get("subString") or "*"),
        str(item.get("expressionType") or "TAG"),
        version if type(version) is int else 0,
    )
