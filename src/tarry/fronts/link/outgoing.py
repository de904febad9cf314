"""Frames written to one connection: those of one turn of the loop in one write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from loopgrpc import UnreadBytes
from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.base.log_limiter import LogLimiter
from tarry.fronts.kit.writing import ConnectionWriter
from tarry.link.frames import FrameKind, error_frame, frame

log = logging.getLogger(__name__)
_refused = LogLimiter(log, logging.WARNING)
"""Limits the log of refused frames: strangers can cause thousands a second."""


class Outgoing:
    """Outgoing frames of a connection; also the limit on what is handed out to it.

    On the loop's thread, except for methods that say otherwise.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, unread: UnreadBytes, host: str) -> None:
        self._loop = loop
        self._writer = ConnectionWriter(loop, unread, host, self._cut)
        self._room = self._writer.room()
        self.pause, self.resume, self.flush = self._writer.pause, self._writer.resume, self._writer.flush
        self.transport: asyncio.Transport
        """Set by :meth:`begin`, before anything is written."""

    def begin(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""
        self.transport = transport
        self._writer.begin(transport)

    def end(self) -> None:
        """Note that the connection is lost."""
        self._writer.end()
        self._room.release()

    def write(self, parts: list[Any]) -> None:
        """Write a frame at the end of this turn."""
        self._writer.write(*parts)

    def write_from_anywhere(self, parts: list[Any]) -> None:
        """:meth:`write`, from any thread."""
        post(self._loop, self.write, parts)

    def answer(
        self,
        kind: FrameKind,
        number: int,
        encode: Callable[[Any], list[Any]],
        on_done: Callable[[], None] | None = None,
    ) -> Callable[[Any], None]:
        """Return a callback for any thread that answers question ``number``.

        On the loop's thread, it sends its argument, encoded by ``encode``, or refuses if the argument is an error, and
        then calls ``on_done``.
        """

        def on_result(result: Any) -> None:
            if isinstance(result, TarryError):
                self.write(error_frame(number, result))
            else:
                self.write(frame(kind, number, *encode(result)))
            if on_done is not None:
                on_done()

        return lambda result: post(self._loop, on_result, result)

    def when_done(self, on_done: Callable[[], None] | None) -> Callable[[Any], None]:
        """Return a callback for any thread that answers nothing, and calls ``on_done`` on the loop's thread."""
        return lambda _: None if on_done is None else post(self._loop, on_done)

    def refuse(self, number: int, error: TarryError) -> None:
        """Refuse a frame; if its number is 0, nobody waits for the answer, and it is only logged."""
        if number:
            self.write(error_frame(number, error))
        else:
            _refused.say("a link asked for what is refused: %s", error)

    # -- see tarry.fronts.kit.receiving.HasRoom ------------------------------------------------------------------------

    @property
    def reads(self) -> bool:
        """False while the other side does not read what it was sent."""
        return self._writer.reads

    @property
    def is_free(self) -> bool:
        """True if the other side reads, and its address does not have too many unread bytes."""
        return self._writer.has_room

    def check_room(self) -> None:
        """Raise an error if the client's address has too many unread bytes. Any thread.

        Raises:
            OverloadedError: it has.
        """
        self._room.check()

    def hold(self, size: int) -> None:
        """Count this many bytes until they are with the transport, at the end of this turn."""
        self._room.hold(size)
        self._loop.call_soon(self._release)

    def _release(self) -> None:
        self._writer.flush()
        self._room.release()

    def abort(self) -> None:
        """Cut the connection off; what was written leaves, as far as the other side takes it."""
        self._writer.flush()
        self.transport.abort()

    def _cut(self, why: str) -> None:
        log.info("a link is cut off: %s", why)
        self.transport.abort()
