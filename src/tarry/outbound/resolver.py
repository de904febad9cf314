"""Resolves names to addresses that may be connected to, and checks each address at the socket.

A name may point elsewhere at the second lookup (DNS rebinding). So connections go to the very addresses that were
looked up, and each address is checked where its socket is made: whatever its origin, a literal in the URL included.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

from tarry.base.addresses import AddressPolicy
from tarry.base.event_loop import post, settle_future

LOOKUPS_MAX = 64
"""Lookups at a time: each has a thread, for as long as the name servers let it wait."""

NAMES_S = 10.0
"""Seconds that a name's addresses are cached."""

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""A row of ``socket.getaddrinfo``."""


class AddressRefusedError(OSError):
    """The address may not be connected to."""


class CheckedResolver:
    """Looks names up in threads of their own.

    Name servers that do not answer thus hold up nobody else, nor the end of the process. Concurrent requests for the
    same name share one lookup.
    """

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._under_way = 0
        self._known: dict[tuple[str, int], tuple[asyncio.Future[list[AddressInfo]], float]] = {}

    async def resolve(self, host: str, port: int) -> list[AddressInfo]:
        """Return the addresses of a name or of a literal that may be connected to.

        Raises:
            OSError: it is not known. AddressRefusedError: it has no address that may be connected to.
        """
        now_s = time.monotonic()
        look, until_s = self._known.get((host, port), (None, 0.0))
        if look is None or until_s <= now_s:
            self._known = {place: known for place, known in self._known.items() if known[1] > now_s}
            look = asyncio.ensure_future(self._look_up(host, port))
            self._known[host, port] = look, now_s + NAMES_S
            look.add_done_callback(lambda look: self._forget_failure((host, port), look))
        # A caller that gives up waiting does not end it for the others.
        return self._allowed(await asyncio.shield(look))

    def _forget_failure(self, place: tuple[str, int], look: asyncio.Future[list[AddressInfo]]) -> None:
        failed = look.cancelled() or look.exception() is not None
        if failed and self._known.get(place, (None, 0.0))[0] is look:
            del self._known[place]

    def _allowed(self, places: list[AddressInfo]) -> list[AddressInfo]:
        refusals = [self._policy.refusal(str(place[4][0])) for place in places]
        allowed = [place for place, refusal in zip(places, refusals, strict=True) if refusal is None]
        if not allowed:
            raise AddressRefusedError(next((r for r in reversed(refusals) if r is not None), "it has no address"))
        return allowed

    async def _look_up(self, host: str, port: int) -> list[AddressInfo]:
        if self._under_way >= LOOKUPS_MAX:
            raise OSError(f"{LOOKUPS_MAX} names are being looked up already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[AddressInfo]] = loop.create_future()
        self._under_way += 1

        def done(result: list[AddressInfo] | OSError) -> None:
            self._under_way -= 1
            settle_future(future, result)

        def look_up() -> None:
            result: list[AddressInfo] | OSError
            try:
                result = [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
            except OSError as error:
                result = error
            except UnicodeError as error:
                result = OSError(f"no name: {error}")
            post(loop, done, result)

        threading.Thread(target=look_up, name="tarry-lookup", daemon=True).start()
        return await future


class SocketGate:
    """Makes the sockets of connections, for allowed addresses only."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy

    def __call__(self, place: Any) -> socket.socket:
        """Make a socket.

        Raises:
            AddressRefusedError: the address may not be connected to.
        """
        family, kind, protocol, _, address = place
        refusal = self._policy.refusal(str(address[0])) or self._policy.port_refusal(address[1])
        if refusal is not None:
            raise AddressRefusedError(refusal)
        connection = socket.socket(family, kind, protocol)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
