"""A front's door, by real sockets on a loop of its own: bounds, TLS, sniffing, Unix sockets, drain."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from tests.loopgrpc.certificates import Certificate, make_certificate
from tests.waiting import wait_until_async

from tarry.base.descriptors import ConnectionLimits
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.first_bytes import FirstBytes
from tarry.fronts.kit.listening import listen_on
from tarry.fronts.kit.tls import ReloadedTls, TlsFiles

LIMITS = ConnectionLimits(100, 100)


class Echo(asyncio.Protocol):
    """Says who one is, or why one is refused; then what it hears."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.admission.refusal is not None:
            self.transport.write(f"refused: {self.admission.refusal}\n".encode())
            self.transport.close()
            return
        self.transport.write(f"hello {self.admission.principal}\n".encode())

    def data_received(self, data: bytes) -> None:
        if self.admission.half_open:
            self.admission.begun()
            self.admission.on_drain = lambda: self.transport.write(b"bye\n")
        self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.admission.released()


class Visitor:
    """One client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def line(self) -> str:
        """The next line; empty: the connection has ended."""
        try:
            return (await asyncio.wait_for(self.reader.readline(), 30)).decode().strip()
        except ConnectionError:
            return ""

    async def say(self, text: str) -> str:
        self.writer.write(f"{text}\n".encode())
        return await self.line()


async def visit(address: str, tls: ssl.SSLContext | None = None) -> Visitor:
    if address.startswith("unix:"):
        return Visitor(*await asyncio.open_unix_connection(address.removeprefix("unix:")))
    host, _, port = address.rpartition(":")
    return Visitor(*await asyncio.open_connection(host, int(port), ssl=tls))


def on_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(test(), 60)

    uvloop.run(run())


@pytest.fixture(params=["plain", "sniffed"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Doors that take plain clients: by asyncio's accept, and by the door's own."""
    return {} if request.param == "plain" else {"tls": ReloadedTls(files_of(make_certificate(tmp_path))), "plain": True}


def files_of(certificate: Certificate, client_ca: Path | None = None) -> TlsFiles:
    return TlsFiles(str(certificate.certificate), str(certificate.key), None if client_ca is None else str(client_ca))


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        (ConnectionLimits(2, 100), "refused: too many connections; allowed: 2"),
        (ConnectionLimits(100, 2), "refused: too many connections of 127.0.0.1; allowed: 2"),
    ],
)
def test_bounds(tls: dict[str, Any], limits: ConnectionLimits, refusal: str) -> None:
    async def test() -> None:
        door = Door(Echo, limits, half_open_max=10, **tls)
        address = await door.listen("127.0.0.1:0")
        visitors = [await visit(address) for _ in range(2)]
        for visitor in visitors:
            assert await visitor.say("a") == "hello None"
            assert await visitor.line() == "a"
        third = await visit(address)
        if tls:
            third.writer.write(b"x")
        assert await third.line() == refusal
        visitors[0].writer.close()
        await wait_until_async(lambda: len(door) == 1)
        assert await (await visit(address)).say("b") == "hello None"
        await door.drain(0)

    on_loop(test)


@pytest.mark.parametrize("exposed", [True, False])
def test_a_door_in_the_clear_for_other_machines_is_warned_of(
    tls: dict[str, Any], exposed: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.fronts.kit.door.is_exposed", lambda address: exposed)

    async def test() -> None:
        told: list[str] = []
        door = Door(Echo, LIMITS, on_clear=told.append, **tls)
        address = await door.listen("127.0.0.1:0")
        assert (f"at {address}, and clients may come there without TLS" in caplog.text) == exposed
        assert told == [address] * exposed
        await door.drain(0)

    on_loop(test)


def test_a_door_that_takes_tls_alone_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.fronts.kit.door.is_exposed", lambda address: True)

    async def test() -> None:
        door = Door(Echo, LIMITS, tls=ReloadedTls(files_of(make_certificate(tmp_path))))
        await door.listen("127.0.0.1:0")
        assert "other machines" not in caplog.text
        await door.drain(0)

    on_loop(test)


def test_a_silent_one_makes_room(tls: dict[str, Any]) -> None:
    async def test() -> None:
        door = Door(Echo, ConnectionLimits(2, 2), half_open_max=10, **tls)
        address = await door.listen("127.0.0.1:0")
        silent = await visit(address)
        await wait_until_async(lambda: len(door) == 1)
        speaking = [await visit(address) for _ in range(2)]
        assert [await each.say("a") for each in speaking] == ["hello None"] * 2
        assert await silent.line() in ("", "hello None") and await silent.line() == ""
        assert len(door) == 2
        await door.drain(0)

    on_loop(test)


def test_of_more_half_open_ones_the_oldest_is_closed(tls: dict[str, Any]) -> None:
    async def test() -> None:
        door = Door(Echo, LIMITS, half_open_max=2, **tls)
        address = await door.listen("127.0.0.1:0")
        first = await visit(address)
        await wait_until_async(lambda: len(door) == 1)
        others = [await visit(address) for _ in range(2)]
        assert await first.line() in ("", "hello None") and await first.line() == ""
        assert [await each.say("a") for each in others] == ["hello None"] * 2
        await door.drain(0)

    on_loop(test)


def test_who_says_nothing_is_closed_in_time(tls: dict[str, Any]) -> None:
    async def test() -> None:
        door = Door(Echo, LIMITS, begin_s=0.01, **tls)
        visitor = await visit(await door.listen("127.0.0.1:0"))
        assert await visitor.line() in ("", "hello None") and await visitor.line() == ""
        assert len(door) == 0
        await door.drain(0)

    on_loop(test)


def test_tls_and_plain_by_the_first_byte(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)

    async def test() -> None:
        door = Door(Echo, LIMITS, tls=ReloadedTls(files_of(certificate)), plain=True)
        address = await door.listen("127.0.0.1:0")
        assert await (await visit(address, certificate.client_context())).say("a") == "hello None"
        assert await (await visit(address)).say("a") == "hello None"
        await door.drain(0)

    on_loop(test)


def test_connections_that_come_to_nothing_stop_no_others(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)

    async def test() -> None:
        door = Door(Echo, LIMITS, tls=ReloadedTls(files_of(certificate)), plain=True)
        address = await door.listen("127.0.0.1:0")
        silent = await visit(address)
        (await visit(address)).writer.close()
        broken = await visit(address)
        broken.writer.write(b"\x16 begins like TLS and is none")
        await broken.reader.read()  # an alert, and the end
        with pytest.raises(ssl.SSLError):
            await visit(address, ssl.create_default_context())
        good = await visit(address)
        assert await good.say("a") == "hello None"
        await wait_until_async(lambda: len(door) == 2)  # that one, and the one that says nothing
        silent.writer.close()
        await door.drain(0)

    on_loop(test)


def test_without_plain_tls_is_a_must(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)

    async def test() -> None:
        door = Door(Echo, LIMITS, tls=ReloadedTls(files_of(certificate)))
        address = await door.listen("127.0.0.1:0")
        known = await visit(address, certificate.client_context())
        assert await known.say("a") == "hello None"
        plain = await visit(address)
        plain.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"hello" not in await plain.reader.read()
        await wait_until_async(lambda: len(door) == 1)
        await door.drain(0)

    on_loop(test)


def test_a_client_by_its_certificate(tmp_path: Path) -> None:
    for name in ("server", "client"):
        (tmp_path / name).mkdir()
    server, client = make_certificate(tmp_path / "server"), make_certificate(tmp_path / "client")

    async def test() -> None:
        door = Door(Echo, LIMITS, tls=ReloadedTls(files_of(server, client.certificate)))
        address = await door.listen("127.0.0.1:0")
        shown = server.client_context()
        shown.load_cert_chain(client.certificate, client.key)
        assert await (await visit(address, shown)).line() == "hello certificate commonName=localhost"
        try:
            said = await (await visit(address, server.client_context())).line()
        except OSError:
            said = ""
        assert said == ""
        await door.drain(0)

    on_loop(test)


def test_certificates_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "new").mkdir()
    old, new = make_certificate(tmp_path), make_certificate(tmp_path / "new")
    before, after = old.client_context(), new.client_context()
    now_s = [0.0]
    caplog.set_level(logging.INFO)

    async def test() -> None:
        door = Door(Echo, LIMITS, tls=ReloadedTls(files_of(old), clock_s=lambda: now_s[0]))
        address = await door.listen("127.0.0.1:0")
        good = old.certificate.read_bytes()
        old.certificate.write_bytes(b"broken")
        for _ in range(3):
            now_s[0] += 1
            assert await (await visit(address, before)).line() == "hello None"
        assert [record.levelname for record in caplog.records if "last good" in record.message] == ["ERROR"]
        old.certificate.write_bytes(good)
        new.certificate.replace(old.certificate)
        new.key.replace(old.key)
        assert await (await visit(address, before)).line() == "hello None"  # within the same second
        now_s[0] += 1
        assert await (await visit(address, after)).line() == "hello None"
        await door.drain(0)

    on_loop(test)


def test_a_unix_socket(tls: dict[str, Any], tmp_path: Path) -> None:
    async def test() -> None:
        door = Door(Echo, ConnectionLimits(100, 1), **tls)
        address = await door.listen(f"unix:{tmp_path}/door")
        assert (tmp_path / "door").stat().st_mode & 0o777 == 0o600
        visitors = [await visit(address) for _ in range(2)]  # no bound by peer, as all are this user
        assert [await each.say("a") for each in visitors] == [f"hello user {os.getuid()}"] * 2
        await door.drain(0)
        assert not (tmp_path / "door").exists()

    on_loop(test)


def test_a_socket_that_listens_already(tls: dict[str, Any]) -> None:
    async def test() -> None:
        listening = listen_on("127.0.0.1", 0, backlog=10)
        door = Door(Echo, LIMITS, **tls)
        address = await door.listen(listening)
        assert address == f"127.0.0.1:{listening.getsockname()[1]}"
        assert await (await visit(address)).say("a") == "hello None"
        await door.drain(0)

    on_loop(test)


def test_drain(tls: dict[str, Any]) -> None:
    async def test() -> None:
        door = Door(Echo, LIMITS, **tls)
        address = await door.listen("127.0.0.1:0")
        silent, kind, stubborn = [await visit(address) for _ in range(3)]
        for each in (kind, stubborn):
            assert await each.say("a") == "hello None"
            assert await each.line() == "a"
        drained = asyncio.get_running_loop().create_task(door.drain(0.5))
        assert await kind.line() == "bye"
        kind.writer.close()
        with pytest.raises(OSError):
            await visit(address)
        assert await silent.line() in ("", "hello None") and await silent.line() == ""
        assert [await stubborn.line(), await stubborn.line()] == ["bye", ""]
        await drained
        assert len(door) == 0

    on_loop(test)


class Shout(Echo):
    """Says so."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data.upper())


@pytest.mark.parametrize(
    ("said", "heard"), [("PRI * HTTP", "PRI * HTTP"), ("pri", "PRI"), ("PRo", "PRO"), ("x", "X"), ("PRIx", "PRIX")]
)
def test_first_bytes_choose_the_protocol_however_they_come(said: str, heard: str) -> None:
    async def test() -> None:
        door = Door(partial(FirstBytes, begins=b"PRI ", matching=Echo, other=Shout), LIMITS)
        address = await door.listen("127.0.0.1:0")
        for pause_s in (0.0, 0.01):
            visitor = await visit(address)
            for byte in f"{said}\n":
                visitor.writer.write(byte.encode())
                await asyncio.sleep(pause_s)
            assert await visitor.line() == "hello None"
            got = ""
            while len(got) < len(heard):
                got += (await visitor.reader.read(100)).decode()
            assert got.strip() == heard
        await door.drain(0)

    on_loop(test)


def test_who_is_refused_is_told_so_when_it_speaks_and_cut_when_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.kit.first_bytes.REFUSED_S", 0.2)

    async def test() -> None:
        door = Door(partial(FirstBytes, begins=b"PRI ", matching=Echo, other=Shout), ConnectionLimits(1, 1))
        address = await door.listen("127.0.0.1:0")
        served = await visit(address)
        assert await served.say("hi") == "hello None"
        told, silent = await visit(address), await visit(address)
        assert await told.say("hi") == "refused: too many connections of 127.0.0.1; allowed: 1"
        assert await silent.line() == ""
        served.writer.close()
        await wait_until_async(lambda: len(door) == 0)
        await door.drain(0)

    on_loop(test)
