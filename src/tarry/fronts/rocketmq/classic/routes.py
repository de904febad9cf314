"""GET_ROUTEINFO_BY_TOPIC: where a topic's queues are.

There is one broker, which is its own name server.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from tarry.base.config import Config
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.fields import to_json
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.common.broker_names import BrokerNames
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.delay_topics import delay_queues
from tarry.fronts.rocketmq.common.names import topic_name
from tarry.fronts.rocketmq.common.rights import check_look, may_look
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.identity.principal import Principal

READ, READ_WRITE = 4, 6


@dataclass(eq=False)
class Routes:
    """Answers questions about routes. On the event loop's thread."""

    _config: Config
    _names: BrokerNames
    _topics: TopicRegistry
    _queues: TopicQueues
    _dead_queues: DeadQueues
    _run_in_thread: RunInThread

    def route(self, request: OpenRequest) -> Reply | Awaitable[Reply]:
        """Answer with the address at which the client reached the broker, which may be a proxy's."""
        topic = request.fields.text("topic")
        if (count := delay_queues(topic, self._config)) is not None:
            return self._answer(request, count, READ)
        if topic not in self._names.own_topics:
            self._check(topic, request.principal, request.peer_host)
            self._topics.check(topic_name(topic, ""))
        if is_alias(topic):
            return self._route_of_dead_letters(topic, request)
        return self._answer(request, self._queues.count(topic))

    def _check(self, topic: str, principal: Principal, peer: str) -> None:
        """Refuse a topic of which the caller may not know; dead letters are those of any topic of their group."""
        names = self._dead_queues.topics(topic) if is_alias(topic) else ()
        if not any(may_look(principal.rights, name) for name in names):
            check_look(principal, topic, peer=peer)

    async def _route_of_dead_letters(self, topic: str, request: OpenRequest) -> Reply:
        """Answer for dead letters. Clients ask every 30 s, and so find topics with a first dead letter."""
        return self._answer(request, len(await self._run_in_thread(lambda: self._dead_queues.look(topic))))

    def _answer(self, request: OpenRequest, count: int, permission: int = READ_WRITE) -> Reply:
        queue = {
            "brokerName": self._names.broker, "readQueueNums": count, "writeQueueNums": count, "perm": permission,
            "topicSysFlag": 0,
        }  # fmt: skip
        route = {"brokerDatas": [broker_data(request, self._names)], "filterServerTable": {}, "queueDatas": [queue]}
        return Reply(body=to_json(route))


def broker_data(request: OpenRequest, names: BrokerNames) -> dict[str, Any]:
    """Return the broker's entry in routes and in the cluster's list."""
    return {"brokerAddrs": {"0": request.connection.local}, "brokerName": names.broker, "cluster": names.cluster}
