"""An event loop in a thread of its own, on which requests of other threads are carried out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

A = TypeVar("A")


class RequestLoop:
    """An event loop in a thread of its own; ``loop`` is for who needs it itself."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="tarry-log-objects", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, A]) -> Future[A]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, A]) -> A:
        return self.start(work).result()

    def close(self) -> None:
        """End all that is under way. A PUT may arrive all the same."""
        if self.loop.is_closed():
            return
        self.run(self._cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _cancel(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
