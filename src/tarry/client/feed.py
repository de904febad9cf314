"""The messages of one consumer: a stream of them, and another one when it broke.

A task on the clients' event loop. It puts batches into ``sink`` and never waits for the consumer: the broker sends no
more than the window of unsettled messages, which bounds what can gather here. Each stream has its own settler: when a
stream is over, the broker redelivers what it had handed out, so acks that were not sent with it are void. How many that
are at a time is the business of :class:`tarry.client.holding.Holding`, and so is what becomes of the leases.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tarry.base.back_off import BackOff
from tarry.base.errors import (
    CorruptError,
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.base.event_loop import post
from tarry.client.consuming import ConsumerStream, ConsumingConnections
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.forks import Birthplace
from tarry.client.holding import Holding
from tarry.client.outages import Outage, outage_of, refusal_at
from tarry.client.settling import Settler
from tarry.client.unconfirmed import Unconfirmed

log = logging.getLogger(__name__)

BACKOFF_S = 0.05
BACKOFF_MAX_S = 2.0
"""Between tries to connect: the first pause, doubled up to the second."""
STEADY_S = 1.0
"""A stream that lasted for so long was none of those tries."""
CONNECT_S = 1.0
"""A first try to connect that has had no answer for so long counts as one that failed."""
ANSWER_S = 5.0
"""Seconds that a connected broker may take to answer."""
CLOSE_S = 5.0
"""Seconds that closing waits for the broker to confirm the last acks; so does leaving one that stops."""

HOPELESS = (InvalidArgumentError, NotFoundError, CorruptError, UnauthenticatedError, ForbiddenError)
"""Errors that connecting again does not help."""

_running: weakref.WeakSet[Feed] = weakref.WeakSet()

Sink = Callable[[DeliveryBatch | TarryError | None], None]
"""Gets a batch; or the error that ends everything; or None at the end after :meth:`Feed.close`."""


class Feed:
    """Runs from construction until :meth:`close`, or an error that trying again does not help. Any thread."""

    def __init__(
        self,
        connections: ConsumingConnections,
        group: dict[str, Any],
        lease_ms: int | None,
        holding: Holding,
        sink: Sink,
    ) -> None:
        """Consume for ``group``, the fields of a GROUP frame; ``lease_ms`` None: for the group's."""
        self._connections = connections
        self._group, self._lease_ms = group, lease_ms
        self._source = (group["topic"], group["group"])
        self._holding, self._sink = holding, sink
        self._address = connections.address
        self._outage = outage_of(self._address)
        self._own_trouble = refusal_at(self._address)
        self._unsettled = Outage(self._address, meanwhile="those messages come again", over="settles again")
        self._stream: ConsumerStream | None = None
        self._away: tuple[float, TarryError | None] | None = (time.monotonic(), None)
        """Since when the broker has not been reached, and the last error; None while it is."""
        self._refusal: TarryError | None = None
        """The reason why the broker, which is there, does not serve this consumer now."""
        self._back_off = BackOff(BACKOFF_S, BACKOFF_MAX_S)
        self._closing = False
        self._unconfirmed = Unconfirmed()
        self._done = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self.loop = connections.loop
        self.birthplace = Birthplace()
        """The process that may use it."""
        _running.add(self)
        post(self.loop, self._start)

    @property
    def settler(self) -> Settler | None:
        """The settler of the present stream; None between two streams."""
        stream = self._stream
        return None if stream is None else stream.settler

    @property
    def is_served(self) -> bool:
        """True if the broker is there, and hands messages to this consumer."""
        return self._stream is not None and self._refusal is None

    def check_reached(self, since_s: float) -> None:
        """Check that the broker is there, as nothing came since then (of ``time.monotonic``).

        One that has said nothing else either is asked. Waits; not on the loop.

        Raises:
            UnavailableError: the broker could not be reached all the while: nobody knows whether there was something.
            TarryError: it does not serve this consumer, and why: the group's filter is paused, say.
        """
        stream, away, refusal = self._stream, self._away, self._refusal
        why: object = None
        if away is None and stream is not None and stream.heard_s < since_s:
            if not asyncio.run_coroutine_threadsafe(stream.answers(ANSWER_S), self.loop).result():
                why = f"no answer within {ANSWER_S:g} s"
        elif away is not None and away[0] <= since_s:
            why = away[1]
            if why is None and refusal is None and time.monotonic() - since_s >= CONNECT_S:
                why = "no answer yet"
        if why is None and refusal is not None:
            raise refusal
        if why is not None:
            raise UnavailableError(
                "consuming {} as {}: the broker at {} could not be reached for {:.1f} s: {}".format(
                    *self._source, self._address, time.monotonic() - since_s, why
                )
            )

    def flush(self, timeout_s: float) -> None:
        """Wait until what was settled so far is durable in the broker.

        Raises:
            StaleLeaseError: some leases had ended before the ack. UnavailableError: a connection was lost, now or since
            the last call, before all was confirmed.
        """
        self.birthplace.check()
        stream = self._stream
        lost: TarryError | None = None
        try:
            if stream is not None:
                stream.flush(timeout_s)
        finally:
            # Last: this stream may have ended meanwhile. Told once, also where the stream has an error of its own.
            lost = self._unconfirmed.take()
        if lost is not None:
            raise lost

    def abandon(self) -> None:
        """Send the last acks and end, without waiting."""
        self._closing = True
        stream = self._stream
        if stream is not None:
            stream.settler.push()
        post(self.loop, self._stop)  # after the frames of the push

    def close(self) -> None:
        """Send the last acks, wait for the broker to confirm them, and end. Not on the loop."""
        self._closing = True
        if self.birthplace.is_elsewhere:
            return  # the parent's is not for a child to end
        stream = self._stream
        if stream is not None:
            with suppress(TarryError):  # it was logged
                stream.flush(CLOSE_S)
        if (lost := self._unconfirmed.take()) is not None:
            log.warning("consuming {} as {}: {}".format(*self._source, lost))
        post(self.loop, self._stop)
        self._done.wait(CLOSE_S)

    # -- on the loop ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._closing:
            self._task = self.loop.create_task(self._run())
            self._task.add_done_callback(self._on_end)
        else:
            self._on_end(None)

    def _on_end(self, _: object) -> None:
        # Not at the end of the task's function: one that is cancelled before its first step never comes there.
        self._done.set()
        self._sink(None)

    def _stop(self) -> None:
        if self._stream is not None:
            self._stream.end(UnavailableError("the consumer is closed"))
        elif self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    await self._serve()
                except HOPELESS as error:
                    self._sink(error)
                    return
                except TarryError as error:
                    self._on_failure(error)
                    if not self._closing:
                        outage = self._outage if isinstance(error, UnavailableError) else self._own_trouble
                        outage.begin(error, "consuming {} as {}".format(*self._source))
                # Not all at once, where there are many.
                if not self._closing:
                    await asyncio.sleep(self._back_off.fail() * random.uniform(0.7, 1.0))
        except asyncio.CancelledError:
            pass  # closed between two streams
        except Exception as error:
            log.exception("a consumer failed")
            self._sink(TarryError(f"the consumer failed: {error}"))

    def _on_failure(self, error: TarryError) -> None:
        is_answer = not isinstance(error, UnavailableError)
        since_s = time.monotonic() if is_answer or self._away is None else self._away[0]
        self._away = (since_s, None if is_answer else error)
        self._refusal = error if is_answer else None

    async def _serve(self) -> None:
        """Open one stream, and serve it to its end; raise what ended it."""
        shared = self._connections.take()
        stream = None
        try:
            peer, described = await shared.name_group(self._group)
            stream = ConsumerStream(
                shared,
                peer,
                described,
                self._lease_ms,
                self._holding.tend,
                self._on_batch,
                self._on_settled,
                self._unconfirmed.on_void,
            )
            self._stream = stream
            self._away = None
            self._outage.end()
            self._holding.begin_stream(stream.settler, stream.lease_ms, stream.sent)
            stream.resize(self._holding.window)
            steady = self.loop.call_later(STEADY_S, self._on_steady)
            error = await stream.ended
            steady.cancel()
            if not isinstance(error, UnavailableError):
                raise error
            if not stream.peer.lost:
                # The broker stops: what is in work would come again, though its acknowledgement may still be taken.
                # Or the consumer is closed, and who waits for what is in work has done so.
                self._holding.leave_stream()
                await stream.settle_all(lambda: self._holding.is_at_work and not self._closing, CLOSE_S)
            if not self._closing:
                raise error
        finally:
            self._holding.end_stream()
            if stream is not None and (unconfirmed := stream.close()) is not None:
                self._unconfirmed.on_error(unconfirmed)
            self._stream = None  # last: who flushes from now on has to find what is not confirmed
            self._connections.give_back(shared)

    def _on_steady(self) -> None:
        self._back_off.reset()
        self._on_served()

    def _on_served(self) -> None:
        self._refusal = None
        self._own_trouble.end()

    def _on_batch(self, data: pa.RecordBatch, stream: ConsumerStream) -> None:
        self._on_served()
        batch = DeliveryBatch(data, stream.settler, self._source)
        self._holding.on_answered(stream.answered)
        self._holding.add(batch)
        self._sink(batch)

    def _on_settled(self, error: TarryError | None) -> None:
        if error is None:
            self._unsettled.end()
        elif error.retryable:  # a full disk, say, which lasts
            self._unsettled.begin(error, "consuming {} as {}: the broker did not settle all".format(*self._source))
        else:
            log.warning("the broker did not settle all: %s", error)


# All of them are the parent's.
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _end_all() -> None:
    # What a consumer settled just before it was forgotten is on its way still. All at a time: the broker may be away.
    feeds = list(_running)
    for feed in feeds:
        feed.abandon()
    for feed in feeds:
        feed.close()
