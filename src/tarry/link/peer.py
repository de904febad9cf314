"""The side of a link that asks: it sends frames, and finds for each answer who waits for it.

On one event loop: no thread hands over to another. Frames sent in one turn of the loop leave in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from tarry.api.wire import decode_error, decode_json
from tarry.base.errors import TarryError, UnavailableError
from tarry.batching.coalescing import EndOfTurn
from tarry.link.frames import (
    CLIENT,
    FRAME_BYTES_MAX,
    GREETING_BYTES_MAX,
    HEAD,
    TLS_ALERT,
    FrameKind,
    LinkFrameReader,
    frame,
    hello_frame,
    no_broker,
)

log = logging.getLogger(__name__)

OnAnswer: TypeAlias = Callable[[memoryview | TarryError], None]
"""Called once, on the loop's thread, with the payload of an answer, or the error in its place.

That of a lost connection has as its cause what the broker has refused of the connection, if it has.
"""
OnFrame: TypeAlias = Callable[[int, memoryview], None]
"""Called on the loop's thread with the number and the payload of a frame that answers no question."""

_ANSWERS = frozenset((FrameKind.ACCEPTED, FrameKind.SETTLED, FrameKind.RESULT, FrameKind.ROWS))
LOST = "the link to the broker is lost; what was asked for may or may not have been done"


class LinkPeer(asyncio.Protocol):
    """One connection, from its greeting on. Give it to a transport, then wait for :attr:`welcome`.

    On the loop's thread. After the connection is lost, its methods do nothing, but for :meth:`ask`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        greeting: Mapping[str, Any],
        handlers: Mapping[int, OnFrame],
        on_refused: Callable[[TarryError], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Begin with ``greeting``, the fields of HELLO beside the version.

        Args:
            loop: the loop of the connection.
            greeting: fields of HELLO, beside the version.
            handlers: by kind, of frames that are no answers.
            on_refused: called with what the broker refuses of the connection, not of a question.
            on_lost: called once, when the connection has ended.
        """
        self._greeting = greeting
        self._handlers = handlers
        self._on_refused, self._on_lost = on_refused, on_lost
        self._reader = LinkFrameReader(GREETING_BYTES_MAX)
        self._beginning = b""
        """First bytes that were received, until the greeting."""
        self._out: list[Any] = []
        self._end_of_turn = EndOfTurn(loop, self.flush)
        self._next = 1
        self._waiting: dict[int, OnAnswer] = {}
        self.transport: asyncio.Transport
        """Set when the connection is made."""
        self.welcome: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        """The broker's description of itself; its error where it does not take this side."""
        self.refused: TarryError | None = None
        """The broker's last refusal of the connection, not of a question."""
        self.lost = False
        self.epoch: int | None = None
        """The owner's epoch, as the connection's maker has taken it from the greeting."""
        self.ended_by: Exception | None = None
        """The transport's reason of an end before the greeting, which nobody has explained."""

    # -- sending -------------------------------------------------------------------------------------------------------

    def number(self) -> int:
        """Return a number that no question or consumer has now."""
        number, self._next = self._next, self._next % 0xFFFF_FFFF + 1
        return number

    def send(self, kind: FrameKind, number: int, *payload: Any) -> None:
        """Send a frame without waiting for an answer."""
        if not self.lost:
            self._write(frame(kind, number, *payload))

    def ask(self, kind: FrameKind, on_answer: OnAnswer, *payload: Any) -> int:
        """Send a frame that is answered; return its number.

        Raises:
            UnavailableError: the connection is lost, and nothing was sent.
        """
        if self.lost:
            raise UnavailableError("the link to the broker is lost", nothing_sent=True)
        number = self.number()
        while number in self._waiting:
            number = self.number()
        self._waiting[number] = on_answer
        self.send(kind, number, *payload)
        return number

    def _write(self, parts: list[Any]) -> None:
        self._out += parts
        self._end_of_turn.plan()

    def flush(self) -> None:
        """Write what was sent in this turn."""
        out, self._out = self._out, []
        if out and not self.transport.is_closing():
            self.transport.write(b"".join(out))

    def close(self) -> None:
        """End the connection: frames that were sent leave first."""
        self.flush()
        self.transport.close()

    def abort(self) -> None:
        """End the connection at once; what is under way is lost."""
        self.transport.abort()

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._write(hello_frame(self._greeting))

    def data_received(self, data: bytes) -> None:
        if not self.welcome.done():
            self._beginning = (self._beginning + data)[: HEAD.size]
        try:
            for kind, number, payload in self._reader.feed(data):
                self._on_frame(kind, number, payload)
        except Exception as error:
            if self.welcome.done():
                log.exception("the broker sent what cannot be read")
            else:
                unavailable = UnavailableError(no_broker(self._beginning, self._greeting.get("as") == CLIENT))
                unavailable.__cause__ = error
                self.welcome.set_exception(unavailable)
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if not self.welcome.done():
            self.welcome.set_exception(self._ungreeted(error))
        waiting, self._waiting = self._waiting, {}
        for on_answer in waiting.values():
            lost = UnavailableError(LOST)
            lost.__cause__ = self.refused
            on_answer(lost)
        self._on_lost()

    def _ungreeted(self, error: Exception | None) -> UnavailableError:
        """Return the error that the connection ended before the greeting."""
        if self._beginning.startswith(TLS_ALERT):  # it is shorter than a frame's head
            return UnavailableError(no_broker(self._beginning, self._greeting.get("as") == CLIENT))
        self.ended_by = error or EOFError()
        return UnavailableError("the broker closed the connection before its greeting")

    def _on_frame(self, kind: int, number: int, payload: memoryview) -> None:
        if kind in _ANSWERS:
            on_answer = self._waiting.pop(number, None)
            if on_answer is not None:
                on_answer(payload)
        elif kind == FrameKind.REFUSED:
            self._on_refusal(number, decode_error(bytes(payload)))
        elif kind == FrameKind.WELCOME:
            if not self.welcome.done():
                self.welcome.set_result(decode_json(bytes(payload)))
                self._reader.bytes_max = FRAME_BYTES_MAX
        elif (handler := self._handlers.get(kind)) is not None:
            handler(number, payload)
        else:
            log.warning("the broker sent a frame of kind %d, which is not known here", kind)

    def _on_refusal(self, number: int, refused: TarryError) -> None:
        on_answer = self._waiting.pop(number, None)
        if on_answer is not None:
            on_answer(refused)
        elif not self.welcome.done():
            self.welcome.set_exception(refused)
        else:
            self.refused = refused
            self._on_refused(refused)
