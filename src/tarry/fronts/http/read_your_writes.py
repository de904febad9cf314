"""Messages without a delay on the last bit of their way: durable, and in their queue a moment later.

With lmstfy or SQS, what was sent is in its queue. So who looks at a queue right after that, or asks without waiting,
waits here until the last message has arrived.
"""

from __future__ import annotations

import asyncio

from tarry.api.operations import FindMessage, GetGroup
from tarry.fronts.http.services import HttpServices

LAND_S = 0.5
"""Seconds that a message may take to arrive, and that a read waits for it at most."""
AGAIN_S = 0.005
ELSEWHERE_S = 0.02
"""Seconds that a read waits, in a worker, for messages that others may just have sent."""
TOPICS_MAX = 10_000


class Landing:
    """On the event loop's thread.

    ``group``: the one group of all queues. ``elsewhere_s``: time for messages of other processes, which are not seen.
    """

    def __init__(self, services: HttpServices, group: str, elsewhere_s: float = 0.0) -> None:
        self._services = services
        self._group = group
        self._elsewhere_s = elsewhere_s
        self._last: dict[str, tuple[int, int, float]] = {}  # the oldest first

    def note(self, topic: str, seq: int, due_ms: int) -> None:
        """Note that a message without a delay was sent."""
        self._last.pop(topic, None)
        self._last[topic] = (seq, due_ms, self._services.loop.time() + LAND_S)
        if len(self._last) > TOPICS_MAX:
            del self._last[next(iter(self._last))]

    def arrived(self, topic: str, seq: int) -> None:
        """Note that this message, and all before it, are in the queue."""
        last = self._last.get(topic)
        if last is not None and last[0] <= seq:
            del self._last[topic]

    def left_s(self, topic: str) -> float:
        """Return for how many seconds the last message may still be on its way; 0: it has arrived."""
        last = self._last.get(topic)
        return self._elsewhere_s if last is None else max(self._elsewhere_s, last[2] - self._services.loop.time())

    async def landed(self, topic: str) -> None:
        """Return when what was sent is in the queue."""
        if self._elsewhere_s:
            await asyncio.sleep(self._elsewhere_s)
        while (last := self._last.get(topic)) is not None and last[2] > self._services.loop.time():
            found = await self._services.call(FindMessage(topic, self._group, *last[:2]))
            if not found.num_rows or found.column("state")[0].as_py() != "pending":
                self.arrived(topic, last[0])
                return
            await asyncio.sleep(AGAIN_S)

    async def buried(self, topic: str) -> None:
        """Return when the messages whose tries are used up are among the dead letters."""
        info = await self._services.call(GetGroup(topic, self._group))
        expected, end_s = info.dead + info.burying, self._services.loop.time() + LAND_S
        while info.dead < expected and self._services.loop.time() < end_s:
            await asyncio.sleep(AGAIN_S)
            info = await self._services.call(GetGroup(topic, self._group))
