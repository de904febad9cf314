"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: locks on queues, for consumers that keep a queue's order.

A lock is held for :data:`HELD_S` and renewed by its holder every 20 s. It is not durable, as in RocketMQ: after a
restart, the first consumer that asks gets it. Source: ``RebalanceLockManager`` of apache/rocketmq.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.fields import json_list, json_object, json_text, to_json
from tarry.fronts.rocketmq.common.rights import may_consume
from tarry.identity.principal import Principal

HELD_S = 60.0
LOCKS_MAX = 100_000
SHARES = 4
"""One identity may hold this part of all locks."""
SWEEP_S = 1.0
"""Least time between two looks for locks that have ended."""
Queue = tuple[str, str, int]
"""A group's queue: group, topic and number."""


class QueueLocks:
    """All locks of queues. On the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holders: dict[Queue, tuple[str, float, str]] = {}
        """A queue's holder, the end of its lock in the loop's time, and whose identity it is."""
        self._by_owner: Counter[str] = Counter()
        """Number of locks by identity."""
        self._swept_s = -SWEEP_S

    def lock(self, request: OpenRequest) -> Reply:
        """Answer LOCK_BATCH_MQ with those of the queues that the client holds now."""
        data = json_object(request.command.body)
        group, client_id = json_text(data, "consumerGroup"), json_text(data, "clientId")
        rights = request.principal.rights
        keyed = [(queue, _key(group, queue)) for queue in json_list(data.get("mqSet"), "mqSet")]
        locked = [
            queue
            for queue, key in keyed
            if may_consume(rights, key[1], group) and self._lock(key, client_id, request.principal)
        ]
        return Reply(body=to_json({"lockOKMQSet": locked}))

    def unlock(self, request: OpenRequest) -> Reply:
        """Answer UNLOCK_BATCH_MQ: end the client's locks on these queues."""
        data = json_object(request.command.body)
        group, client_id = json_text(data, "consumerGroup"), json_text(data, "clientId")
        for queue in json_list(data.get("mqSet"), "mqSet"):
            key = _key(group, queue)
            if not may_consume(request.principal.rights, key[1], group):
                continue
            held = self._holders.get(key)
            if held is not None and held[0] == client_id:
                del self._holders[key]
                self._by_owner[held[2]] -= 1
        return Reply()

    def _lock(self, key: Queue, client_id: str, owner: Principal) -> bool:
        now_s = self._loop.time()
        held = self._holders.get(key)
        if held is not None and held[0] != client_id and held[1] > now_s:
            return False
        if held is None and not self._has_room(owner, now_s):
            return False
        if held is not None:
            self._by_owner[held[2]] -= 1
        self._holders[key] = client_id, now_s + HELD_S, owner.name
        self._by_owner[owner.name] += 1
        return True

    def _has_room(self, owner: Principal, now_s: float) -> bool:
        """Return whether one lock more may be held; one identity may hold a part of them."""
        most = LOCKS_MAX if owner.is_local else LOCKS_MAX // SHARES
        if len(self._holders) >= LOCKS_MAX or self._by_owner[owner.name] >= most:
            self._sweep(now_s)
        return len(self._holders) < LOCKS_MAX and self._by_owner[owner.name] < most

    def _sweep(self, now_s: float) -> None:
        """Forget locks that have ended. Now and then: a request may ask for any number of queues."""
        if now_s - self._swept_s >= SWEEP_S:
            self._swept_s = now_s
            self._holders = {key: held for key, held in self._holders.items() if held[1] > now_s}
            self._by_owner = Counter(held[2] for held in self._holders.values())


def _key(group: str, queue: dict[str, Any]) -> Queue:
    number = queue.get("queueId")
    return group, json_text(queue, "topic"), number if type(number) is int else 0
