"""Waiting for the disk in another thread, so that the event loop never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from tarry.api.consuming import OnResult
from tarry.base.errors import TarryError
from tarry.base.event_loop import answer_future
from tarry.fronts.rocketmq.common.refusal import Refusal

R = TypeVar("R")


class RunInThread:
    """Runs work in a thread of ``pool``, when called.

    The future that is returned is awaited on the loop's thread, and has the result; a TarryError that the work raises
    becomes a :class:`Refusal`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        self._loop = loop
        self._pool = pool

    def __call__(self, work: Callable[[], R]) -> asyncio.Future[R]:
        def run() -> R:
            try:
                return work()
            except TarryError as error:
                raise Refusal.of(error) from error

        return self._loop.run_in_executor(self._pool, run)


async def durably(loop: asyncio.AbstractEventLoop, begin: Callable[[OnResult], object]) -> None:
    """Wait until what ``begin`` starts is durable.

    Raises:
        Refusal: the reason why it is not durable. Exceptions of ``begin`` are raised as they are.
    """
    done: asyncio.Future[None]
    done, on_result = answer_future(loop)
    begin(on_result)
    try:
        await done
    except TarryError as error:
        raise Refusal.of(error) from error
