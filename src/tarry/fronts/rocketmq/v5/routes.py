"""QueryRoute and QueryAssignment: where a topic's queues are.

There is one broker. For producers and simple consumers a topic has one queue, or as many as it was made with (the
topic's setting ``queues``); all of them stand for the same. Push consumers are given several in any case: such a client
has one call open for each of its queues, and takes the next messages only when that call is answered and made again.
With one queue, delivery would wait for the client's round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tarry.api.local import AnyBroker
from tarry.api.operations import GetTopic
from tarry.fronts.rocketmq.common.dead_letters import dead_topics_of, is_alias
from tarry.fronts.rocketmq.common.rights import check_look, may_look
from tarry.fronts.rocketmq.common.stubs import definition, service
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.resources import group_of, topic_of
from tarry.fronts.rocketmq.v5.statuses import OK

_TYPES = [
    definition.MessageType.NORMAL,
    definition.MessageType.FIFO,
    definition.MessageType.DELAY,
    definition.MessageType.TRANSACTION,
]
_ANY_QUEUE = -1
QUEUES = 4
"""Queues of a topic that push consumers see, at least."""


class ListeningAddress:
    """The address on which the front listens.

    ``port``: the one asked for, until the server listens and knows the real one.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def endpoints(self) -> Any:
        """Return the address as a protobuf ``Endpoints``."""
        bare = self.host.strip("[]")
        kind = definition.AddressScheme
        scheme = kind.IPv6 if ":" in bare else kind.IPv4 if bare.replace(".", "").isdigit() else kind.DOMAIN_NAME
        return definition.Endpoints(scheme=scheme, addresses=[definition.Address(host=bare, port=self.port)])


@dataclass(slots=True)
class Routes:
    """Answers questions about routes. On the event loop's thread.

    ``name``: the broker's. ``address``: for clients that do not say which address they used.
    """

    _name: str
    _broker: AnyBroker
    _topics: TopicRegistry
    _run_in_thread: RunInThread
    _address: ListeningAddress

    async def route(self, caller: CallingClient, request: Any) -> Any:
        """Answer QueryRoute. The broker's address is the one that the client used, which may be a proxy's."""
        topic = topic_of(request.topic, caller.namespace)
        names = await self._queue_names(topic, caller)
        if not is_alias(topic):
            names *= await self._made_with(topic) or 1
        queues = [self._queue(request, name, number, _TYPES) for number, name in enumerate(names)]
        return service.QueryRouteResponse(status=OK, message_queues=queues)

    async def assignment(self, caller: CallingClient, request: Any) -> Any:
        """Answer QueryAssignment. Every consumer of a group reads all queues."""
        group_of(request.group, caller.namespace)
        names = await self._queue_names(topic_of(request.topic, caller.namespace), caller)
        numbers: Sequence[int] = [_ANY_QUEUE]
        if not is_alias(request.topic.name):
            numbers = range(max(QUEUES, await self._made_with(topic_of(request.topic, caller.namespace))))
        assignments = [
            definition.Assignment(message_queue=self._queue(request, name, number, []))
            for name in names
            for number in numbers
        ]
        return service.QueryAssignmentResponse(status=OK, assignments=assignments)

    async def _made_with(self, topic: str) -> int:
        """Look up the number of queues that the topic was made with; 0 if it has no such number."""
        return (await self._run_in_thread(lambda: self._broker.call(GetTopic(topic)))).queues

    async def _queue_names(self, topic: str, caller: CallingClient) -> list[str]:
        """Return the broker names of a topic's queues, as far as the caller may see them."""
        if is_alias(topic):
            found = await self._run_in_thread(lambda: dead_topics_of(self._broker, topic))
            names = [name for name in found if may_look(caller.principal.rights, name)]
            if found and not names:
                check_look(caller.principal, topic, peer=caller.host)
            return names or [self._name]
        check_look(caller.principal, topic, peer=caller.host)
        self._topics.check(topic)
        return [self._name]

    def _queue(self, request: Any, name: str, number: int, types: list[int]) -> Any:
        endpoints = request.endpoints if request.endpoints.addresses else self._address.endpoints()
        return definition.MessageQueue(
            topic=request.topic,
            id=number,
            permission=definition.Permission.READ_WRITE,
            broker=definition.Broker(name=name, id=0, endpoints=endpoints),
            accept_message_types=types,
        )
