"""One client's connection: bytes to packets and back, within bounds.

It is not read while too many of its messages are not durable yet, while something that it asked for is being done, and
while it does not read what it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from loopgrpc import ByteBudget, UnreadBytes
from tarry.base.log_limiter import LogLimiter
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.writing import ConnectionWriter
from tarry.fronts.mqtt.packets import CONNECT, Packet, decode, packet_length
from tarry.fronts.mqtt.reasons import MqttError, Reason

_closed = LogLimiter(logging.getLogger(__name__), logging.INFO)
HALF_S, LOOK_S = 30.0, 1.0
"""Seconds for one packet to come whole, and between looks at that."""
UNKNOWN_BYTES_MAX = 256 << 10
"""Bytes of a packet of a client that is not known yet."""
OPEN_MAX, OPEN_BYTES_MAX = 1_000, 32 << 20
"""Messages of a client that are not durable yet, and their bytes."""


class Conversation(Protocol):
    """Everything above bytes and packets."""

    version: int | None
    """None until the client has told it."""

    def on_packet(self, packet: Packet) -> None: ...
    def on_look(self, idle_s: float) -> None: ...
    def on_writable(self) -> None: ...
    def on_fault(self, error: MqttError) -> None: ...
    def on_drain(self) -> None: ...
    def on_lost(self) -> None: ...


class MqttConnection(asyncio.Protocol):
    """On the event loop's thread. ``budget`` counts the bytes of incomplete packets of all connections."""

    def __init__(
        self,
        admission: Admission,
        new_conversation: Callable[[MqttConnection], Conversation],
        packet_bytes_max: int,
        budget: ByteBudget,
        unread: UnreadBytes,
    ) -> None:
        self.host = admission.peer_host
        self.admission = admission
        self._packet_bytes_max = packet_bytes_max
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._counted = 0
        """Bytes that the budget counts."""
        self._open = self._open_bytes = 0
        self._writer = ConnectionWriter(self._loop, unread, self.host, self._cut)
        self.write = self._writer.write
        """Sends a packet, with the others of this turn of the loop."""
        self.room = self._writer.room()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._data_s = self._packet_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._conversation = new_conversation(self)

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer.begin(self._transport)
        if self.admission.refusal is not None:
            self.close(self.admission.refusal)
            return
        self.admission.on_drain = self._conversation.on_drain
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def data_received(self, data: bytes) -> None:
        self._data_s = self._loop.time()
        if not self._received:
            self._packet_s = self._data_s
        self._received += data
        self._take_packets()

    def pause_writing(self) -> None:
        self._writer.pause()
        self._set_reading()

    def resume_writing(self) -> None:
        self._writer.resume()
        self._set_reading()
        self._conversation.on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._received.clear()
        self._count_received()
        self._writer.end()
        self.room.release()
        self.admission.released()
        if self._task is None:
            self._conversation.on_lost()

    # -- called by the conversation ------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def is_writable(self) -> bool:
        """True if the client reads what it is sent."""
        return self._writer.reads and not self.closed

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that waits; the client's next packet is read when it is done."""
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._on_done)

    @property
    def has_open(self) -> bool:
        """True while a message of the client is not durable yet."""
        return self._open > 0

    def opened(self, size: int) -> None:
        """Count a message that is not durable yet."""
        self._open += 1
        self._open_bytes += size

    def settled(self, size: int) -> None:
        """Count a message no more."""
        self._open -= 1
        self._open_bytes -= size
        self._set_reading()

    def close(self, why: str = "", farewell: bytes = b"") -> None:
        """Close once everything that was written has been sent."""
        if why:
            _closed.say("the MQTT connection from %s is closed: %s", self.host, why)
        if not self.closed:
            self.write(farewell)
            self._writer.flush()
            self._writer.pause()  # a peer that does not read the rest is cut
            cast(asyncio.Transport, self._transport).close()

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _is_read(self) -> bool:
        return self._writer.reads and not (self._task or self._open >= OPEN_MAX or self._open_bytes >= OPEN_BYTES_MAX)

    def _take_packets(self) -> None:
        try:
            bytes_max = UNKNOWN_BYTES_MAX if self._conversation.version is None else self._packet_bytes_max
            while self._is_read and not self.closed:
                if self._conversation.version is None and self._received and self._received[0] != CONNECT << 4:
                    raise MqttError(Reason.PROTOCOL_ERROR, "something else than CONNECT first")
                lengths = packet_length(self._received, bytes_max)
                if lengths is None or lengths[1] > len(self._received):
                    break
                packet = bytes(memoryview(self._received)[lengths[0] : lengths[1]])
                first = self._received[0]
                del self._received[: lengths[1]]
                self._packet_s = self._loop.time()
                self._conversation.on_packet(decode(self._conversation.version, first, packet))
        except MqttError as error:
            self._conversation.on_fault(error)
        self._count_received()
        self._set_reading()

    def _count_received(self) -> None:
        more = len(self._received) - self._counted
        if more > 0 and (refusal := self._budget.take(more, self.host)) is not None:
            self.close(refusal)
            return
        if more < 0:
            self._budget.give_back(-more, self.host)
        self._counted += more

    def _set_reading(self) -> None:
        if self.closed:
            return
        transport = cast(asyncio.Transport, self._transport)
        if not self._is_read:
            transport.pause_reading()
        elif not transport.is_reading():
            transport.resume_reading()
            self._data_s = self._packet_s = self._loop.time()  # what came meanwhile is read only now
            self._loop.call_soon(self._take_packets)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logging.getLogger(__name__).error("a request of an MQTT client failed", exc_info=error)
            self.close("internal error")
        if self._transport is None:
            self._conversation.on_lost()
        self._set_reading()

    def _cut(self, why: str) -> None:
        _closed.say("the MQTT client at %s is cut off: %s", self.host, why)
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        if self.closed:
            return
        now_s = self._loop.time()
        self._timer = self._loop.call_later(LOOK_S, self._look)
        if self._received and self._is_read and now_s - self._packet_s > HALF_S:
            self.close(f"a packet has not come whole in {HALF_S:.0f} s")
        else:
            self._conversation.on_look(now_s - self._data_s if self._is_read else 0.0)
