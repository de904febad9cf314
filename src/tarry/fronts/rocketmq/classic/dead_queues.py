"""The queues of ``%DLQ%GROUP``, by which classic consumers read all dead letters of a group.

In the broker each topic of a group has dead letters of its own. To classic clients each of those topics is a queue of
``%DLQ%GROUP``; queue 0 is the topic of that name itself, where producers may send. Clients keep a queue's number, so a
topic that the group reads later gets the next one, and which number is whose is in the file
``DATA/rocketmq/classic-dead-queues.json``. Only the numbers that clients say and hear are translated, where requests
come in and messages go out: positions and what is in memory are those of the topics themselves.
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

log = logging.getLogger(__name__)


class DeadQueues:
    """Any thread; :meth:`look` waits for the disk."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._file = broker.front_state("dead-queues")
        self._topics = _load(self._file)
        """By ``%DLQ%GROUP``: the topics that its queues stand for, in their order; itself is the first."""
        self._places = {
            topic: (alias, number) for alias, topics in self._topics.items() for number, topic in enumerate(topics)
        }
        self._lock = threading.Lock()

    def look(self, alias: str) -> list[str]:
        """The topics that the queues of ``%DLQ%GROUP`` stand for, also those that have come since the last time, and
        those that there is no dead letter in yet: so a reader has the first one at once. In a thread.
        """
        # What comes from a group's retries belongs to the topics that it came from first.
        group = alias.removeprefix(DEAD_PREFIX)
        possible = sorted(dead_topic(topic, group) for topic in topics_of(self._broker, group))
        found = [topic for topic in possible if not topic.startswith(DEAD_PREFIX + RETRY_PREFIX)]
        with self._lock:
            known = self.topics(alias)
            fresh = [topic for topic in found if topic not in known]
            if fresh:
                topics = {**self._topics, alias: [*known, *fresh]}
                groups = [{"alias": alias, "topics": names} for alias, names in topics.items()]
                # Durable before any client hears of the numbers.
                self._file.write({"groups": groups})
                self._topics = topics
                self._places |= {topic: (alias, len(known) + place) for place, topic in enumerate(fresh)}
            return self.topics(alias)

    def topics(self, alias: str) -> list[str]:
        """:meth:`look`, as far as they are known."""
        return self._topics.get(alias, [alias])

    def place(self, topic: str) -> tuple[str, int] | None:
        """As whose queue, and which, clients know a topic; None: by its own name."""
        return self._places.get(topic)

    def reading(self, handler: Handler) -> Handler:
        """A handler of requests that read a topic's queue, by the topic that is meant."""

        def serve(request: OpenRequest) -> object:
            fields = request.command.fields
            topic = fields.get("topic", "")
            if topic.startswith(DEAD_PREFIX) and is_alias(topic):
                number, topics = request.fields.whole("queueId", 0), self.topics(topic)
                # One that is none is refused as of any topic.
                if 0 < number < len(topics):
                    request.fields = Fields({**fields, "topic": topics[number], "queueId": "0"})
            return handler(request)

        return serve  # type: ignore[return-value]


def _load(file: FrontState) -> dict[str, list[str]]:
    """What is in the file. Without one that can be read, the queues are numbered anew."""
    try:
        groups = (file.read() or {"groups": []})["groups"]
        return {str(group["alias"]): [str(topic) for topic in group["topics"]] for group in groups}
    except (CorruptError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the queues of dead letters are numbered anew, for what there was cannot be read: %s", error)
        return {}
