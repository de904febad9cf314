"""QueryRoute and QueryAssignment: where a topic's queues are.

There is one broker, and to producers and simple consumers a topic has one queue. Push consumers are given several,
which all stand for the same: such a client has one call open for each of its queues, and takes the next messages only
when that call is answered and made again. With one, delivery would wait for the client's way there and back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.dead import is_alias, topics_of
from tarry.fronts.rocketmq.names import group_of, topic_of
from tarry.fronts.rocketmq.refusal import OK
from tarry.fronts.rocketmq.stubs import definition, service
from tarry.fronts.rocketmq.topics import Topics

BROKER = "tarry"
_TYPES = [
    definition.MessageType.NORMAL,
    definition.MessageType.FIFO,
    definition.MessageType.DELAY,
    definition.MessageType.TRANSACTION,
]
_ANY_QUEUE = -1
QUEUES = 4
"""Of a topic, to push consumers."""


class Routes:
    """On the loop's thread. ``place``: where the front listens, as ``Endpoints``, for clients that do not say how they
    came.
    """

    def __init__(
        self, core: Core, topics: Topics, aside: Callable[[Callable[[], Any]], asyncio.Future[Any]], place: Any
    ) -> None:
        self._core = core
        self._topics = topics
        self._aside = aside
        self._place = place

    async def route(self, caller: Caller, request: Any) -> Any:
        """QueryRoute: the broker is where the client found it, which may be behind a proxy."""
        queues = await self._queues(topic_of(request.topic, caller.space), request)
        found = [self._queue(request, name, number, _TYPES) for number, name in enumerate(queues)]
        return service.QueryRouteResponse(status=OK, message_queues=found)

    async def assignment(self, caller: Caller, request: Any) -> Any:
        """QueryAssignment: every consumer of a group reads all queues."""
        group_of(request.group, caller.space)
        queues = await self._queues(topic_of(request.topic, caller.space), request)
        numbers = [_ANY_QUEUE] if is_alias(request.topic.name) else range(QUEUES)
        found = [
            definition.Assignment(message_queue=self._queue(request, name, number, []))
            for name in queues
            for number in numbers
        ]
        return service.QueryAssignmentResponse(status=OK, assignments=found)

    async def _queues(self, topic: str, request: Any) -> list[str]:
        """The broker names of a topic's queues."""
        if is_alias(topic):
            return await self._aside(lambda: topics_of(self._core, topic)) or [BROKER]
        self._topics.check(topic)
        return [BROKER]

    def _queue(self, request: Any, name: str, number: int, types: list[int]) -> Any:
        place = request.endpoints if request.endpoints.addresses else self._place
        return definition.MessageQueue(
            topic=request.topic,
            id=number,
            permission=definition.Permission.READ_WRITE,
            broker=definition.Broker(name=name, id=0, endpoints=place),
            accept_message_types=types,
        )


def endpoints(host: str, port: int) -> Any:
    """An address as ``Endpoints``."""
    bare = host.strip("[]")
    kind = definition.AddressScheme
    scheme = kind.IPv6 if ":" in bare else kind.IPv4 if bare.replace(".", "").isdigit() else kind.DOMAIN_NAME
    return definition.Endpoints(scheme=scheme, addresses=[definition.Address(host=bare, port=port)])
