"""Sockets of gRPC's connections, found among this process's descriptors: gRPC gives none of them out.

Any of them may be closed at any time, and its number given to something else: so each is worked on by a copy, and
known by its inode.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tarry.base import descriptors
from tarry.base.descriptors import lacks_descriptor

OF_PROCESS = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
_TCP_INFO_BYTES = 136
_RECEIVED = struct.Struct("128xQ")
"""``tcpi_bytes_received`` in Linux's ``struct tcp_info``, since 4.1."""
_TAKEN = struct.Struct("120xQ8x")
"""``tcpi_bytes_acked``, likewise."""


def open_descriptors() -> Iterable[int]:
    """Return this process's descriptors; or all possible ones if none is free to look them up with."""
    try:
        return [int(path.name) for path in OF_PROCESS.iterdir()]
    except OSError as error:
        if not lacks_descriptor(error):
            raise
        return range(descriptors.number_limit())


def cut_connections(port: int) -> int:
    """Shut down every connection of this process whose local port is ``port``; how many.

    pyarrow has no way to cancel a call from the server's side, and a handler waiting for a silent client waits for
    ever. When its connection is shut down underneath, gRPC ends the call.
    """
    number = 0
    for fd in open_descriptors():
        with suppress(OSError), borrowed(fd) as peer:  # no socket, or closed meanwhile
            if is_connection(peer, port):
                peer.shutdown(socket.SHUT_RDWR)
                number += 1
    return number


def is_connection(peer: socket.socket, port: int) -> bool:
    """Return whether this is the server's end of a connection to ``port``."""
    with suppress(OSError):
        internet = peer.family in (socket.AF_INET, socket.AF_INET6) and peer.type == socket.SOCK_STREAM
        listens = internet and peer.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return bool(internet and not listens and peer.getsockname()[1] == port)
    return False


@contextmanager
def borrowed(fd: int) -> Iterator[socket.socket]:
    """Yield the socket of a descriptor, by a copy if a descriptor is free for one. Raises OSError: none."""
    copy = -1
    with suppress(OSError):
        copy = os.dup(fd)
    try:
        borrowed = socket.socket(fileno=fd if copy < 0 else copy)
        try:
            yield borrowed
        finally:
            borrowed.detach()
    finally:
        if copy >= 0:
            os.close(copy)


def inode_of(fd: int) -> int:
    """Return what tells a socket from a later one with the same number."""
    return os.fstat(fd).st_ino


def received_bytes(fd: int) -> int:
    """Return the bytes received on a TCP socket; 1: unknown, so that nothing counts as silent or large."""
    return _tcp_info(fd, _RECEIVED)


def taken_bytes(fd: int) -> int:
    """Bytes that the other end has taken of a TCP socket; 1 where the system does not say."""
    return _tcp_info(fd, _TAKEN)


def _tcp_info(fd: int, field: struct.Struct) -> int:
    if sys.platform != "linux":
        return 1
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fd)
    try:
        info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return int(field.unpack(info)[0]) if len(info) == _TCP_INFO_BYTES else 1
    finally:
        borrowed.detach()
