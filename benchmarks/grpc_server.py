"""loopgrpc beside grpc.aio: unary calls of 300 bytes, 64 in flight, with a handler that gives them back.

Both servers run on uvloop in processes of their own, one after the other, and are asked by the same client of raw
frames. It asks in two ways: with header blocks that are the same for each call, as a client sends them that has nothing
new to say, and as RocketMQ's Java client does, with a time and an id that change each time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import uvloop
from hpack import Encoder

from benchmarks.harness import Result, benchmark, child
from loopgrpc import GrpcServer, Unary
from loopgrpc.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    SETTINGS_ACK,
    frame,
    ping,
    settings,
    window_update,
)
from loopgrpc.framing import prefix

METHOD = "/bench.Bench/Echo"
IN_FLIGHT = 64
WARM_S, MEASURE_S = 0.5, 2.0
ROUNDS = 3
BODY = os.urandom(300)
HEADERS_OF_ALL = [
    (":method", "POST"), (":scheme", "http"), (":path", METHOD), (":authority", "localhost:8081"), ("te", "trailers"),
    ("content-type", "application/grpc"), ("user-agent", "grpc-java-netty/1.50.0"), ("x-mq-language", "JAVA"),
    ("x-mq-protocol", "v2"), ("x-mq-client-version", "5.0.7"), ("x-mq-client-id", "host@1@0@abcdef"),
    ("x-mq-namespace", ""), ("grpc-accept-encoding", "gzip"),
]  # fmt: skip


@benchmark
def grpc_server() -> list[Result]:
    """Calls a second of both, and how many times as many ours are."""
    best: dict[tuple[str, str], float] = {}
    for _ in range(ROUNDS):  # in turns: what else the machine does is then in both
        for server in ("tarry", "grpc.aio"):
            process = child("grpc_server", server)
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                for kind in ("same", "java"):
                    rate = uvloop.run(_rate(port, kind))
                    best[server, kind] = max(rate, best.get((server, kind), 0.0))
            finally:
                process.terminate()
                process.wait()
    results = []
    # The second has no bar: its client encodes in Python, and takes turns with a server that answers whole batches.
    for kind, bar, text in (
        ("same", "≥ 2", "the same headers"),
        ("java", "", "headers as RocketMQ's Java client sends"),
    ):
        ours, theirs = best["tarry", kind], best["grpc.aio", kind]
        results += [
            Result(f"gRPC server: unary, 64 in flight, {text}", ours, "calls/s"),
            Result(f"grpc.aio: unary, 64 in flight, {text}", theirs, "calls/s"),
            Result(f"gRPC server: calls/s beside those of grpc.aio, {text}", ours / theirs, "times", bar),
        ]
    return results


async def _rate(port: int, kind: str) -> float:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: _Client(loop, kind), "127.0.0.1", port)
    return await client.done


class _Client(asyncio.Protocol):
    """Keeps ``IN_FLIGHT`` calls going for ``MEASURE_S`` after ``WARM_S``; ``done`` is then the rate."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kind: str) -> None:
        self.done: asyncio.Future[float] = loop.create_future()
        self._java = kind == "java"
        self._encoder, self._stream, self._answered = Encoder(), -1, 0
        self._received, self._rest = 0, b""
        self._message = prefix(BODY)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(PREFACE + settings({4: 1 << 30}) + window_update(0, 1 << 30))
        transport.write(b"".join(self._call() for _ in range(IN_FLIGHT)))
        self._start, self._before = time.perf_counter() + WARM_S, 0

    def _call(self) -> bytes:
        self._stream += 2
        fields, n = HEADERS_OF_ALL, self._stream
        if self._java:
            changing = [
                ("x-mq-date-time", f"20261122T0142{n // 10_000 % 60:02d}Z"),
                ("x-mq-request-id", f"01c2d3e4-0000-4000-8000-{n:012d}"),
                ("grpc-timeout", f"{2_999_000 + n % 1000}u"),
            ]
            fields = [*fields, *changing]
        block = self._encoder.encode(fields, huffman=False)
        head = frame(HEADERS, END_HEADERS, self._stream, block)
        return head + frame(DATA, END_STREAM, self._stream, self._message)

    def data_received(self, data: bytes) -> None:
        data, at, out = self._rest + data, 0, []
        while len(data) - at >= 9:
            word, flags, _ = FRAME_HEADER.unpack_from(data, at)
            stop = at + 9 + (word >> 8)
            if stop > len(data):
                break
            kind = word & 0xFF
            if kind == HEADERS and flags & END_STREAM:
                self._answered += 1
                out.append(self._call())
            elif kind == DATA:
                self._received += word >> 8
            elif kind == SETTINGS and not flags & ACK:
                out.append(SETTINGS_ACK)
            elif kind == PING and not flags & ACK:
                out.append(ping(data[at + 9 : stop], ack=True))
            elif kind in (RST_STREAM, GOAWAY):
                raise RuntimeError(f"refused: {data[at:stop]!r}")
            at = stop
        self._rest = data[at:]
        if self._received > 1 << 28:
            out.append(window_update(0, self._received))
            self._received = 0
        elapsed = time.perf_counter() - self._start
        if elapsed < 0:
            self._before = self._answered
        if elapsed > MEASURE_S:
            if not self.done.done():
                self.done.set_result((self._answered - self._before) / elapsed)
            self._transport.close()
        else:
            self._transport.write(b"".join(out))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


async def _serve_tarry() -> None:
    server = GrpcServer({METHOD: Unary(lambda message, call: message)}, "127.0.0.1", 0)
    await server.start()
    print(server.port, flush=True)
    await asyncio.Event().wait()


async def _serve_grpc_aio() -> None:
    import grpc

    async def echo(message: bytes, context: object) -> bytes:
        return message

    server = grpc.aio.server()
    service, method = METHOD[1:].split("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(_serve_tarry() if sys.argv[1] == "tarry" else _serve_grpc_aio())
