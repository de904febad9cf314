"""Consume: jobs of one queue, or of several by priority, now or when there are some.

Requests that come in one turn of the event loop for the same queue are served by one poll of its group, whose rows are
shared out among them: a poll costs nearly the same for one message as for many. Who finds nothing and may wait does so
in the queue's receive queue, without a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from tarry.api.coalescing import EndOfTurn
from tarry.api.consuming import ConsumerGroup
from tarry.base.errors import TarryError
from tarry.fronts.common.receive_queue import Received, ReceiveQueue, Waiter, give_back
from tarry.fronts.http.exchange import Request, Response
from tarry.fronts.http.lmstfy.acknowledging import Acknowledging, Held
from tarry.fronts.http.lmstfy.answers import JSON, Query, RefusalError, answer
from tarry.fronts.http.lmstfy.jobs import Job, jobs_of, listed, remaining
from tarry.fronts.http.lmstfy.landing import Landing
from tarry.fronts.http.lmstfy.names import GROUP, topic_of
from tarry.fronts.http.lmstfy.publishing import UINT32_MAX
from tarry.fronts.http.services import Services

TTR_S, TIMEOUT_S, COUNT = 120, 0, 1
"""Defaults."""
COUNT_MAX = 100
QUEUES_MAX = 1000
"""Queues in one request."""
NONE = answer(404, {"msg": "no job available"})

Messages = tuple[ReceiveQueue, pa.RecordBatch]


@dataclass(slots=True, eq=False)
class _Asking:
    """A request for up to ``count`` messages of a group, in this turn of the loop."""

    count: int
    lease_ms: int
    result: asyncio.Future[pa.RecordBatch | None]


@dataclass(slots=True, eq=False)
class _Polls:
    """The requests of one turn, by receive queue."""

    loop: asyncio.AbstractEventLoop
    _asking: dict[ReceiveQueue, list[_Asking]] = field(default_factory=dict)
    _end_of_turn: EndOfTurn = field(init=False)

    def __post_init__(self) -> None:
        self._end_of_turn = EndOfTurn(self.loop, self._poll)

    def ask(self, queue: ReceiveQueue, count: int, lease_ms: int) -> asyncio.Future[pa.RecordBatch | None]:
        """What there is now; None: nothing."""
        future: asyncio.Future[pa.RecordBatch | None] = self.loop.create_future()
        self._asking.setdefault(queue, []).append(_Asking(count, lease_ms, future))
        self._end_of_turn.plan()
        return future

    def _poll(self) -> None:
        asking, self._asking = self._asking, {}
        for queue, requests in asking.items():
            for lease_ms in {request.lease_ms for request in requests}:
                _share_out(queue.group, [r for r in requests if r.lease_ms == lease_ms and not r.result.done()])


def _share_out(group: ConsumerGroup, requests: list[_Asking]) -> None:
    count = sum(request.count for request in requests)
    if not count:
        return
    try:
        batch, _ = group.subscribe(prefetch=count, lease_ms=requests[0].lease_ms).poll(count)
    except TarryError as error:
        for request in requests:
            request.result.set_exception(error)
        return
    at, rows = 0, 0 if batch is None else batch.num_rows
    for request in requests:
        part = min(request.count, rows - at)
        request.result.set_result(batch.slice(at, part) if batch is not None and part else None)
        at += part


class Consuming:
    """On the loop's thread."""

    def __init__(self, services: Services, acknowledging: Acknowledging, landing: Landing) -> None:
        self._services = services
        self._acknowledging = acknowledging
        self._landing = landing
        self._polls = _Polls(services.loop)

    async def consume(self, request: Request, namespace: str, names: str) -> Response:
        """Jobs of the queues ``names`` (with commas between), the first one's before all others'."""
        query = Query(request.query)
        ttr_s = query.natural("ttr", TTR_S, UINT32_MAX)
        timeout_s = query.natural("timeout", TIMEOUT_S, UINT32_MAX)
        count = query.natural("count", COUNT, COUNT_MAX, least=1)
        queues = list(dict.fromkeys(name for name in names.split(",") if name))
        if not 0 < len(queues) <= QUEUES_MAX:
            raise RefusalError(400, "invalid queue name(s)")
        lease_ms = max(1, ttr_s * 1000)
        named = {await self._services.receive_queue(topic_of(namespace, q), GROUP): q for q in queues}
        found = await self._now(list(named), count, lease_ms)
        if not found:
            # Also who does not want to wait gets what is being put into the queue just now.
            wait_s = max(timeout_s, *(self._landing.left_s(queue.group.topic_name) for queue in named))
            if wait_s:
                found = await self._wait(request, list(named), count, lease_ms, wait_s)
        jobs: list[Job] = []
        for queue, batch in found:
            jobs += self._jobs(queue, batch, namespace, named[queue], lease_ms)
        if not jobs:
            return NONE
        return Response(200, jobs[0].handed_out() if count == 1 else listed(jobs), JSON)

    async def _now(self, queues: list[ReceiveQueue], count: int, lease_ms: int) -> list[Messages]:
        found: list[Messages] = []
        for queue in queues:
            batch = await self._polls.ask(queue, count, lease_ms)
            if batch is not None:
                found.append((queue, batch))
                count -= batch.num_rows
                if not count:
                    break
        return found

    async def _wait(
        self, request: Request, queues: list[ReceiveQueue], count: int, lease_ms: int, timeout_s: float
    ) -> list[Messages]:
        """Wait for the first of the queues that has some."""
        loop = self._services.loop
        result: asyncio.Future[Messages | None] = loop.create_future()
        request.on_disconnect(lambda: _set(result, None))
        timer = loop.call_later(timeout_s, _set, result, None)
        waiters: list[tuple[ReceiveQueue, Waiter]] = []
        for queue in queues:
            if result.done():
                break
            subscription = queue.group.subscribe(prefetch=count, lease_ms=lease_ms)
            waiter = Waiter(subscription, count, _taker(result, queue))
            waiters.append((queue, waiter))
            queue.add(waiter)
        try:
            messages = await result
        finally:
            # Between the result and this, another queue's turn gives back what it gets.
            timer.cancel()
            for queue, waiter in waiters:
                queue.remove(waiter)
        return [] if messages is None else [messages]

    def _jobs(self, queue: ReceiveQueue, batch: pa.RecordBatch, namespace: str, name: str, lease_ms: int) -> list[Job]:
        group, now_ms = queue.group, self._services.broker.clock.now_ms()
        tries = remaining(batch, group.settings.tries)
        jobs = jobs_of(batch, group.topic_name, (namespace, name), now_ms, tries)
        until_s = self._services.loop.time() + lease_ms / 1000
        leases, offsets = batch.column("lease").to_pylist(), batch.column("offset").to_pylist()
        self._landing.arrived(group.topic_name, max(batch.column("seq").to_pylist()))
        for job, lease, offset in zip(jobs, leases, offsets, strict=True):
            self._acknowledging.hold(job.id, Held(group.topic_name, group, lease, offset, until_s))
        return jobs


def _taker(result: asyncio.Future[Messages | None], queue: ReceiveQueue) -> Callable[[Received], None]:
    def take(received: Received) -> None:
        if result.done():
            give_back(queue.group, received)  # another queue was quicker, and this waiter has not left yet
        elif isinstance(received, TarryError):
            result.set_exception(received)
        else:
            result.set_result(None if received is None else (queue, received))

    return take


def _set(result: asyncio.Future[Messages | None], value: Messages | None) -> None:
    if not result.done():
        result.set_result(value)
