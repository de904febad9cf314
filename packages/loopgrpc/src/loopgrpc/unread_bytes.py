"""A bound on answers that peers have not read yet: for all of them, and for those of one address.

Bytes that were written cannot be taken back, so nothing is refused here once it was made. Makers of large answers ask
for room before (:meth:`UnreadBytes.refusal`), and connections report their unread bytes.
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
"""About the most bytes of one answer: so many have to be free before another is made."""
STALLED_S: Final = 30.0
"""Seconds after which a peer that takes nothing of what waits for it is cut off."""


class UnreadBytes:
    """Unread bytes by address. Any thread.

    An address that holds nothing always has room, however small the bound is.
    """

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._held = 0
        self._held_by: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Unread bytes of all peers."""
        return self._held

    def refusal(self, host: str, size: int = ANSWER_BYTES) -> str | None:
        """Return the reason if there is no room for an answer to that address now, else None."""
        mine, part = self._held_by.get(host, 0), self._bytes_max // _PART  # a glance, without the lock
        if not mine or (mine + size <= part and self._held + size <= self._bytes_max):
            return None
        return (
            f"{host} has not read {mine} bytes of answers, of {self._held} of all clients; allowed before the next: "
            f"{max(0, part - size)} of one address, {max(0, self._bytes_max - size)} of all; read them, and try again"
        )

    def take(self, host: str, size: int, timeout_s: float) -> bool:
        """Hold ``size`` bytes for an address.

        Returns False if there was no room for ``timeout_s`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.refusal(host, size) is None, timeout_s):
                return False
            self._add(host, size)
        return True

    def add(self, host: str, size: int) -> None:
        """Count ``size`` more unread bytes, even if there is no room; a negative ``size`` counts fewer."""
        with self._changed:
            self._add(host, size)
            if size < 0:
                self._changed.notify_all()

    @contextmanager
    def sending(self, host: str, size: int) -> Iterator[None]:
        """Count ``size`` bytes as unread while they are being sent, even if there is no room."""
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
    """The unread bytes of one connection, as its owner reports them, and the time of its last progress."""

    __slots__ = ("_since_s", "_unread", "_waiting", "host", "size")

    def __init__(self, unread: UnreadBytes, host: str) -> None:
        self._unread = unread
        self.host = host
        self.size = 0
        self._waiting: int | None = None
        self._since_s = 0.0

    def note(self, size: int) -> None:
        """Set the number of unread bytes."""
        if size != self.size:
            self._unread.add(self.host, size - self.size)
            self.size = size

    def is_stalled(self, transport: asyncio.Transport, now_s: float, stalled_s: float = STALLED_S) -> bool:
        """Return whether nothing was taken for ``stalled_s``.

        Called now and then while the transport takes no more.
        """
        waiting = self.size + in_kernel(transport)
        if self._waiting is not None and waiting < self._waiting:
            self._since_s = now_s
        self._waiting = waiting
        return now_s - self._since_s > stalled_s

    def begin(self, now_s: float) -> None:
        """Note that something waits from now on, or was taken just now."""
        self._since_s, self._waiting = now_s, None


def in_kernel(transport: asyncio.Transport) -> int:
    """Return the bytes that the kernel holds for the peer.

    Slow peers show in it: it takes megabytes of them at a time.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or not sys.platform.startswith("linux"):
        return 0
    import fcntl
    import termios

    with suppress(OSError, ValueError):
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0
