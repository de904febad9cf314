"""What a worker knows of its broker's lease: never more than there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tarry.api.wire import encode_json
from tarry.base.errors import UnavailableError
from tarry.broker import Broker
from tarry.fronts.gateway.remote.lease import ASK_S, RemoteLease
from tarry.link.frames import FrameKind
from tarry.link.peer import OnAnswer
from tests.engines.object_store import run_virtually
from tests.gateway.places import GatewayPlace


class Link:
    """A link whose questions the test answers."""

    def __init__(self) -> None:
        self.lost = False
        self.asked: list[OnAnswer] = []

    def ask(self, kind: FrameKind, on_answer: OnAnswer, *payload: bytes) -> None:
        assert (kind, payload) == (FrameKind.LEASE, ())
        self.asked.append(on_answer)


def answer(left_ms: int | None) -> memoryview:
    return memoryview(encode_json(left_ms))


def test_it_counts_from_the_moment_before_the_question() -> None:
    async def run() -> None:
        loop, link = asyncio.get_running_loop(), Link()
        lease = RemoteLease(loop.time)
        assert lease.lasts()
        beginning = asyncio.create_task(lease.begin(link))
        await asyncio.sleep(0.5)
        assert not lease.lasts()
        link.asked[0](answer(700))
        await beginning
        assert lease.lasts()
        await asyncio.sleep(ASK_S)  # 0.75 s after the question
        assert not lease.lasts()
        await asyncio.sleep(2 * ASK_S)
        assert len(link.asked) == 2  # one at a time
        link.asked[1](answer(2000))
        assert lease.lasts()
        await asyncio.sleep(2 * ASK_S)
        link.asked[2](UnavailableError("lost"))
        assert lease.lasts()  # what is left
        link.lost = True
        await asyncio.sleep(2.0)
        assert not lease.lasts()
        assert len(link.asked) == 3

    run_virtually(run())


def test_it_asks_again_at_once_after_a_slow_answer() -> None:
    async def run() -> None:
        loop, link = asyncio.get_running_loop(), Link()
        lease = RemoteLease(loop.time)
        beginning = asyncio.create_task(lease.begin(link))
        await asyncio.sleep(2 * ASK_S)
        link.asked[0](answer(0))  # it was over then
        await beginning
        await asyncio.sleep(0.001)
        link.asked[1](answer(2000))
        assert lease.lasts()

    run_virtually(run())


def test_it_ends_with_the_link() -> None:
    async def run() -> None:
        link, lease = Link(), RemoteLease(asyncio.get_running_loop().time)
        beginning = asyncio.create_task(lease.begin(link))
        await asyncio.sleep(0.1)
        link.asked[0](answer(2000))
        await beginning
        link.lost = True
        lease.end()
        assert not lease.lasts()
        await asyncio.sleep(ASK_S)
        assert len(link.asked) == 1
        await lease.begin(link)  # nobody answers
        assert not lease.lasts()

    run_virtually(run())


def test_where_nobody_takes_logs_over_it_lasts() -> None:
    async def run() -> None:
        link, lease = Link(), RemoteLease(asyncio.get_running_loop().time)
        beginning = asyncio.create_task(lease.begin(link))
        await asyncio.sleep(0.1)
        link.asked[0](answer(None))
        await beginning
        await asyncio.sleep(0.2)
        assert lease.lasts()

    run_virtually(run())


def test_a_worker_hands_out_while_its_broker_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_ms = [0]
    monkeypatch.setattr(Broker, "epoch", property(lambda _: 3))
    monkeypatch.setattr(Broker, "lease_left_ms", property(lambda _: left_ms[0]))
    place = GatewayPlace(tmp_path / "data")
    try:
        rpc = place.client()
        rpc.send("orders", b"x")
        assert rpc.receive("orders", "g", wait_s=0.5) == []
        left_ms[0] = 60_000
        while not (found := rpc.receive("orders", "g", wait_s=1)):
            pass
        assert found[0].body == b"x"
    finally:
        place.close()
