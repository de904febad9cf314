"""Answers that come from other threads, for futures that may have been cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tarry.base.errors import ClosedError
from tarry.base.event_loop import answer_future, settle_future


def test_a_future_gets_its_result_or_error_once() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        done, failed, left = (loop.create_future() for _ in range(3))
        settle_future(done, 1)
        settle_future(done, 2)
        assert await done == 1
        settle_future(failed, ClosedError("closed"))
        with pytest.raises(ClosedError):
            await failed
        left.cancel()
        settle_future(left, 1)
        assert left.cancelled()

    asyncio.run(test())


def test_an_answer_comes_from_any_thread_to_the_loops() -> None:
    async def test() -> None:
        future: asyncio.Future[str]
        future, on_answer = answer_future(asyncio.get_running_loop())
        threading.Thread(target=on_answer, args=["done"]).start()
        assert await asyncio.wait_for(future, 20) == "done"

    asyncio.run(test())
