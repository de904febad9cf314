"""The filter of a consumer group on a topic: from the request, from heartbeats, or from the broker."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.local import AnyBroker
from tarry.api.operations import GetGroup
from tarry.base.errors import NotFoundError
from tarry.fronts.rocketmq.classic.clients import ClientRegistry, TopicSubscription
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.common.threads import RunInThread


@dataclass(eq=False)
class GroupFilters:
    """Finds the filters of groups. On the event loop's thread."""

    _broker: AnyBroker
    _clients: ClientRegistry
    _dead_queues: DeadQueues
    _run_in_thread: RunInThread

    async def find(self, topic: str, group: str, given: tuple[str, str] | None) -> str:
        """Return a group's filter in the broker's syntax.

        ``given``: the expression and its type in the request, if it has one.

        Raises:
            Refusal: SUBSCRIPTION_PARSE_FAILED. RequestRefused: SUBSCRIPTION_NOT_EXIST: no consumer has named it in a
                heartbeat, and the broker does not know it from before.
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
        """Do as :meth:`find`, without asking the broker; return None if only the broker may know."""
        if given is not None:
            expression, kind = given
            return self._clients.filter_text(TopicSubscription(topic, expression, kind, 0))
        place = self._dead_queues.place(topic)
        subscription = self._clients.subscription(group, topic if place is None else place[0])
        return None if subscription is None else self._clients.filter_text(subscription)
