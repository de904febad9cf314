"""What the streams of one connection share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loopgrpc.flood import WorkCounter
from loopgrpc.frames import ConnectionFault, ErrorCode, rst_stream
from loopgrpc.limits import Limits
from loopgrpc.sender import Sender
from loopgrpc.stream_ids import StreamIds


@dataclass(slots=True, eq=False, kw_only=True)
class StreamContext:
    """The parts of a connection that its streams use, and two sums over all of them.

    ``on_closed`` is called with the number of a stream that has closed, ``fail`` with an error that ends the connection
    and comes up while no frame is processed. ``tasks`` are the handlers that run, of all connections of the server.
    """

    sender: Sender
    ids: StreamIds
    work: WorkCounter
    limits: Limits
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[Any]]
    peer: str
    fail: Callable[[ConnectionFault], None]
    on_closed: Callable[[int], None]
    buffered_bytes: int = 0
    """Requests that wait for handlers, whole or in part."""
    late_handlers: int = 0
    """Handlers that still run though their streams are closed."""

    def send_reset(self, stream_id: int, code: ErrorCode) -> None:
        """RST_STREAM; what the peer still sends on the stream is ignored."""
        self.sender.add(rst_stream(stream_id, code))
        self.ids.remember_reset(stream_id)
