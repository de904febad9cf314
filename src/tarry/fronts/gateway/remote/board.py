"""Posts and messages of a front's other processes, behind a gateway, as the broker passes them on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tarry.api.board import OnMessage
from tarry.api.wire import encode_json
from tarry.fronts.gateway.remote.link import Link
from tarry.link.frames import FrameKind


class RemoteMember:
    """Implements :class:`tarry.api.board.Member`. Any thread.

    Before the link is there it sends and receives nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, dict[int, Mapping[str, Any]]] = {}
        self._on_message: OnMessage | None = None
        self.link: Link | None = None

    def join(self, on_message: OnMessage) -> None:
        """Pass messages of the others to ``on_message`` from now on."""
        self._on_message = on_message

    def post(self, key: str, value: Mapping[str, Any] | None) -> None:
        if self.link is not None:
            self.link.send_from_anywhere(FrameKind.POST, 0, encode_json([key, value]))

    def others(self, key: str) -> Mapping[int, Mapping[str, Any]]:
        with self._lock:
            return dict(self._said.get(key, {}))

    def send(self, message: Mapping[str, Any], to: int | None = None) -> None:
        if self.link is not None:
            self.link.send_from_anywhere(FrameKind.SEND, 0, encode_json([to, message]))

    def leave(self) -> None:
        """Stop receiving messages; the member leaves the board when the link ends."""
        self._on_message = None

    def on_said(self, member: int, key: str, value: Mapping[str, Any] | None) -> None:
        """Note another member's value under a key; None removes it."""
        with self._lock:
            said = self._said.setdefault(key, {})
            if value is None:
                said.pop(member, None)
            else:
                said[member] = value
            if not said:
                del self._said[key]

    def on_message(self, member: int, message: Mapping[str, Any]) -> None:
        """Pass on a message of another member."""
        if self._on_message is not None:
            self._on_message(member, message)
