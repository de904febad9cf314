"""Registry of groups by topic, and rules for their names."""

from __future__ import annotations

from collections.abc import Iterator

from tarry.api.bounds import GROUP
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.groups.control import GroupControl
from tarry.message.topics import RESERVED
from tarry.queue.entries import JournalEntry


class GroupRegistry:
    """Groups by topic and name. Any thread.

    It is made before the journal, which asks it for a snapshot, and filled with groups that write to the journal.
    Callers that add and remove groups must ensure that a name has one group.
    """

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, GroupControl]] = {}
        self.count = 0
        """Number of groups, without the broker's own."""

    def find(self, topic: str, name: str) -> GroupControl | None:
        """Return the group of that name, if there is one."""
        control = self._by_topic.get(topic, {}).get(name)
        return None if control is None or control.group.deleted else control

    def get(self, topic: str, name: str) -> GroupControl:
        """Return the group of that name.

        Raises:
            NotFoundError: there is none.
        """
        control = self.find(topic, name)
        if control is None:
            raise NotFoundError(f"topic {topic!r} has no group {name!r}")
        return control

    def of_topic(self, topic: str) -> list[GroupControl]:
        """Return the groups of one topic, the broker's own among them."""
        return list(self._by_topic.get(topic, {}).values())

    def all(self) -> list[GroupControl]:
        """Return all groups."""
        return [control for groups in list(self._by_topic.values()) for control in list(groups.values())]

    def add(self, control: GroupControl) -> None:
        """Take up a group that was made."""
        groups = self._by_topic.setdefault(control.topic.name, {})
        self.count += control.name not in groups and not control.name.startswith(RESERVED)
        groups[control.name] = control

    def remove(self, control: GroupControl) -> bool:
        """Forget a group that was deleted; False where another group has its name by now."""
        groups = self._by_topic[control.topic.name]
        if groups.get(control.name) is not control:
            return False
        del groups[control.name]
        self.count -= not control.name.startswith(RESERVED)
        return True

    def entries(self) -> Iterator[JournalEntry]:
        """Yield the state of all groups, for a snapshot of the journal."""
        for control in self.all():
            yield from control.entries()


def check_group(name: str) -> str:
    """``name`` itself, when a group may have it.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if not GROUP.fits(name):
        raise InvalidArgumentError(f"group {name!r} is not a group name; allowed: 1 to {GROUP.bytes_max} bytes")
    if name.startswith(RESERVED) or not _encodes(name):
        raise InvalidArgumentError(
            f"group {name!r} is not a group name; allowed: UTF-8 that begins without {RESERVED!r}"
        )
    return name


def broadcast_group(group: str, consumer: str) -> str:
    """Return the name of the group that one consumer of a broadcast has for itself.

    Raises:
        InvalidArgumentError: the consumer's name is not allowed, or both together are too long.
    """
    if not isinstance(consumer, str) or not consumer or "@" in consumer:
        raise InvalidArgumentError(f"broadcast consumer {consumer!r}; allowed: 1 or more characters without '@'")
    return check_group(f"{group}@{consumer}")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
