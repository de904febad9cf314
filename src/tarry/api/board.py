"""A board that the processes of one front share: each posts values, and sends short messages.

Clients of a front may reach any of its processes: that of the broker, or a gateway's workers. A process posts here what
it alone has, above all the clients connected to it, so that the others see it. Its posts vanish when it ends.

Nothing here is durable, and nothing may depend on a message that is sent: the state that it is about must come right
later without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

OnMessage = Callable[[int, Mapping[str, Any]], None]
"""Callback for messages of other members: the sender's number, and the message as JSON.

Called from any thread; be quick, never raise.
"""


class Member(Protocol):
    """One process of a front. Any thread."""

    def post(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Say something of oneself, in the place of what was said under this key; None: nothing any more."""
        ...

    def others(self, key: str) -> Mapping[int, Mapping[str, Any]]:
        """Return the values that the other members posted under a key, by their numbers."""
        ...

    def send(self, message: Mapping[str, Any], to: int | None = None) -> None:
        """Send a message to one of the other members, or to all; who has left gets nothing."""
        ...

    def leave(self) -> None:
        """Say nothing any more, and be sent nothing. A second time does nothing."""
        ...


class Watcher(Protocol):
    """Callback for changes on the board. Called under the board's lock: be quick, never raise."""

    def on_post(self, member: int, key: str, value: Mapping[str, Any] | None) -> None:
        """Handle another value of a member under a key; None: the member removed it."""
        ...


class Board:
    """That of a broker's process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._next = 1
        self._members: dict[int, _Member] = {}

    def join(self, front: str, name: str, on_message: OnMessage, watcher: Watcher | None = None) -> Member:
        """Become a member of a front, under a name for people.

        A ``watcher`` is first notified of everything that the others have posted.
        """
        with self._lock:
            member = _Member(self, self._next, front, name, on_message, watcher)
            self._next += 1
            if watcher is not None:
                for other in self._of(front):
                    for key, value in other.said.items():
                        watcher.on_post(other.number, key, value)
            self._members[member.number] = member
        return member

    def shown(self, key: str) -> list[dict[str, Any]]:
        """Return the values that all members of all fronts posted under a key, with ``front`` and ``name``."""
        with self._lock:
            return [
                {"front": member.front, "name": member.name, **member.said[key]}
                for member in self._members.values()
                if key in member.said
            ]

    # -- for its members -----------------------------------------------------------------------------------------------

    def post(self, member: _Member, key: str, value: Mapping[str, Any] | None) -> None:
        """See :meth:`Member.post`."""
        with self._lock:
            if member.number not in self._members:
                return
            if value is None:
                if member.said.pop(key, None) is None:
                    return
            else:
                member.said[key] = value
            self._announce(member, key, value)

    def others(self, member: _Member, key: str) -> Mapping[int, Mapping[str, Any]]:
        """See :meth:`Member.others`."""
        with self._lock:
            others = self._of(member.front)
            return {o.number: o.said[key] for o in others if o is not member and key in o.said}

    def send(self, member: _Member, message: Mapping[str, Any], to: int | None) -> None:
        """See :meth:`Member.send`."""
        with self._lock:
            receivers = [o for o in self._of(member.front) if o is not member and to in (None, o.number)]
        for receiver in receivers:
            receiver.on_message(member.number, message)

    def leave(self, member: _Member) -> None:
        """See :meth:`Member.leave`."""
        with self._lock:
            if self._members.pop(member.number, None) is not None:
                for key in member.said:
                    self._announce(member, key, None)

    def _of(self, front: str) -> list[_Member]:
        return [member for member in self._members.values() if member.front == front]

    def _announce(self, member: _Member, key: str, value: Mapping[str, Any] | None) -> None:
        for other in self._of(member.front):
            if other is not member and other.watcher is not None:
                other.watcher.on_post(member.number, key, value)


class _Member:
    """Implements :class:`Member` in the broker's process."""

    __slots__ = ("_board", "front", "name", "number", "on_message", "said", "watcher")

    def __init__(
        self, board: Board, number: int, front: str, name: str, on_message: OnMessage, watcher: Watcher | None
    ) -> None:
        self._board = board
        self.number = number
        self.front = front
        self.name = name
        self.on_message = on_message
        self.watcher = watcher
        self.said: dict[str, Mapping[str, Any]] = {}

    def post(self, key: str, value: Mapping[str, Any] | None) -> None:
        self._board.post(self, key, value)

    def others(self, key: str) -> Mapping[int, Mapping[str, Any]]:
        return self._board.others(self, key)

    def send(self, message: Mapping[str, Any], to: int | None = None) -> None:
        self._board.send(self, message, to)

    def leave(self) -> None:
        self._board.leave(self)
