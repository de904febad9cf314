"""Which groups there are, by topic."""

from __future__ import annotations

from collections.abc import Iterator

from tarry.base.errors import NotFoundError
from tarry.groups.control import GroupControl
from tarry.queue.entries import Entry


class GroupRegistry:
    """Any thread. It is made before the journal, which asks it for a snapshot, and filled with groups that write to the
    journal. Who adds and removes sees to it that there is one group of a name.
    """

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, GroupControl]] = {}

    def find(self, topic: str, name: str) -> GroupControl | None:
        """The group of that name, if there is one."""
        control = self._by_topic.get(topic, {}).get(name)
        return None if control is None or control.group.deleted else control

    def get(self, topic: str, name: str) -> GroupControl:
        """The group of that name.

        Raises:
            NotFoundError: there is none.
        """
        control = self.find(topic, name)
        if control is None:
            raise NotFoundError(f"topic {topic!r} has no group {name!r}")
        return control

    def of_topic(self, topic: str) -> list[GroupControl]:
        """The groups of one topic, the broker's own among them."""
        return list(self._by_topic.get(topic, {}).values())

    def all(self) -> list[GroupControl]:
        """All of them."""
        return [control for groups in list(self._by_topic.values()) for control in list(groups.values())]

    def add(self, control: GroupControl) -> None:
        """There is another one."""
        self._by_topic.setdefault(control.topic.name, {})[control.name] = control

    def remove(self, control: GroupControl) -> bool:
        """It was deleted; False where there is another one of its name by now."""
        groups = self._by_topic[control.topic.name]
        if groups.get(control.name) is not control:
            return False
        del groups[control.name]
        return True

    def entries(self) -> Iterator[Entry]:
        """The state of all groups, for a snapshot of the journal."""
        for control in self.all():
            yield from control.entries()
