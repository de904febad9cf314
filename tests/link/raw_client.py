"""A client of the link by hand, from docs/formats-link.md."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from tarry.api.row_schemas import DELIVERY
from tarry.link.frames import CLIENT, HEAD, VERSION, FrameKind, Poll, SettleFrame, SettleOp, frame

WAIT_S = 20.0
HELLO = json.dumps({"version": VERSION, "as": CLIENT}).encode()


class RefusedError(Exception):
    """A question that the broker refused."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]


class RawClient:
    """One connection. Frames that nobody has read for yet are kept."""

    def __init__(self, address: str, *, hello: bytes | None = HELLO) -> None:
        host, _, port = address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)), WAIT_S)
        self._kept: list[tuple[int, int, bytes]] = []
        self._number = 1000
        if hello is not None:
            self.send(FrameKind.HELLO, 0, hello)
            self.welcome = json.loads(self.read(FrameKind.WELCOME, 0))

    def send(self, kind: int, number: int, *payload: bytes) -> None:
        self.connection.sendall(b"".join(frame(FrameKind(kind), number, *payload)))

    def send_bytes(self, data: bytes) -> None:
        self.connection.sendall(data)

    def read(self, kind: FrameKind, number: int) -> bytes:
        """Return the payload of the next frame of that kind and number."""
        for at, (kept, of, payload) in enumerate(self._kept):
            if (kept, of) == (kind, number):
                del self._kept[at]
                return payload
        while True:
            read = self._read()
            if read[:2] == (kind, number):
                return read[2]
            if read[0] == FrameKind.REFUSED and read[1] == number:
                raise RefusedError(json.loads(read[2]))
            self._kept.append(read)

    def ask(self, kind: FrameKind, answer: FrameKind, *payload: bytes) -> bytes:
        self._number += 1
        self.send(kind, self._number, *payload)
        return self.read(answer, self._number)

    def schedule(self, **columns: Sequence[Any] | pa.Array) -> int:
        """Schedule rows; the seq of the first."""
        return self.submit(stream_of(pa.record_batch(columns)))

    def submit(self, stream: bytes) -> int:
        answer = self.ask(FrameKind.SUBMIT, FrameKind.ACCEPTED, stream)
        seq: int = struct.unpack_from("<q", answer, 5)[0]
        return seq

    def call(self, op: str, **fields: Any) -> Any:
        return json.loads(self.ask(FrameKind.CALL, FrameKind.RESULT, json.dumps({"op": op, **fields}).encode()))

    def group(self, topic: str, name: str, **fields: Any) -> int:
        asked = json.dumps({"topic": topic, "group": name, **fields}).encode()
        number: int = json.loads(self.ask(FrameKind.GROUP, FrameKind.RESULT, asked))["number"]
        return number

    def poll(self, consumer: int, group: int, rows_max: int = 100, lease_ms: int = 0, prefetch: int = 1000) -> None:
        self.send(FrameKind.POLL, consumer, Poll(group, prefetch, lease_ms, rows_max).encode())

    def batch(self, consumer: int) -> pa.RecordBatch:
        """Return the next batch of a consumer."""
        payload = self.read(FrameKind.BATCH, consumer)
        return pa.ipc.read_record_batch(pa.py_buffer(payload[4:]), DELIVERY)

    def polled(self, consumer: int) -> str:
        """Return the code for which a poll got nothing; empty: there is none."""
        said = self.read(FrameKind.POLLED, consumer)
        return json.loads(said)["code"] if said else ""

    def begin_receive(self, number: int, topic: str, group: str, **fields: Any) -> None:
        self.send(FrameKind.RECEIVE, number, json.dumps({"topic": topic, "group": group, **fields}).encode())

    def received(self, number: int) -> pa.Table:
        """Return the answer to a receive."""
        return pa.ipc.open_stream(self.read(FrameKind.ROWS, number)).read_all()

    def settle(self, op: SettleOp, group: int, batch: pa.RecordBatch, argument: int = 0, reason: str = "") -> bytes:
        leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
        settled = SettleFrame(op, group, argument, leases, offsets, reason or None).encode()
        return self.ask(FrameKind.SETTLE, FrameKind.SETTLED, settled)

    def ended(self) -> dict[str, str] | None:
        """Wait until the broker has hung up; return the reason that it gave."""
        reason = None
        try:
            while True:
                kind, number, payload = self._read()
                if (kind, number) == (FrameKind.REFUSED, 0):
                    reason = json.loads(payload)
        except (EOFError, ConnectionResetError):
            return reason

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> tuple[int, int, bytes]:
        return read_frame(self.connection)


def read_frame(connection: socket.socket) -> tuple[int, int, bytes]:
    """Return the kind, the number and the payload of the next frame.

    Raises:
        EOFError: the broker has hung up.
    """
    length, kind, number = HEAD.unpack(_exactly(connection, HEAD.size))
    return kind, number, _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise EOFError("the broker has hung up")
        data += more
    return bytes(data)


def stream_of(batch: pa.RecordBatch, **options: Any) -> bytes:
    """Return an Arrow stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
