"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: the queues that a consumer reads, by pull or pop.

QUERY_ASSIGNMENT comes from clients that leave the assignment to the broker (``setClientRebalance(false)``). By
SET_MESSAGE_REQUEST_MODE an operator has a group pull or pop.

Modes other than PULL are in the file ``DATA/rocketmq/classic-request-modes.json``. Source: ``QueryAssignmentProcessor``
of apache/rocketmq.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tarry.api.local import FrontState
from tarry.base.errors import CorruptError
from tarry.fronts.rocketmq.classic.clients import ClientRegistry
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.fields import json_object, json_text, to_json
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.classic.queues import TopicQueues, queue_name
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.names import RETRY_PREFIX, group_name, topic_name
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry

log = logging.getLogger(__name__)

PULL, POP = "PULL", "POP"
BROADCASTING = "BROADCASTING"
ANY_QUEUE = -1
_MODES_MAX = 100_000


class RequestModes:
    """Request modes of groups: pull or pop, for each topic. Any thread; a change waits for the disk."""

    def __init__(self, file: FrontState) -> None:
        self._file = file
        self._popping = _load(file)
        """Topics and groups in mode POP."""
        self._lock = threading.Lock()

    def find(self, topic: str, group: str) -> str:
        """Return PULL or POP."""
        return POP if (topic, group) in self._popping else PULL

    def set(self, topic: str, group: str, mode: str) -> bool:
        """Set a group's mode, durably when it returns; return whether it was another one before.

        Raises:
            RequestRefused: SYSTEM_ERROR: there are too many.
        """
        with self._lock:
            popping = self._popping - {(topic, group)} if mode == PULL else self._popping | {(topic, group)}
            if len(popping) > _MODES_MAX:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{_MODES_MAX} groups pop already; allowed: no more")
            if popping == self._popping:
                return False
            modes = [{"topic": topic, "group": group, "mode": POP} for topic, group in sorted(popping)]
            self._file.write({"modes": modes})
            self._popping = popping
            return True


@dataclass(eq=False)
class Assigner:
    """Assigns queues to consumers. On the event loop's thread."""

    _broker_name: str
    _clients: ClientRegistry
    _topics: TopicRegistry
    _queues: TopicQueues
    _positions: Positions
    _modes: RequestModes
    _run_in_thread: RunInThread

    def query(self, request: OpenRequest) -> Reply:
        """Answer QUERY_ASSIGNMENT.

        A consumer that pops, pops all queues. Queues to pull are shared out among a group's consumers. An answer
        without assignments leaves a consumer with those that it has.

        Raises:
            Refusal: TOPIC_NOT_EXIST.
        """
        data = json_object(request.command.body)
        topic, group = topic_name(json_text(data, "topic"), ""), group_name(json_text(data, "consumerGroup"), "")
        self._topics.check(topic)
        mode = self._modes.find(topic, group)
        if data.get("messageModel") == BROADCASTING:
            mode, numbers = PULL, list(range(self._queues.count(topic)))
        elif mode == POP:
            # Each queue of dead letters is a topic of its own.
            numbers = list(range(self._queues.count(topic))) if is_alias(topic) else [ANY_QUEUE]
        else:
            members = self._clients.client_ids(group, topic)
            share = _STRATEGIES.get(str(data.get("strategyName")))
            if share is None or not members:
                return Reply(body=to_json({}))
            numbers = share(self._queues.count(topic), members, str(data.get("clientId")))
        assignments = [
            {"messageQueue": queue_name(self._broker_name, topic, number), "mode": mode, "attachments": None}
            for number in numbers
        ]
        return Reply(body=to_json({"messageQueueAssignments": assignments}))

    async def set_mode(self, request: OpenRequest) -> Reply:
        """Answer SET_MESSAGE_REQUEST_MODE.

        A group whose mode changes goes on from its position in the broker: messages that it had settled beyond that may
        come again.

        Raises:
            RequestRefused: NO_PERMISSION: retries are always pulled. INVALID_PARAMETER.
        """
        data = json_object(request.command.body)
        topic, group = topic_name(json_text(data, "topic"), ""), group_name(json_text(data, "consumerGroup"), "")
        mode = data.get("mode", PULL)
        if mode not in (PULL, POP):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"mode is {mode!r:.60}; allowed: {PULL}, {POP}")
        if topic.startswith(RETRY_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"{topic!r:.300} is pulled always; allowed: other topics")
        self._topics.check(topic)

        def change() -> None:
            if self._modes.set(topic, group, mode):
                self._positions.forget(topic, group)

        await self._run_in_thread(change)
        self._clients.notify(group)
        return Reply()


def _share_in_rows(count: int, members: list[str], member: str) -> list[int]:
    """Return the queues of one of the sorted ``members``: neighbouring ones."""
    place = members.index(member) if member in members else -1
    if place < 0:
        return []
    fewer, more = divmod(count, len(members))
    begin = place * fewer + min(place, more)
    return list(range(begin, begin + fewer + (place < more)))


def _share_by_turns(count: int, members: list[str], member: str) -> list[int]:
    return list(range(members.index(member), count, len(members))) if member in members else []


_STRATEGIES: dict[str, Callable[[int, list[str], str], list[int]]] = {
    "AVG": _share_in_rows,
    "AVG_BY_CIRCLE": _share_by_turns,
}
"""Source: ``AllocateMessageQueueAveragely`` and its neighbour."""


def _load(file: FrontState) -> frozenset[tuple[str, str]]:
    try:
        modes: list[dict[str, Any]] = (file.read() or {"modes": []})["modes"]
        return frozenset((str(mode["topic"]), str(mode["group"])) for mode in modes if mode["mode"] == POP)
    except (CorruptError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("which groups pop cannot be read, so all pull: %s", error)
        return frozenset()
