"""Administration of clients: those connected, and questions that only a client itself can answer.

mqadmin and dashboards ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tarry.api.local import AnyBroker
from tarry.fronts.rocketmq.classic.clients import ClientRegistry, GroupMember, TopicSubscription
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, RemotingConnection, Reply
from tarry.fronts.rocketmq.classic.fields import to_json
from tarry.fronts.rocketmq.classic.lookup import Lookup
from tarry.fronts.rocketmq.classic.message_bytes import read_offset_id
from tarry.fronts.rocketmq.classic.service import Handler


@dataclass(eq=False)
class ClientAdmin:
    """Answers requests about clients. On the event loop's thread."""

    _broker_name: str
    _broker: AnyBroker
    _clients: ClientRegistry
    _lookup: Lookup

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers, by request."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def connections(self, request: OpenRequest) -> Reply:
        """Answer GET_CONSUMER_CONNECTION_LIST.

        Raises:
            RequestRefused: CONSUMER_NOT_ONLINE.
        """
        name = request.fields.text("consumerGroup")
        group = self._clients.consumers.get(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of group {name!r:.300} is there")
        subscriptions = {topic: _subscription(topic, s) for topic, s in group.subscriptions.items()}
        body = {
            "connectionSet": [_connection(c, m) for c, m in group.members.items()], "subscriptionTable": subscriptions,
            "consumeType": group.consume_type,
            "messageModel": group.message_model, "consumeFromWhere": group.consume_from,
        }  # fmt: skip
        return Reply(body=to_json(body))

    def producers(self, request: OpenRequest) -> Reply:
        """Answer GET_PRODUCER_CONNECTION_LIST.

        Raises:
            RequestRefused: SYSTEM_ERROR: no producer of the group is connected.
        """
        name = request.fields.text("producerGroup")
        members = self._clients.producers.get(name)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name:.300}] not exist")
        return Reply(body=to_json({"connectionSet": [_connection(c, m) for c, m in members.items()]}))

    def all_producers(self, _: OpenRequest) -> Reply:
        """Answer GET_ALL_PRODUCER_INFO: producers by group."""
        now_ms = self._broker.clock.now_ms()
        table = {
            name: [
                {
                    "clientId": m.client_id, "remoteIP": c.peer, "language": m.language, "version": m.version,
                    "lastUpdateTimestamp": now_ms,
                }
                for c, m in members.items()
            ]
            for name, members in self._clients.producers.items()
        }  # fmt: skip
        return Reply(body=to_json({"data": table}))

    def subscription(self, request: OpenRequest) -> Reply:
        """Answer QUERY_SUBSCRIPTION_BY_CONSUMER: a group's subscription to a topic.

        It is empty if no consumer of the group is connected.
        """
        group, topic = request.fields.text("group"), request.fields.text("topic")
        found = self._clients.subscription(group, topic)
        data = None if found is None else _subscription(topic, found)
        return Reply(body=to_json({"group": group, "topic": topic, "subscriptionData": data}))

    async def running_info(self, request: OpenRequest) -> Reply:
        """Answer GET_CONSUMER_RUNNING_INFO: a consumer's own account of its state.

        Raises:
            RequestRefused: as :meth:`_ask`.
        """
        fields = request.fields
        asked = {
            "consumerGroup": fields.text("consumerGroup"), "clientId": fields.text("clientId"),
            "jstackEnable": str(fields.truth("jstackEnable")).lower(),
        }  # fmt: skip
        return await self._ask(request, asked, b"")

    async def consume_directly(self, request: OpenRequest) -> Reply:
        """Answer CONSUME_MESSAGE_DIRECTLY: give a message to a consumer once more, and return its result.

        Raises:
            RequestRefused: as :meth:`_ask`; SYSTEM_ERROR: there is no such message.
        """
        fields = request.fields
        asked = {name: fields.text(name, "") for name in ("consumerGroup", "clientId", "msgId", "topic")}
        place = read_offset_id(asked["msgId"])
        if place is None:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"msgId is {asked['msgId']!r:.80}; allowed: a message's offset id"
            )
        body = await self._lookup.find(asked["topic"], place, request)
        return await self._ask(request, asked | {"brokerName": self._broker_name}, body)

    async def _ask(self, request: OpenRequest, asked: dict[str, str], body: bytes) -> Reply:
        """Hand a request on to a consumer, and return its answer.

        Raises:
            RequestRefused: SYSTEM_ERROR: there is no such consumer. CONSUME_MSG_TIMEOUT: it does not answer.
        """
        group, client_id = asked["consumerGroup"], asked["clientId"]
        connection = self._clients.consumer(group, client_id)
        if connection is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"no consumer {client_id!r:.300} of group {group!r:.300} is there"
            )
        try:
            answer = await connection.ask(request.code, {name: text for name, text in asked.items() if text}, body)
        except (TimeoutError, ConnectionError) as error:
            raise RequestRefused(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {client_id!r:.300} does not answer: {error}"
            ) from error
        return Reply(answer.code, body=answer.body, remark=answer.remark)


def _connection(connection: RemotingConnection, member: GroupMember) -> dict[str, Any]:
    return {
        "clientId": member.client_id, "clientAddr": connection.peer, "language": member.language,
        "version": member.version,
    }  # fmt: skip


def _subscription(topic: str, subscription: TopicSubscription) -> dict[str, Any]:
    return {
        "topic": topic, "subString": subscription.expression, "expressionType": subscription.expression_type,
        "subVersion": subscription.version, "tagsSet": [], "codeSet": [], "classFilterMode": False,
    }  # fmt: skip
