"""The queues of ``%DLQ%GROUP``, by which classic consumers read all dead letters of a group.

In the broker each topic of a group has dead letters of its own. To classic clients each of those topics is a queue of
``%DLQ%GROUP``; queue 0 is the topic of that name itself, where producers may send. Clients keep a queue's number, so a
topic that the group reads later gets the next one, and which number is whose is in the file
``DATA/rocketmq/classic-dead-queues.json``. Only the numbers that clients say and hear are translated, where requests
come in and messages go out: positions and what is in memory are those of the topics themselves.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

from tarry.api.local import LocalBroker
from tarry.fronts.rocketmq.classic.connection import Request
from tarry.fronts.rocketmq.classic.fields import Fields
from tarry.fronts.rocketmq.classic.service import Handler
from tarry.fronts.rocketmq.classic.state_files import replace_json
from tarry.fronts.rocketmq.common.dead_letters import is_alias, possible_dead_topics_of
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX

log = logging.getLogger(__name__)

_VERSION = 1


class DeadQueues:
    """Any thread; :meth:`look` waits for the disk."""

    def __init__(self, broker: LocalBroker, path: Path) -> None:
        self._broker = broker
        self._path = path
        self._topics = _load(path)
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
        possible = possible_dead_topics_of(self._broker, alias)
        found = [topic for topic in possible if not topic.startswith(DEAD_PREFIX + RETRY_PREFIX)]
        with self._lock:
            known = self.topics(alias)
            fresh = [topic for topic in found if topic not in known]
            if fresh:
                topics = {**self._topics, alias: [*known, *fresh]}
                groups = [{"alias": alias, "topics": names} for alias, names in topics.items()]
                # Durable before any client hears of the numbers.
                replace_json(self._path, {"version": _VERSION, "groups": groups})
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

        def serve(request: Request) -> object:
            fields = request.command.fields
            topic = fields.get("topic", "")
            if topic.startswith(DEAD_PREFIX) and is_alias(topic):
                number, topics = request.fields.whole("queueId", 0), self.topics(topic)
                # One that is none is refused as of any topic.
                if 0 < number < len(topics):
                    request.fields = Fields({**fields, "topic": topics[number], "queueId": "0"})
            return handler(request)

        return serve  # type: ignore[return-value]


def _load(path: Path) -> dict[str, list[str]]:
    """What is in the file. Without one that can be read, the queues are numbered anew."""
    try:
        groups = json.loads(path.read_bytes())["groups"]
        return {str(group["alias"]): [str(topic) for topic in group["topics"]] for group in groups}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read, so the queues of dead letters are numbered anew: %s", path, error)
        return {}
