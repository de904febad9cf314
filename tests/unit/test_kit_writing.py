"""What a connection writes: in one call a turn, counted while it is not read, and cut off when nothing is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from loopgrpc import UnreadBytes
from tarry.fronts.kit.writing import ConnectionWriter


class Transport:
    """Keeps what is written; ``unread`` is what its peer has not taken."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unread = 0
        self.closing = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str) -> None:
        return None


Test = Callable[[ConnectionWriter, Any, UnreadBytes, list[str]], Coroutine[Any, Any, None]]


def run(test: Test) -> None:
    async def with_writer() -> None:
        unread, cut = UnreadBytes(100 << 20), list[str]()
        writer = ConnectionWriter(asyncio.get_running_loop(), unread, "host", cut.append)
        transport: Any = Transport()
        writer.begin(transport)
        await test(writer, transport, unread, cut)

    asyncio.run(with_writer())


def test_one_turn_is_one_write() -> None:
    async def test(writer: ConnectionWriter, transport: Transport, unread: UnreadBytes, cut: list[str]) -> None:
        writer.write(b"a")
        writer.write(b"b")
        assert transport.written == []
        await asyncio.sleep(0)
        writer.write(b"c")
        writer.flush()
        writer.flush()
        transport.closing = True
        writer.write(b"d")
        await asyncio.sleep(0)
        assert transport.written == [b"ab", b"c"]

    run(test)


def test_unread_bytes_are_counted_until_they_are_read() -> None:
    async def test(writer: ConnectionWriter, transport: Transport, unread: UnreadBytes, cut: list[str]) -> None:
        assert writer.reads and writer.has_room
        transport.unread = 60 << 20
        writer.pause()
        assert (unread.held, writer.reads, writer.has_room) == (60 << 20, False, False)
        waiting = asyncio.ensure_future(writer.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        transport.unread = 70 << 20
        writer.write(b"x")
        await asyncio.sleep(0)
        assert unread.held == 70 << 20
        writer.resume()
        await waiting
        assert (unread.held, writer.has_room) == (0, True)
        # Another connection of the address holds as much as it may.
        unread.add("host", 90 << 20)
        assert writer.reads and not writer.has_room and not writer.room().is_free
        writer.end()
        await writer.wait_for_room()

    run(test)


def test_a_client_that_takes_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.kit.writing.LOOK_S", 0.01)
    monkeypatch.setattr("tarry.fronts.kit.writing.STALLED_S", 0.05)

    async def test(writer: ConnectionWriter, transport: Transport, unread: UnreadBytes, cut: list[str]) -> None:
        transport.unread = 1000
        writer.pause()
        async with asyncio.timeout(60):
            while not cut:
                await asyncio.sleep(0.01)
        assert cut == ["it took nothing of 1000 bytes for 0 s"]
        writer.end()
        assert unread.held == 0

    run(test)


def test_progress_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.kit.writing.LOOK_S", 0.0)
    monkeypatch.setattr("tarry.fronts.kit.writing.STALLED_S", 30.0)

    async def test(writer: ConnectionWriter, transport: Transport, unread: UnreadBytes, cut: list[str]) -> None:
        transport.unread = 1000
        writer.pause()
        writer.pause()
        async with asyncio.timeout(60):
            while unread.held:
                transport.unread = max(0, transport.unread - 100)
                await asyncio.sleep(0.001)
        writer.resume()
        assert cut == []

    run(test)
