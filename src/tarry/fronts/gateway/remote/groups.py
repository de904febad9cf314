"""Groups of a broker elsewhere that a front has named, by name and by the broker's numbers for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tarry.api.wire import decode_json, encode_json
from tarry.base.clock import Clock
from tarry.base.errors import TarryError
from tarry.fronts.gateway.remote.group import RemoteGroup
from tarry.fronts.gateway.remote.link import Link
from tarry.link.blocking import BlockingLink
from tarry.link.frames import FrameKind


class RemoteGroups:
    """The named groups.

    They are found on the loop's thread. :meth:`ask` and the refreshing methods wait, in any thread.
    """

    def __init__(self, control: BlockingLink, clock: Clock, may_send: Callable[[], bool]) -> None:
        """``may_send``: see :attr:`tarry.api.consuming.ConsumerGroup.may_send`."""
        self._control = control
        self._clock, self._may_send = clock, may_send
        self._by_name: dict[tuple[str, str], RemoteGroup] = {}
        self._by_number: dict[int, RemoteGroup] = {}
        self.link: Link
        """Set before a group is asked for."""

    def find(self, topic: str, name: str) -> RemoteGroup | None:
        """Return the group, if it was asked for before and is not closed."""
        group = self._by_name.get((topic, name))
        return None if group is None or group.closed else group

    def ask(self, topic: str, name: str, **more: Any) -> RemoteGroup:
        """Ask the broker for a group; ``more``: see docs/formats-link.md.

        Raises:
            TarryError: the broker refuses, or cannot be asked.
        """
        state = self._state_of(topic, name, **more)
        group = self._by_number.get(state["number"])
        if group is None:
            made = RemoteGroup(self.link, state, self._read_ends, self._clock, self._may_send)
            # Two threads may ask for one that is new: who has another than is noted here hears of no change of it.
            group = self._by_number.setdefault(made.number, made)
            self._by_name[group.topic_name, group.name] = group
        return group

    def refresh(self, topic: str, name: str) -> None:
        """Read a group's changed state at once.

        Changes by others are announced by the broker soon.
        """
        group = self._by_name.get((topic, name))
        if group is not None:
            try:
                state = self._state_of(topic, name)
            except TarryError:
                return  # the broker announces it
            if state["number"] == group.number:
                group.update(state)

    def refresh_topic(self, topic: str) -> None:
        """:meth:`refresh` all groups of a topic."""
        for its_topic, name in list(self._by_name):
            if its_topic == topic:
                self.refresh(topic, name)

    def on_state(self, number: int, state: Mapping[str, Any]) -> None:
        """Apply a group's new state; see :class:`tarry.fronts.gateway.remote.link.GroupListener`."""
        group = self._by_number.get(number)
        if group is None:
            return
        group.update(state)
        if group.closed:
            del self._by_number[number]
            key = (group.topic_name, group.name)
            if self._by_name.get(key) is group:
                del self._by_name[key]
        group.announce()

    def on_news(self, number: int) -> None:
        """Wake a group's listeners; see :class:`tarry.fronts.gateway.remote.link.GroupListener`."""
        group = self._by_number.get(number)
        if group is not None:
            group.announce()

    def _state_of(self, topic: str, name: str, **more: Any) -> dict[str, Any]:
        _, answer = self._control.ask(FrameKind.GROUP, encode_json({"topic": topic, "group": name, **more}))
        state: dict[str, Any] = decode_json(bytes(answer))
        return state

    def _read_ends(self, group: RemoteGroup) -> tuple[int, int]:
        first, end = self._state_of(group.topic_name, group.name, follow=True)["ends"]
        return first, end
