"""One run of a worker: its lifespans and its handlers, up to the last acknowledgement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tarry.client import AsyncClient
from tarry.worker.figures import HandlerFigures
from tarry.worker.handler import Handler, Middleware
from tarry.worker.lifespans import Lifespan, enter
from tarry.worker.loop import HandlerLoop

log = logging.getLogger("tarry.worker")


class Serving:
    """A run. In the loop."""

    def __init__(self, client: AsyncClient, drain_s: float) -> None:
        self._client, self._drain_s = client, drain_s
        self._stopping = asyncio.Event()
        self._loops: list[HandlerLoop] = []

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
                consumer = self._client.consume(handler.topic, group=handler.group, **handler.options)
                self._loops.append(HandlerLoop(handler, consumer, middleware))
            await self._serve()

    async def _serve(self) -> None:
        tasks = [task for each in self._loops for task in each.start()]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            await self._drain(tasks)
            for task in done - {stopping}:
                task.result()  # raises what has ended it
        finally:
            stopping.cancel()
            await asyncio.gather(*(each.close() for each in self._loops))

    async def _drain(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._give_back()  # also where an error is why it ends
        _, late = await asyncio.wait(tasks, timeout=self._drain_s)
        if late:
            log.warning(
                "%d messages are still handled %g s after the stop: they are given back", len(late), self._drain_s
            )
            await asyncio.gather(*(each.cut() for each in self._loops))
