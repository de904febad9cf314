"""Rights of one identity: its grants, ready to be asked.

A denial counts more than any allowance, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterable

from tarry.api.needs import OF_THE_BROKER, OF_TOPICS, Right
from tarry.base.bounded_cache import BoundedCache
from tarry.identity.grants import ANY, Grant

DECISIONS_MAX = 4096


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
        self._by_right = {right: [g for g in self.grants if g.right is right] for right in Right}
        self._decided: BoundedCache[tuple[Right, str | None, str | None], bool] = BoundedCache(DECISIONS_MAX)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Rights:
        """Return the rights of grants as they are written.

        Raises:
            InvalidArgumentError: a line is none.
        """
        return cls(map(Grant.parse, lines))

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

    def deny(self, right: Right, topic: str, group: str | None = None) -> bool:
        """Return whether a right on a topic, and a group if one is named, is denied by a grant."""
        return any(grant.is_denied and grant.covers(topic, group) for grant in self._by_right[right])

    def allow_some(self, right: Right) -> bool:
        """Return whether there may be a topic on which a right is granted."""
        return self.is_admin or any(not grant.is_denied for grant in self._by_right[right])

    def _decide(self, right: Right, topic: str | None, group: str | None) -> bool:
        if right in OF_THE_BROKER:
            return right in self._granted_of_broker
        grants = self._by_right[right]
        if right is Right.LOOK:
            # Whoever may do something with a topic sees that it is there, and how much is in it.
            grants = [g for g in self.grants if g.right in OF_TOPICS and (g.right is right or not g.is_denied)]
        if topic is None:
            everywhere = any(grant.topics == ANY and grant.groups == ANY and not grant.is_denied for grant in grants)
            return (self.is_admin or everywhere) and not any(grant.is_denied for grant in grants)
        covering = [grant for grant in grants if grant.covers(topic, group, any_group=right is Right.LOOK)]
        if any(grant.is_denied for grant in covering):
            return False
        return self.is_admin or bool(covering)


EVERYTHING = Rights([Grant(Right.ADMIN)])
