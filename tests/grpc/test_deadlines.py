"""Deadlines: those that are far have no timer, and end all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loopgrpc import Call, Limits, Unary
from loopgrpc.answers import prefix, trailers
from loopgrpc.connection import Connection
from loopgrpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, frame, settings
from loopgrpc.status import StatusCode
from tests.grpc.wire import CALL, block

pytestmark = pytest.mark.asyncio

LATE = trailers(StatusCode.DEADLINE_EXCEEDED, "the deadline of the call has passed")


class Loop:
    """A loop's clock and timers, by hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], Any]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], Any]) -> asyncio.Handle:
        self.timers.append((when, callback))
        return asyncio.Handle(callback, [], self._loop)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Socket(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Owner:
    """A server with one method that never answers."""

    def __init__(self, loop: Any) -> None:
        self.limits = Limits()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.loop = loop
        self.calls: list[Call] = []
        self.handlers = {b"/test.Test/Echo": Unary(self.wait)}

    def wait(self, message: bytes, call: Call) -> asyncio.Future[bytes]:
        self.calls.append(call)
        return asyncio.get_running_loop().create_future()

    def joined(self, connection: Connection) -> bool:
        return True

    def left(self, connection: Connection) -> None:
        pass


async def opened(whole: bool) -> tuple[Loop, Owner, Connection, Socket]:
    """A call with ten seconds, at 100 s."""
    loop, socket = Loop(asyncio.get_running_loop()), Socket()
    owner = Owner(loop)
    connection = Connection(owner)
    connection.connection_made(socket)
    fields = block(*CALL, (b"grpc-timeout", b"10S"))
    message = frame(DATA, END_STREAM, 1, prefix(b"")) if whole else b""
    connection.data_received(PREFACE + settings({}) + frame(HEADERS, END_HEADERS, 1, fields) + message)
    return loop, owner, connection, socket


async def test_a_call_gets_its_timer_when_its_deadline_is_near() -> None:
    loop, owner, connection, socket = await opened(whole=True)
    for second in (101, 106):
        connection.tick(float(second))
        assert not loop.timers
    connection.tick(107.5)
    connection.tick(108.5)
    [(when, expire)] = loop.timers
    assert (when, owner.calls[0].done) == (110.0, False)
    expire()
    await asyncio.sleep(0)
    assert owner.calls[0].cancelled
    assert LATE in socket.written


@pytest.mark.parametrize("now", [110.0, 200.0])
async def test_a_request_that_never_comes_whole_ends_with_a_tick(now: float) -> None:
    loop, owner, connection, socket = await opened(whole=False)
    connection.tick(109.9)
    assert LATE not in socket.written
    loop.now = now
    connection.tick(now)
    await asyncio.sleep(0)
    assert LATE in socket.written
    assert not loop.timers
    assert not owner.calls


async def test_a_tick_that_comes_late_ends_what_is_overdue() -> None:
    loop, owner, connection, _ = await opened(whole=True)
    connection.tick(150.0)
    [(when, expire)] = loop.timers
    assert when == 110.0, "which a loop runs at once"
    expire()
    assert owner.calls[0].cancelled
