"""The stream of a worker to its broker, on the loop of its front: no thread hands over to another.

Frames sent in one turn of the loop leave in one write. Answers find their waiting calls by their numbers. When the link
is lost, all waiting calls get an error, and the worker ends: see :mod:`tarry.cli.gateway_worker`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from tarry.api.wire import decode_error, decode_json
from tarry.base.errors import TarryError, UnavailableError
from tarry.base.event_loop import post
from tarry.batching.coalescing import EndOfTurn
from tarry.fronts.gateway.authentication import Trust
from tarry.fronts.gateway.remote.control import connect, host_of
from tarry.link.frames import FrameKind, LinkFrameReader, frame, split_number

log = logging.getLogger(__name__)

OnAnswer = Callable[[memoryview | TarryError], None]
"""Called once, on the loop's thread, with the payload of an answer, or the error in its place."""


class PollReceiver(Protocol):
    """Receiver of a poll's answer. On the loop's thread."""

    def on_batch(self, number: int, payload: memoryview) -> None:
        """Take messages, as the batch of this number."""
        ...

    def on_polled(self, error: TarryError | None) -> None:
        """Take the error in place of messages, or that there are none now: there will be none for this poll."""
        ...


class GroupListener(Protocol):
    """Listener to changes of groups. On the loop's thread."""

    def on_state(self, number: int, state: Mapping[str, Any]) -> None: ...
    def on_news(self, number: int) -> None: ...


class BoardListener(Protocol):
    """Listener to the front's other processes. On the loop's thread."""

    def on_said(self, member: int, key: str, value: Mapping[str, Any] | None) -> None: ...
    def on_message(self, member: int, message: Mapping[str, Any]) -> None: ...


OnTokens = Callable[[Any], None]
"""Called on the loop's thread with all access tokens as JSON, after each change of theirs."""


class Link(asyncio.Protocol):
    """The link to the broker, made by :meth:`open`.

    Its methods may be called from any thread until it is lost, and do nothing afterwards.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        trust: Trust,
        groups: GroupListener,
        board: BoardListener,
        on_tokens: OnTokens,
        on_lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._trust, self._groups, self._board = trust, groups, board
        self._on_tokens = on_tokens
        self._on_lost = on_lost
        self._reader = LinkFrameReader()
        self._out: list[Any] = []
        self._end_of_turn = EndOfTurn(loop, self._flush)
        self._next = 1
        self._waiting: dict[int, OnAnswer] = {}
        self._receivers: dict[int, PollReceiver] = {}
        self._transport: asyncio.Transport
        self._welcome: asyncio.Future[None] = loop.create_future()
        self.lost = False
        self.rows_in = self.rows_out = self.batches_in = 0
        """Messages sent to be scheduled, messages received, and batches sent."""

    @classmethod
    async def open(
        cls,
        address: str,
        greeting: bytes,
        trust: Trust,
        groups: GroupListener,
        board: BoardListener,
        on_tokens: OnTokens,
        on_lost: Callable[[], None],
    ) -> Link:
        """Connect on the running loop, and begin with ``greeting``. ``on_lost`` is called once, on the loop.

        Raises:
            UnavailableError: there is no broker. InvalidArgumentError: it does not take this gateway.
        """
        loop = asyncio.get_running_loop()
        connection = connect(address)
        connection.setblocking(False)
        link = cls(loop, trust, groups, board, on_tokens, on_lost)
        is_near = connection.family == socket.AF_UNIX
        begin = loop.create_unix_connection if is_near else loop.create_connection
        host = None if trust.tls is None else host_of(address)
        try:
            await begin(lambda: link, sock=connection, ssl=trust.tls, server_hostname=host)
        except OSError as error:
            raise UnavailableError(f"no link to the broker at {address}: {error}") from error
        link._transport.write(greeting)
        await link._welcome
        return link

    # -- sending -------------------------------------------------------------------------------------------------------

    def number(self) -> int:
        """Return a number that no consumer has had."""
        number, self._next = self._next, self._next % 0xFFFF_FFFF + 1
        return number

    def send(self, kind: FrameKind, number: int, *payload: Any) -> None:
        """Send a frame without waiting for an answer. On the loop's thread."""
        if not self.lost:
            self._out += frame(kind, number, *payload)
            self._end_of_turn.plan()

    def send_from_anywhere(self, kind: FrameKind, number: int, *payload: Any) -> None:
        """:meth:`send`, from any thread."""
        post(self._loop, self.send, kind, number, *payload)

    def ask(self, kind: FrameKind, on_answer: OnAnswer, *payload: Any) -> None:
        """Send a frame that is answered. On the loop's thread.

        Raises:
            UnavailableError: the link is lost, and nothing was sent.
        """
        if self.lost:
            raise UnavailableError("the link to the broker is lost; nothing was sent")
        number = self.number()
        while number in self._waiting:
            number = self.number()
        self._waiting[number] = on_answer
        self.send(kind, number, *payload)

    def receive(self, number: int, receiver: PollReceiver) -> None:
        """Pass batches for the consumer of that number to ``receiver``."""
        self._receivers[number] = receiver

    def forget(self, number: int) -> None:
        """Stop receiving for that number."""
        self._receivers.pop(number, None)

    def close(self) -> None:
        """End the link: frames that were sent leave first."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    # -- receiving -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, payload in self._reader.feed(data):
                self._on_frame(kind, number, payload)
        except Exception:
            log.exception("the broker sent what cannot be read")
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        why = UnavailableError("the link to the broker is lost; what was asked for may or may not have been done")
        if not self._welcome.done():
            self._welcome.set_exception(why)
        waiting, self._waiting = self._waiting, {}
        for on_answer in waiting.values():
            on_answer(why)
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.on_polled(why)
        self._on_lost()

    def _on_frame(self, kind: int, number: int, payload: memoryview) -> None:
        match kind:
            case FrameKind.BATCH:
                batch, rows = split_number(payload)
                receiver = self._receivers.get(number)
                if receiver is None:
                    self.send(FrameKind.UNTAKEN, batch)
                else:
                    receiver.on_batch(batch, rows)
            case FrameKind.ACCEPTED | FrameKind.SETTLED:
                on_answer = self._waiting.pop(number, None)
                if on_answer is not None:
                    on_answer(payload)
            case FrameKind.REFUSED:
                on_answer = self._waiting.pop(number, None)
                refused = decode_error(bytes(payload))
                if on_answer is not None:
                    on_answer(refused)
                elif not self._welcome.done():
                    self._welcome.set_exception(refused)
                else:
                    log.warning("the broker refused: %s", refused)
            case FrameKind.POLLED:
                receiver = self._receivers.get(number)
                if receiver is not None:
                    receiver.on_polled(decode_error(bytes(payload)) if len(payload) else None)
            case FrameKind.STATE:
                self._groups.on_state(number, decode_json(bytes(payload)))
            case FrameKind.NEWS:
                self._groups.on_news(number)
            case FrameKind.SAID:
                self._board.on_said(number, *decode_json(bytes(payload)))
            case FrameKind.MESSAGE:
                self._board.on_message(number, decode_json(bytes(payload)))
            case FrameKind.TOKENS:
                self._on_tokens(decode_json(bytes(payload)))
            case FrameKind.CHALLENGE:
                self.send(FrameKind.PROOF, 0, self._trust.proof(bytes(payload)))
            case FrameKind.WELCOME:
                if not self._welcome.done():
                    self._welcome.set_result(None)
            case _:
                log.warning("the broker sent a frame of kind %d, which is not known here", kind)
