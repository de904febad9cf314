"""A gateway's member on the board: its process posts through it, and receives from the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarry.api.board import Board
from tarry.api.wire import decode_json, encode_json
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import FrameKind, frame


class BoardSeat:
    """A gateway's member.

    On the loop's thread, except for methods that the board calls.
    """

    def __init__(self, board: Board, front: str, name: str, out: Outgoing) -> None:
        self._out = out
        self._member = board.join(front, name, self._on_message, self)

    def post(self, number: int, payload: memoryview) -> None:
        """Carry out a POST frame."""
        key, value = decode_json(bytes(payload))
        self._member.post(key, value)

    def send(self, number: int, payload: memoryview) -> None:
        """Carry out a SEND frame."""
        to, message = decode_json(bytes(payload))
        self._member.send(message, to)

    def leave(self) -> None:
        """Leave the board, as the connection has ended."""
        self._member.leave()

    def on_post(self, member: int, key: str, value: Mapping[str, Any] | None) -> None:
        """Pass on another member's post; see :class:`tarry.api.board.Watcher`."""
        self._out.write_from_anywhere(frame(FrameKind.SAID, member, encode_json([key, value])))

    def _on_message(self, sender: int, message: Mapping[str, Any]) -> None:
        self._out.write_from_anywhere(frame(FrameKind.MESSAGE, sender, encode_json(message)))
