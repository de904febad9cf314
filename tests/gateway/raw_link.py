"""A gateway's connection by hand: for what a worker never sends."""

from __future__ import annotations

import json
import secrets
from types import TracebackType
from typing import Any

from tarry.fronts.gateway.remote.link import greeting
from tarry.link.blocking import connect
from tarry.link.frames import CONTROL, LINK, FrameKind, frame, hello_frame
from tests.link.raw_client import read_frame

WAIT_S = 15.0


def hello(kind: str, worker: str, front: str, name: str) -> bytes:
    """Return the frame with which a connection begins."""
    return b"".join(hello_frame(greeting(kind, worker, front, name)))


class RawLink:
    """Has greeted the broker, unless ``hello`` is False."""

    def __init__(self, address: str, *, hello: bool = True) -> None:
        self._address = address
        self._worker = secrets.token_hex(8)
        self._connection = self._open(LINK) if hello else connect(address, WAIT_S)

    def _open(self, kind: str) -> Any:
        connection = connect(self._address, WAIT_S)
        connection.sendall(hello(kind, self._worker, "rocketmq", "raw"))
        assert read_frame(connection)[0] == FrameKind.WELCOME
        return connection

    def send(self, *parts: bytes) -> None:
        self._connection.sendall(b"".join(parts))

    def read_until(self, kind: FrameKind) -> bytes:
        """The payload of the next frame of a kind."""
        while True:
            read, _, payload = read_frame(self._connection)
            if read == kind:
                return payload

    def group(self, topic: str, name: str) -> int:
        """The number of a group, which is made if it is new."""
        with self._open(CONTROL) as control:
            asked = json.dumps({"topic": topic, "group": name, "create": True}).encode()
            control.sendall(b"".join(frame(FrameKind.GROUP, 1, asked)))
            number: int = json.loads(read_frame(control)[2])["number"]
            return number

    def wait_closed(self) -> None:
        """Until the broker has hung up."""
        try:
            while self._connection.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass

    def __enter__(self) -> RawLink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()
