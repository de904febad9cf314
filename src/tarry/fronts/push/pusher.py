"""All subscriptions on one event loop, with a delivery for each that is not paused.

Deliveries are started, changed and ended as the broker's subscriptions are.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any

from tarry.api.local import LocalBroker
from tarry.api.operations import PausePushSubscription
from tarry.api.push import REASON_MAX, PushAttempt, PushProgress, PushSubscription
from tarry.base.addresses import AddressPolicy
from tarry.base.errors import OwnershipLostError, TarryError
from tarry.fronts.push.breaker import CircuitBreaker
from tarry.fronts.push.delivery import DeliveryServices, PushDelivery, Share, attempt_of
from tarry.fronts.push.figures import AttemptLog, SubscriptionFigures
from tarry.fronts.push.message import trial_message
from tarry.fronts.push.request import RequestMaker
from tarry.fronts.push.settings import PushSettings
from tarry.fronts.push.verdict import verdict_of
from tarry.outbound.client import HttpClient
from tarry.outbound.connection import HttpTarget

log = logging.getLogger(__name__)

BYTES_MAX = 64 << 20
"""Bytes of bodies under way, of all subscriptions together; each has an equal share..."""
SHARE_BYTES_MIN = 1 << 20
"""...but not less than this."""
RETRY_S = 1.0
"""Seconds to wait after a subscription that could not begin."""


class SubscriptionPusher:
    """The deliveries of all subscriptions, made on the loop, with threads of ``pool`` for disk access.

    On the loop's thread, except :meth:`progress`, which only reads.
    """

    def __init__(self, broker: LocalBroker, pool: Executor, attempts: AttemptLog, connections_max: int) -> None:
        config = broker.config
        self._broker = broker
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._attempts = attempts
        self._connections_max = connections_max
        self._client = HttpClient(
            AddressPolicy.of(config.push_private_addresses, config.push_ports), PushSettings.of(config).push_ca_file
        )
        self._around = DeliveryServices(
            self._loop, broker.clock, self._client, attempts, self._is_current, self._on_gone, self._on_stopped
        )
        self._share = Share(connections_max, BYTES_MAX)
        self._figures: dict[str, SubscriptionFigures] = {}
        self._breakers: dict[str, CircuitBreaker] = {}
        self._deliveries: dict[str, PushDelivery] = {}
        self._ending: set[PushDelivery] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pausing: set[str] = set()
        self._not_begun: set[str] = set()
        """Subscriptions that could not begin, and are tried again."""
        self._changing = asyncio.Lock()
        self._tests = itertools.count(1)

    # -- subscriptions that change -----------------------------------------------------------------------------------

    def on_change(self) -> None:
        """Follow the broker's subscriptions, soon."""
        self._spawn(self._follow())

    def wake(self) -> None:
        """Look again at what is due, for the clock was moved."""
        for delivery in self._deliveries.values():
            delivery.pump()

    async def _follow(self) -> None:
        async with self._changing:
            wanted = {name: s for name, s in self._broker.push.all().items() if not s.paused}
            for name, delivery in list(self._deliveries.items()):
                # One that has ended by itself is replaced, too, if it was resumed before this look.
                if delivery.is_ending or wanted.get(name) != delivery.subscription:
                    self._end(name)
            known = self._broker.push.all().keys()
            for name in [name for name in self._figures if name not in known]:
                del self._figures[name], self._breakers[name]
                self._not_begun.discard(name)
            self._attempts.keep(known)
            self._divide(len(wanted))
            for name, subscription in wanted.items():
                if name not in self._deliveries and name not in self._pausing:
                    await self._begin(subscription)

    def _divide(self, count: int) -> None:
        self._share.connections = max(1, self._connections_max // max(1, count))
        self._share.bytes = max(SHARE_BYTES_MIN, BYTES_MAX // max(1, count))

    async def _begin(self, subscription: PushSubscription) -> None:
        name = subscription.name
        figures = self._figures.setdefault(name, SubscriptionFigures())
        breaker = self._breakers.setdefault(name, CircuitBreaker(subscription.breaker_failures))
        # It was changed or resumed, or is new: whatever the past failures, it may work now.
        breaker.failures_max = subscription.breaker_failures
        breaker.failures_in_a_row = 0
        breaker.close()
        try:
            # A group that was deleted is made again.
            group = await self._loop.run_in_executor(
                self._pool, self._broker.group, subscription.topic, subscription.group
            )
            self._deliveries[name] = PushDelivery(subscription, group, self._share, self._around, figures, breaker)
            self._not_begun.discard(name)
        except TarryError as error:
            log.error("push subscription %s cannot begin: %s", name, error)
            self._not_begun.add(name)
            figures.error, figures.error_ms = str(error), self._broker.clock.now_ms()
            self._loop.call_later(RETRY_S, self.on_change)

    def _end(self, name: str) -> None:
        delivery = self._deliveries.pop(name)
        self._ending.add(delivery)
        delivery.end().add_done_callback(lambda _: self._ending.discard(delivery))

    def _is_current(self, subscription: PushSubscription) -> bool:
        return self._broker.push.all().get(subscription.name) == subscription

    def _on_gone(self, subscription: PushSubscription, reason: str) -> None:
        self._pause(subscription, reason)

    def _on_stopped(self, subscription: PushSubscription, reason: str) -> None:
        self._pause(subscription, reason)

    def _pause(self, subscription: PushSubscription, reason: str) -> None:
        log.warning("push subscription %s is paused: %s", subscription.name, reason)
        self._pausing.add(subscription.name)
        self._spawn(self._pause_durably(subscription, reason))

    async def _pause_durably(self, subscription: PushSubscription, reason: str) -> None:
        request = PausePushSubscription(subscription.name, reason[:REASON_MAX])
        try:
            while self._is_current(subscription):  # otherwise somebody has changed it
                try:
                    await self._loop.run_in_executor(self._pool, self._broker.call, request)
                    return
                except TarryError as error:
                    log.error("push subscription %s could not be paused: %s", subscription.name, error)
                    if not error.retryable or isinstance(error, OwnershipLostError):
                        return
                    await asyncio.sleep(RETRY_S)
        finally:
            self._pausing.discard(subscription.name)
            self.on_change()

    # -- looking -----------------------------------------------------------------------------------------------------

    def progress(self, name: str) -> PushProgress | None:
        """Return the progress of a subscription; see :meth:`tarry.api.pushing.Pusher.progress`.

        Any thread: each figure is right, but they may be of different moments.
        """
        figures, breaker, delivery = self._figures.get(name), self._breakers.get(name), self._deliveries.get(name)
        if figures is None or breaker is None:
            return None
        if delivery is None:  # it is about to begin, unless it could not
            state, until_s = ("stopped" if name in self._not_begun else "running"), None
        else:
            state, until_s = _state(delivery, breaker, self._broker.clock.elapsed_s())
        until_ms = None
        if until_s is not None:
            left_s = until_s - self._broker.clock.elapsed_s()
            until_ms = self._broker.clock.now_ms() + math.ceil(left_s * 1000)
        return PushProgress(
            state=state,
            until_ms=until_ms,
            in_flight=0 if delivery is None else delivery.in_flight,
            pushed=figures.pushed,
            failed=figures.failed,
            failures_in_a_row=breaker.failures_in_a_row,
            breaker_opened=breaker.opened,
            error=figures.error,
            error_ms=figures.error_ms,
            pushed_ms=figures.pushed_ms,
            duration_us=figures.durations_us.histogram().to_json(),
        )

    async def test(self, subscription: PushSubscription) -> PushAttempt:
        """Send a test request; see :meth:`tarry.api.pushing.Pusher.test`."""
        now_ms, began_s = self._broker.clock.now_ms(), time.monotonic()
        message = trial_message(subscription.topic, now_ms, next(self._tests))
        headers, body = RequestMaker(subscription).request(message, now_ms)
        target = HttpTarget(subscription.url)
        answer = await self._client.send(target, headers, body, subscription.timeout_ms / 1000)
        verdict = verdict_of(answer, self._broker.clock.now_ms())
        spent_s = time.monotonic() - began_s
        attempt = attempt_of(subscription, message, headers["webhook-id"], verdict, answer, now_ms, spent_s)
        self._attempts.add(attempt, answer.content)
        [found] = self._attempts.find(subscription.name, headers["webhook-id"], False, 1)
        return found

    # -- the end -----------------------------------------------------------------------------------------------------

    async def stop(self, grace_s: float) -> None:
        """Let requests come to their end for ``grace_s`` seconds, then cut them: their messages come again."""
        async with self._changing:
            for name in list(self._deliveries):
                self._end(name)
        await _wait((d.end() for d in list(self._ending)), grace_s)
        for delivery in list(self._ending):
            delivery.abort()
        await _wait((d.end() for d in list(self._ending)), grace_s)
        for task in list(self._tasks):
            task.cancel()
        await self._client.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the pusher", exc_info=error)


def _state(delivery: PushDelivery, breaker: CircuitBreaker, now_s: float) -> tuple[str, float | None]:
    if (until_s := breaker.open_until_s) is not None:
        return "open", until_s
    if delivery.hold_until_s > now_s:
        return "waiting", delivery.hold_until_s
    return ("half_open" if breaker.is_half_open else "running"), None


async def _wait(futures: Iterable[asyncio.Future[None]], timeout_s: float) -> None:
    if waiting := list(futures):
        await asyncio.wait(waiting, timeout=timeout_s)
