"""A bound for answers that peers have not read yet: of all of them together, and of those of one address.

What was written cannot be taken back, so nothing is refused here when it comes: who makes large answers asks for room
before (:meth:`UnreadBytes.refusal`), and connections tell what of theirs is unread.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_PART: Final = 2
"""One address may have half, so that no stranger can take all room."""
UNREAD_BYTES_MAX: Final = 256 << 20
ANSWER_BYTES: Final = 16 << 20
"""About what one answer has at most: so much has to be free before another is made."""
STALLED_S: Final = 30.0
"""Whoever takes nothing for so long, while something waits for him, is cut."""


class UnreadBytes:
    """Any thread. An address that holds nothing always has room, however small the bound is."""

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._held = 0
        self._held_by: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Of all peers."""
        return self._held

    def refusal(self, host: str, size: int = ANSWER_BYTES) -> str | None:
        """Why there is no room for an answer to that address now, if there is none."""
        mine, part = self._held_by.get(host, 0), self._bytes_max // _PART  # of a moment, without the lock
        if not mine or (mine + size <= part and self._held + size <= self._bytes_max):
            return None
        return (
            f"{host} has not read {mine} bytes of answers, of {self._held} of all clients; allowed before the next: "
            f"{max(0, part - size)} of one address, {max(0, self._bytes_max - size)} of all; read them, and try again"
        )

    def take(self, host: str, size: int, timeout_s: float) -> bool:
        """Hold ``size`` bytes for an address; False: there was no room for so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.refusal(host, size) is None, timeout_s):
                return False
            self._add(host, size)
        return True

    def add(self, host: str, size: int) -> None:
        """So much more is unread, whether there is room or not; below 0: so much less."""
        with self._changed:
            self._add(host, size)
            if size < 0:
                self._changed.notify_all()

    @contextmanager
    def sending(self, host: str, size: int) -> Iterator[None]:
        """So much is being sent, whether there is room or not."""
        self.add(host, size)
        try:
            yield
        finally:
            self.add(host, -size)

    def _add(self, host: str, size: int) -> None:
        self._held += size
        self._held_by[host] += size
        if not self._held_by[host]:
            del self._held_by[host]


class UnreadOfConnection:
    """What one connection has not read, as its owner tells it; and since when it takes nothing."""

    __slots__ = ("_since_s", "_unread", "_waiting", "host", "size")

    def __init__(self, unread: UnreadBytes, host: str) -> None:
        self._unread = unread
        self.host = host
        self.size = 0
        self._waiting: int | None = None
        self._since_s = 0.0

    def note(self, size: int) -> None:
        """So much is unread now."""
        if size != self.size:
            self._unread.add(self.host, size - self.size)
            self.size = size

    def is_stalled(self, transport: asyncio.Transport, now_s: float, stalled_s: float = STALLED_S) -> bool:
        """Whether nothing was taken for so long. Asked now and then while the transport takes no more."""
        waiting = self.size + in_kernel(transport)
        if self._waiting is not None and waiting < self._waiting:
            self._since_s = now_s
        self._waiting = waiting
        return now_s - self._since_s > stalled_s

    def begin(self, now_s: float) -> None:
        """Something waits from now on, or was taken just now."""
        self._since_s, self._waiting = now_s, None


def in_kernel(transport: asyncio.Transport) -> int:
    """Bytes that the system has for the peer. Slow peers are told by it: it takes megabytes of them at a time."""
    sock = transport.get_extra_info("socket")
    if sock is None or not sys.platform.startswith("linux"):
        return 0
    import fcntl
    import termios

    with suppress(OSError, ValueError):
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0
