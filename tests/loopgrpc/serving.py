"""A server with a method of each kind: on a loop of its own thread for clients that block, or on the test's loop."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvloop

from loopgrpc import (
    Bidi,
    Call,
    ClientStream,
    GrpcError,
    GrpcServer,
    Handler,
    Limits,
    Promise,
    Responses,
    ServerStream,
    StatusCode,
    Unary,
    assembled,
    framed,
)


class Service:
    """What the methods of ``/test.Test`` do, and what they saw."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ended: list[Call] = []
        self.cancelled: list[str] = []
        self.yielded = 0
        self.summed_bytes = 0
        self.release: asyncio.Event | None = None
        self.promises: list[asyncio.Future[bytes]] = []
        self.pieces: list[Promise] = []

    def handlers(self) -> dict[str, Handler]:
        methods: dict[str, Handler] = {
            "Echo": Unary(self.echo),
            "Promise": Unary(self.promise),
            "Later": Unary(self.later),
            "Wait": Unary(self.wait),
            "Fail": Unary(self.fail),
            "Abort": Unary(self.abort),
            "Detail": Unary(self.detail),
            "Wrong": Unary(lambda message, call: "text"),  # type: ignore[arg-type,return-value]
            "Metadata": Unary(self.metadata),
            "Big": Unary(lambda message, call: bytes(int(message))),
            "Count": ServerStream(self.count),
            "Endless": ServerStream(self.endless),
            "Piece": ServerStream(lambda message, call: message),
            "Assembled": ServerStream(
                lambda message, call: assembled([message[:1], memoryview(message)[1:], bytearray(b"!")])
            ),
            "Pieces": ServerStream(lambda message, call: framed([message, b"", message])),
            "PiecesLater": ServerStream(lambda message, call: self.soon(framed([message, b"", message]))),
            "StreamLater": ServerStream(lambda message, call: self.soon(self.count(message, call))),
            "Awaited": ServerStream(self.awaited),
            "AwaitedChat": Bidi(self.awaited),
            "NoPiece": ServerStream(lambda message, call: self.soon("text")),  # type: ignore[arg-type]
            "PieceKept": ServerStream(lambda message, call: self.kept(message)),
            "PromisedPiece": ServerStream(self.promise_piece),
            "EchoLater": Unary(lambda message, call: self.soon(message)),
            "EchoKept": Unary(lambda message, call: self.kept(message)),
            "Sum": ClientStream(self.sum),
            "First": ClientStream(self.first),
            "Gather": ClientStream(self.gather),
            "Chat": Bidi(self.chat),
        }
        return {f"/test.Test/{name}": handler for name, handler in methods.items()}

    def _seen(self, call: Call) -> None:
        self.calls.append(call)
        call.on_done(self.ended.append)

    def echo(self, message: bytes, call: Call) -> bytes:
        self._seen(call)
        return message

    def promise(self, message: bytes, call: Call) -> asyncio.Future[bytes]:
        """A Future that the test fulfils, or the loop soon for ``b"soon"``."""
        self._seen(call)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.promises.append(future)
        if message == b"soon":
            loop.call_soon(future.set_result, message)
        return future

    def soon(self, answers: Responses) -> Promise:
        """A promise that is kept in the loop's next turn."""
        promise = Promise()
        asyncio.get_running_loop().call_soon(promise.set_result, answers)
        return promise

    def kept(self, answers: Responses) -> Promise:
        """One that was kept before anybody could wait."""
        promise = Promise()
        promise.set_result(answers)
        return promise

    def promise_piece(self, message: bytes, call: Call) -> Promise:
        """One that the test keeps."""
        self._seen(call)
        self.pieces.append(Promise())
        return self.pieces[-1]

    async def later(self, message: bytes, call: Call) -> bytes:
        self._seen(call)
        await asyncio.sleep(0)
        return message

    async def wait(self, message: bytes, call: Call) -> bytes:
        """Waits until the test lets go."""
        self._seen(call)
        if self.release is None:
            self.release = asyncio.Event()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append("Wait")
            raise
        return message

    async def fail(self, message: bytes, call: Call) -> bytes:
        raise ZeroDivisionError("a secret")

    def abort(self, message: bytes, call: Call) -> bytes:
        call.set_trailing_metadata({"why": "because", "raw-bin": b"\0\xff"})
        raise GrpcError(StatusCode.NOT_FOUND, "nö: 100 %\n")

    def detail(self, message: bytes, call: Call) -> bytes:
        call.set_trailing_metadata({"why": "replaced"})
        raise GrpcError(StatusCode.UNKNOWN, "no", {"code": "5", "grpc-status-details-bin": b"\0detail"})

    def metadata(self, message: bytes, call: Call) -> bytes:
        self._seen(call)
        trailing: dict[str, str | bytes] = {"text": call.metadata.get("text", "")}
        if raw := call.binary("raw-bin"):
            trailing["raw-bin"] = b"|".join(raw)
        call.set_trailing_metadata(trailing)
        return f"{call.method} {call.peer}".encode()

    async def count(self, message: bytes, call: Call) -> AsyncIterator[bytes]:
        for number in range(int(message)):
            yield b"%d" % number

    async def awaited(self, asked: Any, call: Call) -> Responses:
        """Gives ``b"?"`` back in one piece, else counts to what is asked."""
        message = asked if isinstance(asked, bytes) else await anext(asked)
        return message if message == b"?" else self.count(message, call)

    async def endless(self, message: bytes, call: Call) -> AsyncIterator[bytes]:
        """Yields ``message`` for ever, or as many bytes as it says, and counts."""
        self._seen(call)
        answer = bytes(int(message)) if message.isdigit() else message
        try:
            while True:
                self.yielded += 1
                yield answer
        finally:
            self.cancelled.append("Endless")

    async def sum(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        total = 0
        async for message in messages:
            total += len(message)
        return b"%d" % total

    async def first(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        async for message in messages:
            return message
        return b"none"

    async def gather(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        """Takes a message only when the test lets go."""
        self._seen(call)
        if self.release is None:
            self.release = asyncio.Event()
        await self.release.wait()
        async for message in messages:
            self.summed_bytes += len(message)
        return b"%d" % self.summed_bytes

    async def chat(self, messages: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        self._seen(call)
        try:
            async for message in messages:
                if message == b"fail":
                    raise GrpcError(StatusCode.ABORTED, "as the client wants it")
                yield message.upper()
        finally:
            self.cancelled.append("Chat" if call.cancelled else "Chat, not cancelled")


class Served:
    """A server on its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: GrpcServer, service: Service) -> None:
        self.loop, self.server, self.service = loop, server, service
        self.address = f"localhost:{server.port}"

    def do(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine on the server's loop."""

        async def run() -> Any:
            return await function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)


@contextmanager
def in_thread(
    *, fast: bool = True, tls: ssl.SSLContext | None = None, limits: Limits | None = None
) -> Iterator[Served]:
    """A server on a loop of its own thread: uvloop's if ``fast``."""
    loop = uvloop.new_event_loop() if fast else asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    service = Service()
    server = GrpcServer(service.handlers(), "127.0.0.1", 0, tls=tls, limits=limits)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield Served(loop, server, service)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(0), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@asynccontextmanager
async def serving(
    *,
    tls: ssl.SSLContext | None = None,
    handlers: dict[str, Handler] | None = None,
    **limits: Any,
) -> AsyncIterator[tuple[GrpcServer, Service]]:
    """A server on the running loop, with ``limits``."""
    service = Service()
    server = GrpcServer(handlers or service.handlers(), "127.0.0.1", 0, tls=tls, limits=Limits(**limits))
    await server.start()
    try:
        yield server, service
    finally:
        await server.stop(0)


def pass_time(server: GrpcServer, seconds: float) -> None:
    """Check all connections as if so much time had passed."""
    server.check_timeouts(asyncio.get_running_loop().time() + seconds)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for what will be so; the test's timeout is what ends it else."""
    while not condition():
        await asyncio.sleep(0.001)
