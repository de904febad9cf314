"""The HTTP client of pushes, against a server that says what a test wants, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tarry.base.addresses import AddressPolicy
from tarry.outbound import client as client_module
from tarry.outbound.client import HttpClient
from tarry.outbound.connection import HttpAnswer, HttpTarget

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
Serve = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Called for each connection, with its number."""


async def request_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of one request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    return head, await reader.readexactly(length)


def run(serve: Serve, use: Callable[[HttpClient, str], Awaitable[None]]) -> int:
    """Use a client with the URL of such a server; how many connections there were."""
    count = 0

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        try:
            await serve(count, reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        client = HttpClient(AddressPolicy.of("127.0.0.0/8", ""), None)
        host, port = server.sockets[0].getsockname()
        try:
            await use(client, f"http://{host}:{port}")
        finally:
            await client.close()
            server.close()

    asyncio.run(main())
    return count


def answers_to(*parts: bytes, wanted: int = 1) -> tuple[list[HttpAnswer], int]:
    """What became of requests that were answered with these bytes, one write each; and the number of connections."""
    answers: list[HttpAnswer] = []
    written = asyncio.Event()

    async def serve(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.005)  # so that they are not read together
            finally:
                written.set()
            if b"close" in parts[0].lower():
                return

    async def use(client: HttpClient, url: str) -> None:
        for _ in range(wanted):
            written.clear()
            answers.append(await client.send(HttpTarget(url), {}, b"x", 5.0))
            await written.wait()  # the next request comes after all of it
            await asyncio.sleep(0.005)

    return answers, run(serve, use)


def test_what_is_sent() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def serve(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await request_of(reader))
            writer.write(NO_CONTENT)

    async def use(client: HttpClient, url: str) -> None:
        for path in ("", "/a%20b?x=1&y", "?q"):
            answer = await client.send(HttpTarget(url + path), {"a": "1", "webhook-id": "2"}, b"\x00body", 5.0)
            assert answer == HttpAnswer(204)
        place = url.removeprefix("http://").encode()
        for path, (head, body) in zip((b"/", b"/a%20b?x=1&y", b"/?q"), seen, strict=True):
            assert body == b"\x00body"
            assert head == (
                b"POST " + path + b" HTTP/1.1\r\nhost: " + place + b"\r\na: 1\r\nwebhook-id: 2\r\n"
                b"content-length: 5\r\n\r\n"
            )

    assert run(serve, use) == 1


@pytest.mark.parametrize(
    ("parts", "answer", "is_kept"),
    [
        ([NO_CONTENT], HttpAnswer(204), True),
        ([b"HTTP/1.1 200 OK\r\nContent-", b"Length: 4\r\n\r\nab", b"cd"], HttpAnswer(200, content=b"abcd"), True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", NO_CONTENT], HttpAnswer(204), True),
        ([b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n" + NO_CONTENT], HttpAnswer(204), True),
        (
            [b"HTTP/1.1 503 x\r\nretry-after: 7\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n", b"0\r\n\r\n"],
            HttpAnswer(503, content=b"ab", retry_after="7"),
            True,
        ),
        (
            [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"until the end"],
            HttpAnswer(200, content=b"until the end"),
            False,
        ),
        ([b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"], HttpAnswer(200, content=b"x"), False),
        ([NO_CONTENT + NO_CONTENT], HttpAnswer(204), False),
        ([NO_CONTENT, NO_CONTENT], HttpAnswer(204), False),
        ([b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"], HttpAnswer(101), False),
        (
            [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"y" * 1_000_000],
            HttpAnswer(200, content=b"y" * 2048),
            False,
        ),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], HttpAnswer(200), False),
    ],
)
def test_answers(parts: list[bytes], answer: HttpAnswer, is_kept: bool) -> None:
    answers, connections = answers_to(*parts, wanted=3)
    assert answers == [answer] * 3
    assert connections == (1 if is_kept else 3)


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n", "more than 65536 bytes of headers"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", "more than 65536 bytes of headers"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, "more than 65536 bytes of headers"),
        (b"220 mail.example ESMTP\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "no HTTP"),
    ],
)
def test_what_is_no_answer(part: bytes, error: str) -> None:
    [answer], _ = answers_to(part)
    assert answer.status is None
    assert error in str(answer.error)


def test_a_kept_connection_that_is_closed_while_it_is_used_again_is_no_failure() -> None:
    async def serve(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(NO_CONTENT)
        await request_of(reader)  # the second one on it gets no answer

    async def use(client: HttpClient, url: str) -> None:
        for _ in range(4):
            assert (await client.send(HttpTarget(url), {}, b"", 5.0)).status == 204

    assert run(serve, use) == 4


def test_a_receiver_that_closes_in_the_midst_of_an_answer_is_a_failure() -> None:
    async def serve(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(NO_CONTENT)
        await request_of(reader)
        writer.write(b"HTTP/1.1 2")

    async def use(client: HttpClient, url: str) -> None:
        assert (await client.send(HttpTarget(url), {}, b"", 5.0)).status == 204
        second = await client.send(HttpTarget(url), {}, b"", 5.0)
        assert second == HttpAnswer(None, "the connection was closed before an answer")

    assert run(serve, use) == 1


def test_time_is_over_before_an_answer_and_in_the_midst_of_its_body() -> None:
    async def serve(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        if number == 2:
            writer.write(b"HTTP/1.1 500 x\r\nContent-Length: 9\r\n\r\nab")
        await reader.read()  # until the client closes it

    async def use(client: HttpClient, url: str) -> None:
        assert await client.send(HttpTarget(url), {}, b"", 0.1) == HttpAnswer(None, "no answer within 0.1 s")
        assert await client.send(HttpTarget(url), {}, b"", 0.1) == HttpAnswer(500, content=b"ab")

    assert run(serve, use) == 2


def test_connections_that_are_idle_for_long_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "IDLE_S", 0.02)
    closed = asyncio.Event()

    async def serve(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(NO_CONTENT)
        assert await reader.read() == b""
        closed.set()

    async def use(client: HttpClient, url: str) -> None:
        assert (await client.send(HttpTarget(url), {}, b"", 5.0)).status == 204
        await asyncio.wait_for(closed.wait(), 30)

    assert run(serve, use) == 1


def test_a_header_of_two_lines_is_never_sent() -> None:
    async def serve(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    async def use(client: HttpClient, url: str) -> None:
        answer = await client.send(HttpTarget(url), {"a": "1\r\nb: 2"}, b"", 5.0)
        assert answer == HttpAnswer(None, "a header has more than one line")

    assert run(serve, use) == 0
