"""Sends requests on connections that are kept for the next ones.

It uses httptools, like the HTTP front's server: a request is one write, and an answer one call of the parser. No
redirects, cookies, proxies or decompression.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohappyeyeballs import start_connection

from tarry.base.addresses import AddressPolicy
from tarry.outbound.connection import CONTENT_BYTES_MAX, HttpAnswer, HttpTarget, LostError, ReceiverConnection
from tarry.outbound.resolver import AddressRefusedError, CheckedResolver, SocketGate
from tarry.outbound.tls import client_context

IDLE_S = 30.0
"""Seconds that an idle connection is kept."""
NEXT_ADDRESS_S = 0.25
"""Seconds an address has to answer before the next one of its name is tried beside it (RFC 8305)."""
ERROR_MAX = 300

_Place = tuple[bool, str, int]


class NotSentError(Exception):
    """A request may not be sent any more, and was not."""


class HttpClient:
    """An HTTP client, made and used on an event loop."""

    def __init__(self, policy: AddressPolicy, ca_file: str | None, content_bytes_max: int = CONTENT_BYTES_MAX) -> None:
        """``ca_file``: authorities that are trusted beside the system's.

        ``content_bytes_max``: so much of an answer's body is kept; to keep the connection, somewhat more is read.

        Raises:
            InvalidArgumentError: the file has no authorities.
        """
        self._loop = asyncio.get_running_loop()
        self._resolver = CheckedResolver(policy)
        self._gate = SocketGate(policy)
        self._tls = client_context(ca_file, f"{policy.setting}_ca_file")
        self._content_bytes_max = content_bytes_max
        self._kept: dict[_Place, list[ReceiverConnection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(
        self,
        target: HttpTarget,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        may_send: Callable[[], bool] | None = None,
    ) -> HttpAnswer:
        """Send a request, and wait up to ``timeout_s`` for its answer.

        ``may_send`` is asked right before it is written; to connect may take long.

        Raises nothing but CancelledError, and, if it may not be sent, NotSentError.
        """
        connection: ReceiverConnection | None = None
        try:
            request = _request(target, headers, body)
            async with asyncio.timeout(timeout_s):
                connection = self._take(target)
                if connection is not None:
                    try:
                        return await self._exchange(target, connection, request, may_send)
                    except LostError:
                        if connection.heard:
                            raise
                        # It was an old connection, and the receiver had closed it as we wrote: that is not a failure
                        # yet.
                connection = await self._connect(target)
                return await self._exchange(target, connection, request, may_send)
        except TimeoutError:
            # If the status has arrived, it decides, whatever became of the body.
            answer = connection.answer() if connection is not None and connection.heard else None
            return answer or HttpAnswer(None, f"no answer within {timeout_s:g} s")
        except (OSError, ValueError) as error:
            return HttpAnswer(None, str(error)[:ERROR_MAX])

    async def close(self) -> None:
        """Close all idle connections, and keep no other."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connections in self._kept.values():
            for connection in connections:
                connection.close()
        self._kept.clear()

    # -- connections -------------------------------------------------------------------------------------------------

    async def _exchange(
        self,
        target: HttpTarget,
        connection: ReceiverConnection,
        request: bytes,
        may_send: Callable[[], bool] | None,
    ) -> HttpAnswer:
        if may_send is not None and not may_send():
            self._keep(target, connection)
            raise NotSentError
        answer = await connection.send(request)
        if connection.usable:
            self._keep(target, connection)
        return answer

    def _take(self, target: HttpTarget) -> ReceiverConnection | None:
        kept = self._kept.get(_place(target), [])
        while kept:
            connection = kept.pop()
            if connection.usable:
                return connection
        return None

    def _keep(self, target: HttpTarget, connection: ReceiverConnection) -> None:
        if self._closed:
            connection.close()
            return
        self._kept.setdefault(_place(target), []).append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE_S / 2, self._sweep)

    def _sweep(self) -> None:
        """Close connections that have been idle for long."""
        until_s = self._loop.time() - IDLE_S
        for place, connections in list(self._kept.items()):
            for connection in connections:
                if connection.used_s <= until_s:
                    connection.close()
            connections[:] = [connection for connection in connections if connection.usable]
            if not connections:
                del self._kept[place]
        self._sweeper = self._loop.call_later(IDLE_S / 2, self._sweep) if self._kept else None

    async def _connect(self, target: HttpTarget) -> ReceiverConnection:
        """Connect to a receiver.

        Raises:
            OSError: no connection. The text has its host and the reason, but not the URL, which may have a password in
            its query.
        """
        try:
            places = await self._resolver.resolve(target.host, target.port)
            connected = await start_connection(
                places, happy_eyeballs_delay=NEXT_ADDRESS_S, interleave=1, socket_factory=self._gate
            )
            _, connection = await self._loop.create_connection(
                lambda: ReceiverConnection(self._loop, self._content_bytes_max),
                sock=connected,
                ssl=self._tls if target.tls else None,
                server_hostname=target.host if target.tls else None,
            )
        except AddressRefusedError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a host that cannot be a name in a certificate
            raise OSError(f"cannot connect to {target.host}:{target.port}: {error}") from error
        return connection


def _place(target: HttpTarget) -> _Place:
    return target.tls, target.host, target.port


def _request(target: HttpTarget, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if not lines.count("\n") == lines.count("\r") == len(headers):
        # The makers of headers let nothing through that ends a line: this is the last check.
        raise ValueError("a header has more than one line")
    return f"{target.head}{lines}content-length: {len(body)}\r\n\r\n".encode("ascii") + body
