"""A thread for plain functions that are awaited: one for each message that is handled at a time.

Daemons, not those of an executor: the interpreter waits at its end for these, and a function that hangs would keep a
worker from stopping.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from tarry.base.event_loop import post

_Work = tuple[asyncio.Future[Any], contextvars.Context, Callable[[], Any]]


class WorkThread:
    """Runs one function at a time; begins with the first. In the loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_busy(self) -> bool:
        """True while a function runs, also one that nobody awaits any more."""
        return not self._idle.is_set()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function, in the caller's context; who is cancelled does not stop it. See :meth:`wait_idle`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        done: asyncio.Future[Any] = self._loop.create_future()
        self._idle.clear()
        self._queue.put((done, contextvars.copy_context(), function))
        return await done

    async def wait_idle(self) -> None:
        """Wait for the end of the function that runs."""
        await self._idle.wait()

    def close(self) -> None:
        """Let the thread end after what it does."""
        self._queue.put(None)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            done, context, function = work
            try:
                result: Any = context.run(function)
                error: BaseException | None = None
            except BaseException as raised:  # noqa: BLE001 - it is raised again where the function is awaited
                result, error = None, raised
            post(self._loop, self._finish, done, result, error)
            del work, done, context, function, result, error  # or they would live until the next one

    def _finish(self, done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._idle.set()
        if done.done():
            return  # cancelled: it took too long
        if isinstance(error, StopIteration):  # which no future takes
            error = RuntimeError(f"the handler raised {error!r}")
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)
