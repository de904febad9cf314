"""Bytes that a connection writes: gathered by turn of the loop, and counted while unread.

A client that takes nothing for :data:`STALLED_S` seconds is reported, so that its connection can be cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loopgrpc import UnreadBytes, UnreadOfConnection
from tarry.fronts.kit.receiving import CROWDED_S
from tarry.fronts.kit.unread import Room

WRITE_BUFFER_BYTES = 1 << 20
"""Unread bytes above which nothing more is to be made for the client."""
STALLED_S = 30.0
LOOK_S = 1.0
"""Seconds between checks for progress, while the client does not read."""


class ConnectionWriter:
    """Writes to one connection, from :meth:`begin` to :meth:`end`. On the loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, unread: UnreadBytes, host: str, on_stalled: Callable[[str], None]
    ) -> None:
        """Make a writer for a client at ``host``.

        ``on_stalled`` gets the reason for which the connection is to be cut.
        """
        self.reads = True
        """False while the client does not read what it was sent."""
        self._loop = loop
        self._all_unread = unread
        self._unread = UnreadOfConnection(unread, host)
        self._host = host
        self._on_stalled = on_stalled
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes | memoryview] = []
        self._readable = asyncio.Event()
        self._readable.set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Write to this transport; its protocol calls :meth:`pause` and :meth:`resume` as it is called itself."""
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def write(self, *parts: bytes | memoryview) -> None:
        """Write parts at the end of this turn of the loop; nothing if the connection is closing."""
        if self._transport is None or self._transport.is_closing():
            return
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self._outgoing += parts

    def flush(self) -> None:
        """Hand what was written in this turn of the loop to the transport, in one call.

        Each call costs as much as a message.
        """
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and outgoing:
            self._transport.write(b"".join(outgoing))
            if not self.reads:
                self._count()

    def pause(self) -> None:
        """Note that the client does not read: its progress is watched."""
        if self.reads:
            self.reads = False
            self._readable.clear()
            self._unread.begin(self._loop.time())
            self._timer = self._loop.call_later(LOOK_S, self._look)
        self._count()

    def resume(self) -> None:
        """Note that the client has read most of what it was sent."""
        self.reads = True
        self._readable.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unread.note(0)

    def end(self) -> None:
        """Note that the connection is lost."""
        self._transport = None
        self.resume()

    @property
    def has_room(self) -> bool:
        """True if the client reads what it is sent, and its address does not have too many unread bytes."""
        return self.reads and self._all_unread.refusal(self._host) is None

    async def wait_for_room(self) -> None:
        """Wait until there is room for more; return also when the connection is closed."""
        await self._readable.wait()
        while not self.has_room and self._transport is not None and not self._transport.is_closing():
            await asyncio.sleep(CROWDED_S)
            await self._readable.wait()

    def room(self) -> Room:
        """Return a limit on unread bytes for what is handed out to the client."""
        return Room(self._all_unread, self._host)

    def _count(self) -> None:
        if self._transport is not None:
            self._unread.note(self._transport.get_write_buffer_size())

    def _look(self) -> None:
        if self._transport is None:
            return
        self._count()
        if self._unread.is_stalled(self._transport, self._loop.time(), STALLED_S):
            self._on_stalled(f"it took nothing of {self._unread.size} bytes for {STALLED_S:.0f} s")
        else:
            self._timer = self._loop.call_later(LOOK_S, self._look)
