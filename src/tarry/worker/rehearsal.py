"""A worker in a test: handlers get what is due, one message at a time, as the test moves the clock.

The same functions, middleware, lifespans, bodies and rules as in a process; what is left out is what is not
deterministic: that messages are handled at the same time, and leases that end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from tarry.api.calls import AsyncCalls, Calls
from tarry.api.consuming import Subscription
from tarry.api.operation import Operation
from tarry.base.errors import InvalidArgumentError
from tarry.client.consume_options import lease_ms_of
from tarry.client.delivery import Delivery
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.stream_op import StreamOp
from tarry.message.receipt import Receipt
from tarry.message.rows import Row
from tarry.worker.handler import Call, Handler
from tarry.worker.lifespans import enter
from tarry.worker.outcomes import Ending, Reject, Retry, is_of_handler, settle
from tarry.worker.threads import WorkThread
from tarry.worker.worker import Worker

log = logging.getLogger("tarry.worker")

R = TypeVar("R")


class SteppedBroker(Protocol):
    """A broker in this process that does what is due when it is told to."""

    def step(self) -> None:
        """Do what is due at the clock's time."""
        ...

    def now_ms(self) -> int:
        """Return the clock's time."""
        ...

    def moments(self, now_ms: int, more: Callable[[], int | None]) -> Iterator[None]:
        """Move the clock, stopping where something falls due, or ``more`` says so."""
        ...

    def after(self, by: str | timedelta | float) -> int:
        """Return the instant at that distance from now, in UTC milliseconds."""
        ...

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        prefetch: int = ...,
        lease_ms: int | None = ...,
        start: str | None = ...,
        broadcast: str | None = ...,
    ) -> Subscription:
        """Add a consumer to a group."""
        ...

    def add_running(self, running: Rehearsal) -> None:
        """Have the handlers of a worker get what is due."""
        ...

    def remove_running(self, running: Rehearsal) -> None:
        """Forget a worker."""
        ...


class Handled(NamedTuple):
    """A message that a handler was given, and what became of it."""

    handler: str
    message: Delivery
    ending: Ending
    error: BaseException | None
    """The exception that the handler raised."""


class Rehearsal:
    """A worker that runs on a test's broker; a context manager, also an asynchronous one."""

    def __init__(self, broker: SteppedBroker, calls: Calls, worker: Worker) -> None:
        """Make a run; :meth:`tarry.testing.TestBroker.run` does."""
        worker.check()
        self._broker, self._calls, self._worker = broker, calls, worker
        self.handled: list[Handled] = []
        """The messages that handlers were given, in order."""
        self._stack = AsyncExitStack()
        self._runner: asyncio.Runner | None = None
        self._parts: list[_Part] = []

    # -- a test that is a plain function ------------------------------------------------------------------------------

    def __enter__(self) -> Rehearsal:
        self._runner = asyncio.Runner()
        try:
            self._runner.run(self._begin())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner is not None
        try:
            self._runner.run(self._end())
        finally:
            self._runner.close()

    def handle_all(self) -> None:
        """Handle what is due now.

        Raises:
            InvalidArgumentError: the worker runs in an event loop.
        """
        if self._runner is None:
            raise InvalidArgumentError("the worker runs in an event loop; allowed: await running.advance(…)")
        self._runner.run(self._handle_all())

    def next_ms(self) -> int | None:
        """Return when a message comes again; None: none waits for that."""
        return min((each for part in self._parts if (each := part.next_ms) is not None), default=None)

    # -- a test in an event loop ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Rehearsal:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def advance(self, by: str | timedelta | float) -> None:
        """Move the clock on, as :meth:`tarry.testing.TestBroker.advance`."""
        for _ in self._broker.moments(self._broker.after(by), self.next_ms):
            await self._handle_all()

    # -- both ----------------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._worker.lend(_RehearsalClient(self._calls), self._calls))
            for lifespan in self._worker.lifespans:
                await enter(stack, lifespan)
            self._parts = [_Part(self._broker, handler, self._worker) for handler in self._worker.handlers]
            self._stack = stack.pop_all()
        self._broker.add_running(self)

    async def _end(self) -> None:
        self._broker.remove_running(self)
        for part in self._parts:
            part.close()
        await self._stack.aclose()

    async def _handle_all(self) -> None:
        while await self._handle_some():
            self._broker.step()

    async def _handle_some(self) -> bool:
        has_some = False
        for part in self._parts:
            while (done := await part.handle_next()) is not None:
                has_some = True
                self.handled.append(done)
        return has_some


class _Part:
    """One handler and its consumer."""

    def __init__(self, broker: SteppedBroker, handler: Handler, worker: Worker) -> None:
        options = handler.options
        self._broker, self._handler = broker, handler
        self._subscription = broker.subscribe(
            handler.topic,
            handler.group,
            prefetch=1,
            lease_ms=lease_ms_of(options.get("lease")),
            start=options.get("start"),
            broadcast=options.get("broadcast"),
        )
        self._thread = WorkThread(f"tarry-{handler.name}")
        self._call: Call = handler.call(worker.middlewares, self._thread.run)
        self.next_ms: int | None = None
        """Time to ask again, as the last poll has said."""

    async def handle_next(self) -> Handled | None:
        """Handle a message that is there; None: there is none."""
        rows, again_s = self._subscription.poll(1)
        if rows is None:
            # Rounded up: at that moment it is there.
            self.next_ms = None if again_s is None else self._broker.now_ms() + max(1, round(again_s * 1000))
            return None
        [message] = self._delivered(rows)
        ending, error = Ending.HANDLED, None
        try:
            await self._call(message)
        except BaseException as raised:
            if not is_of_handler(raised):
                raise
            error = raised
            verdict = self._handler.rules.verdict(raised, message.attempt)
            settle(message, verdict)
            ending = verdict.ending
            if not isinstance(raised, Retry | Reject):
                log.warning("%s: message %s is %s", self._handler.name, message.id, ending, exc_info=raised)
        else:
            message.ack()
        return Handled(self._handler.name, message, ending, error)

    def close(self) -> None:
        self._subscription.close()
        self._thread.close()

    def _delivered(self, rows: pa.RecordBatch) -> list[Delivery]:
        group = self._subscription.group
        batch = DeliveryBatch(rows, _Settles(self._subscription), (group.topic_name, group.name))
        batch.keeper = _NoKeeper()
        batch.arrived_ms = float(self._broker.now_ms())
        return batch.messages()


class _Settles:
    """Settles in the broker, at once."""

    closed = False

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def mark(self, batch: DeliveryBatch) -> None:
        self._subscription.ack(*batch.take_acked())

    def order(
        self, op: StreamOp, argument: int, batch: DeliveryBatch, rows: int | list[int] | None, reason: str = ""
    ) -> None:
        chosen = None if rows is None else np.array([rows] if isinstance(rows, int) else rows, np.int64)
        leases, offsets = batch.take(chosen, settle=op is not StreamOp.EXTEND)
        if not len(leases):
            return
        subscription = self._subscription
        if op is StreamOp.ACK:
            subscription.ack(leases, offsets)
        elif op is StreamOp.EXTEND:
            subscription.extend(leases, offsets, argument)
        elif op is StreamOp.RETURN:
            subscription.give_back(leases, offsets)
        elif op is StreamOp.REJECT:
            subscription.group.reject(leases, offsets, None, reason or None)
        else:
            subscription.nack(leases, offsets, None if argument < 0 else argument, None, reason or None)

    def push(self) -> None:
        pass

    def hurry(self) -> None:
        pass


class _NoKeeper:
    """No lease ends here by itself."""

    def enter(self, batch: DeliveryBatch) -> None:
        pass

    def leave_work(self, batch: DeliveryBatch) -> None:
        pass


class _RehearsalClient(AsyncCalls):
    """The broker, as handlers see it: each call is carried out at once."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    async def call(self, operation: Operation[R]) -> R:
        return self._calls.call(operation)

    def _schedule(self, row: Row) -> asyncio.Future[Receipt]:
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        done.set_result(self._calls._schedule(row))  # noqa: SLF001 - the same seam as a front's
        return done
