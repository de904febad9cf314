"""Frames of the link that have begun and not ended: whose room they take, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tarry.api.operations import Ping
from tarry.base.errors import OverloadedError, TarryError
from tarry.fronts.link import half_frames, questions
from tarry.fronts.link.half_frames import HalfFrames, peer_of
from tarry.link.frames import HEAD, FrameKind
from tests.link.conftest import Connect
from tests.link.raw_client import RawClient
from tests.waiting import wait_until

MIB = 1 << 20


class Peer:
    """A connection as the bound sees it."""

    def __init__(self, halves: HalfFrames[Peer], peer: str) -> None:
        self._halves, self._peer = halves, peer
        self.reads = True
        self.reason: TarryError | None = None

    def refuse(self, error: TarryError) -> None:
        self.reason = error

    def has(self, held: int, length: int = 1000, *, is_new: bool = False) -> None:
        self._halves.note(self, self._peer, held, length, is_new=is_new)


class Loop:
    """A loop whose timer the test fires."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        assert delay_s == half_frames.LOOK_S
        self.due.append(call)
        return call

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            [call] = self.due
            self.due.clear()
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def halves(loop: Loop) -> HalfFrames[Peer]:
    timers: Any = loop
    return HalfFrames(timers, 100)


def test_the_peer_that_holds_most_loses_its_oldest_frame(halves: HalfFrames[Peer]) -> None:
    many = [Peer(halves, "10.0.0.1") for _ in range(5)]
    for each in many:
        each.has(10)
    second, innocent = Peer(halves, "10.0.0.3"), Peer(halves, "10.0.0.2")
    second.has(15)
    innocent.has(35)
    assert not any(each.reason for each in (*many, second, innocent))
    innocent.has(45)
    assert isinstance(many[0].reason, OverloadedError)
    assert "more than 100 bytes" in str(many[0].reason)
    assert not any(each.reason for each in (*many[1:], second, innocent)), "nobody else's, though one is larger"
    many[4].has(20)
    assert many[1].reason
    assert not innocent.reason


def test_a_new_frame_of_a_connection_is_no_old_one(halves: HalfFrames[Peer]) -> None:
    first, second = Peer(halves, ""), Peer(halves, "")
    first.has(50)
    second.has(50)
    first.has(40, is_new=True)
    first.has(51)
    assert second.reason
    assert not first.reason


def test_one_address_elsewhere_may_have_half(halves: HalfFrames[Peer]) -> None:
    first, second, other = Peer(halves, "10.0.0.1"), Peer(halves, "10.0.0.1"), Peer(halves, "10.0.0.2")
    first.has(30)
    other.has(30)
    second.has(21)
    assert "frames of 10.0.0.1 that have not ended have more than 50 bytes" in str(first.reason)
    assert not second.reason
    assert not other.reason


def test_this_machine_is_one_peer_and_may_have_all(halves: HalfFrames[Peer]) -> None:
    assert {peer_of(host) for host in ("", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")} == {""}
    assert peer_of("10.0.0.1") == "10.0.0.1"
    assert peer_of("fe80::1%eth0") == "fe80::1%eth0"
    here = Peer(halves, peer_of("::1"))
    here.has(100)
    assert not here.reason
    here.has(101)
    assert here.reason


def test_a_frame_has_so_long_to_come_whole(halves: HalfFrames[Peer], loop: Loop) -> None:
    small, large, closed = Peer(halves, ""), Peer(halves, ""), Peer(halves, "")
    small.has(5)
    large.has(5, 10 * MIB)
    closed.has(5)
    loop.look(20)
    small.has(6)
    halves.forget(closed)
    loop.look(10)
    assert not small.reason
    loop.look()
    assert "has not come whole in 30 s, but 6 bytes of it; allowed: 30 s, and 1 s more for each MiB" in str(
        small.reason
    )
    loop.look(9)
    assert not large.reason
    loop.look()
    assert "in 40 s" in str(large.reason)
    assert not closed.reason
    assert not loop.due, "there is no timer while no frame is incomplete"


def test_each_frame_has_its_own_time(halves: HalfFrames[Peer], loop: Loop) -> None:
    busy = Peer(halves, "")
    for _ in range(5):
        busy.has(5, is_new=True)
        loop.look(29)
    assert not busy.reason


def test_time_counts_only_while_the_connection_is_read(halves: HalfFrames[Peer], loop: Loop) -> None:
    waiting = Peer(halves, "")
    waiting.has(5)
    waiting.reads = False
    loop.look(100)
    waiting.reads = True
    loop.look(30)
    assert not waiting.reason
    loop.look()
    assert waiting.reason


def half(client: RawClient, length: int = 1000, sent: int = 10) -> None:
    client.send_bytes(HEAD.pack(length, FrameKind.SUBMIT, 7) + bytes(sent))


def test_who_sends_half_a_frame_is_cut_off(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_frames, "HALF_S", 0.2)
    monkeypatch.setattr(half_frames, "LOOK_S", 0.1)
    silent, beginning, other = connect(), connect(), connect()
    half(silent)
    beginning.send_bytes(b"\1")
    for client in (silent, beginning):
        reason = client.ended()
        assert reason is not None
        assert reason["code"] == "overloaded"
        assert "has not come whole in 0 s" in reason["message"]
    assert other.call("ping"), "who has begun nothing is left alone"


def test_half_a_frame_of_a_client_that_is_not_read_waits(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_frames, "HALF_S", 0.1)
    monkeypatch.setattr(half_frames, "LOOK_S", 0.01)
    looks, go_on = [0], threading.Event()
    look, whole = HalfFrames._look, questions._call  # noqa: SLF001  where all calls begin

    def counted(self: HalfFrames[Any]) -> None:
        looks[0] += 1
        look(self)

    def slow(*arguments: Any) -> Any:
        assert go_on.wait(20)
        return whole(*arguments)

    monkeypatch.setattr(HalfFrames, "_look", counted)
    monkeypatch.setattr(questions, "_call", slow)
    client = connect()
    ping = b'{"op": "%s"}' % Ping.wire.name.encode()
    calls = b"".join(HEAD.pack(len(ping), FrameKind.CALL, number) + ping for number in range(1, 6))
    client.send_bytes(calls + HEAD.pack(len(ping), FrameKind.CALL, 6) + ping[:5])
    wait_until(lambda: looks[0] > 30)
    client.send_bytes(ping[5:])
    go_on.set()
    for number in range(1, 7):
        client.read(FrameKind.RESULT, number)


def test_many_small_halves_do_not_keep_a_large_frame_out(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[HalfFrames[Any]] = []
    note = HalfFrames.note

    def bounded(self: HalfFrames[Any], *arguments: Any, **how: Any) -> None:
        self._bytes_max = 20 * MIB  # the bound of a port, made small
        made.append(self)
        note(self, *arguments, **how)

    monkeypatch.setattr(HalfFrames, "note", bounded)
    holding = [connect() for _ in range(19)]
    for client in holding:
        half(client, 300 * MIB, MIB)
    wait_until(lambda: made[-1]._total >= 19 * MIB)  # noqa: SLF001
    innocent = connect()
    assert innocent.schedule(topic=["a"] * 8, delay_ms=[3_600_000] * 8, body=[bytes(MIB)] * 8) == 0
    assert holding[0].ended()
