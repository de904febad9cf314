"""What a peer can do wrong, and the code it gets: a stream's fault ends the stream, a connection's the connection."""

from __future__ import annotations

import asyncio

import pytest

from loopgrpc.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
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
from tests.loopgrpc.certificates import Certificate
from tests.loopgrpc.serving import pass_time, serving, until
from tests.loopgrpc.wire import CALL, Wire, block, call

E = ErrorCode
OPEN = call(1, None)
WHOLE = END_HEADERS | END_STREAM


def headers(*fields: tuple[bytes, bytes], stream: int = 1, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(*fields))


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in CALL if field[0] != name]


CONNECTION_FAULTS = {
    "data on stream 0": (frame(DATA, 0, 0, b"x"), E.PROTOCOL_ERROR),
    "data on an idle stream": (frame(DATA, 0, 1, b"x"), E.PROTOCOL_ERROR),
    "data padded by more than it has": (OPEN + frame(DATA, PADDED, 1, b"\x05abc"), E.PROTOCOL_ERROR),
    "data padded without a length": (OPEN + frame(DATA, PADDED, 1, b""), E.PROTOCOL_ERROR),
    "headers on stream 0": (frame(HEADERS, WHOLE, 0, block()), E.PROTOCOL_ERROR),
    "headers on a stream of ours": (frame(HEADERS, WHOLE, 2, block()), E.PROTOCOL_ERROR),
    "headers without their priority": (frame(HEADERS, WHOLE | PRIORITIZED, 1, b"\0\0"), E.FRAME_SIZE_ERROR),
    "streams out of order": (call(5) + call(3), E.PROTOCOL_ERROR),
    "headers on a closed stream": (call(1) + call(1), E.STREAM_CLOSED),
    "headers after a reset by the peer": (OPEN + rst_stream(1, E.CANCEL) + call(1), E.STREAM_CLOSED),
    "a block that is cut off": (frame(HEADERS, WHOLE, 1, b"\x00\x05ab"), E.COMPRESSION_ERROR),
    "an index that is nowhere": (frame(HEADERS, WHOLE, 1, b"\xfe"), E.COMPRESSION_ERROR),
    "an index of 0": (frame(HEADERS, WHOLE, 1, b"\x80"), E.COMPRESSION_ERROR),
    "an integer without end": (frame(HEADERS, WHOLE, 1, b"\xff" + b"\xff" * 20), E.COMPRESSION_ERROR),
    "a table above what was agreed": (frame(HEADERS, WHOLE, 1, b"\x3f\xe2\x1f"), E.COMPRESSION_ERROR),
    "a table size after a field": (frame(HEADERS, WHOLE, 1, b"\x82\x20"), E.COMPRESSION_ERROR),
    "a continuation of nothing": (frame(CONTINUATION, END_HEADERS, 1, b""), E.PROTOCOL_ERROR),
    "a block interrupted": (frame(HEADERS, 0, 1, b"") + ping(b"12345678"), E.PROTOCOL_ERROR),
    "a block interrupted by the unknown": (frame(HEADERS, 0, 1, b"") + frame(99, 0, 1, b""), E.PROTOCOL_ERROR),
    "a block continued elsewhere": (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 4, 3, b""), E.PROTOCOL_ERROR),
    "priority on stream 0": (frame(PRIORITY, 0, 0, bytes(5)), E.PROTOCOL_ERROR),
    "a reset on stream 0": (rst_stream(0, E.CANCEL), E.PROTOCOL_ERROR),
    "a reset of an idle stream": (rst_stream(1, E.CANCEL), E.PROTOCOL_ERROR),
    "a reset too short": (OPEN + frame(RST_STREAM, 0, 1, b"\0"), E.FRAME_SIZE_ERROR),
    "settings on a stream": (frame(SETTINGS, 0, 1, b""), E.PROTOCOL_ERROR),
    "settings cut off": (frame(SETTINGS, 0, 0, b"\0\0\0"), E.FRAME_SIZE_ERROR),
    "settings acknowledged with more": (frame(SETTINGS, 1, 0, bytes(6)), E.FRAME_SIZE_ERROR),
    "a push that is neither on nor off": (settings({2: 2}), E.PROTOCOL_ERROR),
    "a window above all": (settings({4: 2**31}), E.FLOW_CONTROL_ERROR),
    "frames below the least": (settings({5: 16_383}), E.PROTOCOL_ERROR),
    "frames above the most": (settings({5: 1 << 24}), E.PROTOCOL_ERROR),
    "a promise": (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), E.PROTOCOL_ERROR),
    "a ping on a stream": (frame(PING, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    "a ping too short": (frame(PING, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    "goaway on a stream": (frame(GOAWAY, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    "goaway too short": (frame(GOAWAY, 0, 0, bytes(4)), E.FRAME_SIZE_ERROR),
    "an update of nothing": (window_update(0, 0), E.PROTOCOL_ERROR),
    "an update too short": (frame(WINDOW_UPDATE, 0, 0, b"\0"), E.FRAME_SIZE_ERROR),
    "an update of an idle stream": (window_update(1, 1), E.PROTOCOL_ERROR),
    "updates above all": (window_update(0, 2**31 - 1), E.FLOW_CONTROL_ERROR),
    "a frame above the limit": (frame(99, 0, 0, bytes(16_385)), E.FRAME_SIZE_ERROR),
    "a window above all by settings": (
        OPEN + window_update(1, 2**31 - 1 - 65_535) + settings({4: 65_536}),
        E.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize("name", CONNECTION_FAULTS)
async def test_a_fault_of_the_connection_ends_it_and_no_other(name: str) -> None:
    sent, code = CONNECTION_FAULTS[name]
    async with serving() as (server, _), Wire(server.port) as wire, Wire(server.port) as other:
        wire.send(sent)
        assert await wire.goaway() is code
        other.send(call(1))
        assert (await other.answer(1))[1] == prefix(b"hello")


EMPTY_DATA = frame(DATA, END_STREAM, 1, b"")
STREAM_FAULTS = {
    "a name in capitals": (headers(*CALL, (b"Text", b"")), E.PROTOCOL_ERROR),
    "a name that is none": (headers(*CALL, (b"te xt", b"")), E.PROTOCOL_ERROR),
    "a name of nothing": (headers(*CALL, (b"", b"")), E.PROTOCOL_ERROR),
    "a value with a line feed": (headers(*CALL, (b"text", b"a\nb")), E.PROTOCOL_ERROR),
    "a value with a zero": (headers(*CALL, (b"text", b"a\0b")), E.PROTOCOL_ERROR),
    "a value with a blank before it": (headers(*CALL, (b"text", b" a")), E.PROTOCOL_ERROR),
    "a value with a tab after it": (headers(*CALL, (b"text", b"a\t")), E.PROTOCOL_ERROR),
    "a connection's field": (headers(*CALL, (b"connection", b"close")), E.PROTOCOL_ERROR),
    "another te": (headers(*without(b"te"), (b"te", b"gzip")), E.PROTOCOL_ERROR),
    "an unknown pseudo-field": (headers((b":what", b""), *CALL), E.PROTOCOL_ERROR),
    "an answer's pseudo-field": (headers((b":status", b"200"), *CALL), E.PROTOCOL_ERROR),
    "a pseudo-field after others": (headers(*CALL[1:], CALL[0]), E.PROTOCOL_ERROR),
    "a pseudo-field twice": (headers(CALL[0], *CALL), E.PROTOCOL_ERROR),
    "no method": (headers(*without(b":method")), E.PROTOCOL_ERROR),
    "no scheme": (headers(*without(b":scheme")), E.PROTOCOL_ERROR),
    "no path": (headers(*without(b":path")), E.PROTOCOL_ERROR),
    "an empty path": (headers(*without(b":path")[:2], (b":path", b""), *without(b":path")[2:]), E.PROTOCOL_ERROR),
    "a length that is no number": (headers(*CALL, (b"content-length", b"-1")), E.PROTOCOL_ERROR),
    "a length that is not kept": (headers(*CALL, (b"content-length", b"9")) + EMPTY_DATA, E.PROTOCOL_ERROR),
    "data above the length": (
        headers(*CALL, (b"content-length", b"1")) + frame(DATA, END_STREAM, 1, prefix(b"x")),
        E.PROTOCOL_ERROR,
    ),
    "headers that depend on themselves": (
        frame(HEADERS, END_HEADERS | PRIORITIZED, 1, b"\0\0\0\x01\0" + block()),
        E.PROTOCOL_ERROR,
    ),
    "priority that depends on itself": (OPEN + frame(PRIORITY, 0, 1, b"\0\0\0\x01\0"), E.PROTOCOL_ERROR),
    "priority too short": (OPEN + frame(PRIORITY, 0, 1, b"\0"), E.FRAME_SIZE_ERROR),
    "an update of nothing": (OPEN + window_update(1, 0), E.PROTOCOL_ERROR),
    "updates above all": (OPEN + window_update(1, 2**31 - 1), E.FLOW_CONTROL_ERROR),
    "headers twice": (OPEN + headers(*CALL), E.PROTOCOL_ERROR),
    "a pseudo-field in trailers": (OPEN + headers((b":path", b"/"), flags=WHOLE), E.PROTOCOL_ERROR),
    "a bad name in trailers": (OPEN + headers((b"A", b"/"), flags=WHOLE), E.PROTOCOL_ERROR),
    "data after a reset by the peer": (OPEN + rst_stream(1, E.CANCEL) + frame(DATA, 0, 1, b"x"), E.STREAM_CLOSED),
    "data after the end": (call(1, path="/test.Test/Wait") + frame(DATA, 0, 1, b"x"), E.STREAM_CLOSED),
    "headers after the end": (
        call(1, path="/test.Test/Wait") + headers((b"a", b"b"), flags=WHOLE),
        E.STREAM_CLOSED,
    ),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
async def test_a_fault_of_a_stream_ends_it_and_no_other(name: str) -> None:
    sent, code = STREAM_FAULTS[name]
    async with serving() as (server, _), Wire(server.port) as wire:
        wire.send(sent)
        assert (await wire.until(RST_STREAM, 1)).code is code
        wire.send(call(3))
        assert (await wire.answer(3))[1] == prefix(b"hello")
        assert [usage.streams for usage in server.usage()] == [0]


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nNO\r\n\r\n", b"\x16\x03\x01\x02\x00"],
)
async def test_who_does_not_speak_http2(data: bytes) -> None:
    async with serving() as (server, _), Wire(server.port, greet=False) as wire:
        wire.send(data)
        assert await wire.goaway() is E.PROTOCOL_ERROR


@pytest.mark.parametrize("first", [ping(bytes(8)), frame(SETTINGS, 1, 0, b""), call(1)])
async def test_settings_come_first(first: bytes) -> None:
    async with serving() as (server, _), Wire(server.port, greet=False) as wire:
        wire.send(PREFACE, first)
        assert await wire.goaway() is E.PROTOCOL_ERROR


async def test_bytes_may_come_one_by_one() -> None:
    async with serving() as (server, _), Wire(server.port, greet=False) as wire:
        for byte in PREFACE + settings({}) + call(1):
            wire.send(bytes((byte,)))
            await wire.writer.drain()
            await asyncio.sleep(0)
        assert (await wire.answer(1))[1] == prefix(b"hello")


async def test_padding_priority_continuation_trailers_and_the_unknown_are_taken() -> None:
    blk = block(*CALL)
    async with serving() as (server, _), Wire(server.port) as wire:
        wire.send(
            frame(77, 255, 12, b"whatever"),
            frame(HEADERS, PADDED | PRIORITIZED, 1, b"\x03" + b"\x80\0\0\x07\x10" + blk[:3] + bytes(3)),
            frame(CONTINUATION, 0, 1, blk[3:9]) + frame(CONTINUATION, 0, 1, b""),
            frame(CONTINUATION, END_HEADERS, 1, blk[9:]),
            frame(DATA, PADDED, 1, b"\x02" + prefix(b"hello")[:4] + bytes(2)),
            frame(DATA, PADDED, 1, b"\x00" + prefix(b"hello")[4:]),
            frame(HEADERS, WHOLE, 1, encode_literal(b"a-trailer", b"is ignored")),
            frame(PRIORITY, 0, 99, b"\0\0\0\x01\0"),
        )
        head, body, trailers = await wire.answer(1)
    assert head == {":status": "200", "content-type": "application/grpc"}
    assert (body, trailers) == (prefix(b"hello"), {"grpc-status": "0"})


async def test_what_comes_on_a_stream_that_we_reset_is_ignored() -> None:
    async with serving() as (server, _), Wire(server.port) as wire:
        wire.send(call(1, None, path="/test.Test/Nothing"))
        assert (await wire.answer(1))[2]["grpc-status"] == "12"
        assert (await wire.until(RST_STREAM, 1)).code is E.NO_ERROR
        wire.send(frame(DATA, 0, 1, b"on its way"), window_update(1, 5), rst_stream(1, E.CANCEL))
        wire.send(headers((b"a", b"b"), flags=WHOLE))
        await wire.settled()
        assert not [f for f in wire.seen[3:] if f.kind in (RST_STREAM, GOAWAY)][1:]


HTTP_REFUSALS = {
    "get": ([(b":method", b"GET"), *CALL[1:]], "405"),
    "no content-type": (without(b"content-type"), "415"),
    "json": ([*without(b"content-type"), (b"content-type", b"application/json")], "415"),
    "grpc-web": ([*without(b"content-type"), (b"content-type", b"application/grpc-web")], "415"),
    "too much metadata": ([*CALL, *[(b"m%d" % n, bytes([65 + n]) * 900) for n in range(20)]], "431"),
    "connect": ([(b":method", b"CONNECT"), (b":authority", b"localhost")], "405"),
}


@pytest.mark.parametrize("name", HTTP_REFUSALS)
async def test_what_is_no_grpc_gets_an_answer_of_http(name: str) -> None:
    fields, status = HTTP_REFUSALS[name]
    async with serving() as (server, _), Wire(server.port) as wire:
        wire.send(frame(HEADERS, END_HEADERS, 1, block(*fields)[:16_000]) if name != "too much metadata" else b"")
        if name == "too much metadata":
            whole = block(*fields)
            wire.send(frame(HEADERS, 0, 1, whole[:9_000]), frame(CONTINUATION, END_HEADERS, 1, whole[9_000:]))
        wire.send(frame(DATA, 0, 1, bytes(1000)), frame(DATA, END_STREAM, 1, b""))
        head, body, _ = await wire.answer(1)
        assert head[":status"] == status
        assert int(head["content-length"]) == len(body)
        wire.send(call(3))
        assert (await wire.answer(3))[1] == prefix(b"hello")


GRPC_REFUSALS = {
    "encoding": ((b"grpc-encoding", b"snappy"), prefix(b""), "12"),
    "timeout": ((b"grpc-timeout", b"soon"), prefix(b""), "13"),
    "timeout too long": ((b"grpc-timeout", b"123456789S"), prefix(b""), "13"),
    "past": ((b"grpc-timeout", b"0n"), prefix(b""), "4"),
    "a flag": ((b"a", b"b"), b"\x02\0\0\0\0", "13"),
    "compressed by nothing": ((b"a", b"b"), b"\x01\0\0\0\0", "13"),
    "no gzip": ((b"grpc-encoding", b"gzip"), b"\x01\0\0\0\x03abc", "13"),
    "gzip cut off": ((b"grpc-encoding", b"gzip"), b"\x01\0\0\0\x04\x1f\x8b\x08\0", "13"),
    "no message": ((b"a", b"b"), b"", "13"),
    "two messages": ((b"a", b"b"), prefix(b"") * 2, "13"),
    "half a message": ((b"a", b"b"), prefix(b"abc")[:-1], "13"),
    "too large": ((b"a", b"b"), b"\0\x7f\xff\xff\xff", "8"),
}


@pytest.mark.parametrize("name", GRPC_REFUSALS)
async def test_what_is_no_good_call_gets_a_status(name: str) -> None:
    field, data, status = GRPC_REFUSALS[name]
    async with serving() as (server, service), Wire(server.port) as wire:
        wire.send(headers(*CALL, field), frame(DATA, END_STREAM, 1, data))
        head, _, trailers = await wire.answer(1)
        assert (head[":status"], trailers["grpc-status"]) == ("200", status)
        assert ("grpc-accept-encoding" in trailers) == (name == "encoding")
        assert service.calls == []
        wire.send(call(3))
        assert (await wire.answer(3))[1] == prefix(b"hello")


async def test_a_client_with_a_small_table_is_told_that_ours_is_empty() -> None:
    async with serving() as (server, _), Wire(server.port, first={1: 0}) as wire:
        wire.decoder.max_allowed_table_size = 0  # which makes it refuse blocks that do not say so
        for stream in (1, 3):
            wire.send(call(stream))
            assert (await wire.answer(stream))[1] == prefix(b"hello")


async def test_tls_without_alpn_is_closed(certificate: Certificate) -> None:
    async with serving(tls=certificate.server_context()) as (server, _):
        async with Wire(server.port, tls=certificate.client_context("h2")) as wire:
            wire.send(call(1))
            assert (await wire.answer(1))[1] == prefix(b"hello")
        async with Wire(server.port, tls=certificate.client_context()) as wire:
            wire.send(call(1))
            while (received := await wire.read()) is not None:
                assert received.kind != HEADERS


async def test_a_connection_without_a_preface_is_closed() -> None:
    async with serving() as (server, _), Wire(server.port, greet=False) as wire, Wire(server.port) as other:
        await other.settled()
        wire.send(PREFACE[:5])
        await until(lambda: server.connections == 2)
        pass_time(server, 11)
        assert await wire.goaway() is E.PROTOCOL_ERROR
        other.send(call(1))
        assert (await other.answer(1))[1] == prefix(b"hello")


async def test_a_header_block_that_does_not_end_ends_the_connection() -> None:
    peer = ByHand({}, clock=(loop := ManualLoop(100.0)))
    peer.greet()
    loop.now = 200.0
    peer.send(frame(HEADERS, 0, 1, b""))
    peer.connection.check_timeouts(209.0)
    assert GOAWAY not in [f.kind for f in peer.frames()]
    peer.connection.check_timeouts(211.0)
    assert peer.frames()[-1].code is E.PROTOCOL_ERROR
