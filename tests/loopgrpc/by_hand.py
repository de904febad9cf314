"""A connection without a socket: bytes go in by hand, what it writes is kept, and its clock and timers are a test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from loopgrpc import ByteBudget, Call, Handler, Limits, UnreadBytes
from loopgrpc.connection import Connection
from loopgrpc.frames import FRAME_HEADER, FRAME_HEADER_BYTES, PREFACE, settings
from loopgrpc.status import Translate
from tests.loopgrpc.wire import Frame


class ManualLoop:
    """The running loop with a clock and timers by hand: ``now`` is its time, ``timers`` what ``call_at`` was given."""

    def __init__(self, now: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = now
        self.timers: list[tuple[float, Callable[[], Any]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], Any]) -> asyncio.Handle:
        self.timers.append((when, callback))
        return asyncio.Handle(callback, [], self._loop)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; reads and writes go on for ever."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self.closing = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading


class Owner:
    """A server of one connection."""

    def __init__(self, handlers: Mapping[str, Handler], limits: Limits, loop: Any) -> None:
        self.handlers = {path.encode(): handler for path, handler in handlers.items()}
        self.limits = limits
        self.loop = loop
        self.tasks: set[asyncio.Task[Any]] = set()
        self.budget = ByteBudget("requests", limits.all_buffer_bytes_max)
        self.calls = ByteBudget("open calls", limits.calls_max, max(1, limits.calls_max // 2), "places")
        self.unread = UnreadBytes()
        self.trusts: Callable[[Call], bool] | None = None
        self.translate: Translate | None = None

    def add(self, connection: Connection) -> None: ...

    def forget(self, connection: Connection) -> None: ...


class HandPlace:
    """The place of a connection by whatever listener; ``events`` is what it was told."""

    def __init__(self, refusal: str | None = None, principal: object = None) -> None:
        self.refusal = refusal
        self.principal = principal
        self.cut: Callable[[], object] = lambda: None
        self.on_drain: Callable[[], object] | None = None
        self.events: list[str] = []

    def begun(self) -> None:
        self.events.append("begun")

    def released(self) -> None:
        self.events.append("released")


class ByHand:
    """A connection that has begun; ``clock`` is its loop if that has a clock of its own."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        clock: ManualLoop | None = None,
        place: HandPlace | None = None,
        translate: Translate | None = None,
        **limits: Any,
    ) -> None:
        self.transport = MemoryTransport()
        self.place = place or HandPlace()
        self.owner = Owner(handlers, Limits(**limits), clock or asyncio.get_running_loop())
        self.owner.translate = translate
        self.connection = Connection(self.owner, self.transport, self.place)
        self.connection.begin()

    def greet(self) -> None:
        """The preface and SETTINGS."""
        self.send(PREFACE + settings({}))

    def send(self, *data: bytes) -> None:
        """Bytes from the client; they are worked through when this returns."""
        self.connection.data_received(b"".join(data))

    def frames(self) -> list[Frame]:
        """All that was written, which has to be whole frames."""
        frames, at, data = [], 0, bytes(self.transport.written)
        while at < len(data):
            word, flags, stream = FRAME_HEADER.unpack_from(data, at)
            start, at = at + FRAME_HEADER_BYTES, at + FRAME_HEADER_BYTES + (word >> 8)
            frames.append(Frame(word & 0xFF, flags, stream, data[start:at]))
        assert at == len(data)
        return frames
