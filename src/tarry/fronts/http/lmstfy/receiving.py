"""Consume: jobs of one queue, or of several by priority, now or when there are some.

Requests that come in one turn of the event loop for the same queue are served by one poll of its group, whose rows are
shared out among them: a poll costs nearly the same for one message as for many. Who finds nothing may wait
(:mod:`.waiting`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import pyarrow as pa

from tarry.api.accounts import QuotaAccount
from tarry.api.consuming import DistantSubscription, Subscription
from tarry.base.errors import OverloadedError, QuotaExceededError, TarryError
from tarry.base.event_loop import settle_future
from tarry.batching.coalescing import EndOfTurn
from tarry.fronts.http.exchange import HttpRequest, HttpResponse
from tarry.fronts.http.lmstfy.answers import JSON_LINE, QueryValues, RefusalError, json_bytes
from tarry.fronts.http.lmstfy.jobs import LmstfyJob, jobs_of, listed, remaining, values_of
from tarry.fronts.http.lmstfy.names import GROUP, topic_of
from tarry.fronts.http.lmstfy.request import LmstfyRequest
from tarry.fronts.http.lmstfy.sending import UINT32_MAX
from tarry.fronts.http.lmstfy.settling import Acknowledging, Held
from tarry.fronts.http.lmstfy.waiting import JobReceive, OnJobs, Waiting
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.last_look import sendable
from tarry.fronts.kit.receiving import FILTERING_S, Received, ReceiveQueue, Waiter, give_back, poll_now
from tarry.fronts.kit.unread import Room

TTR_S, TIMEOUT_S, COUNT = 120, 0, 1
"""Defaults."""
COUNT_MAX = 100
QUEUES_MAX = 1000
"""Queues in one request."""
NONE = HttpResponse(404, json_bytes({"msg": "no job available"}), (), JSON_LINE)

Messages = tuple[ReceiveQueue, pa.RecordBatch]


@dataclass(slots=True, eq=False)
class _Asking:
    """A request for jobs, in this turn of the loop."""

    receive: JobReceive
    http: HttpRequest
    account: QuotaAccount | None
    """The use of its caller's identity."""
    on_jobs: OnJobs


class JobReceiver:
    """On the event loop's thread."""

    def __init__(self, services: HttpServices, acknowledging: Acknowledging, landing: Landing) -> None:
        self._services = services
        self._acknowledging = acknowledging
        self._landing = landing
        self._asking: dict[tuple[ReceiveQueue, int, QuotaAccount | None], list[_Asking]] = {}
        self._delayed: set[asyncio.Task[None]] = set()
        """Polls that wait for a quota."""
        self._end_of_turn = EndOfTurn(services.loop, self._poll)
        self._waiting = Waiting(services.loop, self._jobs, services.unread)

    def consume(self, request: LmstfyRequest) -> Awaitable[HttpResponse] | None:
        """Hand out jobs of the queues that are named, with commas between, the first one's before all others'."""
        receive = request.target.known
        if receive is None or receive.queue.group.closed:
            receive = self._look(request)
        if receive is None:
            return self._consume(request)
        account = request.principal.account
        self._ask(_Asking(receive, request.http, account, partial(self._on_jobs, request, receive)))
        return None

    def _look(self, request: LmstfyRequest) -> JobReceive | None:
        """Return the request for jobs if it is for one queue, whose group exists; else None."""
        target = request.target
        lease_ms, timeout_s, count = options_of(QueryValues(request.http.query))
        queue = self._services.known_queue(target.topic, GROUP)
        if queue is None:
            target.known = None
            return None
        target.known = receive = JobReceive(queue, (target.namespace, target.queue), count, lease_ms, timeout_s)
        return receive

    def _on_jobs(self, request: LmstfyRequest, receive: JobReceive, jobs: list[LmstfyJob] | TarryError) -> None:
        if not jobs and not request.http.gone:
            # A client that does not want to wait also gets jobs that are being put into the queue just now.
            wait_s = max(receive.timeout_s, self._landing.left_s(receive.queue.group.topic_name))
            if wait_s:
                # Before it waits: it may be answered while it is added.
                self._services.callers.add(request, request.principal, lambda _: request.http.stop_waiting())
                on_waited = partial(self._on_waited, request, receive.count)
                self._waiting.add(request.http, receive, request.principal.account, wait_s, on_waited)
                return
        _answer(request, receive.count, jobs)

    def _on_waited(self, request: LmstfyRequest, count: int, jobs: list[LmstfyJob] | TarryError) -> None:
        self._services.callers.remove(request)
        _answer(request, count, jobs)

    async def _consume(self, request: LmstfyRequest) -> HttpResponse:
        """:meth:`consume` of several queues, or of one whose group may be new."""
        http, namespace = request.http, request.target.namespace
        lease_ms, timeout_s, count = options_of(QueryValues(http.query))
        queues = list(dict.fromkeys(name for name in request.target.queue.split(",") if name))
        if not 0 < len(queues) <= QUEUES_MAX:
            raise RefusalError(400, "invalid queue name(s)")
        receives: dict[ReceiveQueue, JobReceive] = {}
        for name in queues:
            queue = await self._services.receive_queue(topic_of(namespace, name), GROUP)
            receives[queue] = JobReceive(queue, (namespace, name), count, lease_ms, timeout_s)
        room = Room(self._services.unread, http.host)
        # Whoever is not known any more waits no longer: it is answered that there is no job.
        self._services.callers.add(request, request.principal, lambda _: http.stop_waiting())
        try:
            account = request.principal.account
            jobs = await self._now(list(receives.values()), http, account)
            if not jobs:
                wait_s = max(timeout_s, *(self._landing.left_s(queue.group.topic_name) for queue in receives))
                found = (
                    await self._wait(http, room, account, list(receives), count, lease_ms, wait_s) if wait_s else None
                )
                jobs = [] if found is None else self._jobs(receives[found[0]], found[1])
            if jobs and not next(iter(receives)).group.may_send:  # those of one queue may have waited for others'
                self._acknowledging.give_back([job.id for job in jobs])
                jobs = []
            return answer_of(jobs, count)
        finally:
            self._services.callers.remove(request)
            room.release()  # it is written at once, and counted by its connection

    # -- now ---------------------------------------------------------------------------------------------------------

    async def _now(
        self, receives: list[JobReceive], http: HttpRequest, account: QuotaAccount | None
    ) -> list[LmstfyJob]:
        found: list[LmstfyJob] = []
        for receive in receives:
            future: asyncio.Future[list[LmstfyJob]] = self._services.loop.create_future()
            receive = replace(receive, count=receive.count - len(found))
            self._ask(_Asking(receive, http, account, partial(settle_future, future)))
            try:
                found += await future
            except OverloadedError:
                if not found:
                    raise
                break  # what it has got is its own
            if len(found) >= receive.count:
                break
        return found

    def _ask(self, asking: _Asking) -> None:
        key = asking.receive.queue, asking.receive.lease_ms, asking.account
        self._asking.setdefault(key, []).append(asking)
        self._end_of_turn.plan()

    def _poll(self) -> None:
        """One poll for all that ask for jobs of a queue in this turn."""
        asking, self._asking = self._asking, {}
        for requests in asking.values():
            here = []
            for request in requests:
                if request.http.gone:
                    request.on_jobs([])
                elif self._has_room(request):
                    here.append(request)
            self._share_out(here)

    def _has_room(self, request: _Asking) -> bool:
        # Each queue asked gives about as much as one answer may have, and there may be many of them.
        unread = self._services.unread
        refusal = unread.refusal(request.http.host) if unread.held else None
        if refusal is not None:
            request.on_jobs(OverloadedError(refusal))
        return refusal is None

    def _share_out(self, requests: list[_Asking]) -> None:
        if not requests:
            return
        receive, count = requests[0].receive, sum(request.receive.count for request in requests)
        try:
            account = requests[0].account
            subscription = receive.queue.group.subscribe(prefetch=count, lease_ms=receive.lease_ms, account=account)
            if receive.queue.group.gathers:
                cast(DistantSubscription, subscription).poll_now(count, partial(self._on_polled, requests))
                return
            batch, _ = subscription.poll(count)
        except TarryError as error:
            self._hand_out(requests, error)
            return
        if batch is None and subscription.held_back is not None:
            self._delay(requests, subscription)
        else:
            self._hand_out(requests, batch)

    def _delay(self, requests: list[_Asking], subscription: Subscription) -> None:
        """Delay requests for a quota: those that wait anyway, as they do for jobs; others up to a second."""
        later: list[_Asking] = []
        for request in requests:
            if request.receive.timeout_s:
                request.on_jobs([])
            else:
                later.append(request)
        if later:
            task = self._services.loop.create_task(self._poll_in_turn(later, subscription))
            self._delayed.add(task)
            task.add_done_callback(self._delayed.discard)

    async def _poll_in_turn(self, requests: list[_Asking], subscription: Subscription) -> None:
        count = sum(request.receive.count for request in requests)
        received: Received
        try:
            received = await poll_now(self._services.loop, subscription, count, FILTERING_S)
        except TarryError as error:
            received = error
        self._on_polled(requests, received)

    def _on_polled(self, requests: list[_Asking], received: Received) -> None:
        """Take what a broker elsewhere has leased; clients may have left meanwhile."""
        here = [request for request in requests if not request.http.gone]
        if not here:
            give_back(requests[0].receive.queue.group, received)
        elif len(here) < len(requests) and isinstance(received, pa.RecordBatch):
            count = sum(request.receive.count for request in here)
            give_back(here[0].receive.queue.group, received.slice(count))
            received = received.slice(0, count)
        self._hand_out(here, received)

    def _hand_out(self, requests: list[_Asking], received: Received) -> None:
        if isinstance(received, TarryError):
            for request in requests:
                # A broker elsewhere has refused what one that waits has time for.
                is_early = isinstance(received, QuotaExceededError) and request.receive.timeout_s
                request.on_jobs([] if is_early else received)
            return
        received = sendable(requests[0].receive.queue.group, received) if requests else None
        jobs = self._jobs(requests[0].receive, received) if isinstance(received, pa.RecordBatch) else []
        at = 0
        for request in requests:
            request.on_jobs(jobs[at : at + request.receive.count])
            at += request.receive.count

    # -- later -------------------------------------------------------------------------------------------------------

    async def _wait(
        self,
        http: HttpRequest,
        room: Room,
        account: QuotaAccount | None,
        queues: list[ReceiveQueue],
        count: int,
        lease_ms: int,
        timeout_s: float,
    ) -> Messages | None:
        """Return the messages of the first queue that has some; None: there were none in this time."""
        loop = self._services.loop
        result: asyncio.Future[Messages | None] = loop.create_future()
        http.on_disconnect(lambda: settle_future(result, None))
        timer = loop.call_later(timeout_s, settle_future, result, None)
        waiters: list[tuple[ReceiveQueue, Waiter]] = []
        for queue in queues:
            if result.done():
                break
            subscription = queue.group.subscribe(prefetch=count, lease_ms=lease_ms, account=account)
            waiter = Waiter(subscription, count, _taker(result, queue), room=room)
            waiters.append((queue, waiter))
            queue.add(waiter)
        try:
            return await result
        finally:
            # If another queue's turn comes between the result and this, it gives back its messages.
            timer.cancel()
            for queue, waiter in waiters:
                queue.remove(waiter)

    def _jobs(self, receive: JobReceive, batch: pa.RecordBatch) -> list[LmstfyJob]:
        """Return the messages of a batch as jobs that a consumer holds."""
        group, now_ms = receive.queue.group, self._services.broker.clock.now_ms()
        topic = group.topic_name
        jobs = jobs_of(batch, topic, receive.names, now_ms, remaining(batch, group.settings.tries))
        until_s = self._services.loop.time() + receive.lease_ms / 1000
        self._landing.arrived(topic, max(values_of(batch, "seq")))
        for job, lease, offset in zip(jobs, values_of(batch, "lease"), values_of(batch, "offset"), strict=True):
            self._acknowledging.hold(job.id, Held(topic, group, lease, offset, until_s))
        return jobs


def options_of(query: QueryValues) -> tuple[int, int, int]:
    """Return the length of leases (ms), the time to wait for a job (s), and the number of jobs wanted.

    Raises:
        RefusalError: a value is not allowed.
    """
    ttr_s = query.natural("ttr", TTR_S, UINT32_MAX)
    timeout_s = query.natural("timeout", TIMEOUT_S, UINT32_MAX)
    return max(1, ttr_s * 1000), timeout_s, query.natural("count", COUNT, COUNT_MAX, least=1)


def answer_of(jobs: list[LmstfyJob], count: int) -> HttpResponse:
    """Return the answer to who wanted ``count`` jobs."""
    if not jobs:
        return NONE
    return HttpResponse(200, jobs[0].handed_out() if count == 1 else listed(jobs), (), JSON_LINE)


def _answer(request: LmstfyRequest, count: int, jobs: list[LmstfyJob] | TarryError) -> None:
    if isinstance(jobs, TarryError):
        request.refuse(jobs)
    else:
        request.answer(answer_of(jobs, count))


def _taker(result: asyncio.Future[Messages | None], queue: ReceiveQueue) -> Callable[[Received], None]:
    def take(received: Received) -> None:
        if result.done():
            give_back(queue.group, received)  # another queue was quicker, and this waiter has not left yet
        else:
            settle_future(result, (queue, received) if isinstance(received, pa.RecordBatch) else received)

    return take
