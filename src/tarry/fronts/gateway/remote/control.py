"""Questions that a thread waits for: sent on a connection of their own, from any thread.

The caller blocks until the answer is there. The front's loop does so, too, for rare questions that have to be answered
before it can go on (a group that it does not know yet); all calls of each message go over the link.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from typing import Any

from tarry.api.wire import decode_error, decode_json
from tarry.base.endpoint import parse_address, socket_path
from tarry.base.errors import ClosedError, TarryError, UnavailableError
from tarry.fronts.gateway.authentication import Trust
from tarry.link.frames import CONTROL, HEAD, FrameKind, frame, hello_frame, keep_alive

log = logging.getLogger(__name__)

CONNECT_S = 5.0
ANSWER_S = 30.0


def connect(address: str, timeout_s: float = CONNECT_S) -> socket.socket:
    """Connect to a broker's gateway address.

    Raises:
        UnavailableError: there is none.
    """
    path = socket_path(address)
    try:
        if path is None:
            host, port = parse_address(address)
            connection = socket.create_connection((host.strip("[]"), port), timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
            return connection
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(path)
        except OSError:
            connection.close()
            raise
    except OSError as error:
        raise UnavailableError(f"no broker at {address}: {error.strerror or error}") from error
    return connection


def host_of(address: str) -> str:
    """Return the host that a broker's certificate has to name."""
    return parse_address(address)[0].strip("[]")


def greeting(kind: str, worker: str, front: str, name: str) -> dict[str, Any]:
    """Return the fields of the greeting with which a connection begins."""
    return {"as": kind, "worker": worker, "front": front, "name": name}


def hello(kind: str, worker: str, front: str, name: str) -> bytes:
    """Return the frame with which a connection begins."""
    return b"".join(hello_frame(greeting(kind, worker, front, name)))


class Control:
    """Connections for questions, made as they are needed, and kept. Any thread."""

    def __init__(self, address: str, worker: str, front: str, trust: Trust) -> None:
        self._address = address
        self._worker, self._front, self._trust = worker, front, trust
        self._lock = threading.Lock()
        self._free: list[socket.socket] = []
        self._closed = False

    def ask(self, kind: FrameKind, *payload: bytes) -> tuple[int, memoryview]:
        """Send a frame, and wait for its answer; return its kind and payload.

        Raises:
            TarryError: the broker refused. UnavailableError: there is no answer; what was asked for may have been done.
        """
        connection = self._take()
        try:
            connection.sendall(b"".join(frame(kind, 1, *payload)))
            kind_of_answer, answer = _read(connection)
        except OSError as error:
            connection.close()
            raise UnavailableError(f"no answer from the broker at {self._address}: {error}") from error
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._free.append(connection)
        if kind_of_answer == FrameKind.REFUSED:
            raise decode_error(bytes(answer))
        return kind_of_answer, answer

    def greet(self) -> dict[str, Any]:
        """Greet the broker anew; return its description of itself."""
        connection, welcome = self._open()
        with self._lock:
            self._free.append(connection)
        return welcome

    def close(self) -> None:
        """Refuse all questions from now on."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def _take(self) -> socket.socket:
        with self._lock:
            if self._closed:
                raise ClosedError("the link to the broker is closed")
            if self._free:
                return self._free.pop()
        return self._open()[0]

    def _open(self) -> tuple[socket.socket, dict[str, Any]]:
        """Open a connection; return it with the broker's description of itself."""
        connection = connect(self._address)
        try:
            if self._trust.tls is not None:
                connection = self._trust.tls.wrap_socket(connection, server_hostname=host_of(self._address))
            connection.settimeout(ANSWER_S)
            connection.sendall(hello(CONTROL, self._worker, self._front, ""))
            kind, answer = _read(connection)
            if kind == FrameKind.CHALLENGE:
                connection.sendall(b"".join(frame(FrameKind.PROOF, 0, self._trust.proof(bytes(answer)))))
                kind, answer = _read(connection)
            if kind != FrameKind.WELCOME:
                raise (
                    decode_error(bytes(answer))
                    if kind == FrameKind.REFUSED
                    else TarryError(f"an answer of kind {kind}")
                )
            welcome: dict[str, Any] = decode_json(bytes(answer))
        except OSError as error:
            connection.close()
            raise UnavailableError(f"no answer from the broker at {self._address}: {error}") from error
        except BaseException:
            with suppress(OSError):
                connection.close()
            raise
        return connection, welcome


def _read(connection: socket.socket) -> tuple[int, memoryview]:
    length, kind, _ = HEAD.unpack(_exactly(connection, HEAD.size))
    return kind, memoryview(_exactly(connection, length))


def _exactly(connection: socket.socket, length: int) -> bytes:
    received = bytearray(length)
    view = memoryview(received)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError("the connection was closed")
        view = view[count:]
    return bytes(received)
