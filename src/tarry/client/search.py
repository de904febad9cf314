"""The search for a broker's owner: its addresses are tried in turn, until one greets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tarry.base.back_off import BackOff
from tarry.base.errors import TarryError, UnavailableError
from tarry.link.address import BrokerAddress
from tarry.link.frames import check_other_side, keep_alive
from tarry.link.peer import LinkPeer
from tarry.link.places import PAUSE_S, PAUSE_S_MAX, BrokerPlaces, NoAnswerError, goes_on, unreachable
from tarry.link.tls_errors import is_final, said


class OwnerSearch:
    """Makes connections, one at a time. On the loop's thread."""

    def __init__(
        self,
        places: BrokerPlaces,
        loop: asyncio.AbstractEventLoop,
        new_peer: Callable[[BrokerAddress], LinkPeer],
        on_found: Callable[[LinkPeer, BrokerAddress], None],
    ) -> None:
        """``new_peer`` makes one side of a connection; ``on_found`` gets the owner's, and its address."""
        self._places, self._loop = places, loop
        self._new_peer, self._on_found = new_peer, on_found
        self._turn: asyncio.Task[bool] | None = None
        self._back_off = BackOff(PAUSE_S, PAUSE_S_MAX)
        self._not_before_s = 0.0
        """Time of the loop before which no address is tried again."""
        self._whys: dict[BrokerAddress, str] = {}
        """By address, the reason why the last try there failed."""

    async def find(self, wait_s: float) -> None:
        """Return when an owner was found.

        ``wait_s``: how long to look for one, where there are several addresses; each is tried once at least.

        Raises:
            UnavailableError: there is none. TarryError: what is wrong with this side.
        """
        waits = self._places.is_several and wait_s > 0
        end_s = self._loop.time() + wait_s
        try:
            async with asyncio.timeout_at(end_s if waits else None):
                while not await asyncio.shield(self._next_turn()):
                    if not waits:
                        raise self._places.no_answer(self._whys)
        except TimeoutError:
            raise self._places.no_answer(self._whys) from None

    def end(self) -> None:
        """Look no more: :meth:`find` is cancelled."""
        if self._turn is not None:
            self._turn.cancel()

    def _next_turn(self) -> asyncio.Task[bool]:
        """Return the turn of tries that is under way, or a new one; its result is True if one greeted."""
        if self._turn is None or self._turn.done():
            self._turn = self._loop.create_task(self._try_all())
        return self._turn

    async def _try_all(self) -> bool:
        """Try each address once; raise what is wrong with this side."""
        pause_s = self._not_before_s - self._loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        for where in self._places.in_turn():
            try:
                peer = await self._open(where)
            except NoAnswerError as error:
                self._whys[where] = str(error)
            else:
                self._back_off.reset()
                self._whys.clear()
                self._on_found(peer, where)
                return True
        if self._places.is_several:  # else the caller decides when to try again
            self._not_before_s = self._loop.time() + self._back_off.fail()
        return False

    async def _open(self, where: BrokerAddress) -> LinkPeer:
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
            _abort(peer)
            raise NoAnswerError(f"no greeting within {try_s:g} s") from None
        except OSError as error:
            raise _failed(where, error, said(error, where)) from None
        except UnavailableError as error:
            ended_by = peer.ended_by if where.tls is not None else None
            raise _failed(where, ended_by, str(error) if ended_by is None else said(ended_by, where)) from None
        except TarryError as error:
            _abort(peer)
            if self._places.is_several and goes_on(error):
                raise NoAnswerError(str(error)) from None
            raise
        except BaseException:
            _abort(peer)
            raise
        return peer

    async def _open_transport(self, peer: LinkPeer, where: BrokerAddress) -> None:
        if where.path is not None:
            await self._loop.create_unix_connection(lambda: peer, where.path)
            return
        tls = where.context()
        name = where.server_name if tls is not None else None
        transport, _ = await self._loop.create_connection(
            lambda: peer, where.host, where.port, ssl=tls, server_hostname=name
        )
        connection = transport.get_extra_info("socket")
        try:
            check_other_side(connection)
        except OSError:
            transport.abort()
            raise
        keep_alive(connection)


def _abort(peer: LinkPeer) -> None:
    with suppress(AttributeError):  # it has no transport yet
        peer.transport.abort()
    peer.welcome.cancel()


def _failed(where: BrokerAddress, error: Exception | None, why: str) -> Exception:
    """Return the error of a try: TLS that fails is told at once, as it will fail again."""
    return unreachable(where, why) if is_final(error) else NoAnswerError(why)
