"""Listening and stopping, and one port for clients with TLS and without it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loopgrpc import GrpcServer, Unary
from loopgrpc.framing import prefix
from tests.loopgrpc.certificates import Certificate
from tests.loopgrpc.serving import Service, serving, until
from tests.loopgrpc.wire import Wire, call

METHODS = Service().handlers()


@asynccontextmanager
async def sniffing(certificate: Certificate) -> AsyncIterator[GrpcServer]:
    async with serving(tls=certificate.server_context(), tls_optional=True) as (server, _):
        yield server


async def test_clients_come_with_tls_and_without_it_to_one_port(certificate: Certificate) -> None:
    async with sniffing(certificate) as server:
        for tls in (None, certificate.client_context("h2")):
            async with Wire(server.port, tls=tls) as wire:
                wire.send(call(1))
                assert (await wire.answer(1))[1] == prefix(b"hello")


async def test_connections_that_come_to_nothing_stop_no_others(certificate: Certificate) -> None:
    async with sniffing(certificate) as server:
        _, silent = await asyncio.open_connection("127.0.0.1", server.port)
        _, closed = await asyncio.open_connection("127.0.0.1", server.port)
        closed.close()
        broken_reader, broken = await asyncio.open_connection("127.0.0.1", server.port)
        broken.write(b"\x16 begins like TLS and is none")
        await broken_reader.read()  # an alert, and the end
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl.create_default_context())
        async with Wire(server.port) as wire:
            wire.send(call(1))
            assert (await wire.answer(1))[1] == prefix(b"hello")
        silent.close()
        broken.close()


async def test_a_stop_closes_connections_that_have_sent_nothing(certificate: Certificate) -> None:
    async with sniffing(certificate) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with Wire(server.port) as later:  # when this one is served, the silent one has been accepted
            await later.settled()
        await server.stop(5)
        assert await reader.read() == b""
        writer.close()


async def test_a_server_that_could_not_listen_may_be_started_again() -> None:
    other = socket.create_server(("127.0.0.77", 0))  # an address of its own, so that nobody else takes the port
    port = other.getsockname()[1]
    server = GrpcServer(METHODS, "127.0.0.77", port)
    with pytest.raises(OSError, match="in use"):
        await server.start()
    assert (server.connections, server.tasks, server.usage()) == (0, 0, [])
    other.close()
    await server.start()
    assert server.port == port
    await server.stop(0)


async def test_a_server_starts_once_and_stops_once() -> None:
    server = GrpcServer(METHODS, "127.0.0.1", 0)
    await server.stop()  # it does not run
    await server.start()
    with pytest.raises(RuntimeError):
        await server.start()
    await server.stop(0)
    await server.stop(0)
    with pytest.raises(RuntimeError):
        await server.start()


async def test_usage_is_that_of_each_connection() -> None:
    async with serving() as (server, service), Wire(server.port) as wire, Wire(server.port) as idle:
        wire.send(call(1, path="/test.Test/Wait"))
        await idle.settled()
        await until(lambda: service.release is not None)
        assert sorted(usage.streams for usage in server.usage()) == [0, 1]
        assert server.tasks == 1
        assert {usage.peer.split(":")[0] for usage in server.usage()} == {"127.0.0.1"}


@pytest.mark.parametrize("path", ["Echo", "/Echo", "/a/b/c", "/ä/b"])
def test_paths_that_are_none_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="allowed"):
        GrpcServer({path: Unary(lambda message, call: message)}, "127.0.0.1", 0)
