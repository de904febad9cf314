"""The places at which tasks run in a process.

Each is a thread. The task of the highest priority gets a free one first.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from tarry.worker import Release
from tarry.worker.threads import WorkThread

HELD_S = 1.0
"""Seconds for which a message waits for a thread; then another process may have it."""


class Slots:
    """Threads, and who waits for one. In the loop."""

    def __init__(self, number: int) -> None:
        self._idle = [WorkThread(f"tarry-task-{each + 1}") for each in range(number)]
        self._waiting: list[tuple[int, int, asyncio.Future[WorkThread]]] = []
        self._order = count()
        self._freeing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def take(self, priority: int) -> AsyncIterator[WorkThread]:
        """Have a thread for the time of the block.

        Raises:
            Release: none was free for a while.
        """
        thread = self._idle.pop() if self._idle else await self._wait(priority)
        try:
            yield thread
        finally:
            if thread.is_busy:  # who waited for it was cancelled, and nobody can stop a thread
                freeing = asyncio.create_task(self._free_later(thread))
                self._freeing.add(freeing)
                freeing.add_done_callback(self._freeing.discard)
            else:
                self._free(thread)

    async def _wait(self, priority: int) -> WorkThread:
        free: asyncio.Future[WorkThread] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._order), free))
        try:
            async with asyncio.timeout(HELD_S):
                return await free
        except BaseException as error:
            if free.done() and not free.cancelled():  # it came as we stopped waiting
                self._free(free.result())
            free.cancel()
            if isinstance(error, TimeoutError):
                raise Release("no thread is free") from None
            raise

    async def _free_later(self, thread: WorkThread) -> None:
        await thread.wait_idle()
        self._free(thread)

    def _free(self, thread: WorkThread) -> None:
        while self._waiting:
            *_, free = heapq.heappop(self._waiting)
            if not free.done():
                free.set_result(thread)
                return
        self._idle.append(thread)
