"""A connection to a broker by the link: made when it is first used, and again when it must be.

Where a broker has several addresses, its owner is looked for among them each time. A call waits for that for
:data:`FIND_S` seconds; with one address it is refused when a try has failed.

It belongs to one event loop. Who waits asks by :meth:`BrokerConnection.question`, from any thread or task; who is on
the loop calls :meth:`BrokerConnection.ask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

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
from tarry.client.search import OwnerSearch
from tarry.link.address import BrokerAddress
from tarry.link.frames import ASKED_BYTES_MAX, FrameKind
from tarry.link.peer import LOST, LinkPeer, OnAnswer, OnFrame
from tarry.link.places import FIND_S, BrokerPlaces

OnPeerFrame: TypeAlias = Callable[[LinkPeer, int, memoryview], None]
"""Called on the loop with the side that got a frame, its number, and its payload."""


class BrokerConnection:
    """Thread-safe, but for what says that it is the loop's."""

    def __init__(
        self,
        address: str | BrokerAddress | BrokerPlaces,
        loop: asyncio.AbstractEventLoop | None = None,
        handlers: dict[int, OnPeerFrame] | None = None,
        on_refused: Callable[[LinkPeer, TarryError], None] | None = None,
        on_lost: Callable[[LinkPeer], None] | None = None,
    ) -> None:
        """Make a connection, which connects when first used.

        Args:
            address: HOST:PORT, unix:PATH or tls://HOST:PORT; or a list of them.
            loop: the loop that carries it; None: the one that all clients of this process share.
            handlers: by kind, of frames that are no answers; called on the loop.
            on_refused: called on the loop with what a broker says of its connection: it is stopping.
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
        self._where: BrokerAddress
        """Its address."""
        self._search = OwnerSearch(self._places, self.loop, self._new_peer, self._on_found)
        self._waiting: list[tuple[FrameKind, bytes, OnAnswer, OnAsked | None]] = []
        """Calls that wait for a connection: in order, for a later message may replace an earlier one."""
        self._connecting: asyncio.Task[None] | None = None
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
        peer = None if self._waiting else self._standing()
        if peer is not None:
            number = peer.ask(kind, self._explained(peer, kind, on_answer), payload)
            if on_asked is not None:
                on_asked(peer, number)
        elif self._closed:
            on_answer(self._closed_error())
        else:
            self._waiting.append((kind, payload, on_answer, on_asked))
            if self._connecting is None:
                self._connecting = self.loop.create_task(self._ask_waiting())

    async def _ask_waiting(self) -> None:
        """Ask what waits, once there is a connection."""
        why: TarryError | None = None
        try:
            await self.peer(FIND_S)
        except asyncio.CancelledError:
            why = self._closed_error()
        except TarryError as error:
            why = error
        except Exception as error:  # noqa: BLE001  who waits is told of a bug, too
            why = TarryError(f"connecting failed: {error}")
        self._connecting = None
        waiting, self._waiting = self._waiting, []
        for kind, payload, on_answer, on_asked in waiting:
            if why is None:
                self.ask(kind, payload, on_answer, on_asked)
            else:
                on_answer(why)

    def submit_here(self, rows: bytes, on_answer: OnAnswer) -> None:
        """:meth:`submit`, on the loop."""
        self.ask(FrameKind.SUBMIT, rows, on_answer)

    async def peer(self, wait_s: float = 0.0) -> LinkPeer:
        """Return the connection that stands, or a new one.

        ``wait_s``: how long an owner is looked for, where there are several addresses; each is tried once at least.

        Raises:
            UnavailableError: there is no broker. ClosedError: after :meth:`close`.
        """
        end_s = self.loop.time() + wait_s
        while True:
            if self._closed:
                raise self._closed_error()
            if (peer := self._standing()) is not None:
                return peer
            await self._search.find(max(0.0, end_s - self.loop.time()))
            if self._standing() is None and self.loop.time() >= end_s:  # it greets, and ends
                raise UnavailableError(f"the link to the broker at {self.address} is lost", nothing_sent=True)

    def _standing(self) -> LinkPeer | None:
        """Return the connection that stands, and is not that of an owner of before."""
        peer = self._peer
        if peer is None or peer.lost:
            return None
        if self.is_former(peer):
            self.lose(peer)
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

    def _new_peer(self, where: BrokerAddress) -> LinkPeer:
        handlers: dict[int, OnFrame] = {}
        peer = LinkPeer(
            self.loop,
            where.greeting(),
            handlers,
            on_refused=lambda error: self._leave(peer, error),
            on_lost=lambda: self._lost(peer),
        )
        handlers.update({kind: partial(handle, peer) for kind, handle in self._handlers.items()})
        return peer

    def _on_found(self, peer: LinkPeer, where: BrokerAddress) -> None:
        self._peer, self._where = peer, where

    def _leave(self, peer: LinkPeer, error: TarryError) -> None:
        """Ask nothing more by this connection: the broker is stopping. It ends when the broker has answered."""
        if self._peer is peer:
            self._peer = None
        if self._on_refused is not None:
            self._on_refused(peer, error)

    def _lost(self, peer: LinkPeer) -> None:
        if self._peer is peer:
            self._peer = None
        if self._on_lost is not None:
            self._on_lost(peer)

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
        peer.abort()  # a machine that stands still would take no farewell
        if self._peer is peer:
            self._peer = None
            self._places.pass_over(self._where)
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
        self._search.end()
        self.disconnect()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the client of {self.address} is closed")
