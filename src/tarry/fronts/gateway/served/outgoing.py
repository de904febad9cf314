"""Frames written to a gateway: those of one turn of the loop in one write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.batching.coalescing import EndOfTurn
from tarry.fronts.gateway.frames import FrameKind, error_frame, frame

log = logging.getLogger(__name__)

INTERNAL = TarryError("internal error; see the broker's log")


class Outgoing:
    """Outgoing frames of a connection.

    On the loop's thread, except for methods that say otherwise.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parts: list[Any] = []
        self._end_of_turn = EndOfTurn(loop, self.flush)
        self.transport: asyncio.Transport
        """Set before anything is written."""

    def write(self, parts: list[Any]) -> None:
        """Write a frame at the end of this turn."""
        self._parts += parts
        self._end_of_turn.plan()

    def write_from_anywhere(self, parts: list[Any]) -> None:
        """:meth:`write`, from any thread."""
        post(self._loop, self.write, parts)

    def answer(self, kind: FrameKind, number: int, encode: Callable[[Any], list[Any]]) -> Callable[[Any], None]:
        """Return a callback for any thread that answers question ``number``.

        On the loop's thread, it sends its argument, encoded by ``encode``, or refuses if the argument is an error.
        """

        def on_result(result: Any) -> None:
            if isinstance(result, TarryError):
                self.write(error_frame(number, result))
            else:
                self.write(frame(kind, number, *encode(result)))

        return lambda result: post(self._loop, on_result, result)

    def refuse(self, number: int, error: TarryError) -> None:
        """Refuse a frame; if its number is 0, nobody waits for the answer, and it is only logged."""
        if number:
            self.write(error_frame(number, error))
        else:
            log.warning("a gateway asked for what is refused: %s", error)

    def flush(self) -> None:
        """Write now."""
        parts, self._parts = self._parts, []
        if parts and not self.transport.is_closing():
            self.transport.write(b"".join(parts))
