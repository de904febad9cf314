"""Several protocols at one door: a connection's first bytes say which of them it speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, cast

from tarry.fronts.kit.admission import Admission

NewProtocol: TypeAlias = Callable[[Admission], asyncio.Protocol]

HTTP2 = b"PRI "
"""First bytes of an HTTP/2 connection (RFC 9113, section 3.4)."""
REFUSED_S = 1.0
"""Seconds in which a client that is refused must speak to be told so."""


class FirstBytes(asyncio.Protocol):
    """A connection's protocol until it has sent as many bytes as ``begins`` has.

    The protocol of ``matching`` takes its place if they are those, else that of ``other``. It tells a refusal, too: so
    a client that is refused is told when it has spoken.
    """

    def __init__(self, admission: Admission, begins: bytes, matching: NewProtocol, other: NewProtocol) -> None:
        self._admission = admission
        self._begins, self._matching, self._other = begins, matching, other
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, as uvloop's transports are not derived from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if self._admission.refusal is not None:
            # It has no place at the door, where silent connections are cut after a while.
            asyncio.get_running_loop().call_later(REFUSED_S, self._cut_silent)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= len(self._begins):
            self._begin(self._matching if self._received.startswith(self._begins) else self._other)
        elif not self._begins.startswith(self._received):
            self._begin(self._other)

    def connection_lost(self, error: Exception | None) -> None:
        self._admission.released()

    def _cut_silent(self) -> None:
        if self._transport.get_protocol() is self:
            self._transport.abort()

    def _begin(self, new_protocol: NewProtocol) -> None:
        transport = self._transport
        protocol = new_protocol(self._admission)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        # Some protocols put another one in their place as soon as they have their transport.
        current = cast(asyncio.Protocol, transport.get_protocol())
        current.data_received(self._received)
