"""State shared by the streams of one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loopgrpc.byte_budget import ByteBudget
from loopgrpc.call import Call
from loopgrpc.flood import WorkCounter
from loopgrpc.frames import ConnectionFault, ErrorCode, rst_stream
from loopgrpc.limits import Limits
from loopgrpc.sender import Sender
from loopgrpc.status import GrpcError, StatusCode, Translate
from loopgrpc.stream_ids import StreamIds


@dataclass(slots=True, eq=False, kw_only=True)
class StreamContext:
    """The parts of a connection that its streams use, and two sums over all of them.

    ``host`` is the peer's address, to which its requests are counted in the server's ``budget`` and its open calls in
    ``calls``, and ``principal`` what the connection itself has proved to be (:class:`loopgrpc.Admission`). ``trusts``
    decides by a call's headers if the connection may be trusted from then on; None: it is trusted. ``translate`` says
    how calls end; None: as they would. ``on_closed`` is called with the number of a stream that has closed, ``fail``
    with an error that ends the connection and comes up while no frame is processed. ``tasks`` are the handlers that
    run, of all connections of the server.
    """

    sender: Sender
    ids: StreamIds
    work: WorkCounter
    limits: Limits
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[Any]]
    peer: str
    host: str
    principal: object
    budget: ByteBudget
    calls: ByteBudget
    trusts: Callable[[Call], bool] | None
    translate: Translate | None
    fail: Callable[[ConnectionFault], None]
    on_closed: Callable[[int], None]
    buffered_bytes: int = 0
    """Requests that wait for handlers, whole or in part."""
    late_handlers: int = 0
    """Handlers that still run though their streams are closed."""

    def look_at(self, call: Call) -> None:
        """Decide by a call's headers if the connection is trusted from now on."""
        if self.trusts is not None and self.trusts(call):
            self.trusts = None

    def early_end(self, status: StatusCode, text: str) -> GrpcError:
        """Return how a call ends that the server ends by itself."""
        error = GrpcError(status, text)
        return error if self.translate is None else self.translate(error)

    def hold(self, size: int) -> str | None:
        """Hold ``size`` more bytes of requests. Returns the reason if there is no room, else None."""
        limits = self.limits
        most = limits.buffer_bytes_max
        if self.trusts is not None:
            most = min(most, limits.untrusted_buffer_bytes_max)
        if self.buffered_bytes + size > most:
            return "too much of this connection's requests waits for handlers"
        if (refusal := self.budget.take(size, self.host)) is not None:
            return refusal
        self.buffered_bytes += size
        return None

    def release(self, size: int) -> None:
        """Release ``size`` bytes of requests."""
        self.buffered_bytes -= size
        self.budget.give_back(size, self.host)

    def send_reset(self, stream_id: int, code: ErrorCode) -> None:
        """Send RST_STREAM; frames that the peer still sends on the stream are ignored."""
        self.sender.add(rst_stream(stream_id, code))
        self.ids.remember_reset(stream_id)
