"""Bounds on frames that have begun and not ended: their bytes, by peer, and their time.

Peers are addresses. All that is on this machine, by whatever address or Unix socket, is one peer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Generic, Protocol, TypeVar

from tarry.base.errors import OverloadedError, TarryError
from tarry.base.exposure import is_loopback
from tarry.link.frames import ASKED_BYTES_MAX, HEAD

HALF_BYTES_MAX = 2 * (ASKED_BYTES_MAX + HEAD.size)
"""Two of the largest frames. A peer elsewhere may have one of them."""
HALF_S = 30.0
"""Seconds that a frame may take to arrive completely, beside one for each MiB of it."""
LOOK_S = 1.0
"""Seconds between checks of that time, while a frame is incomplete."""
_HERE = ""
"""The peer that this machine is."""


class HalfConnection(Protocol):
    """A connection that can have half a frame."""

    @property
    def reads(self) -> bool:
        """False while it is not read, so that no frame of it can end."""
        ...

    def refuse(self, error: TarryError) -> None: ...


C = TypeVar("C", bound=HalfConnection)


class _Half:
    __slots__ = ("held", "length", "peer", "waited_s")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.held = self.length = 0
        self.waited_s = 0.0

    @property
    def allowed_s(self) -> float:
        return HALF_S + self.length / (1 << 20)


class HalfFrames(Generic[C]):
    """Unfinished frames of one port, by connection. On the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bytes_max: int = HALF_BYTES_MAX) -> None:
        self._loop = loop
        self._bytes_max = bytes_max
        self._halves: dict[C, _Half] = {}
        """The oldest first."""
        self._total = 0
        self._of_peer: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def note(self, connection: C, peer: str, held: int, length: int, *, is_new: bool) -> None:
        """Note the unfinished frame of a connection, and cut connections off while there are too many bytes.

        Args:
            peer: see :func:`peer_of`.
            held: bytes of it that have come; 0: there is none.
            length: the bytes that it said to have; 0: it has not said so yet.
            is_new: False if it is the frame that was noted the last time.
        """
        half = self._halves.get(connection)
        if half is not None and (is_new or not held):
            self.forget(connection)
            half = None
        if not held:
            return
        if half is None:
            half = self._halves[connection] = _Half(peer)
        half.length = length
        self._count(half, held)
        self._bound(peer)
        if self._halves and self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def forget(self, connection: C) -> None:
        """Forget a connection's frame: it has ended, or the connection has."""
        half = self._halves.pop(connection, None)
        if half is not None:
            self._count(half, 0)

    def _count(self, half: _Half, held: int) -> None:
        self._total += held - half.held
        self._of_peer[half.peer] += held - half.held
        half.held = held
        if not self._of_peer[half.peer]:
            del self._of_peer[half.peer]

    def _bound(self, peer: str) -> None:
        """Cut off whose frames are the oldest of a peer that has too much.

        Not the largest: where one peer holds all room with many small ones, that would be somebody else's.
        """
        part = self._bytes_max // 2
        while peer != _HERE and self._of_peer[peer] > part:
            self._cut(peer, f"frames of {peer} that have not ended have more than {part} bytes")
        while self._total > self._bytes_max:
            most = max(self._of_peer, key=self._of_peer.__getitem__)
            self._cut(most, f"frames that have not ended have more than {self._bytes_max} bytes, and this peer's most")

    def _cut(self, peer: str, why: str) -> None:
        oldest = next(connection for connection, half in self._halves.items() if half.peer == peer)
        self.forget(oldest)
        oldest.refuse(OverloadedError(why))

    def _look(self) -> None:
        """Count time by looks, not by the clock: one during which this loop stood still is nobody's fault."""
        self._timer = None
        for connection, half in list(self._halves.items()):
            if not connection.reads:
                continue
            half.waited_s += LOOK_S
            if half.waited_s > half.allowed_s:
                late = OverloadedError(
                    f"a frame has not come whole in {half.allowed_s:.0f} s, but {half.held} bytes of it; "
                    f"allowed: {HALF_S:.0f} s, and 1 s more for each MiB of it"
                )
                self.forget(connection)
                connection.refuse(late)
        if self._halves:
            self._timer = self._loop.call_later(LOOK_S, self._look)


def peer_of(host: str) -> str:
    """Return the peer of an address without a port; empty: it came by a Unix socket."""
    return _HERE if not host or is_loopback(host.partition("%")[0]) else host
