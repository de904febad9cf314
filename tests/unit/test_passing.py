"""Connections that a worker passes on: to the protocol they are the client's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import UnavailableError
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.passing import Origin, pass_on, passed
from tarry.fronts.kit.peer_proof import PeerProof

PEER, LOCAL = ("10.1.2.3", 4711), ("::1", 9876)
ORIGIN = Origin(PEER, LOCAL)
ALICE = PeerProof("certificate", "commonName=älice", ("DNS:alice.example",), ("DNS:alice.example",))


class Echo(asyncio.Protocol):
    """Answers with both ends of its connection, and with what comes."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        ends = [transport.get_extra_info(name) for name in ("peername", "sockname")]
        by_tls = transport.get_extra_info("sslcontext") is not None
        self._transport.write(repr([*ends, self._admission.principal, by_tls]).encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        if self._admission.half_open:
            self._admission.begun()
        self._transport.write(data.upper())

    def connection_lost(self, error: Exception | None) -> None:
        self._admission.released()


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost = asyncio.Event()
        self.news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.news.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()

    async def until(self, text: bytes) -> None:
        while text not in self.received:
            self.news.clear()
            await self.news.wait()


def serve(directory: Path, test: Callable[[str, Door], Awaitable[None]]) -> None:
    async def run() -> None:
        door = Door(passed(Echo), ConnectionLimits(4, 1))
        path = str(directory / "home.sock")
        await door.listen(f"unix:{path}")
        try:
            async with asyncio.timeout(20):
                await test(path, door)
        finally:
            await door.drain(0)

    asyncio.run(run())


def test_the_protocol_sees_the_clients_ends(tmp_path: Path) -> None:
    async def test(path: str, door: Door) -> None:
        client = Client()
        transport = await pass_on(path, ORIGIN, client)
        transport.write(b"hello")
        await client.until(b"HELLO")
        assert client.received.startswith(repr([PEER, LOCAL, None, False]).encode()), "not the user who has connected"
        assert len(door) == 1
        transport.close()
        await client.lost.wait()

    serve(tmp_path, test)


def test_the_principal_is_the_clients(tmp_path: Path) -> None:
    async def test(path: str, door: Door) -> None:
        client = Client()
        transport = await pass_on(path, Origin(PEER, LOCAL, ALICE, by_tls=True), client)
        await client.until(b"\n")
        assert client.received == repr([PEER, LOCAL, ALICE, True]).encode() + b"\n"
        transport.close()
        await client.lost.wait()

    serve(tmp_path, test)


def test_a_client_has_no_more_connections_than_it_may(tmp_path: Path) -> None:
    async def test(path: str, door: Door) -> None:
        first, second, other = Client(), Client(), Client()
        transport = await pass_on(path, ORIGIN, first)
        transport.write(b"hello")
        await first.until(b"HELLO")
        await pass_on(path, ORIGIN, second)
        await second.lost.wait()
        assert second.received == b""
        (await pass_on(path, Origin(("10.1.2.4", 1), LOCAL), other)).write(b"hello")
        await other.until(b"HELLO")
        transport.close()
        await first.lost.wait()
        again = Client()
        (await pass_on(path, ORIGIN, again)).write(b"hello")
        await again.until(b"HELLO")

    serve(tmp_path, test)


def test_a_line_may_come_in_parts_and_with_what_follows(tmp_path: Path) -> None:
    async def test(path: str, door: Door) -> None:
        client = Client()
        transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: client, path)
        line = ORIGIN.line()
        transport.write(line[:7])
        await asyncio.sleep(0.01)
        transport.write(line[7:] + b"rest")
        await client.until(b"REST")

    serve(tmp_path, test)


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\n",
        b"[1]\n",
        b"{}\n",
        b"\xff\n",
        b"x" * 100_000,
        b"x" * 100_000 + b"\n",
        b"[" * 50_000 + b"\n",
    ],
)
def test_who_is_no_worker_is_cut_off(tmp_path: Path, junk: bytes) -> None:
    async def test(path: str, door: Door) -> None:
        client = Client()
        transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: client, path)
        transport.write(junk)
        await client.lost.wait()
        assert client.received == b""

    serve(tmp_path, test)


def test_a_home_that_is_not_there(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(UnavailableError, match="not reached"):
            await pass_on(str(tmp_path / "none.sock"), ORIGIN, Client())

    asyncio.run(run())
