"""The queues of ``%DLQ%GROUP``, by which classic consumers read all dead letters of a group.

In the broker each topic of a group has dead letters of its own. To classic clients each of those topics is a queue of
``%DLQ%GROUP``; queue 0 is the topic of that name itself, to which producers may send. Clients keep a queue's number, so
a topic that the group reads later gets the next one. The numbers are in the file
``DATA/rocketmq/classic-dead-queues.json``. Only numbers in requests and messages are translated; positions and state in
memory are those of the topics themselves.
"""

from __future__ import annotations

import logging
import threading

from tarry.api.local import FrontState, LocalBroker
from tarry.base.errors import CorruptError
from tarry.fronts.rocketmq.classic.connection import OpenRequest
from tarry.fronts.rocketmq.classic.fields import Fields
from tarry.fronts.rocketmq.classic.group_lists import topics_of
from tarry.fronts.rocketmq.classic.service import Handler
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX
from tarry.message.dead_topics import dead_topic
from tarry.message.topics import is_internal

log = logging.getLogger(__name__)


class DeadQueues:
    """Maps queues of ``%DLQ%GROUP`` to topics. Any thread; :meth:`look` waits for the disk."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._file = broker.front_state("dead-queues")
        self._topics = _load(self._file)
        """The topics of each ``%DLQ%GROUP``, in the order of its queues; the first is its own name."""
        self._places = {
            topic: (alias, number) for alias, topics in self._topics.items() for number, topic in enumerate(topics)
        }
        self._lock = threading.Lock()

    def look(self, alias: str) -> list[str]:
        """Return the topics that the queues of ``%DLQ%GROUP`` stand for, including new ones. In a thread.

        Topics without a dead letter so far are included: so a reader gets the first one at once.
        """
        # Dead letters of a group's retries belong to the topics that they came from first.
        group = alias.removeprefix(DEAD_PREFIX)
        possible = sorted(dead_topic(topic, group) for topic in topics_of(self._broker, group))
        found = [t for t in possible if not t.startswith(DEAD_PREFIX + RETRY_PREFIX) and not is_internal(t)]
        with self._lock:
            known = self.topics(alias)
            fresh = [topic for topic in found if topic not in known]
            if fresh:
                topics = {**self._topics, alias: [*known, *fresh]}
                groups = [{"alias": alias, "topics": names} for alias, names in topics.items()]
                # Durable before any client is told the numbers.
                self._file.write({"groups": groups})
                self._topics = topics
                self._places |= {topic: (alias, len(known) + place) for place, topic in enumerate(fresh)}
            return self.topics(alias)

    def topics(self, alias: str) -> list[str]:
        """Return the topics of :meth:`look` that are known already."""
        return self._topics.get(alias, [alias])

    def place(self, topic: str) -> tuple[str, int] | None:
        """Return the alias and queue number by which clients know a topic; None if they use its own name."""
        return self._places.get(topic)

    def reading(self, handler: Handler) -> Handler:
        """Wrap a handler of requests that read a queue: it gets the topic that the queue stands for."""

        def serve(request: OpenRequest) -> object:
            self.translate(request)
            return handler(request)

        return serve  # type: ignore[return-value]

    def translate(self, request: OpenRequest) -> None:
        """Put the topic that a queue stands for into a request. Done twice, it is as done once."""
        fields = request.command.fields
        topic = fields.get("topic", "")
        if topic.startswith(DEAD_PREFIX) and is_alias(topic):
            number, topics = Fields(fields).whole("queueId", 0), self.topics(topic)
            # An invalid number is refused as for any topic.
            if 0 < number < len(topics) and not is_internal(topics[number]):
                request.fields = Fields({**fields, "topic": topics[number], "queueId": "0"})


def _load(file: FrontState) -> dict[str, list[str]]:
    """Read the file. If it cannot be read, the queues are numbered anew."""
    try:
        groups = (file.read() or {"groups": []})["groups"]
        return {str(group["alias"]): [str(topic) for topic in group["topics"]] for group in groups}
    except (CorruptError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the queues of dead letters are numbered anew, for what there was cannot be read: %s", error)
        return {}
