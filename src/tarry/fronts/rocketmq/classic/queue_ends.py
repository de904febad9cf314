"""Where a topic's queue begins and ends, for all pulls of a group that wait for more.

The broker is asked in a thread, since it may wait for the disk: once for all who wait, when there is news, and not at
all for what lies before an end that is known.
"""

from __future__ import annotations

import asyncio

from tarry.api.consuming import ConsumerGroup
from tarry.api.local import LocalBroker
from tarry.api.operations import GetQueues
from tarry.fronts.rocketmq.common.threads import RunInThread

Ends = tuple[int, int]
"""The first offset that is kept, and that of the message that comes next."""


class QueueEnds:
    """Of one group's topic. On the loop's thread; it listens to the group until :meth:`close`."""

    def __init__(
        self, broker: LocalBroker, loop: asyncio.AbstractEventLoop, group: ConsumerGroup, run_in_thread: RunInThread
    ) -> None:
        self.group = group
        self._broker = broker
        self._loop = loop
        self._run_in_thread = run_in_thread
        self._ends: Ends = (0, 0)
        self._outdated = True
        self._look: asyncio.Task[None] | None = None
        """The question that is under way."""
        self._news = asyncio.Event()
        self._announced = False
        """News are on their way to the loop's thread."""
        self._stop_listening = group.listen(self._on_news)

    def close(self) -> None:
        self._stop_listening()

    async def wait(self, offset: int, wait_s: float) -> Ends:
        """The ends, once the queue reaches beyond ``offset``, or after ``wait_s``."""
        until_s = self._loop.time() + wait_s
        while not self._ends[0] <= offset < self._ends[1]:
            await self._refresh()
            if self._ends[1] != offset:
                break
            try:
                async with asyncio.timeout_at(until_s):
                    await self._news.wait()
            except TimeoutError:
                break
        return self._ends

    async def _refresh(self) -> None:
        """Until what is known is as new as the last news."""
        while self._outdated or self._look is not None:
            if self._look is None:
                self._look = self._loop.create_task(self._ask())
                # Nobody may be left to be told of an error.
                self._look.add_done_callback(lambda look: look.cancelled() or look.exception())
            # Others wait for the same answer: who leaves does not cancel it.
            await asyncio.shield(self._look)

    async def _ask(self) -> None:
        topic = self.group.topic_name
        # Before the question: what comes after the answer was made is news again.
        self._outdated = False
        self._news.clear()
        try:
            self._ends = await self._run_in_thread(lambda: self._broker.call(GetQueues([topic]))[topic])
        except BaseException:
            self._outdated = True
            raise
        finally:
            # Here, and not in a call-back: who comes between the answer and its call-back would wait for what is done,
            # which does not wait at all, for ever.
            self._look = None

    def _on_news(self) -> None:
        # From any thread, often from the dispatcher's: nothing is looked at here.
        if not self._announced:
            self._announced = True
            try:
                self._loop.call_soon_threadsafe(self._take_news)
            except RuntimeError:
                pass  # the loop is closed: the front has stopped

    def _take_news(self) -> None:
        self._announced = False
        self._outdated = True
        self._news.set()
