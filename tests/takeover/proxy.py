"""A proxy of HTTP/1.1 before a server of the S3 protocol, with faults: one for each owner of a log.

Each connection of a client has one to the server. A request is read whole, carried out, and answered whole; between
these three steps lie the faults, drawn from a seed. All of them may be changed while it runs.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import parse_qs, urlsplit

HEAD_BYTES_MAX = 1 << 20
"""The most bytes of a line or a head that are read."""


@dataclass
class Faults:
    """Rates between 0 and 1, and times. As it is made, nothing is changed but by ``delays_ms``."""

    delays_ms: tuple[float, ...] = (0.0,)
    """Each request takes one of these longer, half of it before it is carried out."""
    error_after: float = 0.0
    """It is carried out, and answered by 503."""
    lost_after: float = 0.0
    """It is carried out, and the connection is closed without an answer."""
    conflict: float = 0.0
    """PUT: it is not carried out, and answered by 409."""
    late_put: float = 0.0
    """PUT: the connection is closed without an answer, and up to ``late_s`` later it is carried out."""
    late_read: float = 0.0
    """GET and HEAD: it is carried out, and answered up to ``late_s`` later."""
    late_s: float = 5.0


class Side(Enum):
    """Direction that :meth:`Proxy.cut` holds up."""

    REQUESTS = "requests"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its head and body as they came."""

    method: str
    target: str
    head: bytes
    body: bytes

    @property
    def kind(self) -> str:
        """Kind as object stores bill them: PUT, LIST, GET, HEAD, DELETE, POST."""
        query = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        if self.method == "GET" and ("list-type" in query or "prefix" in query):
            return "LIST"
        return "DELETE" if self.method == "POST" and "delete" in query else self.method


class Proxy:
    """Proxy of one owner. Everything is called on the event loop that it was started on."""

    def __init__(
        self, upstream: str, seed: int, faults: Faults | None = None, label: Callable[[Request], str] = lambda _: ""
    ) -> None:
        """Make a proxy before ``upstream`` (HOST:PORT).

        ``label``: what :attr:`counts` says of a request beside its kind.
        """
        host, _, port = upstream.rpartition(":")
        self._upstream = host, int(port)
        self._rng, self._label = random.Random(seed), label
        self.faults = faults or Faults()
        self.counts: Counter[str] = Counter()
        """Requests that came, by kind."""
        self.injected: Counter[str] = Counter()
        """Faults, by the name of their rate."""
        self._ways = {side: asyncio.Event() for side in Side}
        self.heal()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = ""
        """HOST:PORT, once it was started."""

    async def start(self) -> None:
        """Listen at a free port of 127.0.0.1."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """End all connections. PUTs that are late arrive no more."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, *sides: Side) -> None:
        """Hold up requests, answers, or, without a side, both, until :meth:`heal`.

        As where packets are lost: connections stay, and nothing is said. What was held up goes on afterwards, also a
        request whose client has given up.
        """
        for side in sides or Side:
            self._ways[side].clear()

    def heal(self) -> None:
        """Let everything pass again."""
        for way in self._ways.values():
            way.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._serve(reader, writer))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = _Server(*self._upstream)
        try:
            while (request := await _read_request(reader)) is not None:
                self.counts[" ".join(filter(None, (request.kind, self._label(request))))] += 1
                if (answer := await self._pass(request, server)) is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return  # either side has gone
        finally:
            server.close()
            writer.close()

    async def _pass(self, request: Request, server: _Server) -> bytes | None:
        """Carry a request out. None: its connection is closed without an answer."""
        faults = self.faults
        delay_s = self._rng.choice(faults.delays_ms) / 1000
        await asyncio.sleep(delay_s / 2)
        if request.method == "PUT" and self._draw("late_put", faults.late_put):
            self._spawn(self._arrive_late(request))
            return None
        await self._ways[Side.REQUESTS].wait()
        if request.method == "PUT" and self._draw("conflict", faults.conflict):
            return _refusal(409, "Conflict", "ConditionalRequestConflict")
        answer = await server.ask(request)
        if request.method in ("GET", "HEAD") and self._draw("late_read", faults.late_read):
            await asyncio.sleep(faults.late_s * self._rng.random())
        await asyncio.sleep(delay_s / 2)
        await self._ways[Side.ANSWERS].wait()
        if self._draw("lost_after", faults.lost_after):
            return None
        if self._draw("error_after", faults.error_after):
            return _refusal(503, "Service Unavailable", "SlowDown", has_body=request.method != "HEAD")
        return answer

    async def _arrive_late(self, request: Request) -> None:
        await asyncio.sleep(self.faults.late_s * self._rng.random())
        await self._ways[Side.REQUESTS].wait()
        server = _Server(*self._upstream)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await server.ask(request)
        finally:
            server.close()

    def _draw(self, name: str, rate: float) -> bool:
        if self._rng.random() >= rate:
            return False
        self.injected[name] += 1
        return True


class _Server:
    """A connection to the server, made with the first request."""

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> bytes:
        """Send a request; return its answer, as it came.

        Raises:
            OSError, IncompleteReadError: there is none.
        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place, limit=HEAD_BYTES_MAX)
        reader, writer = self._streams
        writer.write(request.head + request.body)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if request.method == "HEAD" or status in (204, 304):
            return head
        return head + await _read_body(reader, head)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request; None: the client has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    return Request(method, target, head, await _read_body(reader, head))


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Return the body behind a head, as it came."""
    fields = dict(line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line)
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        parts = []
        while True:
            size = await reader.readuntil(b"\r\n")
            parts += [size, await reader.readexactly(int(size.split(b";")[0], 16) + 2)]
            if int(size.split(b";")[0], 16) == 0:
                return b"".join(parts)
    return await reader.readexactly(int(fields.get(b"content-length", b"0")))


def _refusal(status: int, reason: str, code: str, has_body: bool = True) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + (body if has_body else b"")
