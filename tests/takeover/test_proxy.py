"""The proxy: what it passes, and each of its faults; with a small server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.takeover.proxy import Faults, Proxy, Side
from tests.waiting import wait_until_async


class Upstream:
    """Objects by path. A PUT of one that is there is answered by 412."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, _ = head.decode().split(" ", 2)
                length = [line for line in head.decode().split("\r\n") if line.startswith("Content-Length: ")]
                body = await reader.readexactly(int(length[0].split()[1]) if length else 0)
                self.requests.append(f"{method} {path}")
                writer.write(self.answer(method, path, body))
        except asyncio.IncompleteReadError:
            writer.close()

    def answer(self, method: str, path: str, body: bytes) -> bytes:
        if method == "PUT":
            if path in self.objects:
                return b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"
            self.objects[path] = body
            return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        if path not in self.objects:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n" + (b"" if method == "HEAD" else b"none")
        content = self.objects[path]
        if method == "HEAD":
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content)
        half = len(content) // 2
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (content[:half], content[half:]) if part)
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


class Connection:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, method: str, path: str, body: bytes = b"") -> int | None:
        """The status, or None where the connection was closed in its place."""
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        try:
            answer = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.body = b""
        if method != "HEAD":
            self.body = await self._read_body(answer)
        return int(answer.split()[1])

    async def _read_body(self, head: bytes) -> bytes:
        if b"chunked" not in head:
            length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
            return await self._reader.readexactly(int(length.split()[1]))
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()
        return body

    def close(self) -> None:
        self._writer.close()


class Place:
    """A proxy before an upstream, and connections to it."""

    def __init__(self) -> None:
        self.upstream = Upstream()
        self.connections: list[Connection] = []

    async def connect(self) -> Connection:
        host, port = self.proxy.address.split(":")
        self.connections.append(Connection(*await asyncio.open_connection(host, int(port))))
        return self.connections[-1]

    async def ask(self, method: str, path: str, body: bytes = b"") -> int | None:
        return await (await self.connect()).ask(method, path, body)

    @asynccontextmanager
    async def running(self, faults: Faults) -> AsyncIterator[Place]:
        server = await asyncio.start_server(self.upstream.serve, "127.0.0.1", 0)
        self.proxy = Proxy(
            "{}:{}".format(*server.sockets[0].getsockname()[:2]), 1, faults, lambda request: request.target[1:2]
        )
        await self.proxy.start()
        try:
            yield self
        finally:
            await self.proxy.close()
            for connection in self.connections:
                connection.close()
            server.close()


def run(case: Callable[[Place], Awaitable[None]], **faults: float) -> None:
    async def whole() -> None:
        async with Place().running(Faults(**faults)) as place:  # type: ignore[arg-type]
            await asyncio.wait_for(case(place), 60)

    asyncio.run(whole())


def test_it_passes_what_is_said_and_counts_it() -> None:
    async def case(place: Place) -> None:
        connection, content = await place.connect(), bytes(range(256)) * 1000
        assert await connection.ask("PUT", "/a/1", content) == 200
        assert await connection.ask("PUT", "/a/1", b"") == 412
        assert await connection.ask("GET", "/a/1") == 200
        assert connection.body == content
        assert await connection.ask("HEAD", "/a/1") == 200
        assert await connection.ask("GET", "/a/2") == 404
        assert connection.body == b"none"
        assert await connection.ask("HEAD", "/a/2") == 404
        assert await connection.ask("GET", "/b?list-type=2&prefix=x") == 404
        assert await connection.ask("POST", "/b?delete", b"<Delete/>") == 404
        assert place.proxy.counts == {"PUT a": 2, "GET a": 2, "HEAD a": 2, "LIST b": 1, "DELETE b": 1}
        assert not place.proxy.injected

    run(case)


def test_503_and_a_lost_answer_come_after_success() -> None:
    async def case(place: Place) -> None:
        assert await place.ask("PUT", "/1", b"x") == 503
        assert await place.ask("HEAD", "/1") == 503
        place.proxy.faults = Faults(lost_after=1.0)
        assert await place.ask("PUT", "/2", b"y") is None
        assert place.upstream.objects == {"/1": b"x", "/2": b"y"}
        assert place.proxy.injected == {"error_after": 2, "lost_after": 1}

    run(case, error_after=1.0)


def test_a_conflict_is_not_carried_out() -> None:
    async def case(place: Place) -> None:
        connection = await place.connect()
        assert await connection.ask("PUT", "/1", b"x") == 409
        assert await connection.ask("GET", "/1") == 404, "the connection goes on"
        assert place.upstream.objects == {}

    run(case, conflict=1.0)


def test_a_late_put_arrives_when_its_client_has_gone() -> None:
    async def case(place: Place) -> None:
        place.proxy.cut(Side.REQUESTS)
        assert await place.ask("PUT", "/1", b"x") is None
        assert place.upstream.objects == {}
        place.proxy.heal()
        await wait_until_async(lambda: place.upstream.objects == {"/1": b"x"})

    run(case, late_put=1.0, late_s=0.0)


def test_a_late_answer_is_of_before() -> None:
    async def case(place: Place) -> None:
        late = asyncio.create_task(place.ask("HEAD", "/1"))
        await wait_until_async(lambda: place.upstream.requests == ["HEAD /1"])
        assert await place.ask("PUT", "/1", b"x") == 200
        assert await late == 404

    run(case, late_read=1.0, late_s=1.0)


@pytest.mark.parametrize("side", [Side.REQUESTS, Side.ANSWERS, None])
def test_what_was_cut_off_goes_on_afterwards(side: Side | None) -> None:
    async def case(place: Place) -> None:
        connection, gone = await place.connect(), await place.connect()
        place.proxy.cut(*([side] if side else []))
        tasks = [asyncio.create_task(connection.ask("PUT", "/1", b"x")), asyncio.create_task(gone.ask("PUT", "/2"))]
        await wait_until_async(lambda: place.proxy.counts.total() == 2)
        arrived = side is Side.ANSWERS
        if arrived:
            await wait_until_async(lambda: set(place.upstream.objects) == {"/1", "/2"})
        gone.close()
        assert not tasks[0].done()
        assert set(place.upstream.objects) == ({"/1", "/2"} if arrived else set())
        place.proxy.heal()
        assert await tasks[0] == 200
        await wait_until_async(lambda: set(place.upstream.objects) == {"/1", "/2"})
        await asyncio.gather(*tasks)

    run(case)


def test_faults_come_by_seed() -> None:
    async def drawn(seed: int) -> list[int | None]:
        place = Place()
        async with place.running(Faults()):
            proxy = Proxy(place.proxy.address, seed, Faults(delays_ms=(0.0, 0.5), conflict=0.3, error_after=0.3))
            await proxy.start()
            place.proxy, inner = proxy, place.proxy
            answers = [await place.ask("PUT", f"/{number}") for number in range(30)]
            place.proxy = inner
            await proxy.close()
            return answers

    async def whole() -> None:
        first = await drawn(1)
        assert set(first) == {200, 409, 503}
        assert await drawn(1) == first
        assert await drawn(2) != first

    asyncio.run(whole())


def test_a_client_and_a_server_that_go_are_fine() -> None:
    async def case(place: Place) -> None:
        (await place.connect()).close()
        half = await place.connect()
        half._writer.write(b"PUT /1 HTT")  # noqa: SLF001 - half a request
        half.close()
        place.proxy._upstream = ("127.0.0.1", 1)  # noqa: SLF001 - nobody listens there
        assert await place.ask("GET", "/1") is None
        assert place.proxy.counts == {"GET 1": 1}

    run(case)
