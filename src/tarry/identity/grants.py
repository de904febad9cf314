"""Grants: lines that say what an identity may do, or must not do.

    produce orders.*
    consume orders.* group:billing
    deny browse orders.cards
    admin

A pattern is a name, a beginning with ``*`` behind it, or ``*``. A right on topics needs one; a group's pattern is
``*`` unless it is given. Rights on the broker itself have none.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.needs import OF_THE_BROKER, OF_TOPICS, Right
from tarry.base.errors import InvalidArgumentError

PATTERN_CHARS_MAX = 255
_DENY, _GROUP, ANY = "deny", "group:", "*"
_ALLOWED = (
    f"[deny] {'|'.join(OF_TOPICS)} TOPICS [group:GROUPS], or [deny] {'|'.join(OF_THE_BROKER)}; "
    "TOPICS and GROUPS are a name, a beginning with * behind it, or *"
)


@dataclass(frozen=True, slots=True)
class Grant:
    """One line, read."""

    right: Right
    topics: str = ANY
    groups: str = ANY
    is_denied: bool = False

    @classmethod
    def parse(cls, line: str) -> Grant:
        """Return the grant of a line.

        Raises:
            InvalidArgumentError: it is none.
        """
        words = line.split()
        is_denied = words[:1] == [_DENY]
        words = words[1:] if is_denied else words
        match words:
            case [right] if right in OF_THE_BROKER:
                return cls(Right(right), is_denied=is_denied)
            case [right, topics] if right in OF_TOPICS and not topics.startswith(_GROUP):
                return cls(Right(right), _pattern(topics, line), ANY, is_denied)
            case [Right.PRODUCE, _, groups] if groups.startswith(_GROUP) and groups != _GROUP + ANY:
                raise InvalidArgumentError(f"grant {line!r:.300} names groups; allowed: produce TOPICS, which has none")
            case [right, topics, groups] if right in OF_TOPICS and groups.startswith(_GROUP):
                return cls(Right(right), _pattern(topics, line), _pattern(groups[len(_GROUP) :], line), is_denied)
        raise InvalidArgumentError(f"grant {line!r:.300}; allowed: {_ALLOWED}")

    def __str__(self) -> str:
        words = [self.right.value] if self.right in OF_THE_BROKER else [self.right.value, self.topics]
        groups = [] if self.groups == ANY else [_GROUP + self.groups]
        return " ".join([*([_DENY] if self.is_denied else []), *words, *groups])

    def covers(self, topic: str, group: str | None, *, any_group: bool = False) -> bool:
        """Return whether it is about a topic, and a group of it if one is named.

        Where no group is named, an allowance for some groups alone is not enough (unless ``any_group``), and a denial
        of some is none.
        """
        if not matches(self.topics, topic):
            return False
        if group is None:
            return self.groups == ANY or (any_group and not self.is_denied)
        return self.is_for(group)

    def is_for(self, group: str) -> bool:
        """Return whether a group is one of those that it is about."""
        # "billing@web-1" is the group that one consumer of the broadcast group "billing" has for itself.
        return any(matches(self.groups, each) for each in (group, group.partition("@")[0]))


def matches(pattern: str, name: str) -> bool:
    """Return whether a name is one of a pattern's."""
    return name.startswith(pattern[:-1]) if pattern.endswith(ANY) else name == pattern


def _pattern(text: str, line: str) -> str:
    if not text or len(text) > PATTERN_CHARS_MAX or ANY in text[:-1]:
        raise InvalidArgumentError(f"grant {line!r:.300} has the pattern {text!r:.80}; allowed: {_ALLOWED}")
    return text
