"""The server: it listens on one port, with TLS or without it, and stops with grace."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from loopgrpc.admission import Places
from loopgrpc.call import Call
from loopgrpc.connection import NewConnection
from loopgrpc.connections import Connections
from loopgrpc.handlers import Handler, by_path
from loopgrpc.limits import Limits
from loopgrpc.status import Translate
from loopgrpc.unread_bytes import UnreadBytes
from loopgrpc.usage import ConnectionUsage

_TLS_HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 1_024


class GrpcServer:
    """A gRPC server on one port of the running event loop.

    ``handlers`` are by their paths (``/package.Service/Method``). ``tls`` needs a certificate; ALPN is set here.
    Without it clients come by prior knowledge (h2c). ``listening``: a socket that listens already, which processes may
    share; without it one is made of host and port. ``trusts`` decides by the headers of a call if its connection is
    trusted from then on; before, it may have no more than ``untrusted_buffer_bytes_max``. ``unread`` counts the bytes
    of responses that peers have not read; handlers that make large ones ask it for room. ``translate`` says how calls
    end for an exception of their handler, or a GrpcError of the server's own, as for a message that is too large; it
    must not raise.

    Raises ValueError: an invalid path.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        listening: socket.socket | None = None,
        trusts: Callable[[Call], bool] | None = None,
        unread: UnreadBytes | None = None,
        translate: Translate | None = None,
    ) -> None:
        by_path(handlers)  # refuses an invalid path before the loop runs
        self._handlers = handlers
        self._host, self._port = host, port
        self._listening = listening
        self._trusts = trusts
        self._unread = unread
        self._translate = translate
        self._tls = tls
        self._limits = limits or Limits()
        self._connections: Connections | None = None
        self._places: Places
        self._listener: asyncio.Server | None = None
        self._stopping = False

    async def start(self) -> None:
        """Listen.

        Raises OSError: the address is taken or invalid. RuntimeError: it has started before.
        """
        if self._connections is not None or self._stopping:
            raise RuntimeError("a gRPC server starts once")
        connections = Connections(
            self._handlers, self._limits, trusts=self._trusts, unread=self._unread, translate=self._translate
        )
        self._places = Places(self._limits)
        if self._tls is not None:
            self._tls.set_alpn_protocols(["h2"])
        self._listener = await self._listen(connections)
        self._port = self._listener.sockets[0].getsockname()[1]
        connections.start()
        self._connections = connections

    async def _listen(self, connections: Connections) -> asyncio.Server:
        handshake_s = None if self._tls is None else _TLS_HANDSHAKE_S
        listening, admit = self._listening, self._places.admit
        where = {"host": self._host, "port": self._port} if listening is None else {"sock": listening}
        return await asyncio.get_running_loop().create_server(
            lambda: NewConnection(connections, admit),
            **where,
            backlog=_BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=handshake_s,
        )

    @property
    def port(self) -> int:
        """The port it listens on; the one chosen, if 0 was asked for."""
        return self._port

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return 0 if self._connections is None else len(self._places)

    @property
    def tasks(self) -> int:
        """Number of handlers that run in a Task."""
        return 0 if self._connections is None else len(self._connections.tasks)

    def usage(self) -> list[ConnectionUsage]:
        """Return the current usage of each connection, in no order."""
        return [] if self._connections is None else self._connections.usage()

    def check_timeouts(self, now: float) -> None:
        """End what is overdue at ``now``, the loop's time: deadlines, silent and stalled connections.

        A timer does it once a second; public for tests.
        """
        if self._connections is not None:
            self._connections.check_timeouts(now)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Take no more connections nor calls, and return when all connections are closed.

        Calls that run may end within ``grace_s`` seconds; the others are reset. A second call does nothing.
        """
        if self._listener is None or self._connections is None or self._stopping:
            return
        self._stopping = True
        self._listener.close()
        await self._places.drain(grace_s)
        await self._connections.close()
