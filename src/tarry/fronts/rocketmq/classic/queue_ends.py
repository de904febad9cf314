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
        self._look: asyncio.Future[Ends] | None = None
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
                # Before the question: what comes after the answer was made is news again.
                self._outdated = False
                self._news.clear()
                self._look = self._run_in_thread(self._ask)
                self._look.add_done_callback(self._on_looked)
            # Others wait for the same answer: who leaves does not cancel it.
            await asyncio.shield(self._look)

    def _ask(self) -> Ends:
        topic = self.group.topic_name
        return self._broker.call(GetQueues([topic]))[topic]

    def _on_looked(self, look: asyncio.Future[Ends]) -> None:
        self._look = None
        if look.cancelled() or look.exception() is not None:
            self._outdated = True
        else:
            self._ends = look.result()

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
