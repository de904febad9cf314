"""Jobs without a delay on the last bit of their way: durable, and in their queue a moment later.

With lmstfy, a job that was published is in its queue. So who looks at a queue right after that, or asks without
waiting, waits here until the last one has arrived.
"""

from __future__ import annotations

import asyncio

from tarry.api.operations import FindMessage, GetGroup
from tarry.fronts.http.lmstfy.names import GROUP
from tarry.fronts.http.services import HttpServices

LAND_S = 0.5
"""Seconds that a job may take to arrive, and that a read waits for it at most."""
AGAIN_S = 0.005
ELSEWHERE_S = 0.02
"""Seconds that a read waits, in a worker, for jobs that others may just have published."""
TOPICS_MAX = 10_000


class Landing:
    """On the event loop's thread.

    ``elsewhere_s``: time for jobs of other processes, whose publishing is not seen.
    """

    def __init__(self, services: HttpServices, elsewhere_s: float = 0.0) -> None:
        self._services = services
        self._elsewhere_s = elsewhere_s
        self._last: dict[str, tuple[int, int, float]] = {}  # the oldest first

    def note(self, topic: str, seq: int, due_ms: int) -> None:
        """Note that a job without a delay was published."""
        self._last.pop(topic, None)
        self._last[topic] = (seq, due_ms, self._services.loop.time() + LAND_S)
        if len(self._last) > TOPICS_MAX:
            del self._last[next(iter(self._last))]

    def arrived(self, topic: str, seq: int) -> None:
        """Note that this job, and all before it, are in the queue."""
        last = self._last.get(topic)
        if last is not None and last[0] <= seq:
            del self._last[topic]

    def left_s(self, topic: str) -> float:
        """Return for how many seconds the last job may still be on its way; 0: it has arrived."""
        last = self._last.get(topic)
        return self._elsewhere_s if last is None else max(self._elsewhere_s, last[2] - self._services.loop.time())

    async def landed(self, topic: str) -> None:
        """Return when what was published is in the queue."""
        if self._elsewhere_s:
            await asyncio.sleep(self._elsewhere_s)
        while (last := self._last.get(topic)) is not None and last[2] > self._services.loop.time():
            found = await self._services.call(FindMessage(topic, GROUP, *last[:2]))
            if not found.num_rows or found.column("state")[0].as_py() != "pending":
                self.arrived(topic, last[0])
                return
            await asyncio.sleep(AGAIN_S)

    async def buried(self, topic: str) -> None:
        """Return when the jobs whose tries are used up are among the dead letters."""
        info = await self._services.call(GetGroup(topic, GROUP))
        expected, end_s = info.dead + info.burying, self._services.loop.time() + LAND_S
        while info.dead < expected and self._services.loop.time() < end_s:
            await asyncio.sleep(AGAIN_S)
            info = await self._services.call(GetGroup(topic, GROUP))
