"""A consumer as a person uses it: something to iterate over."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Unpack

from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.client.consume_options import CheckedConsumeOptions, ConsumeOptions, lease_ms_of
from tarry.client.consuming import ConsumingConnections
from tarry.client.delivery import Delivery, reason_of
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.feed import Feed, Sink
from tarry.client.holding import LEFT, Hand, Holding
from tarry.client.settling import Source
from tarry.client.way import WORK_S, handle_each

log = logging.getLogger(__name__)


class Consumer:
    """Messages of a topic for a group, as they fall due. Iterate, and settle each message.

    It connects again by itself when the broker was away; what was not acknowledged comes again. Several threads may
    iterate; each message goes to one of them. Leases are extended while the loop has a message, until it asks for the
    next; what it does not come to soon is given back, for others to have.

    Close it, or use it in a ``with`` block: what it holds then goes to others at once. What the block's exception
    leaves unsettled has failed for that reason, and comes again after the group's back-off; of a loop that is left
    otherwise, without a ``with`` block, the reason is not known.
    """

    def __init__(
        self, connections: ConsumingConnections, topic: str, group: str, **options: Unpack[ConsumeOptions]
    ) -> None:
        self._options = CheckedConsumeOptions(**options)
        self._holding = Holding(self._options.prefetch)
        self._queue: queue.SimpleQueue[DeliveryBatch | TarryError | None] = queue.SimpleQueue()
        self._feed = begin_feed(self._options, connections, (topic, group), self._holding, self._queue.put)
        # The feed does not know the consumer: forgotten without close(), it gives back what it holds all the same.
        weakref.finalize(self, abandon, self._feed, self._holding)

    def __iter__(self) -> Iterator[Delivery]:
        """Messages, for ever; or until none came for ``timeout`` seconds, or :meth:`close`.

        With ``auto_ack``, a message is acknowledged when the loop asks for the next one.

        Raises:
            InvalidArgumentError: the broker refuses the topic, the group or an option.
            NotFoundError: the group was deleted.
            UnavailableError: within ``timeout`` seconds the broker could not be reached.
            FilterPausedError: nothing came in that time, since the group's filter takes too long.
            CorruptError: what comes next lies in a damaged file of the broker; names it. What came before was given.
        """
        auto_ack, now, check_process = self._options.auto_ack, time.monotonic, self._feed.birthplace.check
        message: Delivery | None = None
        hand = self._holding.begin()
        try:
            for rest in self._holding.rests():
                self._queue.put(rest)
            while (batch := self._next()) is not None:
                for message in self._take(hand, batch) or ():
                    check_process()
                    if now() >= batch.until_s:
                        self._holding.drop(batch)
                        break  # the broker has given, or gives, it and the rest of the batch to somebody again
                    yield message
                    if auto_ack:
                        message.ack()
                if self._holding.done(hand):
                    batch.settler.push()
        finally:
            self._leave(hand, message)

    def batches(self) -> Iterator[DeliveryBatch]:
        """Yield batches, for columnar consumers: ``batch.data`` is Arrow. ``auto_ack`` does not apply."""
        hand = self._holding.begin()
        try:
            while (batch := self._next()) is not None:
                if self._take(hand, batch, whole=True) is not None:
                    yield batch
                    if self._holding.done(hand):
                        batch.settler.push()
        finally:
            self._leave(hand, None)

    def run(self, handle: Callable[[Delivery], object]) -> None:
        """Call ``handle`` with each message, and acknowledge it when that returns.

        After an exception, which is logged, the message is given back with its text as reason, to come again after the
        group's back-off. Several threads may run at a time. Ends, and raises, as iterating does.
        """
        handle_each(self, handle)

    @property
    def is_served(self) -> bool:
        """True if the broker is there, and hands messages to this consumer."""
        return self._feed.is_served

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, in any thread, whenever leases of messages in work may have been lost.

        It must be quick, and call nothing of the consumer's. :attr:`Delivery.lost` says which.
        """
        self._holding.on_lost = callback

    def give_back(self) -> None:
        """Give back what nobody has begun, and take no more: each loop ends after the message that it has.

        What is in work is held as before, and settled; :meth:`close` comes afterwards.
        """
        self._holding.give_back()
        self._queue.put(None)

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until all acks so far are durable in the broker.

        Raises:
            StaleLeaseError: some leases had ended before their ack; those messages come again.
            UnavailableError: the connection was lost, or there was no answer within ``timeout`` seconds.
        """
        self._feed.flush(timeout)

    def close(self, timeout: float = WORK_S) -> None:
        """Send the last acks, wait until they are durable, give back the rest.

        What other threads work on in ``with`` blocks is waited for, up to ``timeout`` seconds; then a warning says that
        it comes again.
        """
        self._stop_work(timeout)
        self._feed.close()

    def fail(self, error: BaseException, timeout: float = WORK_S) -> None:
        """Give back what was handed out and is not settled: ``error`` is why; then :meth:`close`."""
        self._stop_work(timeout)
        self._holding.fail(reason_of(error))
        self._feed.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.close()
        else:
            self.fail(error)

    def _stop_work(self, timeout_s: float) -> None:
        if self._feed.birthplace.is_elsewhere:
            return  # the parent works on them
        self._holding.give_back()
        self._holding.wait_for_work(threading.get_ident(), timeout_s)

    def _take(self, hand: Hand, batch: DeliveryBatch, *, whole: bool = False) -> Iterator[Delivery] | None:
        messages = self._holding.take(hand, batch, whole=whole)
        if self._holding.is_for_many(batch):
            self._queue.put(batch)  # other threads take from it, too
        return messages

    def _leave(self, hand: Hand, message: Delivery | None) -> None:
        if (batch := self._holding.leave(hand, message)) is not None:
            self._queue.put(batch)

    def _next(self) -> DeliveryBatch | None:
        self._feed.birthplace.check()
        timeout_s, since_s = self._options.timeout, time.monotonic()
        end = None if timeout_s is None else since_s + timeout_s
        while True:
            try:
                item = self._get(None if end is None else max(0.0, end - time.monotonic()))
            except queue.Empty:
                self._feed.check_reached(since_s)
                if self._queue.empty():
                    return None
                continue
            if isinstance(item, DeliveryBatch):
                if not item.unstarted:
                    continue  # others took it, or it was given back, or its connection was lost
                return item
            self._queue.put(None)  # for the other threads, and for who iterates again
            if isinstance(item, TarryError):
                raise item
            return None

    def _get(self, timeout_s: float | None) -> DeliveryBatch | TarryError | None:
        with contextlib.suppress(queue.Empty):
            return self._queue.get_nowait()
        if self._holding.begin_wait() and (settler := self._feed.settler) is not None:
            settler.push()
        try:
            return self._queue.get(timeout=timeout_s)
        finally:
            self._holding.end_wait()


def begin_feed(
    options: CheckedConsumeOptions, connections: ConsumingConnections, source: Source, holding: Holding, sink: Sink
) -> Feed:
    """Begin to consume."""
    named = {"topic": source[0], "group": source[1], "start": options.start, "broadcast": options.broadcast}
    return Feed(connections, named, lease_ms_of(options.lease), holding, sink)


def abandon(feed: Feed, holding: Holding) -> None:
    """Give back what a forgotten consumer has, without waiting.

    A consumer may be collected by any thread, in the midst of anything: the locks that this takes it may have.
    """
    holding.end()
    post(feed.loop, _abandon, feed, holding)


def _abandon(feed: Feed, holding: Holding) -> None:
    holding.give_back()
    holding.fail_left(LEFT)
    feed.abandon()
