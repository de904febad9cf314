"""A front's thread, with an event loop of its own, in the broker's process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias

import uvloop

from tarry.base.errors import UnavailableError
from tarry.base.placement import Placement

log = logging.getLogger(__name__)

OnListening: TypeAlias = Callable[[int], asyncio.Future[float]]
"""Called once, with the port that is listened on. What it returns is to be awaited: its result, the seconds of grace,
says that the front shall stop.
"""
Serve: TypeAlias = Callable[[OnListening], Coroutine[Any, Any, None]]


class FrontThread:
    """Runs ``serve`` from its construction until :meth:`stop`. ``name``: the thread's; ``address``: what the front was
    asked to listen on, for the error.

    Raises:
        InvalidArgumentError and others: what ``serve`` raised before it listened. UnavailableError: for an OSError.
    """

    def __init__(self, name: str, address: str, placement: Placement, serve: Serve) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Future[float]
        self._listening: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(serve, placement), name=name, daemon=True)
        self._thread.start()
        try:
            self.port = self._listening.result()
        except BaseException as error:
            self._thread.join()
            if isinstance(error, OSError):
                raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error
            raise

    def stop(self, grace_s: float) -> None:
        """Have it stop, and wait until it has."""
        try:
            self._loop.call_soon_threadsafe(self._request_stop, grace_s)
        except RuntimeError:
            pass  # the loop is closed: it has stopped already, or has failed
        self._thread.join()

    def _run(self, serve: Serve, placement: Placement) -> None:
        placement.together()
        try:
            uvloop.run(serve(self._on_listening))
        except BaseException as error:
            if self._listening.done():
                log.critical("the front of thread %s has ended", self._thread.name, exc_info=error)
            else:
                self._listening.set_exception(error)

    def _on_listening(self, port: int) -> asyncio.Future[float]:
        self._loop = asyncio.get_running_loop()
        self._stop = self._loop.create_future()
        self._listening.set_result(port)
        return self._stop

    def _request_stop(self, grace_s: float) -> None:
        # Only the first request counts.
        if not self._stop.done():
            self._stop.set_result(grace_s)
