"""Requests that are never whole: their time, the room of all of them, and that of who is not trusted yet."""

from __future__ import annotations

import asyncio

import pytest

from loopgrpc import Call, GrpcError, StatusCode
from loopgrpc.frames import DATA, frame, ping
from loopgrpc.framing import prefix
from tests.loopgrpc.by_hand import ByHand, ManualLoop
from tests.loopgrpc.serving import Service
from tests.loopgrpc.wire import call

HALF = (1 << 20).to_bytes(5, "big") + bytes(10_000)


def status_of(client: ByHand, stream_id: int) -> bytes:
    """The bytes of HEADERS that the stream got last."""
    return b"".join(found.payload for found in client.frames() if found.stream == stream_id)


@pytest.mark.parametrize("path", ["/test.Test/Echo", "/test.Test/Chat"])
async def test_half_a_request_ends_after_its_time(path: str) -> None:
    loop = ManualLoop(100.0)
    client = ByHand(Service().handlers(), clock=loop)
    client.greet()
    client.send(call(1, None, path=path), frame(DATA, 0, 1, HALF))
    for now in (101.0, 130.0):
        client.connection.check_timeouts(now)
        assert client.connection.usage().streams == 1
    client.connection.check_timeouts(132.0)
    assert (client.connection.usage().streams, client.connection.usage().buffered_bytes) == (0, 0)
    assert client.owner.budget.held == 0


async def test_a_stream_whose_messages_come_whole_goes_on() -> None:
    loop = ManualLoop(100.0)
    client = ByHand(Service().handlers(), clock=loop)
    client.greet()
    client.send(call(1, None, path="/test.Test/Chat"))
    whole = prefix(b"x" * 100)
    for now in range(101, 200):
        client.send(frame(DATA, 0, 1, whole[:50]))
        client.connection.check_timeouts(float(now))
        client.send(frame(DATA, 0, 1, whole[50:]))
        await asyncio.sleep(0)
    assert client.connection.usage().streams == 1


async def test_a_message_is_not_late_while_its_handler_has_others_to_take() -> None:
    loop, service = ManualLoop(100.0), Service()
    client = ByHand(service.handlers(), clock=loop)
    client.greet()
    client.send(call(1, None, path="/test.Test/Gather"), frame(DATA, 0, 1, prefix(b"x" * 100)), frame(DATA, 0, 1, HALF))
    await asyncio.sleep(0)
    for now in (101.0, 200.0):
        client.connection.check_timeouts(now)
    assert client.connection.usage().streams == 1, "the peer may have had no window"
    assert service.release is not None
    service.release.set()
    for _ in range(3):
        await asyncio.sleep(0)
    for now in (201.0, 232.0):
        client.connection.check_timeouts(now)
    assert client.connection.usage().streams == 0


async def test_who_serves_says_how_calls_end() -> None:
    def translate(error: Exception) -> GrpcError:
        return GrpcError(StatusCode.ABORTED, "no", {"why": str(error)})

    client = ByHand(Service().handlers(), message_bytes_max=100, calls_max=2, translate=translate)
    client.greet()
    client.send(call(1, None), call(3, None), frame(DATA, 0, 1, HALF))
    assert b"why;RESOURCE_EXHAUSTED: a message of 1048576 bytes; at most 100" in status_of(client, 1)
    assert b"UNAVAILABLE: open calls of 127.0.0.1 would take 2 places; allowed: 1 of one address" in status_of(
        client, 3
    )
    client.send(call(5))
    assert b"hello" in status_of(client, 5), "the place is free again"
    client.send(call(7, path="/test.Test/Fail"))
    await asyncio.sleep(0.01)
    assert b"a secret" in status_of(client, 7), "it is told as it is translated"
    client.connection.connection_lost(None)
    assert client.owner.calls.held == 0


async def test_all_connections_share_one_budget() -> None:
    client = ByHand(Service().handlers(), all_buffer_bytes_max=50_000)  # of which this address has half
    client.greet()
    for stream_id in (1, 3, 5):
        client.send(call(stream_id, None), frame(DATA, 0, stream_id, HALF))
    assert client.connection.usage().streams == 2
    assert b"allowed: 25000 of one address" in status_of(client, 5)
    client.connection.connection_lost(None)
    assert client.owner.budget.held == 0


async def test_who_is_not_trusted_has_little_room() -> None:
    trusted: list[Call] = []

    def trusts(call: Call) -> bool:
        trusted.append(call)
        return call.value(b"secret") == b"right"

    client = ByHand(Service().handlers())
    client.connection._streams._context.trusts = trusts  # noqa: SLF001 - as of a server that asks for it
    client.greet()
    for stream_id in range(1, 15, 2):
        client.send(call(stream_id, None), frame(DATA, 0, stream_id, HALF))
    assert client.connection.usage().buffered_bytes <= 64 << 10
    assert client.connection.usage().streams == 6
    client.send(call(15, None, more=((b"secret", b"right"),)))
    for stream_id in range(17, 40, 2):
        client.send(call(stream_id, None), frame(DATA, 0, stream_id, HALF))
    assert client.connection.usage().streams == 19
    assert len(trusted) == 8, "it is not asked again"


async def test_a_transport_that_is_closed_and_does_not_say_so() -> None:
    """uvloop's, between an error of the socket and connection_lost."""

    def write(data: object) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    client = ByHand(Service().handlers())
    client.greet()
    client.transport.write = write  # type: ignore[method-assign]
    client.send(call(1))
    client.connection._sender.add(ping(bytes(8)))  # noqa: SLF001 - as for a keepalive
    client.connection._sender.flush()  # noqa: SLF001
    client.connection.connection_lost(None)
