"""The messages of one subscription on their way: leased from its group, POSTed, and settled.

    group ── lease ──▶ buffer ── as many at a time as may be ──▶ request ── 2xx ──▶ acknowledged
                                                                    └────── else ──▶ given back, to come again

Nothing waits in a thread, and no subscription waits for another: each has limits of its own. Only what may be sent
soon is leased, and a lease outlasts what it has to wait for and the request; a message whose lease might not is not
sent. All of it is on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.api.push import PushAttempt, PushSubscription
from tarry.base.clock import Clock
from tarry.base.errors import StaleLeaseError, TarryError
from tarry.base.event_loop import post
from tarry.base.token_bucket import TokenBucket
from tarry.fronts.kit.receiving import Received, ReceiveQueue, Waiter
from tarry.fronts.kit.settling import AckGatherer, AckOutcome, Entries, lease_columns
from tarry.fronts.push.breaker import CircuitBreaker
from tarry.fronts.push.figures import AttemptLog, SubscriptionFigures
from tarry.fronts.push.message import PushMessage, messages_of
from tarry.fronts.push.request import RequestMaker
from tarry.fronts.push.verdict import PushOutcome, Verdict, verdict_of
from tarry.outbound.client import HttpClient, NotSentError
from tarry.outbound.connection import HttpAnswer, HttpTarget

log = logging.getLogger(__name__)

LEASE_SPARE_MS = 10_000
"""Spare time of a lease, which also covers one time-out in the buffer and one of the request."""
FIRST_ROWS = 16
"""Messages leased at once until their size is known."""
ACKS_WAIT_S = 0.005
"""Seconds for which acknowledgements gather, up to as many as are sent at a time."""
AGAIN_S = 1.0
"""Seconds after which the broker is asked again after an error."""


@dataclass(frozen=True, slots=True)
class DeliveryServices:
    """Services that all deliveries use.

    ``is_current``: returns whether a subscription is unchanged. ``on_gone``: the receiver wants nothing more.
    ``on_stopped``: messages cannot be leased any more, and why.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    client: HttpClient
    attempts: AttemptLog
    is_current: Callable[[PushSubscription], bool]
    on_gone: Callable[[PushSubscription, str], None]
    on_stopped: Callable[[PushSubscription, str], None]


@dataclass(slots=True)
class Share:
    """Limits of each delivery: its share of those of all."""

    connections: int
    bytes: int


class PushDelivery:
    """The delivery of one subscription; it begins when it is made.

    :meth:`end` lets requests on their way come to their end.
    """

    def __init__(
        self,
        subscription: PushSubscription,
        group: ConsumerGroup,
        share: Share,
        around: DeliveryServices,
        figures: SubscriptionFigures,
        breaker: CircuitBreaker,
    ) -> None:
        self.subscription = subscription
        self.breaker = breaker
        self.hold_until_s = 0.0
        """Time, as `Clock.elapsed_s` has it, until which the receiver asked for no requests."""
        self._group = group
        self._share = share
        self._around = around
        self._figures = figures
        self._loop = around.loop
        self._target = HttpTarget(subscription.url)
        self._maker = RequestMaker(subscription)
        self._timeout_s = subscription.timeout_ms / 1000
        self._lease_ms = 2 * subscription.timeout_ms + LEASE_SPARE_MS
        self._consumer: Subscription = group.subscribe(prefetch=3 * subscription.concurrency, lease_ms=self._lease_ms)
        self._queue = ReceiveQueue(self._loop, group)
        self._bucket = TokenBucket(subscription.per_second, time.monotonic())  # the receiver's rest is real time
        self._buffer: deque[PushMessage] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._held_bytes = 0
        self._mean_bytes = 0.0
        self._waiter: Waiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._acks: AckGatherer[PushMessage, None] = AckGatherer(
            self._loop,
            self._on_acked,
            window_s=ACKS_WAIT_S,
            entries_max=subscription.concurrency,
            failures_only=True,
        )
        self._ending = False
        self._ended = self._loop.create_future()
        self._end_said = False
        self.pump()

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._running)

    @property
    def is_ending(self) -> bool:
        """True once it leases nothing more."""
        return self._ending

    def end(self) -> asyncio.Future[None]:
        """Lease nothing more; the future is done when all requests have an answer.

        Messages that were not sent are given back.
        """
        if not self._ending:
            self._ending = True
            self._leave()
            self._buffer.clear()
            self._end_when_idle()
        return self._ended

    def abort(self) -> None:
        """Cut requests that are on their way."""
        self.end()
        for task in list(self._running):
            task.cancel()

    # -- taking messages ---------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send as many messages as allowed, and wait for as many as may be leased."""
        # The caller that changed the subscription had its answer before this loop is told: a later message must not be
        # sent to the former URL, or signed with the former secrets. This delivery is ended soon.
        if self._ending or not self._around.is_current(self.subscription):
            return
        now_s = self._around.clock.elapsed_s()
        self.breaker.look(now_s)
        self._hold_back()
        self._send_buffered(now_s)
        room, again_s = self._room(now_s)
        if room > 0:
            self._wait_for(room)
        else:
            self._leave()
        self._plan(again_s)

    def _send_buffered(self, now_s: float) -> None:
        limit = self._limit(now_s)
        while self._buffer and len(self._running) < limit:
            message = self._buffer.popleft()
            if message.lease_until_s < now_s + self._timeout_s:
                # The lease would end before the answer: others get the message then, and it is not sent twice.
                self._held_bytes -= len(message.body)
                continue
            task = self._loop.create_task(self._push(message))
            self._running.add(task)
            task.add_done_callback(partial(self._on_done, message))

    def _hold_back(self) -> None:
        """Give back what waits, if it may not be sent now: see :mod:`tarry.fronts.kit.last_look`."""
        if self._buffer and not self._group.may_send:
            self._group.give_back(*lease_columns(self._buffer))
            self._held_bytes -= sum(len(message.body) for message in self._buffer)
            self._buffer.clear()

    def _limit(self, now_s: float) -> int:
        """Return the number of requests allowed at a time."""
        if self.breaker.open_until_s is not None or now_s < self.hold_until_s:
            return 0
        return 1 if self.breaker.is_half_open else min(self.subscription.concurrency, self._share.connections)

    def _room(self, now_s: float) -> tuple[int, float | None]:
        """Return the number of messages to lease now, and the seconds to the next look at the latest."""
        until_s = max(self.breaker.open_until_s or 0.0, self.hold_until_s)
        if until_s > now_s:
            return 0, until_s - now_s
        limit = self._limit(now_s)
        # In batches: not until half of the buffered messages have been sent.
        if len(self._buffer) > limit // 2 or self._held_bytes >= self._share.bytes:
            return 0, None
        room = limit - len(self._running) if limit == 1 else 2 * limit - len(self._running) - len(self._buffer)
        left_bytes = self._share.bytes - self._held_bytes
        room = min(room, int(left_bytes / self._mean_bytes) if self._mean_bytes else FIRST_ROWS)
        if room <= 0 and not self._running and not self._buffer:
            room = 1  # however large it is: otherwise it would never go
        tokens = self._bucket.available(time.monotonic())
        if room > 0 and tokens is not None and tokens < room:
            return tokens, self._bucket.wait_s() or None
        return room, None

    def _wait_for(self, room: int) -> None:
        if self._waiter is not None:
            self._waiter.rows_max = room
            return
        self._waiter = Waiter(self._consumer, room, self._on_received)
        self._queue.add(self._waiter)

    def _leave(self) -> None:
        if self._waiter is not None:
            self._queue.remove(self._waiter)
            self._waiter = None

    def _plan(self, again_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if again_s is not None:
            # A little later, so that the wait is over by any clock.
            self._timer = self._loop.call_later(again_s + 0.001, self.pump)

    def _on_received(self, received: Received) -> None:
        self._waiter = None
        if received is None:
            self._stop("its group was deleted" if self._group.deleted else None)
        elif isinstance(received, TarryError):
            log.error("push subscription %s cannot take messages: %s", self.subscription.name, received)
            self._figures.error, self._figures.error_ms = str(received), self._around.clock.now_ms()
            self._plan(AGAIN_S)
        else:
            self._take(received)
            # Not from here: the queue is in the midst of serving.
            self._loop.call_soon(self.pump)

    def _take(self, batch: pa.RecordBatch) -> None:
        until_s = self._around.clock.elapsed_s() + self._lease_ms / 1000 - 1.0
        size = 0
        for message in messages_of(batch):
            message.lease_until_s = until_s
            size += len(message.body)
            self._buffer.append(message)
        self._held_bytes += size
        mean = max(1.0, size / batch.num_rows)
        # The size of messages changes: the last few count.
        self._mean_bytes = mean if not self._mean_bytes else max(mean, (self._mean_bytes * 3 + mean) / 4)
        self._bucket.take(batch.num_rows)

    def _stop(self, reason: str | None) -> None:
        """Stop, as messages cannot be leased any more.

        ``reason`` None: the broker is stopping.
        """
        self.end()
        if reason is not None:
            self._around.on_stopped(self.subscription, reason)

    # -- one message -------------------------------------------------------------------------------------------------

    async def _push(self, message: PushMessage) -> None:
        began_s, at_ms = time.monotonic(), self._around.clock.now_ms()
        headers, body = self._maker.request(message, at_ms)
        try:
            answer = await self._around.client.send(
                self._target, headers, body, self._timeout_s, lambda: self._group.may_send
            )
        except NotSentError:
            self._group.give_back(*lease_columns([message]))
            return
        spent_s = time.monotonic() - began_s
        now_ms = self._around.clock.now_ms()
        verdict = verdict_of(answer, now_ms)
        self._figures.durations_us.note(int(spent_s * 1_000_000))
        if verdict.outcome is PushOutcome.PUSHED:
            self._figures.pushed += 1
            self._figures.pushed_ms = now_ms
            self.breaker.on_success()
            self._acks.add(self._group, message, None, urgent=False)
        else:
            self._on_failure(message, verdict, now_ms)
        self._note(message, headers["webhook-id"], verdict, answer, at_ms, spent_s)

    def _on_failure(self, message: PushMessage, verdict: Verdict, now_ms: int) -> None:
        figures, name, now_s = self._figures, self.subscription.name, self._around.clock.elapsed_s()
        figures.failed += 1
        figures.error, figures.error_ms = verdict.error, now_ms
        log.debug("push subscription %s: message %s, try %d: %s", name, message.id, message.attempt, verdict.error)
        if verdict.outcome is PushOutcome.THROTTLED:
            self.hold_until_s = max(self.hold_until_s, now_s + (verdict.delay_ms or 0) / 1000)
            self._keep_buffered(self.hold_until_s)
        else:
            was_open = self.breaker.opened
            self.breaker.on_failure(now_s)
            if self.breaker.opened > was_open:
                self._keep_buffered(self.breaker.open_until_s or 0.0)
                failures = self.breaker.failures_in_a_row
                log.warning("push subscription %s: %d failures in a row, the last: %s", name, failures, verdict.error)
        self._nack(message, verdict)
        if verdict.outcome is PushOutcome.GONE and not self._ending:
            # Not if it ends: then somebody has changed the subscription since this was sent.
            self.end()
            self._around.on_gone(self.subscription, verdict.error or "")

    def _keep_buffered(self, until_s: float) -> None:
        """Extend the leases of buffered messages, as nothing is sent until then.

        Giving them back would cost each a try.
        """
        if self._buffer and not self._ending:
            now_s = self._around.clock.elapsed_s()
            lease_ms = int((until_s - now_s) * 1000) + self._lease_ms
            self._consumer.extend(*lease_columns(self._buffer), lease_ms)
            for message in self._buffer:
                message.lease_until_s = now_s + lease_ms / 1000 - 1.0

    def _on_done(self, message: PushMessage, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._held_bytes -= len(message.body)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its lease ends, and it comes again.
            log.error("push subscription %s", self.subscription.name, exc_info=error)
        if self._ending:
            self._end_when_idle()
        else:
            self.pump()

    def _note(
        self, message: PushMessage, webhook_id: str, verdict: Verdict, answer: HttpAnswer, at_ms: int, spent_s: float
    ) -> None:
        attempt = attempt_of(self.subscription, message, webhook_id, verdict, answer, at_ms, spent_s)
        self._around.attempts.add(attempt, answer.content)

    # -- settling ----------------------------------------------------------------------------------------------------

    def _on_acked(self, entries: Entries[PushMessage, None], settled: AckOutcome) -> None:
        if isinstance(settled, TarryError):
            self._report(settled)

    def _nack(self, message: PushMessage, verdict: Verdict) -> None:
        try:
            self._consumer.nack(*lease_columns([message]), verdict.delay_ms, self._on_nacked, verdict.error)
        except TarryError as error:
            self._report(error)

    def _on_nacked(self, error: TarryError | None) -> None:
        if error is not None:  # from any thread
            post(self._loop, self._report, error)

    def _report(self, error: TarryError) -> None:
        name = self.subscription.name
        if isinstance(error, StaleLeaseError):
            log.warning("push subscription %s: some messages will be pushed again: %s", name, error)
        elif self._group.closed:
            # One line for all that is under way: why the broker ends, its own log says.
            if not self._end_said:
                self._end_said = True
                log.warning("push subscription %s: what is under way may be pushed again: %s", name, error)
        else:
            log.error("push subscription %s: what was pushed may be pushed again: %s", name, error)

    def _end_when_idle(self) -> None:
        if self._running or self._ended.done():
            return
        self._acks.flush()
        self._plan(None)
        self._queue.close()
        self._consumer.close()
        self._ended.set_result(None)


def attempt_of(
    subscription: PushSubscription,
    message: PushMessage,
    webhook_id: str,
    verdict: Verdict,
    answer: HttpAnswer,
    at_ms: int,
    spent_s: float,
) -> PushAttempt:
    """Return the record of a request, without the beginning of the answer's body."""
    return PushAttempt(
        name=subscription.name,
        webhook_id=webhook_id,
        id=message.id,
        seq=message.seq,
        topic=message.topic,
        attempt=message.attempt,
        at_ms=at_ms,
        duration_ms=round(spent_s * 1000, 3),
        status=answer.status,
        outcome=verdict.outcome.value,
        error=verdict.error,
        answer="",
        again_ms=None if verdict.delay_ms is None else at_ms + int(spent_s * 1000) + verdict.delay_ms,
    )
