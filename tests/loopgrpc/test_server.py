"""Listening and stopping, and connections that another listener accepts."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from loopgrpc import Call, Connections, GrpcServer, Limits, Unary
from loopgrpc.frames import GOAWAY, PING, ErrorCode, ping
from loopgrpc.framing import prefix
from tests.loopgrpc.by_hand import HandPlace
from tests.loopgrpc.serving import Service, serving, until
from tests.loopgrpc.wire import Wire, call

METHODS = Service().handlers()


async def test_a_listener_of_ones_own_gives_each_connection_its_place() -> None:
    """As Tarry's door does: it refuses, knows who comes, and ends connections."""
    seen: list[object] = []

    def say_who(message: bytes, call: Call) -> bytes:
        seen.append(call.principal)
        return message

    connections = Connections({"/test.Test/Echo": Unary(say_who)}, Limits(linger_s=0.1))
    connections.start()
    places = [HandPlace(principal="alice"), HandPlace("there is no room"), HandPlace()]
    given = iter(places)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: connections.new_protocol(next(given)), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with Wire(port) as known, Wire(port) as refused, Wire(port) as cut:
        known.send(call(1))
        assert (await known.answer(1))[1] == prefix(b"hello")
        assert seen == ["alice"]
        assert b"there is no room" in (await refused.until(GOAWAY)).payload
        await cut.settled()
        assert places[2].events == ["begun"]
        places[2].cut()
        while await cut.read() is not None:
            pass
        assert places[0].on_drain is not None
        places[0].on_drain()
        known.send(ping((await known.until(PING)).payload, ack=True))
        assert await known.goaway() is ErrorCode.NO_ERROR
        await until(lambda: not len(connections))
    assert [place.events for place in places] == [["begun", "released"], ["released"], ["begun", "released"]]
    listener.close()
    await connections.close()


async def test_a_peer_that_has_just_reset_its_connection_does_not_keep_others_from_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reset comes between the last write and the end of this side: the system says ENOTCONN."""
    if not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
        pytest.skip("uvloop's transports are of C, and cannot be made to fail")
    ended = []

    def write_eof(transport: object) -> None:
        ended.append(transport)
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    async with serving(linger_s=0.1) as (server, _), Wire(server.port) as one, Wire(server.port) as other:
        for wire in (one, other):
            await wire.settled()
        with monkeypatch.context() as broken:
            broken.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", write_eof)
            await server.stop(0)
    assert len(ended) == 2


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
