"""What groups say before a part of the ready log is deleted."""

from __future__ import annotations

from tarry.groups.dead_letters import DeadLetters
from tarry.groups.registry import GroupRegistry
from tarry.queue.topic import Topic


class GroupRetention:
    """Implements :class:`tarry.queue.retention.RetentionGuard`."""

    def __init__(self, registry: GroupRegistry, dead_letters: DeadLetters) -> None:
        self._registry = registry
        self._dead_letters = dead_letters

    def floor_of(self, topic: str) -> int | None:
        return min((control.group.floor for control in self._registry.of_topic(topic)), default=None)

    def make_way(self, segment: int, topics: list[Topic]) -> bool:
        return self._dead_letters.move_on(segment, topics)

    def on_deleted(self, topic: Topic) -> None:
        for control in self._registry.of_topic(topic.name):
            control.on_deleted(topic.first)
