"""A connection to a broker by the link: made when it is first used, and again when it must be.

Where a broker has several addresses, its owner is looked for among them each time. A call waits for that for
:data:`FIND_S` seconds; with one address it is refused when a try has failed.

It belongs to one event loop. Who waits asks by :meth:`BrokerConnection.question`, from any thread or task; who is on
the loop calls :meth:`BrokerConnection.ask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tarry.base.back_off import BackOff
from tarry.base.errors import (
    ClosedError,
    MessageTooLargeError,
    OwnershipLostError,
    TarryError,
    UnavailableError,
)
from tarry.base.event_loop import post
from tarry.client.background import background_loop
from tarry.client.forks import Birthplace
from tarry.client.questions import OnAsked, Question, ReceiveQuestion
from tarry.link.address import BrokerAddress
from tarry.link.frames import ASKED_BYTES_MAX, FrameKind, keep_alive
from tarry.link.peer import LOST, LinkPeer, OnAnswer, OnFrame
from tarry.link.places import FIND_S, PAUSE_S, PAUSE_S_MAX, BrokerPlaces, NoAnswerError, goes_on, unreachable
from tarry.link.tls_errors import is_final, said


class BrokerConnection:
    """Thread-safe, but for what says that it is the loop's."""

    def __init__(
        self,
        address: str | BrokerAddress | BrokerPlaces,
        loop: asyncio.AbstractEventLoop | None = None,
        handlers: dict[int, OnFrame] | None = None,
        on_refused: Callable[[TarryError], None] | None = None,
        on_lost: Callable[[LinkPeer], None] | None = None,
    ) -> None:
        """Make a connection, which connects when first used.

        Args:
            address: HOST:PORT, unix:PATH or tls://HOST:PORT; or a list of them.
            loop: the loop that carries it; None: the one that all clients of this process share.
            handlers: by kind, of frames that are no answers; called on the loop.
            on_refused: called on the loop with what the broker says of the connection: it is stopping.
            on_lost: called on the loop when a connection that stood has ended.

        Raises:
            InvalidArgumentError: ``address`` is none.
        """
        self._places = BrokerPlaces.of(address)
        self.address = self._places.text
        self.loop = loop or background_loop()
        self._handlers = handlers or {}
        self._on_refused, self._on_lost = on_refused, on_lost
        self._peer: LinkPeer | None = None
        self._connecting: asyncio.Task[LinkPeer | None] | None = None
        self._back_off = BackOff(PAUSE_S, PAUSE_S_MAX)
        self._is_away = False
        """True if the last turn of tries found nobody."""
        self._whys: dict[BrokerAddress, str] = {}
        """By address, why the last try there failed."""
        self._waiting: set[asyncio.Task[None]] = set()
        """Calls that wait for a connection."""
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

    def receive(self, request: Mapping[str, Any]) -> Question:
        """Ask for messages; raises as :meth:`question` does.

        Where there are several addresses, one that waits is asked again when the owner has changed.
        """
        again = self._places.is_several
        return ReceiveQuestion(self.address, self.loop, self.ask_from_anywhere, request, again=again)

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
        if len(payload) > ASKED_BYTES_MAX:
            on_answer(MessageTooLargeError(f"a request of {len(payload)} bytes; allowed: {ASKED_BYTES_MAX}"))
            return
        peer = self._standing()
        if peer is not None:
            number = peer.ask(kind, self._explained(peer, kind, on_answer), payload)
            if on_asked is not None:
                on_asked(peer, number)
        elif self._closed:
            on_answer(self._closed_error())
        else:
            waiting = self.loop.create_task(self._ask_then(kind, payload, on_answer, on_asked))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)

    async def _ask_then(self, kind: FrameKind, payload: bytes, on_answer: OnAnswer, on_asked: OnAsked | None) -> None:
        """Ask once there is a connection."""
        try:
            await self.peer(FIND_S)
        except asyncio.CancelledError:
            on_answer(self._closed_error())
        except TarryError as error:
            on_answer(error)
        except Exception as error:  # noqa: BLE001  who waits is told of a bug, too
            on_answer(TarryError(f"connecting failed: {error}"))
        else:
            self.ask(kind, payload, on_answer, on_asked)

    def submit_here(self, rows: bytes, on_answer: OnAnswer) -> None:
        """:meth:`submit`, on the loop."""
        self.ask(FrameKind.SUBMIT, rows, on_answer)

    async def peer(self, wait_s: float = 0.0) -> LinkPeer:
        """Return the connection that stands, or a new one.

        ``wait_s``: how long an owner is looked for, where there are several addresses; each is tried once at least.

        Raises:
            UnavailableError: there is no broker. ClosedError: after :meth:`close`.
        """
        waits = self._places.is_several and wait_s > 0
        end_s = self.loop.time() + wait_s
        while True:
            if self._closed:
                raise self._closed_error()
            peer = self._standing()
            if peer is not None:
                return peer
            try:
                async with asyncio.timeout_at(end_s if waits else None):
                    peer = await asyncio.shield(self._connect())
            except TimeoutError:
                raise self._places.no_answer(self._whys) from None
            if peer is not None:
                return peer
            if not waits or self.loop.time() >= end_s:
                raise self._places.no_answer(self._whys)

    def _standing(self) -> LinkPeer | None:
        """Return the connection that stands, and is not that of an owner of before."""
        peer = self._peer
        if peer is None or peer.lost:
            return None
        if self._places.is_former(peer.epoch):
            self.disconnect()
            return None
        return peer

    def is_former(self, peer: LinkPeer) -> bool:
        """Return whether a later owner than that connection's was seen: it hands out nothing that counts."""
        return self._places.is_former(peer.epoch)

    def disconnect(self) -> None:
        """End the connection that stands; the next call makes a new one."""
        peer, self._peer = self._peer, None
        if peer is not None and not peer.lost:
            peer.close()

    def _connect(self) -> asyncio.Task[LinkPeer | None]:
        """Return the turn of tries that is under way, or a new one; None is its result if nobody answers."""
        if self._connecting is None or self._connecting.done():
            pause_s = self._back_off.fail() if self._is_away and self._places.is_several else 0.0
            self._connecting = self.loop.create_task(self._open(pause_s))
        return self._connecting

    async def _open(self, pause_s: float) -> LinkPeer | None:
        """Try each address once, after a pause; raise what is wrong with this side."""
        if pause_s:
            await asyncio.sleep(pause_s)
        for where in self._places.in_turn():
            try:
                peer = await self._open_at(where)
            except NoAnswerError as error:
                self._whys[where] = str(error)
                continue
            self._is_away = False
            self._back_off.reset()
            self._whys.clear()
            self._peer = peer
            return peer
        self._is_away = True
        return None

    async def _open_at(self, where: BrokerAddress) -> LinkPeer:
        """Connect to a broker at an address, and greet it.

        Raises:
            NoAnswerError: none serves there. TarryError: what is refused will be refused at the others, too.
        """
        try_s, peer = self._places.try_s, self._new_peer(where)
        try:
            async with asyncio.timeout(try_s):
                await self._open_transport(peer, where)
                welcome = await peer.welcome
            peer.epoch = self._places.on_greeted(where, welcome)
        except TimeoutError:
            self._abort(peer)
            raise NoAnswerError(f"no greeting within {try_s:g} s") from None
        except OSError as error:
            raise _failed(where, error, said(error, where)) from None
        except UnavailableError as error:
            ended_by = peer.ended_by if where.tls is not None else None
            raise _failed(where, ended_by, str(error) if ended_by is None else said(ended_by, where)) from None
        except TarryError as error:
            self._abort(peer)
            if self._places.is_several and goes_on(error):
                raise NoAnswerError(str(error)) from None
            raise
        except BaseException:
            self._abort(peer)
            raise
        return peer

    def _new_peer(self, where: BrokerAddress) -> LinkPeer:
        peer = LinkPeer(
            self.loop,
            where.greeting(),
            self._handlers,
            on_refused=lambda error: self._leave(peer, error),
            on_lost=lambda: self._lost(peer),
        )
        return peer

    async def _open_transport(self, peer: LinkPeer, where: BrokerAddress) -> None:
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

    def _explained(self, peer: LinkPeer, kind: FrameKind, on_answer: OnAnswer) -> OnAnswer:
        def explained(answer: memoryview | TarryError) -> None:
            if isinstance(answer, OwnershipLostError) or (kind == FrameKind.RECEIVE and self.is_former(peer)):
                answer = self.lose(peer, answer)
            if self._closed and isinstance(answer, UnavailableError):
                answer = self._closed_error()
            on_answer(answer)

        return explained

    def lose(self, peer: LinkPeer, answer: memoryview | TarryError | None = None) -> UnavailableError:
        """End a connection whose broker is the owner no more; return the error for what was asked by it."""
        peer.close()
        if self._peer is peer:
            self._peer = None
        lost = UnavailableError(LOST)
        lost.__cause__ = answer if isinstance(answer, TarryError) else None
        return lost

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


def _failed(where: BrokerAddress, error: Exception | None, why: str) -> Exception:
    """Return the error of a try: TLS that fails is told at once, as it will fail again."""
    return unreachable(where, why) if is_final(error) else NoAnswerError(why)
