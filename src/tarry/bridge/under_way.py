"""Tasks under way, which are waited for at a stop and cancelled when their connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class UnderWay:
    """Tasks of one direction of a bridge."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task, and keep it until its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel all of them."""
        for task in self._tasks:
            task.cancel()

    async def until_done(self) -> None:
        """Wait for all of them."""
        if self._tasks:
            await asyncio.wait(self._tasks)
