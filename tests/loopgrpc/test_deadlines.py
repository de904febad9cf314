"""Deadlines: those that are far have no timer, and end all the same."""

from __future__ import annotations

import asyncio

import pytest

from loopgrpc import Call, StatusCode, Unary
from loopgrpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame
from loopgrpc.framing import prefix
from loopgrpc.responses import encode_trailers
from tests.loopgrpc.by_hand import ByHand, ManualLoop
from tests.loopgrpc.wire import CALL, block

pytestmark = pytest.mark.asyncio

LATE = encode_trailers(StatusCode.DEADLINE_EXCEEDED, "the deadline of the call has passed")


class Method:
    """A method that never answers."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, message: bytes, call: Call) -> asyncio.Future[bytes]:
        self.calls.append(call)
        return asyncio.get_running_loop().create_future()


def opened(whole: bool) -> tuple[ManualLoop, Method, ByHand]:
    """A call with ten seconds, at 100 s."""
    loop, method = ManualLoop(100.0), Method()
    peer = ByHand({"/test.Test/Echo": Unary(method)}, clock=loop)
    peer.greet()
    peer.send(frame(HEADERS, END_HEADERS, 1, block(*CALL, (b"grpc-timeout", b"10S"))))
    if whole:
        peer.send(frame(DATA, END_STREAM, 1, prefix(b"")))
    return loop, method, peer


async def test_a_call_gets_its_timer_when_its_deadline_is_near() -> None:
    loop, method, peer = opened(whole=True)
    for second in (101, 106):
        peer.connection.check_timeouts(float(second))
        assert not loop.timers
    peer.connection.check_timeouts(107.5)
    peer.connection.check_timeouts(108.5)
    [(when, expire)] = loop.timers
    assert (when, method.calls[0].done) == (110.0, False)
    expire()
    await asyncio.sleep(0)
    assert method.calls[0].cancelled
    assert LATE in peer.transport.written


@pytest.mark.parametrize("now", [110.0, 200.0])
async def test_a_request_that_never_comes_whole_ends_with_a_tick(now: float) -> None:
    loop, method, peer = opened(whole=False)
    peer.connection.check_timeouts(109.9)
    assert LATE not in peer.transport.written
    loop.now = now
    peer.connection.check_timeouts(now)
    await asyncio.sleep(0)
    assert LATE in peer.transport.written
    assert not loop.timers
    assert not method.calls


async def test_a_tick_that_comes_late_ends_what_is_overdue() -> None:
    loop, method, peer = opened(whole=True)
    peer.connection.check_timeouts(150.0)
    [(when, expire)] = loop.timers
    assert when == 110.0, "which a loop runs at once"
    expire()
    assert method.calls[0].cancelled
