"""Known attacks, each with what it meets; and that busy clients do not meet it. Allowances are small here."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from loopgrpc import Allowance
from loopgrpc.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    frame,
    ping,
    rst_stream,
    settings,
    window_update,
)
from loopgrpc.framing import prefix
from loopgrpc.responses import encode_literal
from tests.loopgrpc.by_hand import ByHand, ManualLoop
from tests.loopgrpc.serving import pass_time, serving, until
from tests.loopgrpc.wire import CALL, Wire, block, call

E = ErrorCode
FEW = Allowance(20, 0)
OPEN = call(1, None, path="/test.Test/Chat")
SLOW = "/test.Test/Wait"

FLOODS = {
    "rapid reset": ("resets", [call(n, path=SLOW) + rst_stream(n, E.CANCEL) for n in range(1, 99, 2)]),
    "resets that the server has to send": ("resets", [call(n, None) + window_update(n, 0) for n in range(1, 99, 2)]),
    "malformed requests": ("resets", [frame(HEADERS, 5, n, encode_literal(b"A", b"")) for n in range(1, 99, 2)]),
    "pings": ("pings", [ping(bytes(8))] * 50),
    "settings": ("settings", [settings({4: 1})] * 50),
    "empty settings": ("settings", [settings({})] * 50),
    "empty data": ("empty_data", [OPEN] + [frame(DATA, 0, 1, b"")] * 50),
    "padding alone": ("empty_data", [OPEN] + [frame(DATA, 8, 1, b"\x05" + bytes(5))] * 50),
    "priorities": ("other_frames", [frame(PRIORITY, 0, 9, bytes(5))] * 50),
    "updates of one byte": ("other_frames", [window_update(0, 1)] * 50),
    "frames of unknown types": ("other_frames", [frame(200, 0, 0, b"")] * 50),
    "resets of what is closed": ("other_frames", [call(1), *[rst_stream(1, E.CANCEL)] * 50]),
    "acknowledgements": ("other_frames", [frame(SETTINGS, ACK, 0, b"")] * 50),
    "answers to no ping": ("other_frames", [ping(bytes(8), ack=True)] * 50),
    "goodbyes": ("other_frames", [frame(GOAWAY, 0, 0, bytes(8))] * 50),
    "data on what we reset": (
        "other_frames",
        [call(1, None, path="/test.Test/Nothing"), *[frame(DATA, 0, 1, b"x")] * 50],
    ),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_is_told_to_calm_down(name: str) -> None:
    allowance, frames = FLOODS[name]
    async with serving(**{allowance: FEW}) as (server, service), Wire(server.port) as wire, Wire(server.port) as other:
        wire.send(*frames)
        assert await wire.goaway() is E.ENHANCE_YOUR_CALM
        other.send(call(1))
        assert (await other.answer(1))[1] == prefix(b"hello")
        await until(lambda: not server.tasks)
        assert all(c.done for c in service.calls)


async def test_work_pays_for_pings_and_resets() -> None:
    async with serving(pings=Allowance(5, 0, 4), resets=Allowance(5, 0, 1)) as (server, _), Wire(server.port) as wire:
        for stream in range(1, 401, 4):
            wire.send(call(stream), ping(bytes(8)) * 3, call(stream + 2, None, path=SLOW))
            wire.send(rst_stream(stream + 2, E.CANCEL))
        assert (await wire.answer(397))[1] == prefix(b"hello")
        await wire.settled()


async def test_time_pays_too() -> None:
    peer = ByHand({}, clock=(loop := ManualLoop(100.0)), pings=Allowance(5, 100))
    peer.greet()
    for _ in range(20):
        loop.now += 0.06  # six pings' worth of time
        peer.send(ping(bytes(8)) * 4)
    assert [f.kind for f in peer.frames()].count(PING) == 80
    peer.send(ping(bytes(8)) * 8)
    assert peer.frames()[-1].code is E.ENHANCE_YOUR_CALM


async def test_streams_above_the_limit_are_refused() -> None:
    async with serving(streams_max=3) as (server, _), Wire(server.port) as wire:
        wire.send(*[call(n, path=SLOW) for n in (1, 3, 5, 7)])
        assert (await wire.until(RST_STREAM, 7)).code is E.REFUSED_STREAM
        wire.send(rst_stream(1, E.CANCEL))
        await until(lambda: server.tasks == 2)
        wire.send(call(9))
        assert (await wire.answer(9))[1] == prefix(b"hello")


async def test_a_reset_call_counts_until_its_handler_has_ended() -> None:
    async with serving(streams_max=3) as (server, service), Wire(server.port) as wire:
        for stream in (1, 3, 5):
            wire.send(call(stream, path="/test.Test/Promise"), rst_stream(stream, E.CANCEL))
        wire.send(call(7))
        assert (await wire.until(RST_STREAM, 7)).code is E.REFUSED_STREAM
        assert not any(promise.cancelled() for promise in service.promises)  # it may be others' too
        for promise in service.promises:
            promise.set_result(b"too late")
        await until(lambda: all(usage.late_handlers == 0 for usage in server.usage()))
        wire.send(call(9))
        assert (await wire.answer(9))[1] == prefix(b"hello")


async def test_refusals_are_counted() -> None:
    async with serving(streams_max=1, resets=FEW) as (server, _), Wire(server.port) as wire:
        wire.send(*[call(n, path=SLOW) for n in range(1, 99, 2)])
        assert await wire.goaway() is E.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("part", [b"", encode_literal(b"a", b"b" * 1000)])
async def test_continuation_without_end(part: bytes) -> None:
    async with serving() as (server, _), Wire(server.port) as wire:
        wire.send(frame(HEADERS, 0, 1, b""), *[frame(CONTINUATION, 0, 1, part)] * 100)
        assert await wire.goaway() is E.ENHANCE_YOUR_CALM


async def test_a_block_that_is_too_long() -> None:
    async with serving(header_list_bytes_max=1000) as (server, _), Wire(server.port) as wire:
        wire.send(frame(HEADERS, 0, 1, b""), *[frame(CONTINUATION, 0, 1, encode_literal(b"a", b"b" * 16_000))] * 3)
        assert await wire.goaway() is E.ENHANCE_YOUR_CALM


async def test_a_bomb_of_headers() -> None:
    """A field of 3,000 bytes put into the table once, and named by one byte each after that: 48 MB."""
    async with serving() as (server, _), Wire(server.port) as wire:
        bomb = b"\x40" + encode_literal(b"a", b"b" * 3000)[1:]
        wire.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, bomb + b"\xbe" * 10_000))
        assert await wire.goaway() is E.ENHANCE_YOUR_CALM


async def test_a_bomb_of_gzip() -> None:
    async with serving() as (server, _), Wire(server.port) as wire:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = packer.compress(bytes(100 << 20)) + packer.flush()
        data = b"\x01" + len(bomb).to_bytes(4, "big") + bomb
        wire.send(frame(HEADERS, END_HEADERS, 1, block(*CALL, (b"grpc-encoding", b"gzip"))))
        parts = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
        wire.send(*[frame(DATA, 0, 1, part) for part in parts])
        assert (await wire.answer(1))[2]["grpc-status"] == "8"


async def test_more_connections_than_there_may_be() -> None:
    async with serving(connections_max=2) as (server, _), Wire(server.port) as first, Wire(server.port) as second:
        await first.settled()
        await second.settled()
        async with Wire(server.port) as third:
            assert await third.goaway() is E.ENHANCE_YOUR_CALM
        first.writer.close()
        await until(lambda: server.connections < 2)
        async with Wire(server.port) as fourth:
            fourth.send(call(1))
            assert (await fourth.answer(1))[1] == prefix(b"hello")


async def test_a_silent_connection_is_asked_and_then_closed() -> None:
    async with serving() as (server, _), Wire(server.port) as wire:
        await wire.settled()
        pass_time(server, 0)
        pass_time(server, 61)
        probe = await wire.until(PING)
        wire.send(ping(probe.payload, ack=True))
        await wire.settled()
        pass_time(server, 100)  # something came since
        pass_time(server, 161)
        await wire.until(PING)
        pass_time(server, 161 + 21)
        assert await wire.read() is None


async def test_a_thousand_idle_connections_cost_nothing_and_end_at_once() -> None:
    async with serving() as (server, _):
        wires = [Wire(server.port) for _ in range(1000)]
        for wire in wires:
            await wire.__aenter__()
        await until(lambda: server.connections == 1000)
        loop = asyncio.get_running_loop()
        assert not server.tasks
        started = len(asyncio.all_tasks())
        server.check_timeouts(loop.time())
        assert len(asyncio.all_tasks()) == started
        wires[500].send(call(1))
        assert (await wires[500].answer(1))[1] == prefix(b"hello")
        await server.stop(10)
        assert server.connections == 0
        for wire in wires:
            wire.writer.close()


async def test_draining_says_so_twice_and_takes_what_was_on_its_way() -> None:
    async with serving() as (server, service), Wire(server.port) as wire:
        wire.send(call(1, path=SLOW))
        await until(lambda: service.release is not None)
        stopping = asyncio.ensure_future(server.stop(30))
        first = await wire.until(GOAWAY)
        assert (int.from_bytes(first.payload[:4], "big"), first.code) == (2**31 - 1, E.NO_ERROR)
        probe = await wire.until(PING)
        wire.send(call(3), ping(probe.payload, ack=True))  # sent before the first GOAWAY was read
        assert (await wire.answer(3))[1] == prefix(b"hello")
        second = await wire.until(GOAWAY)
        assert (int.from_bytes(second.payload[:4], "big"), second.code) == (3, E.NO_ERROR)
        wire.send(call(5))
        assert (await wire.until(RST_STREAM, 5)).code is E.REFUSED_STREAM
        assert service.release is not None
        service.release.set()
        assert (await wire.answer(1))[1] == prefix(b"hello")
        assert await wire.read() is None
        await stopping


async def test_a_peer_that_answers_no_ping_does_not_delay_a_stop() -> None:
    async with serving() as (server, _), Wire(server.port) as wire:
        await wire.settled()
        stopping = asyncio.ensure_future(server.stop(30))
        await wire.until(PING)
        pass_time(server, 3)
        await stopping
        assert server.connections == 0


async def test_more_connections_of_one_address_than_there_may_be() -> None:
    async with serving(peer_connections_max=1) as (server, _), Wire(server.port) as first:
        await first.settled()
        async with Wire(server.port) as second:
            goaway = await second.until(GOAWAY)
            assert b"too many connections of 127.0.0.1; allowed: 1" in goaway.payload
        first.send(call(1))
        assert (await first.answer(1))[1] == prefix(b"hello")


@pytest.mark.parametrize("limit", ["connections_max", "peer_connections_max"])
async def test_connections_that_say_nothing_keep_nobody_out(limit: str) -> None:
    async with serving(**{limit: 3}) as (server, _):
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(10)]
        async with Wire(server.port) as wire:
            wire.send(call(1))
            assert (await wire.answer(1))[1] == prefix(b"hello")
            for reader, _ in silent[:8]:
                await reader.read()  # each was closed, the oldest first
        for _, writer in silent:
            writer.close()
