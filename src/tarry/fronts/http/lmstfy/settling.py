"""Acknowledging jobs by their ids: by the lease if a consumer holds the job, else wherever it is.

Jobs that were handed out here and not acknowledged are kept with their leases until these are over. For any other job
(pending, ready, handed out before a restart, dead) the id says where to look.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tarry.api.consuming import ConsumerGroup
from tarry.api.operations import DiscardMessage
from tarry.base.errors import TarryError
from tarry.base.event_loop import settle_future
from tarry.batching.coalescing import copy_of
from tarry.fronts.http.lmstfy.names import GROUP, place_of
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.settling import AckGatherer, AckOutcome, Entries, lease_columns


class Held(NamedTuple):
    """A job in a consumer's hands."""

    topic: str
    group: ConsumerGroup
    lease: int
    offset: int
    until_s: float
    """On the event loop's clock."""


OnAcked = Callable[[bool | TarryError], None]
"""Callback, once it is durable: True if the consumer still held the job.

It gets an error if the outcome is not known.
"""


class Acknowledging:
    """On the event loop's thread, except the groups' callbacks."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._held: dict[str, Held] = {}
        self._ends: list[tuple[float, str]] = []
        self._acks: AckGatherer[Held, OnAcked] = AckGatherer(services.loop, _answer)

    def hold(self, id: str, held: Held) -> None:
        """Note a job that is handed out."""
        self._held[id] = held
        heapq.heappush(self._ends, (held.until_s, id))
        now_s = self._services.loop.time()
        while self._ends[0][0] < now_s:
            self._drop(heapq.heappop(self._ends)[1], now_s)
        if len(self._ends) > 2 * len(self._held) + 1024:
            # Most were acknowledged long before the end of their leases.
            self._ends = [(held.until_s, id) for id, held in self._held.items()]
            heapq.heapify(self._ends)

    def give_back(self, ids: Iterable[str]) -> None:
        """Give back jobs that no client got to see."""
        for id in ids:
            held = self._held.pop(id, None)
            if held is not None:
                held.group.give_back(*lease_columns([held]))

    def settle(self, topic: str, id: str, on_settled: OnAcked) -> bool:
        """Acknowledge a job that was handed out here; False: it was not, and nothing was done."""
        held = self._held.get(id)
        if held is None or held.topic != topic:
            return False
        del self._held[id]
        self._acks.add(held.group, held, on_settled)
        return True

    async def discard(self, topic: str, id: str) -> bool:
        """Make sure that a job never comes (again); return whether there was one.

        Raises:
            TarryError: not now.
        """
        future: asyncio.Future[bool] = self._services.loop.create_future()

        def on_settled(result: bool | TarryError) -> None:
            settle_future(future, copy_of(result) if isinstance(result, TarryError) else result)

        if self.settle(topic, id, on_settled) and await future:
            return True
        place = place_of(topic, id)
        return place is not None and await self._services.call(DiscardMessage(topic, GROUP, *place))

    def _drop(self, id: str, now_s: float) -> None:
        held = self._held.get(id)
        if held is not None and held.until_s < now_s:
            del self._held[id]


def _answer(entries: Entries[Held, OnAcked], settled: AckOutcome) -> None:
    for row, (_, on_settled) in enumerate(entries):
        on_settled(settled if isinstance(settled, TarryError) else settled[row])
