"""Limits on peers of the Flight front, from outside: connections, and memory for messages under way.

gRPC's server, as pyarrow builds it, accepts every connection, keeps a message of any size until it is whole, and has no
setting against either. So a thread looks at the sockets of the port: how many each peer address has, whether they ever
sent anything, and how many bytes came since a handler was last given a message. What is too much is refused by a GOAWAY
that says why (RFC 9113, section 6.8), and cut.

In TLS, nothing can be said by a frame of ours: there the connection is cut without a word. Nor can pyarrow take another
certificate than that of its start, which is logged when the files change.

A look costs some microseconds a connection, so it comes once a second; a tick of a few system calls finds out whether
one is worth it sooner, because descriptors or memory grow.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tarry.base.descriptors import ConnectionLimits
from tarry.base.memory import resident_bytes
from tarry.fronts.flight.calls import CallLimits
from tarry.fronts.flight.sockets import (
    OF_PROCESS,
    borrowed,
    inode_of,
    is_connection,
    open_descriptors,
    received_bytes,
    taken_bytes,
)
from tarry.fronts.kit.tls import FileChanges

log = logging.getLogger(__name__)

TICK_S = 0.05
LOOK_S = 1.0
SILENT_S = 10.0
"""Seconds that a connection may be open without a byte sent: a client of gRPC speaks first."""
PEER_BYTES_MAX = 288 << 20
"""Of a connection's messages that are not whole yet. The largest batch that is accepted has 256 MiB."""
BYTES_MAX = 2 * PEER_BYTES_MAX
"""Of all connections together; then the one that has most is cut."""
STALLED_S = 30.0
"""Seconds that a peer may take nothing of an answer that is being sent."""
TAKEN_BYTES_MIN = 16 << 10
"""Bytes that exceed what comes beside answers, pings above all, in that time."""
_GROWTH_DESCRIPTORS = 16
_GROWTH_BYTES = 32 << 20

_ENHANCE_YOUR_CALM = 0xB
_LAST_STREAM = (1 << 31) - 1
"""Last stream of a GOAWAY: all count as begun, else gRPC's clients open them again at once."""


@dataclass(slots=True)
class _Connection:
    fd: int
    inode: int
    host: str
    peer_port: str
    """Port by which a handler knows the peer, since gRPC has ways of its own to write an address.

    Another machine's connection may come from the same port by chance: then a message of one counts for both.
    """
    since_s: float
    received: int = 0
    counted_from: int = 0
    """Bytes received when a handler was last given a message."""
    refused: bool = False
    taken: int = 0
    """Bytes the peer had taken when they last grew by :data:`TAKEN_BYTES_MIN`, and since when."""
    taken_s: float = 0.0

    @property
    def waiting(self) -> int:
        """Bytes of what is not whole yet."""
        return self.received - self.counted_from


class ConnectionGuard:
    """Looks after the connections to a port from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        limits: ConnectionLimits,
        calls: CallLimits,
        *,
        peer_bytes_max: int = PEER_BYTES_MAX,
        bytes_max: int = BYTES_MAX,
        silent_s: float = SILENT_S,
        stalled_s: float = STALLED_S,
        certificate: FileChanges | None = None,
    ) -> None:
        self._port = 0
        self._limits = limits
        self._calls = calls
        self._peer_bytes_max = peer_bytes_max
        self._bytes_max = bytes_max
        self._silent_s = silent_s
        self._connections: dict[int, _Connection] = {}
        self._stalled_s = stalled_s
        self._certificate = certificate
        """Changes of the certificate's files; None: connections are without TLS."""
        self._sending: Counter[str] = Counter()
        """Answers that gRPC has taken and not sent, by the peer's port."""
        self._sending_lock = threading.Lock()
        self._given: set[str] = set()
        self.looks = 0
        self._resident = 0
        self._open = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tarry-flight-guard", daemon=True)

    def start(self, port: int) -> None:
        """Look after the connections to ``port`` of this process."""
        self._port = port
        self._thread.start()

    def stop(self) -> None:
        """Look no more; connections stay as they are."""
        self._stopped.set()
        self._thread.join()

    @property
    def waiting_bytes(self) -> int:
        """Of messages that are not whole yet, of all connections, as they were at the last look."""
        return sum(c.waiting for c in list(self._connections.values()))

    def on_message(self, peer: str) -> None:
        """Note that a handler was given a message of a peer (``ServerCallContext.peer()``). Any thread."""
        self._given.add(_port(peer))

    @contextmanager
    def sending(self, peer: str) -> Iterator[None]:
        """Count an answer to a peer while it is sent. Any thread."""
        self._count_sending(peer, 1)
        try:
            yield
        finally:
            self._count_sending(peer, -1)

    def _count_sending(self, peer: str, more: int) -> None:
        port = _port(peer)
        with self._sending_lock:
            self._sending[port] += more
            if not self._sending[port]:
                del self._sending[port]

    def _run(self) -> None:
        looked_s = 0.0
        while not self._stopped.wait(TICK_S):
            now_s = time.monotonic()
            try:
                if self._has_grown() or now_s >= looked_s + LOOK_S:
                    self.look(now_s)
                    # With ten thousand connections a look takes tens of milliseconds: then it comes less often.
                    looked_s = now_s + 20 * (time.monotonic() - now_s)
            except Exception:
                log.exception("the connections of the Flight front could not be looked at")

    def _has_grown(self) -> bool:
        if sys.platform != "linux":
            return False
        resident, number = resident_bytes(), OF_PROCESS.stat().st_size
        if resident > self._resident + _GROWTH_BYTES or number > self._open + _GROWTH_DESCRIPTORS:
            self._resident, self._open = resident, number
            return True
        self._resident, self._open = min(resident, self._resident), min(number, self._open)
        return False

    def look(self, now_s: float) -> None:
        """Count what each connection uses, and end what is too much."""
        given, self._given = self._given, set()
        self._connections = {c.inode: c for c in self._current(now_s)}
        for connection in self._connections.values():
            if connection.peer_port in given:
                connection.counted_from = connection.received
        for connection in [c for c in self._connections.values() if c.refused]:
            self._cut(connection)
        self._end_silent(now_s)
        self._end_stalled(now_s)
        self._end_connections()
        self._end_large()
        if self._certificate is not None and self._certificate.found():
            log.warning("the Flight front shows the certificate of its start, whatever its files are now: restart it")
        self.looks += 1

    def _current(self, now_s: float) -> Iterator[_Connection]:
        for fd in open_descriptors():
            with suppress(OSError):  # closed meanwhile
                status = os.fstat(fd)
                if stat.S_ISSOCK(status.st_mode):
                    connection = self._connections.get(status.st_ino)
                    if connection is None or connection.fd != fd:
                        connection = self._new(fd, status.st_ino, now_s)
                    if connection is not None:
                        connection.received = received_bytes(fd)
                        yield connection

    def _new(self, fd: int, inode: int, now_s: float) -> _Connection | None:
        with borrowed(fd) as connection:
            if not is_connection(connection, self._port):
                return None
            host, port = connection.getpeername()[:2]
            return _Connection(fd, inode, host.removeprefix("::ffff:"), str(port), now_s)

    # -- ending --------------------------------------------------------------------------------------------------------

    def _end_silent(self, now_s: float) -> None:
        """End connections that never said anything.

        Where there are too many streams without a message, all connections without another call end: theirs are among
        them. A client that was merely idle connects again when it has something.
        """
        crowded = self._calls.crowded_s(now_s) >= self._silent_s
        busy = set(map(_port, self._calls.peers())) if crowded else set()
        old = [c for c in self._connections.values() if now_s - c.since_s >= self._silent_s]
        ended = [c for c in old if not c.received or (crowded and c.peer_port not in busy)]
        for connection in ended:
            self._refuse(connection, "overloaded: too many streams that sent nothing")
            self._cut(connection)
        if crowded:
            log.warning("%d connections to port %d were ended: too many silent streams", len(ended), self._port)

    def _end_stalled(self, now_s: float) -> None:
        """End peers that take nothing of their answers: what was leased for them is for others."""
        with self._sending_lock:
            sending = set(self._sending)
        for connection in [c for c in self._connections.values() if c.peer_port in sending or c.taken_s]:
            if connection.peer_port not in sending:
                connection.taken_s = 0.0
                continue
            taken = taken_bytes(connection.fd)
            if not connection.taken_s or taken - connection.taken >= TAKEN_BYTES_MIN:
                connection.taken, connection.taken_s = taken, now_s
            elif now_s - connection.taken_s > self._stalled_s:
                log.warning(
                    "a connection of %s to port %d was cut: it took nothing of its answers for %.0f s",
                    *(connection.host, self._port, self._stalled_s),
                )
                self._cut(connection)

    def _end_connections(self) -> None:
        """Those that never said anything go first, then those that came last."""
        limits = self._limits
        ranked = sorted(self._connections.values(), key=lambda c: (not c.received, c.since_s))
        numbers: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        kept = 0
        for connection in ranked:
            numbers[connection.host] += 1
            if numbers[connection.host] > limits.per_peer:
                text = f"more than {limits.per_peer} connections of {connection.host}"
            elif kept >= limits.in_all:
                text = f"more than {limits.in_all} connections"
            else:
                kept += 1
                continue
            refused[text] += 1
            self._refuse(connection, f"overloaded: {text}; try again later")
            self._cut(connection)
        for text, number in refused.items():
            log.warning("%d connections to port %d were refused: %s", number, self._port, text)

    def _end_large(self) -> None:
        waiting = sorted(self._connections.values(), key=lambda c: c.waiting)
        total = self.waiting_bytes
        while waiting and (waiting[-1].waiting > self._peer_bytes_max or total > self._bytes_max):
            connection = waiting.pop()
            total -= connection.waiting
            text = (
                f"message_too_large: {connection.waiting} bytes came from {connection.host} of messages that are not "
                f"whole; allowed: {self._peer_bytes_max}, and {self._bytes_max} of all peers"
            )
            log.warning("a connection to port %d was refused: %s", self._port, text)
            # What it still sends must not destroy the refusal on its way, as a reset would; the next look cuts it.
            self._refuse(connection, text)
            connection.refused = True

    def _refuse(self, connection: _Connection, text: str) -> None:
        """Send GOAWAY. gRPC may be in the middle of a frame: then the peer sees an error of the protocol."""
        if not connection.received:
            return
        payload = struct.pack(">II", _LAST_STREAM, _ENHANCE_YOUR_CALM) + text.encode()
        frame = struct.pack(">I", len(payload) << 8 | 0x7) + bytes(5) + payload
        with suppress(OSError), borrowed(connection.fd) as peer:
            if inode_of(peer.fileno()) == connection.inode:
                if self._certificate is None:
                    peer.send(frame)
                peer.shutdown(socket.SHUT_WR)

    def _cut(self, connection: _Connection) -> None:
        self._connections.pop(connection.inode, None)
        with suppress(OSError), borrowed(connection.fd) as peer:
            if inode_of(peer.fileno()) == connection.inode:
                peer.shutdown(socket.SHUT_RDWR)


def _port(peer: str) -> str:
    return peer.rpartition(":")[2]
