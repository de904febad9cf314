"""Connections that a worker passes on to its front's home, its part in the broker's process.

They go to a Unix socket in the data directory, which is its user's alone. Each begins with a line that says which
client the worker has it from; to the front's protocol the connection is then that client's, who is its principal: not
the broker's user, who has connected. It counts among that client's connections, too. So what the home keeps of its
clients, and what it does when they leave, is the same as without workers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from tarry.base.errors import UnavailableError
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.peer_proof import PeerProof

Address: TypeAlias = tuple[str, int]
NewProtocol: TypeAlias = Callable[[Admission], asyncio.Protocol]

LINE_BYTES_MAX = 64 << 10
"""A certificate may have many names."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A client's connection to a worker, as its home knows it."""

    peer: Address
    """The client's address."""
    local: Address
    """The address that it connected to."""
    principal: PeerProof | None = None
    by_tls: bool = False

    @classmethod
    def of(cls, transport: asyncio.BaseTransport, principal: PeerProof | None) -> Origin:
        """Return that of a worker's connection."""
        peer, local = ((transport.get_extra_info(end) or ("", 0))[:2] for end in ("peername", "sockname"))
        return cls(peer, local, principal, transport.get_extra_info("sslcontext") is not None)

    @classmethod
    def of_line(cls, line: bytes) -> Origin:
        """Return what :meth:`line` has written.

        Raises:
            ValueError, TypeError: it is no such line.
        """
        peer_host, peer_port, host, port, shown, by_tls = json.loads(line)
        principal = None
        if shown is not None:
            kind, name, alternatives, names = shown
            principal = PeerProof(kind, str(name), tuple(map(str, alternatives)), tuple(map(str, names)))
        return cls((str(peer_host), int(peer_port)), (str(host), int(port)), principal, bool(by_tls))

    def line(self) -> bytes:
        """Return the line that begins the connection to the home."""
        shown = None
        if self.principal is not None:
            proof = self.principal
            shown = [proof.kind, proof.name, proof.alternatives, proof.names]
        return json.dumps([*self.peer, *self.local, shown, self.by_tls]).encode() + b"\n"

    def ends(self) -> dict[str, Any]:
        """Return what a transport says of such a connection."""
        ends: dict[str, Any] = {"peername": self.peer, "sockname": self.local}
        # There is no context here: that it has one says that the client came by TLS.
        return ends | {"sslcontext": True} if self.by_tls else ends


def passed(new_protocol: NewProtocol) -> NewProtocol:
    """Return what makes a door's protocol for connections that begin with the line of a worker."""
    return lambda admission: _Beginning(new_protocol, admission)


async def pass_on(path: str, origin: Origin, protocol: asyncio.Protocol) -> asyncio.Transport:
    """Connect to a home at its socket, on behalf of a client.

    Raises:
        UnavailableError: it is not there.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_unix_connection(lambda: protocol, path)
    except OSError as error:
        raise UnavailableError(f"the broker's process is not reached: {error.strerror or error}") from error
    transport.write(origin.line())
    return transport


class _Beginning(asyncio.Protocol):
    """A passed connection until its line has come."""

    def __init__(self, new_protocol: NewProtocol, admission: Admission) -> None:
        self._new_protocol = new_protocol
        self._admission = admission
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._admission.refusal is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        line, end, rest = self._received.partition(b"\n")
        if len(line) > LINE_BYTES_MAX:
            self._transport.abort()
            return
        if not end:
            return
        try:
            origin = Origin.of_line(line)
        except (ValueError, TypeError, RecursionError):
            self._transport.abort()
            return
        if not self._admission.passed_for(origin.peer[0]):
            self._transport.abort()
            return
        self._admission.principal = origin.principal
        protocol = self._new_protocol(self._admission)
        self._transport.set_protocol(protocol)
        protocol.connection_made(cast(asyncio.Transport, _PassedTransport(self._transport, origin.ends())))
        if rest:
            protocol.data_received(rest)

    def connection_lost(self, error: Exception | None) -> None:
        self._admission.released()


class _PassedTransport:
    """A transport whose ends are those of the client's connection to the worker."""

    def __init__(self, transport: asyncio.Transport, ends: dict[str, Any]) -> None:
        self._transport = transport
        self._ends = ends

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection by this name."""
        return self._ends[name] if name in self._ends else self._transport.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
