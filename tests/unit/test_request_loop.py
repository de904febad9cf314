"""The end of the loop that asks a store: bounded, also while a request gets no answer."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.waiting import wait_until

from tarry.log.objects import request_loop
from tarry.log.objects.request_loop import RequestLoop


def test_a_request_without_an_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_loop, "CLOSE_S", 0.05)
    answered, asked = threading.Event(), threading.Event()

    def request() -> None:
        asked.set()
        answered.wait()

    async def ask() -> None:
        asking = asyncio.get_running_loop().run_in_executor(None, request)
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asking
            raise

    loop = RequestLoop()
    try:
        future = loop.start(ask())
        assert asked.wait(30)
        loop.close()
        loop.close()
        assert not future.done()
    finally:
        answered.set()
    wait_until(lambda: not loop.loop.is_running())


def test_a_loop_without_requests_is_closed() -> None:
    loop = RequestLoop()
    assert loop.run(asyncio.sleep(0, "x")) == "x"
    loop.close()
    assert loop.loop.is_closed()
