"""Consume: jobs of one queue, or of several by priority, now or when there are some.

Requests that come in one turn of the event loop for the same queue are served by one poll of its group, whose rows are
shared out among them: a poll costs nearly the same for one message as for many. Who finds nothing may wait
(:mod:`.waiting`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from tarry.base.errors import OverloadedError, TarryError
from tarry.batching.coalescing import EndOfTurn
from tarry.fronts.http.exchange import HttpRequest, HttpResponse, WholeRequest
from tarry.fronts.http.lmstfy.answers import JSON, QueryValues, RefusalError, json_bytes
from tarry.fronts.http.lmstfy.jobs import LmstfyJob, jobs_of, listed, remaining, values_of
from tarry.fronts.http.lmstfy.names import GROUP, topic_of
from tarry.fronts.http.lmstfy.read_your_writes import Landing
from tarry.fronts.http.lmstfy.sending import UINT32_MAX
from tarry.fronts.http.lmstfy.settling import Acknowledging, Held
from tarry.fronts.http.lmstfy.waiting import JobReceive, OnJobs, Waiting
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.receiving import Received, ReceiveQueue, Waiter, give_back
from tarry.fronts.kit.unread import Room

TTR_S, TIMEOUT_S, COUNT = 120, 0, 1
"""Defaults."""
COUNT_MAX = 100
QUEUES_MAX = 1000
"""Queues in one request."""
NONE = (404, json_bytes({"msg": "no job available"}))

Messages = tuple[ReceiveQueue, pa.RecordBatch]


@dataclass(slots=True, eq=False)
class _JobRequest:
    """A request for jobs, in this turn of the loop."""

    receive: JobReceive
    host: str
    on_jobs: OnJobs
    has_left: Callable[[], bool] = bool
    """Whether nobody waits for them any more."""


class JobReceiver:
    """On the loop's thread."""

    def __init__(self, services: HttpServices, acknowledging: Acknowledging, landing: Landing) -> None:
        self._services = services
        self._acknowledging = acknowledging
        self._landing = landing
        self._asking: dict[tuple[ReceiveQueue, int], list[_JobRequest]] = {}
        self._end_of_turn = EndOfTurn(services.loop, self._poll)
        self._waiting = Waiting(services.loop, self._jobs, services.unread)

    async def consume(self, request: HttpRequest, namespace: str, names: str) -> HttpResponse:
        """Jobs of the queues ``names`` (with commas between), the first one's before all others'."""
        lease_ms, timeout_s, count = options_of(QueryValues(request.query))
        queues = list(dict.fromkeys(name for name in names.split(",") if name))
        if not 0 < len(queues) <= QUEUES_MAX:
            raise RefusalError(400, "invalid queue name(s)")
        receives: dict[ReceiveQueue, JobReceive] = {}
        for name in queues:
            queue = await self._services.receive_queue(topic_of(namespace, name), GROUP)
            receives[queue] = JobReceive(queue, (namespace, name), count, lease_ms, timeout_s)
        room = Room(self._services.unread, request.host)
        try:
            jobs = await self._now(list(receives.values()), request.host)
            if not jobs:
                # Also who does not want to wait gets what is being put into the queue just now.
                wait_s = max(timeout_s, *(self._landing.left_s(queue.group.topic_name) for queue in receives))
                found = await self._wait(request, room, list(receives), count, lease_ms, wait_s) if wait_s else None
                jobs = [] if found is None else self._jobs(receives[found[0]], found[1])
            return HttpResponse(*answer_of(jobs, count), JSON)
        finally:
            room.release()  # it is written at once, and counted by its connection

    def begin(self, request: WholeRequest, receive: JobReceive, answer: OnJobs) -> None:
        """:meth:`consume` from one queue, without a task: ``answer`` is called once, unless the client goes first."""

        def on_jobs(jobs: list[LmstfyJob] | TarryError) -> None:
            if jobs or request.gone:
                answer(jobs)
                return
            wait_s = max(receive.timeout_s, self._landing.left_s(receive.queue.group.topic_name))
            if wait_s:
                self._waiting.add(request, receive, wait_s, answer)
            else:
                answer(jobs)

        self._ask(_JobRequest(receive, request.host, on_jobs, lambda: request.gone))

    # -- now ---------------------------------------------------------------------------------------------------------

    async def _now(self, receives: list[JobReceive], host: str) -> list[LmstfyJob]:
        found: list[LmstfyJob] = []
        for receive in receives:
            future: asyncio.Future[list[LmstfyJob]] = self._services.loop.create_future()
            self._ask(_JobRequest(replace(receive, count=receive.count - len(found)), host, partial(_settle, future)))
            try:
                found += await future
            except OverloadedError:
                if not found:
                    raise
                break  # what it has got is its own
            if len(found) >= receive.count:
                break
        return found

    def _ask(self, asking: _JobRequest) -> None:
        self._asking.setdefault((asking.receive.queue, asking.receive.lease_ms), []).append(asking)
        self._end_of_turn.plan()

    def _poll(self) -> None:
        """One poll for all that ask for jobs of a queue in this turn."""
        asking, self._asking = self._asking, {}
        for requests in asking.values():
            self._share_out([request for request in requests if not request.has_left() and self._has_room(request)])

    def _has_room(self, request: _JobRequest) -> bool:
        # Each queue asked gives about as much as one answer may have, and there may be many of them.
        unread = self._services.unread
        refusal = unread.refusal(request.host) if unread.held else None
        if refusal is not None:
            request.on_jobs(OverloadedError(refusal))
        return refusal is None

    def _share_out(self, requests: list[_JobRequest]) -> None:
        if not requests:
            return
        receive, count = requests[0].receive, sum(request.receive.count for request in requests)
        try:
            subscription = receive.queue.group.subscribe(prefetch=count, lease_ms=receive.lease_ms)
            batch, _ = subscription.poll(count)
        except TarryError as error:
            for request in requests:
                request.on_jobs(error)
            return
        jobs = [] if batch is None else self._jobs(receive, batch)
        at = 0
        for request in requests:
            request.on_jobs(jobs[at : at + request.receive.count])
            at += request.receive.count

    # -- later -------------------------------------------------------------------------------------------------------

    async def _wait(
        self, request: HttpRequest, room: Room, queues: list[ReceiveQueue], count: int, lease_ms: int, timeout_s: float
    ) -> Messages | None:
        """What the first of the queues has that has something; None: there was nothing for so long."""
        loop = self._services.loop
        result: asyncio.Future[Messages | None] = loop.create_future()
        request.on_disconnect(lambda: _set(result, None))
        timer = loop.call_later(timeout_s, _set, result, None)
        waiters: list[tuple[ReceiveQueue, Waiter]] = []
        for queue in queues:
            if result.done():
                break
            subscription = queue.group.subscribe(prefetch=count, lease_ms=lease_ms)
            waiter = Waiter(subscription, count, _taker(result, queue), room=room)
            waiters.append((queue, waiter))
            queue.add(waiter)
        try:
            return await result
        finally:
            # Between the result and this, another queue's turn gives back what it gets.
            timer.cancel()
            for queue, waiter in waiters:
                queue.remove(waiter)

    def _jobs(self, receive: JobReceive, batch: pa.RecordBatch) -> list[LmstfyJob]:
        """The messages of a batch as jobs in a consumer's hands."""
        group, now_ms = receive.queue.group, self._services.broker.clock.now_ms()
        topic = group.topic_name
        jobs = jobs_of(batch, topic, receive.names, now_ms, remaining(batch, group.settings.tries))
        until_s = self._services.loop.time() + receive.lease_ms / 1000
        self._landing.arrived(topic, max(values_of(batch, "seq")))
        for job, lease, offset in zip(jobs, values_of(batch, "lease"), values_of(batch, "offset"), strict=True):
            self._acknowledging.hold(job.id, Held(topic, group, lease, offset, until_s))
        return jobs


def options_of(query: QueryValues) -> tuple[int, int, int]:
    """For how long a job is a consumer's (ms), how long to wait for one (s), and how many are wanted.

    Raises:
        RefusalError: a value is not allowed.
    """
    ttr_s = query.natural("ttr", TTR_S, UINT32_MAX)
    timeout_s = query.natural("timeout", TIMEOUT_S, UINT32_MAX)
    return max(1, ttr_s * 1000), timeout_s, query.natural("count", COUNT, COUNT_MAX, least=1)


def answer_of(jobs: list[LmstfyJob], count: int) -> tuple[int, bytes]:
    """The answer to who wanted ``count`` jobs: status and JSON."""
    if not jobs:
        return NONE
    return 200, jobs[0].handed_out() if count == 1 else listed(jobs)


def _settle(future: asyncio.Future[list[LmstfyJob]], jobs: list[LmstfyJob] | TarryError) -> None:
    if future.done():
        return
    if isinstance(jobs, TarryError):
        future.set_exception(jobs)
    else:
        future.set_result(jobs)


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
