"""A worker as people use it.

worker = tarry.Worker("127.0.0.1:7611")

@worker.on("orders", group="billing", concurrency=8)
async def bill(order: Order) -> None: ...

worker.run()  # or: tarry work module:worker
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, Unpack

import uvloop

from tarry.api.calls import AsyncCalls, Calls
from tarry.base.errors import ClosedError, InvalidArgumentError
from tarry.base.stop_signals import StopSignals
from tarry.client import AsyncClient, Client, ClientTls
from tarry.client.consume_options import check_seconds
from tarry.worker import lifespans
from tarry.worker.figures import HandlerFigures
from tarry.worker.handler import Handler, HandlerOptions, Middleware
from tarry.worker.lifespans import Lifespan
from tarry.worker.outcomes import RetryRules, Rules
from tarry.worker.serving import Serving

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)
L = TypeVar("L", bound=Lifespan)

DEFAULT_ADDRESS = "localhost:7611"
DRAIN_S = 25.0
"""Seconds for what is handled when the worker is told to stop: within the 30 that orchestrators give."""
CONCURRENCY = 8


class Worker:
    """Handlers of messages, and what is around them. Nothing connects before it runs."""

    def __init__(
        self,
        address: str | None = None,
        *,
        tls: ClientTls | None = None,
        token: str | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        """Make a worker.

        Args:
            address: of the broker, as :class:`tarry.Client` takes it; None: that of ``TARRY_ENDPOINT``, or of this
                machine.
            tls: as of :class:`tarry.Client`.
            token: as of :class:`tarry.Client`.
            drain_s: how many seconds what is handled may take when the worker is told to stop.

        Raises:
            InvalidArgumentError: one is not allowed.
        """
        self.address = address or os.environ.get("TARRY_ENDPOINT") or DEFAULT_ADDRESS
        """The broker's."""
        check_seconds("drain_s", drain_s)
        self.drain_s = drain_s
        self.state = SimpleNamespace()
        """Yours: what lifespans open for handlers."""
        self.handlers: list[Handler] = []
        self.middlewares: list[Middleware] = []
        self.lifespans: list[Lifespan] = []
        self._tls, self._token = tls, token
        self._serving: Serving | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: AsyncCalls | None = None
        self._sync_client: Calls | None = None

    # -- what there is to do -------------------------------------------------------------------------------------------

    def on(
        self,
        topic: str,
        *,
        group: str,
        concurrency: int = CONCURRENCY,
        timeout: float | None = None,
        retry: Rules | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[F], F]:
        """Handle the messages of ``topic`` for ``group`` by the decorated function.

        It takes the message (:class:`tarry.Delivery`), or its body as the type of the first parameter says, and the
        message as another one. What it returns is dropped: the message is acknowledged then. After an exception the
        message comes again by the group's back-off, until its tries are used up. An async function runs in the event
        loop, any other in a thread.

        Args:
            topic: whose messages.
            group: its consumers share them, in all processes.
            concurrency: how many are handled at a time, in each process.
            timeout: seconds for each; None: no limit. A message that took longer is tried again.
            retry: another back-off for some exceptions, ``{TimeoutError: "exponential 1s max 1m"}``, or a dead letter
                at once, ``{ValueError: tarry.Reject}``.
            options: prefetch, lease, start, broadcast: see :meth:`tarry.Client.consume`.

        Raises:
            InvalidArgumentError: the function cannot be a handler, or an option is not allowed.
        """
        rules = RetryRules(retry)

        def register(function: F) -> F:
            handler = Handler.of(function, topic, group, concurrency, timeout, rules, options)
            if any((each.topic, each.group) == (topic, group) for each in self.handlers):
                raise InvalidArgumentError(
                    f"{handler.name}: group {group!r} of topic {topic!r} has a handler, and each message would go to "
                    "one of them by chance; allowed: one, or another group"
                )
            self.handlers.append(handler)
            return function

        return register

    def middleware(self, function: M) -> M:
        """Have ``async def function(message, call_next)`` called around each handler; the first is outermost."""
        self.middlewares.append(function)
        return function

    def lifespan(self, function: L) -> L:
        """Have a function, which yields once, hold what handlers need while the worker runs.

        Raises:
            InvalidArgumentError: it takes arguments.
        """
        self.lifespans.append(lifespans.checked(function))
        return function

    # -- for handlers --------------------------------------------------------------------------------------------------

    @property
    def client(self) -> AsyncCalls:
        """A client of the same broker, for async handlers and lifespans: ``await worker.client.schedule(…)``.

        Raises:
            ClosedError: the worker does not run.
        """
        if self._client is None:
            raise ClosedError("the worker does not run, so it has no client")
        return self._client

    @property
    def sync_client(self) -> Calls:
        """The same for handlers that are plain functions."""
        if self._sync_client is None:
            raise ClosedError("the worker does not run, so it has no client")
        return self._sync_client

    @contextmanager
    def lend(self, client: AsyncCalls, sync_client: Calls) -> Iterator[None]:
        """Have handlers find these clients; for who runs them.

        Raises:
            InvalidArgumentError: somebody does already.
        """
        if self._client is not None:
            raise InvalidArgumentError("the worker runs already; allowed: once at a time")
        self._client, self._sync_client = client, sync_client
        try:
            yield
        finally:
            self._client = self._sync_client = None

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Handle messages until SIGTERM or SIGINT, then end as :meth:`serve`; a second one ends the process.

        Raises:
            TarryError: as of :meth:`serve`.
        """
        with StopSignals() as signals, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run(signals))

    async def _run(self, signals: StopSignals) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(signals.fileno(), self._on_signal, loop, signals.fileno())
        await self.serve()

    def _on_signal(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        loop.remove_reader(number)
        self.stop()

    async def serve(self) -> None:
        """Handle messages until :meth:`stop`.

        Then no more are taken. What is handled has ``drain_s`` seconds, and what is not done by then goes to others at
        once, as the same try. Acknowledgements are durable when this returns.

        Raises:
            TarryError: the broker refuses what trying again does not help, as a right that is missing.
            InvalidArgumentError: the worker has no handlers.
        """
        self.check()
        if self._client is not None:
            raise InvalidArgumentError("the worker runs already; allowed: once at a time")
        async with AsyncClient(self.address, tls=self._tls, token=self._token) as client:
            sync_client = Client(self.address, tls=self._tls, token=self._token)  # it connects when it is used
            self._serving = Serving(client, sync_client, self.drain_s)
            self._loop = asyncio.get_running_loop()
            try:
                with self.lend(client, sync_client):
                    await self._serving.run(self.handlers, self.middlewares, self.lifespans)
            finally:
                self._serving = None
                await asyncio.to_thread(sync_client.close)

    def check(self) -> None:
        """Check that there is something to do.

        Raises:
            InvalidArgumentError: the worker has no handlers.
        """
        if not self.handlers:
            raise InvalidArgumentError("the worker has no handlers; allowed: one at least, by @worker.on")

    def stop(self) -> None:
        """Have :meth:`serve` end; does nothing while it does not run. Any thread."""
        if self._serving is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._serving.stop)

    def figures(self) -> list[HandlerFigures]:
        """Return the counters of each handler; none while it does not run. In the loop."""
        return [] if self._serving is None else self._serving.figures()
