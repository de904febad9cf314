"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: locks on queues, for consumers that keep a queue's order.

A lock is held for :data:`HELD_S` and renewed by its holder every 20 s. It is not durable, as in RocketMQ: after a
restart, the first consumer that asks gets it. Source: ``RebalanceLockManager`` of apache/rocketmq.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.fields import json_list, json_object, json_text, to_json
from tarry.fronts.rocketmq.common.rights import may_consume

HELD_S = 60.0
LOCKS_MAX = 100_000
Queue = tuple[str, str, int]
"""A group's queue: group, topic and number."""


class QueueLocks:
    """All locks of queues. On the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holders: dict[Queue, tuple[str, float]] = {}
        """A queue's holder, and the end of its lock in the loop's time."""

    def lock(self, request: OpenRequest) -> Reply:
        """Answer LOCK_BATCH_MQ with those of the queues that the client holds now."""
        data = json_object(request.command.body)
        group, client_id = json_text(data, "consumerGroup"), json_text(data, "clientId")
        rights = request.principal.rights
        keyed = [(queue, _key(group, queue)) for queue in json_list(data.get("mqSet"), "mqSet")]
        locked = [queue for queue, key in keyed if may_consume(rights, key[1], group) and self._lock(key, client_id)]
        return Reply(body=to_json({"lockOKMQSet": locked}))

    def unlock(self, request: OpenRequest) -> Reply:
        """Answer UNLOCK_BATCH_MQ: end the client's locks on these queues."""
        data = json_object(request.command.body)
        group, client_id = json_text(data, "consumerGroup"), json_text(data, "clientId")
        for queue in json_list(data.get("mqSet"), "mqSet"):
            key = _key(group, queue)
            if not may_consume(request.principal.rights, key[1], group):
                continue
            if self._holders.get(key, ("", 0.0))[0] == client_id:
                del self._holders[key]
        return Reply()

    def _lock(self, key: Queue, client_id: str) -> bool:
        now_s = self._loop.time()
        holder, until_s = self._holders.get(key, (client_id, now_s))
        if holder != client_id and until_s > now_s:
            return False
        if len(self._holders) >= LOCKS_MAX:
            self._holders = {k: held for k, held in self._holders.items() if held[1] > now_s}
        if len(self._holders) >= LOCKS_MAX and key not in self._holders:
            return False
        self._holders[key] = client_id, now_s + HELD_S
        return True


def _key(group: str, queue: dict[str, Any]) -> Queue:
    number = queue.get("queueId")
    return group, json_text(queue, "topic"), number if type(number) is int else 0
