"""A front on an event loop and a thread of its own, in the broker's process."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ClassVar, Self, TypeAlias

import uvloop

from tarry.api.local import LocalBroker
from tarry.base.config import parse_address
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement

log = logging.getLogger(__name__)

THREADS = 8
"""For what waits for the disk: cancelling, settings of groups and topics, transactions."""

OnListening: TypeAlias = Callable[[int], asyncio.Future[float]]
"""Called once, with the port that is listened on. What it returns is to be awaited: its result, the seconds of grace,
says that the front shall stop.
"""


class LoopFront(ABC):
    """Made by :meth:`start`; :meth:`stop` before the broker is closed. Any thread."""

    THREAD: ClassVar[str]
    """The name of its threads."""

    def __init__(self, broker: LocalBroker, address: str, placement: Placement, connections: ConnectionLimits) -> None:
        self._broker = broker
        self._placement = placement
        self._connections = connections
        self._host, self._asked_port = parse_address(address)
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Future[float]
        self._listening: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name=self.THREAD, daemon=True)
        self._thread.start()
        try:
            self.port = self._listening.result()
        except BaseException as error:
            self._thread.join()
            if isinstance(error, OSError):
                raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error
            raise

    @classmethod
    def start(
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> Self:
        """Serve a broker on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`port`.

        ``placement`` says where its threads run, ``connections`` how many it takes.

        Raises:
            InvalidArgumentError: no address, or a setting that cannot be. UnavailableError: it cannot be listened on.
        """
        return cls(broker, address, placement, connections or ConnectionLimits())

    @property
    def address(self) -> str:
        """``"HOST:PORT"`` with the port that is listened on."""
        return f"{self._host}:{self.port}"

    def stop(self, grace_s: float = 2.0) -> None:
        """Take nothing more, let what runs or was written end for up to ``grace_s`` seconds, then cut what is left."""
        try:
            self._loop.call_soon_threadsafe(self._request_stop, grace_s)
        except RuntimeError:
            pass  # the loop is closed: it has stopped already, or has failed
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        """Listen, say so, await the stop, and end. On the front's thread; ``pool`` for what waits for the disk."""

    def _run(self) -> None:
        self._placement.together()
        try:
            uvloop.run(self._serve_with_threads())
        except BaseException as error:
            if self._listening.done():
                log.critical("the front of thread %s has ended", self._thread.name, exc_info=error)
            else:
                self._listening.set_exception(error)

    async def _serve_with_threads(self) -> None:
        # Threads begin on the cores of the thread that makes them.
        with ThreadPoolExecutor(THREADS, self.THREAD, initializer=self._placement.apart) as pool:
            await self._serve(pool, self._on_listening)

    def _on_listening(self, port: int) -> asyncio.Future[float]:
        self._loop = asyncio.get_running_loop()
        self._stop = self._loop.create_future()
        self._listening.set_result(port)
        return self._stop

    def _request_stop(self, grace_s: float) -> None:
        # Only the first request counts.
        if not self._stop.done():
            self._stop.set_result(grace_s)
