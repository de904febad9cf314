"""A plain function at work: threads iterate over one consumer, and settle what they take.

A thread takes its next message itself. So a message costs no way to the event loop and back, and one that takes long
holds none that an idle thread could take. Nobody can stop a thread: what it has is taken from it where it is late, or
the worker ends, and what it says of that afterwards does not count.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Generator
from concurrent.futures import Future
from contextlib import closing
from typing import Any, cast

from tarry.base.event_loop import post
from tarry.client.consumer import Consumer
from tarry.client.delivery import Delivery
from tarry.worker.figures import HandlerFigures
from tarry.worker.handler import Handler
from tarry.worker.outcomes import Ending

log = logging.getLogger("tarry.worker")


class _Place:
    """One of the threads, and the message that it has."""

    def __init__(self, done: asyncio.Future[None], figures: HandlerFigures) -> None:
        self.done = done
        """Of the loop: the thread has ended."""
        self.figures = figures
        """Of what the thread has settled itself."""
        self.message: Delivery | None = None
        self.is_late = False
        """The thread is still at a message that has failed by its time-out."""
        self.began_s = 0.0
        self._awaited: Future[Any] | None = None
        self._lock = threading.Lock()

    def begin(self, message: Delivery) -> None:
        """In the thread: work at a message begins."""
        self.began_s = time.monotonic()  # first: who looks must not take the new one for as old as the last
        self.message = message

    def claim(self, late_if_begun_by_s: float | None = None) -> Delivery | None:
        """Return the message to who asks first, and is to settle it. Any thread.

        None: there is none, or it is younger.
        """
        is_late = late_if_begun_by_s is not None
        with self._lock:
            message = self.message
            if message is None or (late_if_begun_by_s is not None and self.began_s > late_if_begun_by_s):
                return None
            # The thread ends its work behind this lock: it cannot be late with a message that it has ended.
            self.message, self.is_late = None, is_late
            awaited = self._awaited
        if awaited is not None:
            awaited.cancel()
        return message

    def end(self) -> None:
        """In the thread: work at the message ends, which it has claimed, or another one has, before this."""
        if self.is_late:
            self.is_late = False

    def wait_for(self, awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> None:
        """In the thread: wait for what the function has returned, which runs in the loop."""
        with self._lock:
            if self.message is None:
                return
            self._awaited = asyncio.run_coroutine_threadsafe(_error_of(awaitable), loop)
        try:
            if (error := self._awaited.result()) is not None:
                raise error
        finally:
            self._awaited = None


class ThreadLoop:
    """Handles messages from :meth:`start` on, as :class:`tarry.worker.loop.HandlerLoop`."""

    def __init__(self, handler: Handler, consumer: Consumer) -> None:
        self._handler, self._consumer = handler, consumer
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._taken = self._no_figures()
        """Of what was taken from threads. In the loop."""
        self._places = [_Place(self._loop.create_future(), self._no_figures()) for _ in range(handler.concurrency)]
        self._timer: asyncio.TimerHandle | None = None
        self._is_ending = False
        consumer.on_lost(lambda: post(self._loop, self._on_lost))

    def _no_figures(self) -> HandlerFigures:
        return HandlerFigures(self._handler.topic, self._handler.group)

    def start(self) -> list[asyncio.Future[None]]:
        """Begin; the futures end after :meth:`give_back`, or with an error that trying again does not help."""
        for number, place in enumerate(self._places, 1):
            name = f"tarry-{self._handler.name}-{number}"
            threading.Thread(target=self._serve, args=[place], name=name, daemon=True).start()
        if self._handler.timeout_s is not None:
            self._look_for_late(self._handler.timeout_s)
        return [place.done for place in self._places]

    def figures(self) -> HandlerFigures:
        """Return the counters as they are now."""
        figures = self._no_figures()
        for each in (self._taken, *(place.figures for place in self._places)):
            figures.add(each)
        figures.is_served = self._consumer.is_served
        figures.in_work = sum(place.message is not None for place in self._places)
        return figures

    # -- the end -------------------------------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Take no more messages."""
        self._consumer.give_back()
        self._is_ending = True
        self._leave_late()

    def _leave_late(self) -> None:
        """At the end, wait for no thread whose message has failed: nothing that it does counts any more."""
        for place in self._places:
            if self._is_ending and place.is_late and not place.done.done():
                place.done.set_result(None)

    async def cut(self) -> None:
        """Give back what is still handled: no try is counted."""
        for place in self._places:
            if (message := place.claim()) is not None:
                self._count(self._taken, place, Ending.LOST if message.lost else Ending.RELEASED)
                message.release()

    async def close(self) -> None:
        """Wait until acknowledgements are durable, and give back all that is left."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self._consumer.close, 0.0)

    # -- messages, in a thread -----------------------------------------------------------------------------------------

    def _serve(self, place: _Place) -> None:
        error: BaseException | None = None
        try:
            # Not a bare `for`: a generator that is left open would keep what it has until it is collected.
            with closing(cast(Generator[Delivery, None, None], iter(self._consumer))) as messages:
                for message in messages:
                    self._handle(place, message)
                    place.end()
        except BaseException as raised:  # noqa: BLE001 - it is raised again where the worker is run
            error = raised
        post(self._loop, _end, place.done, error)

    def _handle(self, place: _Place, message: Delivery) -> None:
        place.begin(message)
        try:
            result = self._context.copy().run(self._handler.call_plain, message)
            if inspect.isawaitable(result):
                place.wait_for(result, self._loop)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - sys.exit(), too, is about the message alone
            if place.claim() is not None:
                self._count(place.figures, place, self._handler.fail(message, error))
            return
        if place.claim() is not None:
            if message.lost:
                self._count(place.figures, place, Ending.LOST)
            else:
                self._count(place.figures, place, Ending.HANDLED)
                message.ack()

    def _count(self, figures: HandlerFigures, place: _Place, ending: Ending) -> None:
        figures.ended[ending] += 1
        figures.busy_s += time.monotonic() - place.began_s

    # -- messages, in the loop -----------------------------------------------------------------------------------------

    def _look_for_late(self, timeout_s: float) -> None:
        """Fail what has taken too long, and look again when the next may have: one timer for all."""
        now = time.monotonic()
        for place in self._places:
            if (message := place.claim(now - timeout_s)) is not None:
                error = TimeoutError(f"not handled within {timeout_s:g} s")
                self._count(self._taken, place, self._handler.fail(message, error))
        self._leave_late()
        first_s = min((place.began_s for place in self._places if place.message is not None), default=now)
        self._timer = self._loop.call_later(first_s + timeout_s - now, self._look_for_late, timeout_s)

    def _on_lost(self) -> None:
        for place in self._places:
            if (message := place.message) is not None and message.lost:
                self._handler.log_lost(message)


async def _error_of(awaitable: Awaitable[Any]) -> BaseException | None:
    """Return what it raises: a task that raises ``sys.exit()`` itself would end the loop."""
    try:
        await awaitable
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised again in the thread
        return error
    return None


def _end(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return  # nobody waited for it
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
