"""Starts and stops the pusher.

Its thread and its HTTP client are made when there is something to push.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Self

from tarry.api.local import LocalBroker
from tarry.api.push import PushAttempt, PushProgress, PushSubscription
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import TarryError, UnavailableError
from tarry.base.extras import missing_extra
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.push.figures import AttemptLog

if TYPE_CHECKING:
    from tarry.fronts.kit.loop_thread import LoopThread, OnStarted
    from tarry.fronts.push.pusher import SubscriptionPusher

log = logging.getLogger(__name__)

THREAD = "tarry-push"
TEST_SPARE_S = 10.0
"""Seconds that a test is waited for, beyond its time-out."""


class PushFront:
    """The front, made by :meth:`start`; call :meth:`stop` before the broker is closed. Any thread.

    It is a :class:`tarry.api.pushing.Pusher`.
    """

    def __init__(self, broker: LocalBroker, placement: Placement, connections: ConnectionLimits) -> None:
        self._broker = broker
        self._placement = placement
        self._connections = connections
        self._attempts = AttemptLog()
        self._lock = threading.Lock()
        self._thread: LoopThread[SubscriptionPusher] | None = None
        self._pusher: SubscriptionPusher | None = None
        self._failure: TarryError | None = None
        self._stopped = False
        self._detach = broker.push.attach(self)

    @classmethod
    def start(
        cls, broker: LocalBroker, placement: Placement = ANY_CORE, connections: ConnectionLimits | None = None
    ) -> Self:
        """Push for a broker.

        ``placement`` chooses the cores of its thread, ``connections`` bounds its connections.

        Raises:
            InvalidArgumentError: the broker has a pusher already.
        """
        return cls(broker, placement, connections or ConnectionLimits())

    def stop(self, grace_s: float = 2.0) -> None:
        """Lease nothing more, and cut requests that do not end within ``grace_s`` seconds."""
        self._detach()
        with self._lock:
            self._stopped = True
            thread, self._thread, self._pusher = self._thread, None, None
        if thread is not None:
            thread.stop(grace_s)

    @property
    def addresses(self) -> Mapping[str, str]:
        """Nothing: it listens nowhere."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- tarry.api.pushing.Pusher ------------------------------------------------------------------------------------

    def on_change(self) -> None:
        """Start if there is something to push, and follow changes of subscriptions."""
        with self._lock:
            if self._pusher is None and (self._stopped or not self._broker.push.all()):
                return
        try:
            pusher, thread = self._running()
        except TarryError as error:
            log.error("nothing is pushed: %s", error)
            return
        try:
            thread.loop.call_soon_threadsafe(pusher.on_change)
        except RuntimeError:
            pass  # it has stopped

    def wake(self) -> None:
        """Look again at what is due."""
        with self._lock:
            pusher, thread = self._pusher, self._thread
        if pusher is not None and thread is not None:
            try:
                thread.loop.call_soon_threadsafe(pusher.wake)
            except RuntimeError:
                pass  # it has stopped

    def progress(self, name: str) -> PushProgress | None:
        """Return the progress of a subscription."""
        if self._failure is not None:
            return PushProgress(state="stopped", error=str(self._failure))
        pusher = self._pusher
        return None if pusher is None else pusher.progress(name)

    def attempts(self, name: str | None, id: str | None, failed: bool, limit: int) -> list[PushAttempt]:
        """Return the last requests."""
        return self._attempts.find(name, id, failed, limit)

    def test(self, subscription: PushSubscription) -> PushAttempt:
        """Send one test request.

        Raises:
            UnavailableError: the pusher has stopped, or cannot begin.
        """
        pusher, thread = self._running()
        try:
            asked = asyncio.run_coroutine_threadsafe(pusher.test(subscription), thread.loop)
            return asked.result(subscription.timeout_ms / 1000 + TEST_SPARE_S)
        except (RuntimeError, TimeoutError) as error:
            raise UnavailableError("the pusher does not answer: it is stopping") from error

    # -- inside ------------------------------------------------------------------------------------------------------

    def _running(self) -> tuple[SubscriptionPusher, LoopThread[SubscriptionPusher]]:
        with self._lock:
            if self._stopped:
                raise UnavailableError("the pusher has stopped")
            if self._pusher is None or self._thread is None:
                try:
                    self._thread, self._pusher = self._begin()
                except TarryError as error:
                    self._failure = error
                    raise
                self._failure = None
            return self._pusher, self._thread

    def _begin(self) -> tuple[LoopThread[SubscriptionPusher], SubscriptionPusher]:
        try:
            from tarry.fronts.kit.loop_thread import LoopThread
            from tarry.fronts.push.pusher import SubscriptionPusher  # noqa: F401 - what it needs may be missing
        except ModuleNotFoundError as error:
            raise UnavailableError(missing_extra("pushing", "push", error)) from error
        thread: LoopThread[SubscriptionPusher] = LoopThread(THREAD, self._placement, self._serve)
        return thread, thread.started()

    async def _serve(self, pool: Executor, on_started: OnStarted[SubscriptionPusher]) -> None:
        from tarry.fronts.push.pusher import SubscriptionPusher

        pusher = SubscriptionPusher(self._broker, pool, self._attempts, self._connections.in_all)
        grace_s = await on_started(pusher)
        await pusher.stop(grace_s)


def start(services: FrontServices) -> PushFront:
    """Start the pusher for ``tarry serve``."""
    return PushFront.start(services.local_broker, services.placement, services.connections)
