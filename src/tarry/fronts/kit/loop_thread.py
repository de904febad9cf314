"""A thread that runs an event loop, with a pool of threads beside it for work that waits for the disk."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Generic, TypeAlias, TypeVar

import uvloop

from tarry.base.placement import Placement

log = logging.getLogger(__name__)

END_S = 2.0
"""Longest wait, at a stop, for work of the pool.

Where the store of the logs gives no answer, that work ends with the broker, which is closed behind its fronts.
"""
THREADS = 8
"""Size of the pool, which runs cancellations, changes of groups and topics, and transactions."""

T = TypeVar("T")

OnStarted: TypeAlias = Callable[[T], asyncio.Future[float]]
"""Callback for the result of the start, called once, on the loop.

It returns a future to await. The future is done when it is time to stop; its result is the grace in seconds.
"""
Serve: TypeAlias = Callable[[Executor, OnStarted[T]], Awaitable[None]]
"""Start, call the callback, await the stop that it returns, and shut down.

On the loop. The executor runs work that waits for the disk.
"""


class LoopThread(Generic[T]):
    """A thread that runs ``serve`` on an event loop, started by the constructor. Any thread may call it."""

    def __init__(self, name: str, placement: Placement, serve: Serve[T]) -> None:
        self._name = name
        self._placement = placement
        self._serve = serve
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Future[float]
        self._started: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def started(self) -> T:
        """Wait until ``serve`` has started, and return what it passed to its callback.

        Raises:
            BaseException: the start failed with it; the thread has ended.
        """
        try:
            return self._started.result()
        except BaseException:
            self._thread.join()
            raise

    def stop(self, grace_s: float) -> None:
        """Ask ``serve`` to stop with this grace, in seconds, and wait until the thread has ended."""
        try:
            self.loop.call_soon_threadsafe(self._request_stop, grace_s)
        except RuntimeError:
            pass  # the loop is closed: the thread has stopped already, or has failed
        self._thread.join()

    def _run(self) -> None:
        self._placement.together()
        try:
            uvloop.run(self._serve_with_threads())
        except BaseException as error:
            if self._started.done():
                log.critical("the front of thread %s has ended", self._name, exc_info=error)
            else:
                self._started.set_exception(error)

    async def _serve_with_threads(self) -> None:
        # New threads inherit the cores of the thread that makes them.
        pool = ThreadPoolExecutor(THREADS, self._name, initializer=self._placement.apart)
        try:
            await self._serve(pool, self._on_started)
        finally:
            ending = threading.Thread(target=pool.shutdown, name=f"{self._name}-end", daemon=True)
            ending.start()
            ending.join(END_S)

    def _on_started(self, result: T) -> asyncio.Future[float]:
        self.loop = asyncio.get_running_loop()
        self._stop = self.loop.create_future()
        self._started.set_result(result)
        return self._stop

    def _request_stop(self, grace_s: float) -> None:
        # Only the first request counts.
        if not self._stop.done():
            self._stop.set_result(grace_s)
