"""The groups that other sides have named, by number, with their queues and listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tarry.api.consuming import ConsumerGroup
from tarry.api.groups import GroupSettings
from tarry.base.errors import NotFoundError
from tarry.base.event_loop import post
from tarry.fronts.kit.receiving import GATHER_S, ReceiveQueue

LOOK_S = 0.25
"""Seconds between two looks for changed settings of groups."""

_State = tuple[GroupSettings, bool, bool, bool, bool]


class Listener(Protocol):
    """Listener to groups."""

    def on_state(self, served: ServedGroup, state: dict[str, Any]) -> None:
        """Handle a change of a group."""
        ...

    def on_news(self, number: int) -> None:
        """Note that the group of this number may have more messages."""
        ...


@dataclass(slots=True, eq=False)
class ServedGroup:
    """One group.

    ``listeners`` are told of its changes; ``followers`` are told that it may have more messages.
    """

    number: int
    group: ConsumerGroup
    queue: ReceiveQueue
    listeners: set[Listener] = field(default_factory=set)
    followers: set[Listener] = field(default_factory=set)
    last: _State | None = None
    stop_following: Callable[[], None] | None = None
    news_planned: bool = False

    def state(self) -> dict[str, Any]:
        """Return the state that gateways get."""
        settings, ordered, waits_for_acks, deleted, closed = _state_of(self.group)
        return {
            "topic": self.group.topic_name,
            "group": self.group.name,
            "settings": asdict(settings),
            "ordered": ordered,
            "waits_for_acks": waits_for_acks,
            "deleted": deleted,
            "closed": closed,
        }


def _state_of(group: ConsumerGroup) -> _State:
    return group.settings, group.ordered, group.waits_for_acks, group.deleted, group.closed


def not_there(number: int) -> NotFoundError:
    """Return the error of a group that is not there, or that a caller may not know of."""
    return NotFoundError(f"there is no group number {number} (any more); allowed: that of a group as it is named now")


class GroupTable:
    """The table of named groups. On the loop's thread.

    A group that was deleted and made again has another number.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, gather_s: float = GATHER_S) -> None:
        """Make an empty table; ``gather_s`` as of :class:`tarry.fronts.kit.receiving.ReceiveQueue`."""
        self._loop = loop
        self._gather_s = gather_s
        self._next = 1
        self._by_number: dict[int, ServedGroup] = {}
        self._by_name: dict[tuple[str, str], ServedGroup] = {}
        self._timer = loop.call_later(LOOK_S, self._look)

    def get_or_add(self, group: ConsumerGroup) -> ServedGroup:
        """Return the entry of a group; add it if it is new."""
        key = (group.topic_name, group.name)
        served = self._by_name.get(key)
        if served is None or served.group is not group:
            served = ServedGroup(self._next, group, ReceiveQueue(self._loop, group, self._gather_s))
            self._next += 1
            self._by_name[key] = self._by_number[served.number] = served
            served.last = _state_of(group)
        return served

    def named(self, topic: str, group: str) -> ServedGroup | None:
        """Return the group of that name; None: nobody has named it yet, or it was deleted since."""
        served = self._by_name.get((topic, group))
        return None if served is None or served.group.closed else served

    def find(self, number: int) -> ServedGroup:
        """Return the group of a number.

        Raises:
            NotFoundError: there is no group of that number any more.
        """
        served = self._by_number.get(number)
        if served is None:
            raise not_there(number)
        return served

    def follow(self, served: ServedGroup, who: Listener) -> None:
        """Tell ``who`` from now on that there may be more messages; several at once are one."""
        served.followers.add(who)
        if served.stop_following is None:
            served.stop_following = served.group.listen(lambda: post(self._loop, self._on_news, served))

    def forget(self, who: Listener) -> None:
        """Remove a listener that is gone."""
        for served in self._by_number.values():
            served.listeners.discard(who)
            served.followers.discard(who)
            if not served.followers and served.stop_following is not None:
                served.stop_following()
                served.stop_following = None

    def close(self) -> None:
        """Close all queues, and stop the timer."""
        self._timer.cancel()
        for served in self._by_number.values():
            served.queue.close()

    def _on_news(self, served: ServedGroup) -> None:
        if not served.news_planned:
            served.news_planned = True
            self._loop.call_soon(self._announce_news, served)

    def _announce_news(self, served: ServedGroup) -> None:
        served.news_planned = False
        for follower in list(served.followers):
            follower.on_news(served.number)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self.look()

    def look(self) -> None:
        """Tell listeners about changes."""
        for served in list(self._by_number.values()):
            state = _state_of(served.group)
            if state != served.last:
                served.last = state
                for listener in list(served.listeners):
                    listener.on_state(served, served.state())
            # A broker that ends closes its groups, too. They are there all the same: "not found" would end consumers.
            if served.group.deleted:
                self._remove(served)

    def _remove(self, served: ServedGroup) -> None:
        served.queue.close()
        if served.stop_following is not None:
            served.stop_following()
        del self._by_number[served.number]
        key = (served.group.topic_name, served.group.name)
        if self._by_name.get(key) is served:
            del self._by_name[key]
