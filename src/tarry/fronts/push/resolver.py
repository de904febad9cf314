"""Names into addresses that may be connected to; and the last gate before a connection is made.

A name may point elsewhere at the second look (DNS rebinding). So what was looked up is what is connected to, and each
address is judged where its socket is made: whatever way it came, a literal in the URL included.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
import threading
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from tarry.base.addresses import AddressPolicy
from tarry.base.event_loop import post

LOOKUPS_MAX = 64
"""Look-ups at a time: each has a thread, for as long as the name servers let it wait."""

made_connection: contextvars.ContextVar[list[bool]] = contextvars.ContextVar("made_connection")
"""Set for a request: a list that a connection made for it is noted in."""


class AddressRefusedError(OSError):
    """Nothing may be connected to there."""


class CheckedResolver(AbstractResolver):
    """Looks names up in threads of their own, so that name servers that do not answer hold up nobody else, nor the
    end of the process.
    """

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._under_way = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """
        Raises:
            OSError: it is not known. AddressRefusedError: it has no address that may be connected to.
        """
        found: list[ResolveResult] = []
        refusal = ""
        for kind, _, protocol, _, place in await self._look_up(host, port, family):
            address = str(place[0])
            reason = self._policy.refusal(address)
            if reason is not None:
                refusal = reason
                continue
            found.append(
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        if not found:
            raise AddressRefusedError(refusal or "it has no address")
        return found

    async def close(self) -> None:
        pass

    async def _look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[Any]:
        if self._under_way >= LOOKUPS_MAX:
            raise OSError(f"{LOOKUPS_MAX} names are being looked up already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        self._under_way += 1

        def done(result: list[Any] | OSError) -> None:
            self._under_way -= 1
            if future.done():
                return
            if isinstance(result, OSError):
                future.set_exception(result)
            else:
                future.set_result(result)

        def look_up() -> None:
            result: list[Any] | OSError
            try:
                result = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            except OSError as error:
                result = error
            except UnicodeError as error:
                result = OSError(f"no name: {error}")
            post(loop, done, result)

        threading.Thread(target=look_up, name="tarry-push-lookup", daemon=True).start()
        return await future


class SocketGate:
    """Makes the sockets of connections."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy

    def __call__(self, place: Any) -> socket.socket:
        """
        Raises:
            AddressRefusedError: nothing may be connected to there.
        """
        family, kind, protocol, _, address = place
        refusal = self._policy.refusal(str(address[0])) or self._policy.port_refusal(address[1])
        if refusal is not None:
            raise AddressRefusedError(refusal)
        if (noted := made_connection.get(None)) is not None:
            noted.append(True)
        connection = socket.socket(family, kind, protocol)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
