"""Frames that nobody would send, cut anywhere: nothing hangs, nothing raises, nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopgrpc.frames import PREFACE, frame
from loopgrpc.frames import settings as settings_frame
from loopgrpc.framing import prefix
from loopgrpc.responses import encode_literal
from tests.examples import examples
from tests.loopgrpc.by_hand import ByHand
from tests.loopgrpc.serving import Service, serving
from tests.loopgrpc.wire import CALL, Wire, block, call

streams = st.sampled_from([0, 1, 1, 1, 3, 3, 5, 7, 2, 2**31 - 1])
numbers = st.sampled_from([0, 1, 2, 100, 65_535, 2**31 - 1, 2**31, 2**32 - 1]).map(lambda n: n.to_bytes(4, "big"))
methods = st.sampled_from(
    ["Echo", "Later", "Promise", "Wait", "Count", "Endless", "Sum", "First", "Chat", "None", "Fail"]
)
fields = st.lists(
    st.sampled_from([*CALL, (b"grpc-timeout", b"1m"), (b"grpc-encoding", b"gzip"), (b"A", b""), (b"x", b"y" * 50)]),
    max_size=10,
).map(lambda chosen: b"".join(encode_literal(*f) for f in chosen))
blocks = st.one_of(methods.map(lambda m: block(path=f"/test.Test/{m}")), fields, st.binary(max_size=20))
payloads = st.one_of(
    blocks, numbers, st.binary(max_size=30), st.sampled_from([prefix(b"5"), prefix(b""), prefix(b"abc")[:6]])
)
random_frames = st.builds(
    frame,
    st.one_of(st.integers(0, 9), st.integers(0, 255)),
    st.sampled_from([0, 1, 4, 5, 8, 13, 0x20, 0x2D]),
    streams,
    payloads,
)
good_frames = st.builds(
    lambda s, m, body: call(s, None if body is None else body, path=f"/test.Test/{m}"),
    st.sampled_from([1, 3, 5, 7, 9]),
    methods,
    st.sampled_from([None, b"3", b"soon"]),
)
settings_frames = st.dictionaries(st.integers(1, 6), st.sampled_from([0, 1, 16_384, 65_535, 2**31 - 1])).map(
    settings_frame
)


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.one_of(random_frames, good_frames, settings_frames), max_size=25),
    st.lists(st.integers(1, 200), max_size=30),
    st.lists(st.sampled_from(["turn", "pause", "resume", "tick", ""]), max_size=30),
)
def test_whatever_comes_is_worked_through(frames: list[bytes], cuts: list[int], between: list[str]) -> None:
    asyncio.run(_work_through(PREFACE + settings_frame({}) + b"".join(frames), list(cuts), list(between)))


async def _work_through(data: bytes, cuts: list[int], between: list[str]) -> None:
    service = Service()
    peer = ByHand(service.handlers(), linger_s=0.0)
    connection = peer.connection
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    while data:
        size = cuts.pop() if cuts else len(data)
        peer.send(data[:size])
        data = data[size:]
        match between.pop() if between else "turn":
            case "turn":
                await asyncio.sleep(0)
            case "pause":
                connection.pause_writing()
            case "resume":
                connection.resume_writing()
            case "tick":
                connection.check_timeouts(asyncio.get_running_loop().time())
    for _ in range(5):
        await asyncio.sleep(0)
    usage = connection.usage()
    assert usage.buffered_bytes >= 0
    # Private, as it compares a sum with its parts, which nobody else needs.
    streams = connection._streams._table.values()  # noqa: SLF001 - that nothing is left open shows nowhere else
    assert usage.pending_bytes == sum(len(piece) for stream in streams for piece in stream.response.pending)
    assert {f.kind for f in peer.frames()} <= {0, 1, 3, 4, 6, 7, 8, 9}
    connection.connection_lost(None)
    for promise in service.promises:
        if not promise.done():
            promise.set_result(b"")
    while peer.owner.tasks:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    usage = connection.usage()
    assert (usage.streams, usage.late_handlers, usage.buffered_bytes, usage.pending_bytes) == (0, 0, 0, 0)
    assert len(service.ended) == len(service.calls)
    assert errors == []


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="loopgrpc")


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(random_frames, good_frames, st.binary(max_size=100)), max_size=20))
def test_a_second_connection_never_notices(frames: list[bytes]) -> None:
    async def run() -> None:
        async with serving() as (server, _), Wire(server.port) as bad, Wire(server.port) as good:
            bad.send(*frames)
            good.send(call(1))
            assert (await asyncio.wait_for(good.answer(1), 20))[1] == prefix(b"hello")

    asyncio.run(run())


steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(["Echo", "Later", "Promise"]), st.integers(0, 40_000)),
        st.tuples(st.just("big"), st.just("Big"), st.integers(0, 200_000)),
        st.tuples(st.just("window"), st.just(""), st.sampled_from([0, 1, 100, 65_535, 1 << 20])),
        st.tuples(st.just("reset"), st.just(""), st.just(0)),
        st.tuples(st.just("padded"), st.just("Echo"), st.integers(0, 3_000)),
    ),
    max_size=14,
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_h2_agrees_with_all_that_it_is_sent(chosen: list[tuple[str, str, int]]) -> None:
    """``h2`` is strict about what it receives: windows, states and header blocks that are wrong make it raise."""
    asyncio.run(_converse(chosen))


async def _converse(chosen: list[tuple[str, str, int]]) -> None:
    async with serving() as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        peer.initiate_connection()
        expected: dict[int, bytes] = {}
        got: dict[int, bytes] = {}
        ended: set[int] = set()
        requested = acknowledged = 1

        async def exchange(enough: Any) -> None:
            nonlocal acknowledged
            while True:
                writer.write(peer.data_to_send())
                if enough():
                    return
                data = await asyncio.wait_for(reader.read(65_536), 20)
                assert data, "the connection ended"
                for event in peer.receive_data(data):
                    if isinstance(event, h2.events.DataReceived):
                        got[event.stream_id] = got.get(event.stream_id, b"") + event.data
                        peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        ended.add(event.stream_id)
                    elif isinstance(event, h2.events.SettingsAcknowledged):
                        acknowledged += 1
                    assert not isinstance(event, h2.events.ConnectionTerminated | h2.events.StreamReset), event

        async def window(size: int) -> None:
            # One after the other: h2 takes an acknowledgement for all that it has sent.
            nonlocal requested
            peer.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: size})
            requested += 1
            await exchange(lambda: acknowledged == requested)

        acknowledged = 0
        await exchange(lambda: acknowledged == requested)
        for kind, method, size in chosen:
            if kind == "window":
                await window(size)
                continue
            stream = peer.get_next_available_stream_id()
            path = f"/test.Test/{method or 'Wait'}"
            peer.send_headers(stream, [(n, path.encode() if n == b":path" else v) for n, v in CALL])
            if kind == "reset":
                peer.reset_stream(stream)
                continue
            body = prefix(b"%d" % size if kind == "big" else b"soon" if method == "Promise" else bytes(size))
            for at in range(0, len(body), 16_000):
                part = body[at : at + 16_000]
                await exchange(lambda s=stream, p=part: peer.local_flow_control_window(s) >= len(p) + 9)
                last = at + 16_000 >= len(body)
                peer.send_data(stream, part, end_stream=last, pad_length=7 if kind == "padded" else None)
            expected[stream] = prefix(bytes(size)) if kind == "big" else body
        await window(1 << 20)
        await exchange(lambda: ended >= set(expected))
        assert {s: got.get(s, b"") for s in expected} == expected
        writer.close()
