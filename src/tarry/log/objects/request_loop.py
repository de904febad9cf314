"""An event loop in a thread of its own, on which requests of other threads are carried out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

A = TypeVar("A")
CLOSE_S = 0.5
"""Longest wait for requests under way, which nobody needs any more."""


class RequestLoop:
    """An event loop in a thread of its own; ``loop`` is for who needs it itself."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="tarry-log-objects", daemon=True)
        self._thread.start()
        self._closing = False

    def start(self, work: Coroutine[Any, Any, A]) -> Future[A]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, A]) -> A:
        return self.start(work).result()

    def close(self) -> None:
        """End all that is under way. A PUT may arrive all the same.

        A request that gets no answer ends with its own time-out. It is not waited for: the loop ends behind it.
        """
        if self._closing or self.loop.is_closed():
            return
        self._closing = True
        ended = self.start(self._cancel())
        ended.add_done_callback(lambda _: self.loop.call_soon_threadsafe(self.loop.stop))
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self.loop.close()

    async def _cancel(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
