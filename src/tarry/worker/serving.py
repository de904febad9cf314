"""One run of a worker: its lifespans and its handlers, up to the last acknowledgement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from tarry.client import AsyncClient, Client
from tarry.worker.figures import HandlerFigures
from tarry.worker.handler import Handler, Middleware
from tarry.worker.lifespans import Lifespan, enter
from tarry.worker.loop import HandlerLoop
from tarry.worker.thread_loop import ThreadLoop

log = logging.getLogger("tarry.worker")


class Serving:
    """A run. In the loop."""

    def __init__(self, client: AsyncClient, sync_client: Client, drain_s: float) -> None:
        self._client, self._sync_client, self._drain_s = client, sync_client, drain_s
        self._stopping = asyncio.Event()
        self._loops: list[HandlerLoop | ThreadLoop] = []

    def stop(self) -> None:
        """Take no more messages, and end when those that are handled are done."""
        self._stopping.set()
        self._give_back()

    def _give_back(self) -> None:
        for each in self._loops:
            each.give_back()

    def figures(self) -> list[HandlerFigures]:
        """Return the counters of each handler."""
        return [each.figures() for each in self._loops]

    async def run(
        self, handlers: Sequence[Handler], middleware: Sequence[Middleware], lifespans: Sequence[Lifespan]
    ) -> None:
        """Handle messages until :meth:`stop`.

        Raises:
            TarryError: the broker refuses what trying again does not help, as a right that is missing.
            BaseException: a lifespan's.
        """
        async with AsyncExitStack() as stack:
            for lifespan in lifespans:
                await enter(stack, lifespan)
            if self._stopping.is_set():
                return
            for handler in handlers:
                self._loops.append(self._loop(handler, middleware))
            await self._serve()

    def _loop(self, handler: Handler, middleware: Sequence[Middleware]) -> HandlerLoop | ThreadLoop:
        topic, group, options = handler.topic, handler.group, handler.options
        if handler.is_async or middleware:  # which runs in the event loop
            return HandlerLoop(handler, self._client.consume(topic, group=group, **options), middleware)
        return ThreadLoop(handler, self._sync_client.native("for workers").consume(topic, group, **options))

    async def _serve(self) -> None:
        tasks: list[asyncio.Future[None]] = [task for each in self._loops for task in each.start()]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            either: list[asyncio.Future[Any]] = [*tasks, stopping]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            await self._drain(tasks)
            for task in tasks:
                if task.done():
                    task.result()  # raises what has ended it
        finally:
            stopping.cancel()
            await asyncio.gather(*(each.close() for each in self._loops))

    async def _drain(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        self._give_back()  # also where an error is why it ends
        _, late = await asyncio.wait(tasks, timeout=self._drain_s)
        if late:
            log.warning(
                "%d messages are still handled %g s after the stop: they are given back", len(late), self._drain_s
            )
            await asyncio.gather(*(each.cut() for each in self._loops))
