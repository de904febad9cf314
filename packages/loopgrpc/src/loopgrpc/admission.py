"""Admission of connections: each has a place, which whoever accepts it has given.

:class:`Places` gives them for a server that listens by itself. A listener of another kind, with TLS or bounds of its
own, gives an :class:`Admission` of its own to each connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from loopgrpc.limits import Limits

log = logging.getLogger(__name__)

_REFUSED_MAX: Final = 64
"""Connections above the limit that may linger until they have read the reason."""


class Admission(Protocol):
    """The place of one connection, from its accept until :meth:`released`. On the loop's thread."""

    cut: Callable[[], object]
    """Ends the connection at once. The connection sets it."""
    on_drain: Callable[[], object] | None
    """Ends the connection once the calls that it has begun have ended. The connection sets it."""

    @property
    def refusal(self) -> str | None:
        """The reason for a refusal, which the client is told by GOAWAY; None if admitted."""

    @property
    def principal(self) -> object:
        """The identity that the connection proved before its first call; None without one."""

    def begun(self) -> None:
        """Note that the client has shown that it speaks HTTP/2."""

    def trusted(self) -> None:
        """Note that a call was trusted: see the server's ``trusts``."""

    def released(self) -> None:
        """Give the place back: the connection is lost. A second call does nothing."""


Admit: TypeAlias = Callable[[asyncio.Transport], Admission | None]
"""Returns the place of a new connection; None if it is to be closed without a word."""


class Place:
    """The place of a connection of a server that listens by itself."""

    __slots__ = ("_owner", "cut", "host", "on_drain", "principal", "refusal")

    def __init__(self, owner: Places, host: str, cut: Callable[[], object]) -> None:
        self._owner = owner
        self.host = host
        self.cut = cut
        self.on_drain: Callable[[], object] | None = None
        self.refusal: str | None = None
        self.principal: object = None

    def begun(self) -> None:
        """See :class:`Admission`."""
        self._owner.on_begun(self)

    def trusted(self) -> None:
        """See :class:`Admission`."""

    def released(self) -> None:
        """See :class:`Admission`."""
        self._owner.on_released(self)


class Places:
    """The places of one server, in all and by peer.

    Where all are taken, the oldest connection without a preface makes room.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: set[Place] = set()
        """All places, also those of refused connections."""
        self._hosts: Counter[str] = Counter()
        self._silent: dict[Place, None] = {}
        """Places of connections without a preface, the oldest first."""
        self._draining = False
        self._none_open = asyncio.Event()
        self._none_open.set()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, transport: asyncio.Transport) -> Place | None:
        """Return the place of a new connection.

        It has a refusal above a limit, and is None if no more of those may linger.
        """
        place = Place(self, host_of(transport), transport.abort)
        self._open.add(place)
        self._hosts[place.host] += 1
        self._none_open.clear()
        place.refusal = self._refusal(place.host)
        if place.refusal is None:
            self._silent[place] = None
        elif len(self._open) > self._limits.connections_max + _REFUSED_MAX:
            self.on_released(place)
            return None
        return place

    def on_begun(self, place: Place) -> None:
        """Note that a client has spoken."""
        self._silent.pop(place, None)

    def on_released(self, place: Place) -> None:
        """Forget a place; a second time, do nothing."""
        if place in self._open:
            self._open.discard(place)
            self._silent.pop(place, None)
            self._hosts[place.host] -= 1
            if not self._hosts[place.host]:
                del self._hosts[place.host]
        if not self._open:
            self._none_open.set()

    async def drain(self, grace_s: float) -> None:
        """Refuse new connections, let others end within ``grace_s`` seconds, then cut the rest."""
        self._draining = True
        for place in list(self._open):
            (place.on_drain or place.cut)()
        try:
            await asyncio.wait_for(self._none_open.wait(), grace_s)
        except TimeoutError:
            log.debug("%d connections did not end within %g s", len(self._open), grace_s)
        for place in list(self._open):
            place.cut()
        await self._none_open.wait()

    def _refusal(self, host: str) -> str | None:
        if self._draining:
            return "the server stops"
        limits = self._limits
        if self._hosts[host] > limits.peer_connections_max and not self._end_silent(host):
            return f"too many connections of {host}; allowed: {limits.peer_connections_max}"
        if len(self._open) > limits.connections_max and not self._end_silent(None):
            return f"too many connections; allowed: {limits.connections_max}"
        return None

    def _end_silent(self, host: str | None) -> bool:
        """Cut the oldest connection (of ``host``) without a preface; return False if there is none."""
        silent = next((place for place in self._silent if host is None or place.host == host), None)
        if silent is None:
            return False
        silent.released()  # now, and not when the transport reports the loss: its place is given to another
        silent.cut()
        return True


def host_of(transport: asyncio.Transport) -> str:
    """Return the peer's address without its port."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else str(name or "unknown")
