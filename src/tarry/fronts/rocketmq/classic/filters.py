"""What a consumer group wants of a topic: by the request, by its consumers' heartbeats, or as the broker knows it."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.local import LocalBroker
from tarry.api.operations import GetGroup
from tarry.base.errors import NotFoundError
from tarry.fronts.rocketmq.classic.clients import ClientRegistry, TopicSubscription
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.common.threads import RunInThread


@dataclass(eq=False)
class GroupFilters:
    """On the loop's thread."""

    _broker: LocalBroker
    _clients: ClientRegistry
    _dead_queues: DeadQueues
    _run_in_thread: RunInThread

    async def find(self, topic: str, group: str, given: tuple[str, str] | None) -> str:
        """A filter as the broker writes it. ``given``: the expression and its type that the request has, if it has one.

        Raises:
            Refusal: SUBSCRIPTION_PARSE_FAILED. RequestRefused: SUBSCRIPTION_NOT_EXIST: no consumer has said it, and the
                broker does not know it from before.
        """
        if (said := self.find_said(topic, group, given)) is not None:
            return said

        def look_up() -> str:
            try:
                return self._broker.call(GetGroup(topic, group)).filter
            except NotFoundError as error:
                raise RequestRefused(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST,
                    f"consumer group {group!r:.300} has not said in a heartbeat what it wants of topic {topic!r:.300}",
                ) from error

        return await self._run_in_thread(look_up)

    def find_said(self, topic: str, group: str, given: tuple[str, str] | None) -> str | None:
        """:meth:`find`, without asking the broker; None: only it may know."""
        if given is not None:
            expression, kind = given
            return self._clients.filter_text(TopicSubscription(topic, expression, kind, 0))
        place = self._dead_queues.place(topic)
        subscription = self._clients.subscription(group, topic if place is None else place[0])
        return None if subscription is None else self._clients.filter_text(subscription)
