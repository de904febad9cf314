"""A front's thread ends at a stop, also while work beside it waits for an answer that does not come."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor

import pytest

from tarry.base.placement import ANY_CORE
from tarry.fronts.kit import loop_thread
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted


def test_a_stop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "END_S", 0.05)
    waiting, answered, ended = threading.Event(), threading.Event(), threading.Event()

    def wait_for_store() -> None:
        waiting.set()
        answered.wait()
        ended.set()

    async def serve(pool: Executor, on_started: OnStarted[int]) -> None:
        stopped = on_started(7)
        work = asyncio.get_running_loop().run_in_executor(pool, wait_for_store)
        await stopped
        assert not work.done()

    front = LoopThread("front", ANY_CORE, serve)
    assert front.started() == 7
    assert waiting.wait(60)
    stopping = threading.Thread(target=front.stop, args=(0.0,), daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive(), "it waits for work that has no answer"
    assert not ended.is_set()
    answered.set()  # the broker is closed
    assert ended.wait(60)
