"""A connection to a broker by the link: made when it is first used, and again when it must be.

It belongs to one event loop. Who waits asks by :meth:`BrokerConnection.question`, from any thread or task; who is on
the loop calls :meth:`BrokerConnection.ask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tarry.api.wire import encode_json
from tarry.base.errors import ClosedError, InvalidArgumentError, MessageTooLargeError, TarryError, UnavailableError
from tarry.base.event_loop import post
from tarry.client.background import background_loop
from tarry.client.forks import Birthplace
from tarry.client.questions import OnAsked, Question, ReceiveQuestion
from tarry.link.address import BrokerAddress
from tarry.link.frames import ASKED_BYTES_MAX, FrameKind, keep_alive
from tarry.link.peer import LinkPeer, OnAnswer, OnFrame
from tarry.link.tls_errors import said

CONNECT_S = 5.0
"""Seconds that a try to connect may take."""


class BrokerConnection:
    """Thread-safe, but for what says that it is the loop's."""

    def __init__(
        self,
        address: str | BrokerAddress,
        loop: asyncio.AbstractEventLoop | None = None,
        handlers: dict[int, OnFrame] | None = None,
        on_refused: Callable[[TarryError], None] | None = None,
        on_lost: Callable[[LinkPeer], None] | None = None,
    ) -> None:
        """Make a connection, which connects when first used.

        Args:
            address: HOST:PORT, unix:PATH or tls://HOST:PORT.
            loop: the loop that carries it; None: the one that all clients of this process share.
            handlers: by kind, of frames that are no answers; called on the loop.
            on_refused: called on the loop with what the broker says of the connection: it is stopping.
            on_lost: called on the loop when a connection that stood has ended.

        Raises:
            InvalidArgumentError: ``address`` is none.
        """
        self._where = BrokerAddress.of(address)
        self.address = self._where.text
        self.loop = loop or background_loop()
        self._handlers = handlers or {}
        self._on_refused, self._on_lost = on_refused, on_lost
        self._peer: LinkPeer | None = None
        self._connecting: asyncio.Task[LinkPeer] | None = None
        self._closed = False
        self.birthplace = Birthplace()
        """The process that may use it."""

    # -- for callers that wait -----------------------------------------------------------------------------------------

    def question(self, kind: FrameKind, payload: bytes) -> Question:
        """Ask, to wait for the answer.

        Raises:
            ClosedError: after :meth:`close`.
        """
        return Question(self.address, self.ask_from_anywhere, kind, payload)

    def receive(self, payload: bytes) -> Question:
        """Ask for messages; raises as :meth:`question` does."""
        return ReceiveQuestion(self.address, self.loop, self.ask_from_anywhere, payload)

    def submit(self, rows: bytes, on_answer: OnAnswer) -> None:
        """Schedule rows, an Arrow stream; ``on_answer`` is called once, on the loop."""
        self.ask_from_anywhere(FrameKind.SUBMIT, rows, on_answer)

    def ask_from_anywhere(
        self, kind: FrameKind, payload: bytes, on_answer: OnAnswer, on_asked: OnAsked | None = None
    ) -> None:
        """Ask from any thread; ``on_answer`` is called once, on the loop.

        Raises:
            ClosedError: after :meth:`close`.
        """
        self.check_open()
        post(self.loop, self.ask, kind, payload, on_answer, on_asked)

    # -- on the loop ---------------------------------------------------------------------------------------------------

    def ask(self, kind: FrameKind, payload: bytes, on_answer: OnAnswer, on_asked: OnAsked | None = None) -> None:
        """Send a frame once there is a connection; ``on_answer`` gets its answer, or why there is none.

        ``on_asked`` is called when it is sent.
        """
        peer = self._peer
        if len(payload) > ASKED_BYTES_MAX:
            on_answer(MessageTooLargeError(f"a request of {len(payload)} bytes; allowed: {ASKED_BYTES_MAX}"))
            return
        if peer is not None and not peer.lost:
            number = peer.ask(kind, self._explained(on_answer), payload)
            if on_asked is not None:
                on_asked(peer, number)
            return

        def connected(task: asyncio.Task[LinkPeer]) -> None:
            if task.cancelled():
                on_answer(self._closed_error())
            elif (error := task.exception()) is not None:
                on_answer(error if isinstance(error, TarryError) else TarryError(f"connecting failed: {error}"))
            else:
                self.ask(kind, payload, on_answer, on_asked)

        if self._closed:
            on_answer(self._closed_error())
        else:
            self._connect().add_done_callback(connected)

    def submit_here(self, rows: bytes, on_answer: OnAnswer) -> None:
        """:meth:`submit`, on the loop."""
        self.ask(FrameKind.SUBMIT, rows, on_answer)

    async def peer(self) -> LinkPeer:
        """Return the connection that stands, or a new one.

        Raises:
            UnavailableError: there is no broker. ClosedError: after :meth:`close`.
        """
        if self._closed:
            raise self._closed_error()
        if self._peer is not None and not self._peer.lost:
            return self._peer
        return await asyncio.shield(self._connect())

    def disconnect(self) -> None:
        """End the connection that stands; the next call makes a new one."""
        peer, self._peer = self._peer, None
        if peer is not None and not peer.lost:
            peer.close()

    def _connect(self) -> asyncio.Task[LinkPeer]:
        if self._connecting is None or self._connecting.done():
            self._connecting = self.loop.create_task(self._open())
        return self._connecting

    async def _open(self) -> LinkPeer:
        peer = LinkPeer(
            self.loop,
            self._where.greeting(),
            self._handlers,
            on_refused=lambda error: self._leave(peer, error),
            on_lost=lambda: self._lost(peer),
        )
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._open_transport(peer)
                await peer.welcome
        except TimeoutError:
            self._abort(peer)
            raise self._unreachable(f"no greeting within {CONNECT_S:g} s") from None
        except OSError as error:
            raise self._unreachable(said(error, self._where)) from None
        except UnavailableError as error:
            in_tls = self._where.tls is not None and peer.ended_by is not None
            raise self._unreachable(said(peer.ended_by, self._where) if in_tls else str(error)) from None
        except BaseException:
            self._abort(peer)
            raise
        self._peer = peer
        return peer

    async def _open_transport(self, peer: LinkPeer) -> None:
        where = self._where
        if where.path is not None:
            await self.loop.create_unix_connection(lambda: peer, where.path)
            return
        tls = where.context()
        name = where.server_name if tls is not None else None
        transport, _ = await self.loop.create_connection(
            lambda: peer, where.host, where.port, ssl=tls, server_hostname=name
        )
        keep_alive(transport.get_extra_info("socket"))

    def _leave(self, peer: LinkPeer, error: TarryError) -> None:
        """Ask nothing more by this connection: the broker is stopping. It ends when the broker has answered."""
        if self._peer is peer:
            self._peer = None
        if self._on_refused is not None:
            self._on_refused(error)

    def _lost(self, peer: LinkPeer) -> None:
        if self._peer is peer:
            self._peer = None
        if self._on_lost is not None:
            self._on_lost(peer)

    def _abort(self, peer: LinkPeer) -> None:
        with suppress(AttributeError):  # it has no transport yet
            peer.transport.abort()
        peer.welcome.cancel()

    def _explained(self, on_answer: OnAnswer) -> OnAnswer:
        def explained(answer: memoryview | TarryError) -> None:
            if self._closed and isinstance(answer, UnavailableError):
                answer = self._closed_error()
            on_answer(answer)

        return explained

    # -- the end -------------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        if self._closed:
            raise self._closed_error()
        self.birthplace.check()

    def close(self) -> None:
        """Refuse new calls; those under way are refused, too."""
        if not self._closed:
            self._closed = True
            post(self.loop, self._end)

    def _end(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self.disconnect()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the client of {self.address} is closed")

    def _unreachable(self, why: str) -> UnavailableError:
        return UnavailableError(f"no answer from the broker at {self.address}: {why}", nothing_sent=True)


def encoded(body: Any) -> bytes:
    """Return the JSON of a request.

    Raises:
        InvalidArgumentError: there is none.
    """
    try:
        return encode_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{body!r:.80} cannot be sent: {error}") from error
