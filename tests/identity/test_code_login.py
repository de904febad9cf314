"""What a provider is asked for logins by code, when it is slow: how often, by how many, and who waits for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tarry.base.errors import OverloadedError, UnauthenticatedError, UnavailableError
from tarry.base.issuer_settings import IssuerSettings
from tarry.identity import code_login
from tarry.identity.code_login import AGAIN_MS, KEPT_MS, REDEEMED_MAX, REDEEMED_OF_PEER_MAX, CodeLogin
from tarry.outbound.connection import HttpAnswer, HttpTarget
from tarry.testing import TestClock

ISSUER = "https://login.example"
PEER = "192.0.2.1"


class SlowProvider:
    """Answers when a test says so. A client of HTTP, as far as it is asked here."""

    def __init__(self, clock: TestClock) -> None:
        self.clock = clock
        self.asked = 0
        self.answers = asyncio.Event()
        self.status = 200
        self.path = "first"

    async def send(self, target: HttpTarget, headers: Any, body: bytes, timeout_s: float) -> HttpAnswer:
        self.asked += 1
        await self.answers.wait()
        if self.status != 200:
            self.clock.advance_ms(int(timeout_s * 1000))
            return HttpAnswer(None, "no answer")
        told = {"issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/{self.path}", "token_endpoint": f"{ISSUER}/t"}
        return HttpAnswer(200, None, json.dumps({**told, "id_token": "x"}).encode())


class Bench:
    def __init__(self) -> None:
        self.clock = TestClock(1_000_000)
        self.provider = SlowProvider(self.clock)
        settings = IssuerSettings("one", ISSUER, "tarry", client_id="console")
        self.login = CodeLogin(settings, self.provider, self.clock)  # type: ignore[arg-type]

    async def begin(self) -> str:
        return (await self.login.address("https://tarry.example/back", "s", "n", "v")).partition("?")[0]

    async def redeem(self, peer: str) -> str:
        return await self.login.redeem("code", "https://tarry.example/back", "v", peer)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def run(play: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        await play(Bench())

    asyncio.run(all_of_it())


def test_one_failure_is_for_all_who_wait() -> None:
    async def play(bench: Bench) -> None:
        bench.provider.status = 0
        waiting = [asyncio.create_task(bench.begin()) for _ in range(300)]
        await turns()
        bench.provider.answers.set()
        said = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in said} == {UnavailableError}
        assert bench.provider.asked == 1
        with pytest.raises(UnavailableError, match="no answer"):
            await bench.begin()
        assert bench.provider.asked == 1, "the pause begins with the answer"
        bench.clock.advance_ms(AGAIN_MS)
        bench.provider.status = 200
        assert await bench.begin() == f"{ISSUER}/first"

    run(play)


def test_a_bug_is_said_to_be_one() -> None:
    async def play(bench: Bench) -> None:
        async def send(*_: Any) -> HttpAnswer:
            raise KeyError("secret")

        bench.provider.send = send  # type: ignore[method-assign]
        for _ in range(2):
            with pytest.raises(UnavailableError, match=f"^{ISSUER} could not be asked: KeyError$"):
                await bench.begin()

    run(play)


def test_who_goes_away_does_not_end_the_question_of_others() -> None:
    async def play(bench: Bench) -> None:
        first, second = (asyncio.create_task(bench.begin()) for _ in range(2))
        await turns()
        first.cancel()
        await turns()
        bench.provider.answers.set()
        assert await second == f"{ISSUER}/first"
        assert bench.provider.asked == 1

    run(play)


def test_what_was_good_is_used_while_the_provider_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_login, "MEANWHILE_S", 0)

    async def play(bench: Bench) -> None:
        bench.provider.answers.set()
        assert await bench.begin() == f"{ISSUER}/first"
        bench.provider.answers.clear()
        bench.provider.path = "second"
        bench.clock.advance_ms(KEPT_MS)
        assert [await bench.begin() for _ in range(10)] == [f"{ISSUER}/first"] * 10
        assert bench.provider.asked == 2
        bench.provider.answers.set()
        await turns()
        assert await bench.begin() == f"{ISSUER}/second"

    run(play)


def test_what_is_told_in_time_is_used_at_once() -> None:
    async def play(bench: Bench) -> None:
        bench.provider.answers.set()
        await bench.begin()
        bench.provider.path = "second"
        bench.clock.advance_ms(KEPT_MS)
        assert await bench.begin() == f"{ISSUER}/second"

    run(play)


def test_one_peer_does_not_have_all_places() -> None:
    async def play(bench: Bench) -> None:
        bench.provider.answers.set()
        await bench.begin()
        bench.provider.answers.clear()
        hanging = [asyncio.create_task(bench.redeem(PEER)) for _ in range(REDEEMED_MAX)]
        await turns()
        assert bench.provider.asked == 1 + REDEEMED_OF_PEER_MAX
        refused = [each.exception() for each in hanging if each.done()]
        assert len(refused) == REDEEMED_MAX - REDEEMED_OF_PEER_MAX
        assert str(refused[0]) == f"4 logins of {PEER} are on their way at one; no more are allowed"
        others = [asyncio.create_task(bench.redeem(f"198.51.100.{number}")) for number in range(REDEEMED_MAX)]
        await turns()
        assert bench.provider.asked == 1 + REDEEMED_MAX
        assert isinstance(others[-1].exception(), OverloadedError)
        bench.provider.answers.set()
        assert await others[0] == "x"
        await turns()
        assert await bench.redeem(PEER) == "x"

    run(play)


def test_no_code_is_not_asked_for() -> None:
    async def play(bench: Bench) -> None:
        with pytest.raises(UnauthenticatedError, match="no code"):
            await bench.login.redeem("", "https://tarry.example/back", "v", PEER)
        assert bench.provider.asked == 0

    run(play)
