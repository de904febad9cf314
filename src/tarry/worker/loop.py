"""One handler at work: as many tasks as it may have messages at a time iterate over one consumer.

A task is there for many messages, so that a message costs no task. The consumer keeps the lease of what a task has
until the task asks for the next, and gives back what waits for too long; so nothing of that is here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

from tarry.base.errors import TarryError
from tarry.client.aio_consumer import AsyncConsumer
from tarry.client.delivery import Delivery
from tarry.worker.figures import HandlerFigures
from tarry.worker.handler import Call, Handler, Middleware
from tarry.worker.outcomes import Ending, is_of_handler
from tarry.worker.threads import WorkThread

CANCEL_S = 3.0
"""Seconds that handlers may take to end once they are cancelled, at the end of the time to drain."""


class _Slot:
    """One of a handler's tasks, and the message that it has."""

    __slots__ = ("call", "message", "task", "thread", "why")

    def __init__(self, call: Call, thread: WorkThread | None) -> None:
        self.call, self.thread = call, thread
        self.message: Delivery | None = None
        self.why: Ending | None = None
        """The reason for which its handler was cancelled by us."""
        self.task: asyncio.Task[None]

    def cancel(self, why: Ending) -> None:
        """Cancel the handler, not the task, which goes on behind it."""
        if self.message is not None and self.why is None:
            self.why = why
            self.task.cancel()

    def is_cancelled_by(self, error: BaseException) -> bool:
        """Return whether an exception is what :meth:`cancel` has brought about."""
        return self.why is not None and isinstance(error, asyncio.CancelledError)


class HandlerLoop:
    """Handles the messages of a consumer, from :meth:`start` on. In the loop."""

    def __init__(self, handler: Handler, consumer: AsyncConsumer, middleware: Sequence[Middleware]) -> None:
        self._handler, self._consumer = handler, consumer
        self._figures = HandlerFigures(handler.topic, handler.group)
        self._slots = [self._slot(number, middleware) for number in range(handler.concurrency)]
        self._ending = asyncio.Event()
        consumer.on_lost(self._on_lost)

    def _slot(self, number: int, middleware: Sequence[Middleware]) -> _Slot:
        if self._handler.is_async:
            return _Slot(self._handler.call(middleware, _no_thread), None)
        thread = WorkThread(f"tarry-{self._handler.name}-{number + 1}")
        return _Slot(self._handler.call(middleware, thread.run), thread)

    def start(self) -> list[asyncio.Task[None]]:
        """Begin; the tasks end after :meth:`give_back`, or with an error that trying again does not help."""
        for slot in self._slots:
            slot.task = asyncio.create_task(self._work(slot), name=f"tarry-{self._handler.name}")
        return [slot.task for slot in self._slots]

    def figures(self) -> HandlerFigures:
        """Return the counters as they are now."""
        self._figures.is_served = self._consumer.is_served
        self._figures.in_work = sum(slot.message is not None for slot in self._slots)
        return self._figures

    # -- the end -------------------------------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Take no more messages."""
        self._consumer.give_back()
        self._ending.set()

    async def cut(self) -> None:
        """Cancel what is still handled, and give it back: no try is counted."""
        for slot in self._slots:
            if slot.thread is None:
                slot.cancel(Ending.RELEASED)
            elif slot.message is not None and not slot.message.lost:
                # Nobody can stop a thread. Its message goes to others, and what it does from here on does not count.
                slot.message.release()
                self._figures.ended[Ending.RELEASED] += 1
        if tasks := [slot.task for slot in self._slots if slot.thread is None and not slot.task.done()]:
            await asyncio.wait(tasks, timeout=CANCEL_S)

    async def close(self) -> None:
        """Wait until acknowledgements are durable, and give back all that is left."""
        for slot in self._slots:
            slot.task.cancel()
        await asyncio.gather(*(slot.task for slot in self._slots if slot.thread is None), return_exceptions=True)
        await self._consumer.close(0.0)
        for slot in self._slots:
            if slot.thread is not None:
                slot.thread.close()

    # -- messages ------------------------------------------------------------------------------------------------------

    async def _work(self, slot: _Slot) -> None:
        call, ended = slot.call, self._figures.ended
        # Not a bare `async for`: a generator that is left open would keep what it has until it is collected.
        async with aclosing(cast(AsyncGenerator[Delivery, None], aiter(self._consumer))) as messages:
            async for message in messages:
                began_s = time.perf_counter()
                slot.message = message
                try:
                    await call(message)
                except BaseException as error:
                    if not (slot.is_cancelled_by(error) or is_of_handler(error)):
                        raise
                    ended[self._fail(slot, message, error)] += 1
                else:
                    if slot.why is not None:  # it has ended though it was cancelled
                        ended[self._cancelled(slot, message)] += 1
                    elif slot.thread is not None and message.lost:
                        ended[Ending.LOST] += 1
                    else:
                        message.ack()
                        ended[Ending.HANDLED] += 1
                slot.message = None
                self._figures.busy_s += time.perf_counter() - began_s
                if slot.thread is not None and slot.thread.is_busy:
                    await self._until_idle(slot.thread)

    async def _until_idle(self, thread: WorkThread) -> None:
        """Wait for what takes longer than its time-out; not at the end, when nothing that it does counts."""
        waits = [asyncio.ensure_future(each) for each in (thread.wait_idle(), self._ending.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _fail(self, slot: _Slot, message: Delivery, error: BaseException) -> Ending:
        if slot.why is not None:
            return self._cancelled(slot, message)
        return self._handler.fail(message, error)

    def _cancelled(self, slot: _Slot, message: Delivery) -> Ending:
        assert slot.why is not None
        why, slot.why = slot.why, None
        slot.task.uncancel()
        if why is Ending.RELEASED:
            message.release()
        return why

    def _on_lost(self) -> None:
        for slot in self._slots:
            if slot.message is not None and slot.message.lost:
                self._handler.log_lost(slot.message)
                if slot.thread is None:
                    slot.cancel(Ending.LOST)


async def _no_thread(function: object) -> None:
    raise TarryError("an asynchronous handler needs no thread")
