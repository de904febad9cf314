"""Windows both ways: nobody sends what was not allowed, nothing grows without bound, and nobody waits for another."""

from __future__ import annotations

import asyncio

import pytest

from loopgrpc import Allowance, ByteBudget, Limits
from loopgrpc.flood import FloodLimiter, WorkCounter
from loopgrpc.frames import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    RST_STREAM,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    frame,
    rst_stream,
    settings,
    window_update,
)
from loopgrpc.framing import prefix
from loopgrpc.sender import Sender
from loopgrpc.streams import Streams
from tests.loopgrpc.by_hand import MemoryTransport
from tests.loopgrpc.serving import pass_time, serving, until
from tests.loopgrpc.wire import Wire, call

E = ErrorCode
INITIAL_WINDOW = 4


def bodies(wire: Wire, stream: int) -> int:
    return sum(len(f.payload) for f in wire.seen if f.kind == DATA and f.stream == stream)


async def test_answers_wait_for_the_streams_window() -> None:
    async with serving() as (server, _), Wire(server.port, first={INITIAL_WINDOW: 0}) as wire:
        wire.send(call(1))
        await wire.settled()
        assert bodies(wire, 1) == 0
        wire.send(window_update(1, 3))
        await wire.settled()
        assert bodies(wire, 1) == 3
        wire.send(window_update(1, 100))
        assert (await wire.answer(1))[1] == prefix(b"hello")[3:]


async def test_a_window_may_become_negative_and_comes_back() -> None:
    async with serving() as (server, _), Wire(server.port, first={INITIAL_WINDOW: 1000}) as wire:
        wire.send(call(1, b"3000", path="/test.Test/Big"))
        await wire.settled()
        assert bodies(wire, 1) == 1000
        wire.send(settings({INITIAL_WINDOW: 0}))  # the stream's window is now -1000
        wire.send(window_update(1, 1000))
        await wire.settled()
        assert bodies(wire, 1) == 1000
        wire.send(settings({INITIAL_WINDOW: 1}))
        await wire.settled()
        assert bodies(wire, 1) == 1001
        wire.send(settings({INITIAL_WINDOW: 5000}))
        await wire.answer(1)
        assert bodies(wire, 1) == 3005


async def test_streams_take_turns_in_the_connections_window() -> None:
    async with serving() as (server, _), Wire(server.port, first={INITIAL_WINDOW: 1 << 20}) as wire:
        for stream in (1, 3, 5):
            wire.send(call(stream, b"500000", path="/test.Test/Big"))
        await wire.settled()
        assert sum(bodies(wire, s) for s in (1, 3, 5)) == 65_535
        for _ in range(6):
            wire.send(window_update(0, 65_536))
        await wire.settled()
        assert all(bodies(wire, s) >= 65_536 for s in (1, 3, 5))
        wire.send(window_update(0, 2_000_000))
        while any(bodies(wire, s) < 500_005 for s in (1, 3, 5)):
            assert await wire.read() is not None


async def test_a_closed_window_stops_one_stream_alone() -> None:
    async with serving() as (server, service), Wire(server.port) as wire:
        wire.send(settings({INITIAL_WINDOW: 0}), call(1, bytes(1000), path="/test.Test/Endless"), call(3))
        await wire.settled()
        await until(lambda: service.yielded)
        wire.send(window_update(3, 1000))
        assert (await wire.answer(3))[1] == prefix(b"hello")
        assert service.yielded == 1  # it waits in its first yield
        wire.send(window_update(1, 2500))
        await until(lambda: service.yielded == 3)
        wire.send(rst_stream(1, E.CANCEL))
        await until(lambda: service.cancelled == ["Endless"])
        assert service.ended[-1].cancelled


async def test_a_peer_that_sends_above_a_streams_window_loses_the_stream() -> None:
    async with serving(stream_window_bytes=65_535) as (server, _), Wire(server.port) as wire:
        wire.send(call(1, None, path="/test.Test/Gather"))
        for _ in range(3):
            wire.send(frame(DATA, 0, 1, prefix(bytes(16_379))))
        wire.send(frame(DATA, 0, 1, prefix(bytes(16_378))))
        await wire.settled()
        assert not [f for f in wire.seen if f.kind == RST_STREAM]
        wire.send(frame(DATA, 0, 1, b"\0"))
        assert (await wire.until(RST_STREAM, 1)).code is E.FLOW_CONTROL_ERROR
        wire.send(call(3))
        assert (await wire.answer(3))[1] == prefix(b"hello")


async def test_a_handler_gives_the_window_back_as_it_takes() -> None:
    async with serving(stream_window_bytes=65_535) as (server, service), Wire(server.port) as wire:
        wire.send(call(1, None, path="/test.Test/Gather"))
        for _ in range(3):
            wire.send(frame(DATA, 0, 1, prefix(bytes(16_000))))
        await wire.settled()
        assert not [f for f in wire.seen if f.kind == WINDOW_UPDATE and f.stream == 1]
        assert service.release is not None
        service.release.set()
        assert int.from_bytes((await wire.until(WINDOW_UPDATE, 1)).payload, "big") >= 32_000
        wire.send(frame(DATA, END_STREAM, 1, b""))
        assert (await wire.answer(1))[1] == prefix(b"48000")
        assert [usage.buffered_bytes for usage in server.usage()] == [0]


async def test_a_message_larger_than_the_window_arrives() -> None:
    async with serving(stream_window_bytes=65_535) as (server, _), Wire(server.port) as wire:
        message = prefix(bytes(300_000))
        wire.send(call(1, None, path="/test.Test/Sum"))
        allowed = 65_535
        while message:
            part, message = message[: min(allowed, 16_384)], message[min(allowed, 16_384) :]
            wire.send(frame(DATA, 0 if message else END_STREAM, 1, part))
            allowed -= len(part)
            while allowed == 0 and message:
                allowed += int.from_bytes((await wire.until(WINDOW_UPDATE, 1)).payload, "big")
        assert (await wire.answer(1))[1] == prefix(b"300000")


async def test_a_slow_handler_does_not_use_up_the_connection() -> None:
    async with serving(connection_window_bytes=65_535) as (server, _), Wire(server.port) as wire:
        wire.send(call(1, None, path="/test.Test/Gather"))
        for _ in range(20):
            wire.send(frame(DATA, 0, 1, prefix(bytes(16_000))))
            await wire.settled()
        wire.send(call(3))
        assert (await wire.answer(3))[1] == prefix(b"hello")


async def test_padding_counts() -> None:
    async with serving(connection_window_bytes=65_535) as (server, _), Wire(server.port) as wire:
        wire.send(call(1, None, path="/test.Test/Gather"))
        for _ in range(300):
            wire.send(frame(DATA, PADDED, 1, b"\xff" + bytes(256)))
        await wire.until(WINDOW_UPDATE, 0)
        await wire.until(WINDOW_UPDATE, 0)
        await wire.settled()


async def test_more_than_the_connections_window_at_once_is_a_fault() -> None:
    # The window is given back at half, and a frame is no larger than a quarter of the smallest: no frames get here.
    limits, work, loop = Limits(), WorkCounter(), asyncio.get_running_loop()
    streams = Streams(
        {}, limits, FloodLimiter(limits, work, loop.time), work, Sender(MemoryTransport(), loop, work, limits), peer="",
        host="", principal=None, budget=ByteBudget("requests", 1), calls=ByteBudget("open calls", 1),
        trusts=None, translate=None, loop=loop, tasks=set(), fail=pytest.fail, on_drained=pytest.fail,
    )  # fmt: skip
    with pytest.raises(ConnectionFault) as error:
        streams.on_data(0, 1, bytes((16 << 20) + 1))
    assert error.value.code is E.FLOW_CONTROL_ERROR


async def test_requests_that_wait_are_bounded_by_connection() -> None:
    limits = {"buffer_bytes_max": 100_000, "stream_window_bytes": 65_535}
    async with serving(**limits) as (server, _), Wire(server.port) as wire:
        for stream in (1, 3):
            wire.send(call(stream, None, path="/test.Test/Gather"))
            for _ in range(4):
                wire.send(frame(DATA, 0, stream, prefix(bytes(15_000))))
        assert (await wire.answer(3))[2]["grpc-status"] == "8"
        await wire.settled()
        assert [usage.streams for usage in server.usage()] == [1]


async def test_answers_that_wait_are_bounded_by_connection() -> None:
    async with serving(pending_bytes_max=100_000) as (server, _), Wire(server.port, first={INITIAL_WINDOW: 0}) as wire:
        for stream in range(1, 9, 2):
            wire.send(call(stream, b"30000", path="/test.Test/Big"))
        assert await wire.goaway() is E.ENHANCE_YOUR_CALM


async def test_an_answer_that_never_finds_a_window_is_given_up() -> None:
    async with serving() as (server, service), Wire(server.port, first={INITIAL_WINDOW: 0}) as wire:
        wire.send(call(1))
        await wire.settled()
        pass_time(server, 121)
        assert (await wire.until(RST_STREAM, 1)).code is E.ENHANCE_YOUR_CALM
        assert [usage.pending_bytes for usage in server.usage()] == [0]
        assert service.ended[0].cancelled


async def test_what_waits_for_a_peer_counts_for_its_address_and_ends_with_it() -> None:
    async with serving() as (server, service), Wire(server.port, first={INITIAL_WINDOW: 0}) as wire:
        connections = server._connections  # noqa: SLF001
        assert connections is not None
        wire.send(call(1, b"100000", path="/test.Test/Endless"))
        await until(lambda: connections.unread.held > 0)
        assert connections.unread.held == sum(usage.pending_bytes for usage in server.usage())
        assert connections.unread.refusal("127.0.0.1", 256 << 20)
        pass_time(server, 31)
        await until(lambda: server.connections == 0)
        assert connections.unread.held == 0
        assert service.ended[0].cancelled


async def test_a_peer_that_does_not_read_is_not_read_and_fills_nothing() -> None:
    async with (
        serving(pings=Allowance(10**9, 1)) as (server, service),
        Wire(server.port) as wire,
        Wire(server.port) as other,
    ):
        wire.send(settings({INITIAL_WINDOW: 2**31 - 1}), window_update(0, 2**30))
        wire.send(call(1, b"100000", path="/test.Test/Endless"))
        await until(lambda: any(usage.streams and usage.writing_paused for usage in server.usage()))
        before = service.yielded
        other.send(call(1))
        assert (await other.answer(1))[1] == prefix(b"hello")
        assert service.yielded <= before + 1
        assert all(usage.unwritten_bytes < 2 << 20 for usage in server.usage())
        wire.send(call(3, b"unary", path="/test.Test/Echo"))  # its answer waits too, and comes when there is room
        while not [f for f in wire.seen if f.kind == DATA and f.stream == 3]:
            assert await wire.read() is not None
        wire.send(rst_stream(1, E.CANCEL))
        await until(lambda: service.cancelled == ["Endless"])


async def test_a_socket_that_takes_nothing_is_closed_in_the_end() -> None:
    async with serving() as (server, service), Wire(server.port) as wire:
        wire.send(settings({INITIAL_WINDOW: 2**31 - 1}), window_update(0, 2**30))
        wire.send(call(1, b"100000", path="/test.Test/Endless"))
        await until(lambda: any(usage.writing_paused for usage in server.usage()))
        pass_time(server, 121)
        await until(lambda: server.connections == 0)
        await until(lambda: service.cancelled == ["Endless"])


@pytest.mark.rest
async def test_answers_to_control_frames_that_are_not_read_stop_the_reading() -> None:
    lots = Allowance(10**9, 1)
    async with serving(pings=lots, write_bytes_max=1) as (server, _), Wire(server.port) as wire:
        pings = frame(6, 0, 0, bytes(8)) * 10_000
        while not [usage for usage in server.usage() if usage.reading_paused]:
            wire.send(pings)
            await asyncio.sleep(0.001)
        assert [usage.writing_paused for usage in server.usage()] == [True]
        await wire.until(6)
        while [usage for usage in server.usage() if usage.reading_paused]:
            assert await wire.read() is not None


@pytest.mark.parametrize("name", ["stream_window_bytes", "connection_window_bytes"])
def test_windows_below_http2s_own_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="allowed"):
        Limits(**{name: 65_534})
    with pytest.raises(ValueError, match="allowed"):
        Limits(streams_max=0)


async def test_frames_of_an_answer_are_no_larger_than_a_peer_must_take() -> None:
    async with serving() as (server, _), Wire(server.port) as wire:
        wire.send(settings({5: 1 << 20}), call(1, b"60000", path="/test.Test/Big"))
        await wire.answer(1)
        await wire.settled()
        assert max(len(f.payload) for f in wire.seen if f.kind == DATA) == 16_384
        assert not [f for f in wire.seen if f.kind in (GOAWAY, RST_STREAM)]
        assert len([f for f in wire.seen if f.kind == HEADERS]) == 2
