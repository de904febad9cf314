"""Rights of one identity: its grants, ready to be asked.

A denial counts more than any allowance, wherever it stands. Two kinds of topics have rules of their own:

- Those of the broker (``tarry.…``) are opened by ``admin`` alone, whatever pattern a grant has.
- What is made of other names (:mod:`tarry.identity.derived`) goes by them, too. ``%DLQ%TOPIC/GROUP`` is denied where
  the topic is, and open to who may browse the topic, or consume it for the group. ``%RETRY%GROUP`` and ``%DLQ%GROUP``
  are open to who may consume for the group by its name; a pattern ``*`` opens them if it is for the group, and if
  nothing is denied of what may be in them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tarry.api.needs import OF_THE_BROKER, OF_TOPICS, Right
from tarry.base.bounded_cache import BoundedCache
from tarry.identity.derived import Derived, derived
from tarry.identity.grants import ANY, Grant
from tarry.message.topics import is_internal

DECISIONS_MAX = 4096
_READING = (Right.CONSUME, Right.BROWSE, Right.LOOK)


class Rights:
    """Decides by grants. Immutable, but for a cache of its decisions. Any thread."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.grants = tuple(grants)
        granted = {grant.right for grant in self.grants if not grant.is_denied}
        denied = {grant.right for grant in self.grants if grant.is_denied}
        self.is_admin = Right.ADMIN in granted - denied
        """True if it may do everything, but for what is denied."""
        self.is_unlimited = self.is_admin and not denied
        """True if it may do everything."""
        self._granted_of_broker = {
            right for right in OF_THE_BROKER if (self.is_admin or right in granted) and right not in denied
        }
        self._decided: BoundedCache[tuple[Right, str | None, str | None], bool] = BoundedCache(DECISIONS_MAX)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Rights:
        """Return the rights of grants as they are written.

        Raises:
            InvalidArgumentError: a line is none.
        """
        return cls(map(Grant.parse, lines))

    def are_within(self, other: Rights) -> bool:
        """Return whether others allow all that these do, as their lines tell: none is missing, or denies more."""
        if self is other:
            return True
        allowing, denying = _split(self.grants)
        others_allowing, others_denying = _split(other.grants)
        return allowing <= others_allowing and others_denying <= denying

    def allow(self, right: Right, topic: str | None = None, group: str | None = None) -> bool:
        """Return whether a right on a topic, and a group if one is named, is granted.

        ``topic`` is None for a right on the broker itself; for another right, None is every topic there may be.
        """
        if self.is_unlimited:
            return True
        asked = (right, topic, group)
        decided = self._decided.get(asked)
        if decided is None:
            decided = self._decided.keep(asked, self._decide(right, topic, group))
        return decided

    def allow_group(self, right: Right, group: str) -> bool:
        """Return whether a right is granted for a group as a whole, in whatever topics it reads."""
        return self.allow(right) or self._names(right, group)

    def allow_some(self, right: Right) -> bool:
        """Return whether there may be a topic on which a right is granted."""
        return self.is_admin or any(not grant.is_denied for grant in self._about(right))

    def _about(self, right: Right) -> list[Grant]:
        """Return the grants that a decision on a right goes by."""
        if right is Right.LOOK:  # whoever may do something with a topic sees that it is there, and how much is in it
            return [g for g in self.grants if g.right in OF_TOPICS and (g.right is right or not g.is_denied)]
        return [g for g in self.grants if g.right is right]

    def _decide(self, right: Right, topic: str | None, group: str | None) -> bool:
        if right in OF_THE_BROKER:
            return right in self._granted_of_broker
        grants = self._about(right)
        if topic is None:
            everywhere = any(grant.topics == ANY and grant.groups == ANY and not grant.is_denied for grant in grants)
            return (self.is_admin or everywhere) and not any(grant.is_denied for grant in grants)
        if self._deny(right, topic, group):
            return False
        if is_internal(topic):
            return self.is_admin
        made_of = derived(topic)
        allowing = [g for g in grants if not g.is_denied and g.covers(topic, group, any_group=right is Right.LOOK)]
        if made_of is None:
            return self.is_admin or bool(allowing)
        if made_of.origin is None and made_of.group is not None:
            by_name = any(grant.topics != ANY for grant in allowing)
            return by_name or self._allow_of_a_group(right, made_of.group, group, is_broad=bool(allowing))
        return self.is_admin or bool(allowing) or self._allow_dead(right, made_of)

    def _deny(self, right: Right, topic: str, group: str | None) -> bool:
        """Return whether a right is denied on a topic, or on the one that its messages come from."""
        denials = [grant for grant in self._about(right) if grant.is_denied]
        if not denials:
            return False
        if any(grant.covers(topic, group) for grant in denials):
            return True
        made_of = derived(topic)
        if made_of is None:
            return False
        if made_of.origin is None and made_of.group is not None:
            return False
        if made_of.origin is None:
            return True  # a digest: it may be of the topic that is denied
        return any(self._deny(right, made_of.origin, each) for each in (made_of.group, group))

    def _allow_of_a_group(self, right: Right, owner: str, group: str | None, *, is_broad: bool) -> bool:
        """Return whether a topic with messages of all topics of a group, its owner, is open.

        ``is_broad``: the right is granted on all topics for the group that asks.
        """
        if right is Right.CONSUME and group not in (None, owner) and not (is_broad or self.is_admin):
            return False  # another group reads them only with a right of its own
        # A group may read, and send to, its own retries and dead letters.
        return self._names(right, owner) or (right is not Right.MANAGE and self._names(Right.CONSUME, owner))

    def _allow_dead(self, right: Right, made_of: Derived) -> bool:
        """Return whether dead letters are open to who may browse their topic, or consume it for their group."""
        if right not in _READING or made_of.origin is None:
            return False
        return self.allow(Right.BROWSE, made_of.origin) or self.allow(Right.CONSUME, made_of.origin, made_of.group)

    def _names(self, right: Right, group: str) -> bool:
        """Return whether a right is granted for a group by name, or on all topics and none is denied."""
        grants = [grant for grant in self._about(right) if grant.is_for(group)]
        denials = [grant for grant in grants if grant.is_denied]
        if any(grant.topics == ANY for grant in denials):
            return False
        if any(grant.groups != ANY and not grant.is_denied for grant in grants):
            return True
        everywhere = any(grant.topics == ANY and not grant.is_denied for grant in grants)
        return not denials and (self.is_admin or everywhere)


def _split(grants: Iterable[Grant]) -> tuple[set[Grant], set[Grant]]:
    """Return grants that allow, and those that deny."""
    every = set(grants)
    denying = {grant for grant in every if grant.is_denied}
    return every - denying, denying


EVERYTHING = Rights([Grant(Right.ADMIN)])
