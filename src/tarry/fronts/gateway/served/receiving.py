"""The consumers of a gateway: their polls are served as messages fall due.

Messages that were handed out and not taken by the gateway when the connection ends go back at once: its clients never
saw them. Messages that were taken stay leased until their leases end: clients may be working on them, and settle them
through another worker.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pyarrow as pa

from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.base.errors import ClosedError, InvalidArgumentError, TarryError
from tarry.base.types import Int64s
from tarry.fronts.gateway.frames import FrameKind, Poll, decode_int, encode_batch, error_frame, frame, numbered
from tarry.fronts.gateway.served.groups import GroupTable, ServedGroup
from tarry.fronts.gateway.served.outgoing import Outgoing
from tarry.fronts.kit.receiving import FILTERING_S, Received, Waiter, leases_of, poll_now, poll_once

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Consumer:
    """A gateway's subscription, and its poll that waits."""

    number: int
    served: ServedGroup
    subscription: Subscription
    waiter: Waiter | None = None

    def stop_waiting(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            self.served.queue.remove(waiter)


class LinkConsumers:
    """The consumers of a link. On the loop's thread.

    Methods with a payload handle the frame that bears their name.
    """

    def __init__(self, groups: GroupTable, out: Outgoing) -> None:
        self._groups, self._out = groups, out
        self._consumers: dict[int, _Consumer] = {}
        self._untaken: dict[int, tuple[ConsumerGroup, Int64s, Int64s]] = {}
        """Batches that were handed out and are not confirmed yet, by number."""
        self._filtering: set[asyncio.Task[None]] = set()
        """Polls that wait for a filter."""
        self._batches = 0

    def poll(self, number: int, payload: memoryview) -> None:
        poll = Poll.decode(payload)
        try:
            consumer = self._find_or_add(number, poll)
        except TarryError as error:
            self._on_nothing(number, error)
            return
        consumer.waiter = Waiter(
            consumer.subscription, poll.rows_max, lambda received: self._on_polled(consumer, received)
        )
        consumer.served.queue.add(consumer.waiter)

    def poll_now(self, number: int, payload: memoryview) -> None:
        poll = Poll.decode(payload)
        try:
            served = self._groups.find(poll.group)
            subscription = served.group.subscribe(prefetch=poll.prefetch, lease_ms=poll.lease_ms)
            batch, is_final = poll_once(subscription, poll.rows_max)
        except TarryError as error:
            self._on_nothing(number, error)
            return
        if is_final:
            self._answer_now(number, served.group, batch)
            return
        task = asyncio.get_running_loop().create_task(self._poll_filtered(number, subscription, poll.rows_max))
        self._filtering.add(task)
        task.add_done_callback(self._filtering.discard)

    def withdraw(self, number: int, payload: memoryview) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None:
            consumer.stop_waiting()

    def taken(self, number: int, payload: memoryview) -> None:
        self._untaken.pop(number, None)

    def untaken(self, number: int, payload: memoryview) -> None:
        self._give_back(number)

    def renew(self, number: int, payload: memoryview) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None:
            consumer.subscription.renew(decode_int(payload))

    def close(self, number: int, payload: memoryview) -> None:
        consumer = self._remove(number)
        if consumer is not None:
            consumer.subscription.close()

    def drop(self, number: int, payload: memoryview) -> None:
        # Nobody polls for this consumer any more; its leases stay.
        self._remove(number)

    def stop(self) -> None:
        """Stop the polls, and give back batches that were not taken: the connection has ended."""
        for consumer in self._consumers.values():
            consumer.stop_waiting()
        for task in list(self._filtering):
            task.cancel()
        for number in list(self._untaken):
            self._give_back(number)

    async def _poll_filtered(self, number: int, subscription: Subscription, rows_max: int) -> None:
        """Answer a poll whose messages have to be filtered or skipped first."""
        try:
            batch = await poll_now(asyncio.get_running_loop(), subscription, rows_max, FILTERING_S)
        except TarryError as error:
            self._on_nothing(number, error)
        else:
            self._answer_now(number, subscription.group, batch)

    def _answer_now(self, number: int, group: ConsumerGroup, batch: pa.RecordBatch | None) -> None:
        if batch is None:
            self._out.write(frame(FrameKind.POLLED, number))
        else:
            self._hand_out(number, group, batch)

    def _hand_out(self, number: int, group: ConsumerGroup, batch: pa.RecordBatch) -> None:
        self._batches += 1
        self._untaken[self._batches] = (group, *leases_of(batch))
        self._out.write(frame(FrameKind.BATCH, number, numbered(self._batches), encode_batch(batch)))

    def _find_or_add(self, number: int, poll: Poll) -> _Consumer:
        consumer = self._consumers.get(number)
        if consumer is None:
            served = self._groups.find(poll.group)
            subscription = served.group.subscribe(prefetch=poll.prefetch, lease_ms=poll.lease_ms)
            consumer = self._consumers[number] = _Consumer(number, served, subscription)
        elif consumer.waiter is not None:
            raise InvalidArgumentError(f"consumer {number} polls twice; allowed: once at a time")
        return consumer

    def _remove(self, number: int) -> _Consumer | None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            consumer.stop_waiting()
        return consumer

    def _on_polled(self, consumer: _Consumer, received: Received) -> None:
        consumer.waiter = None
        if isinstance(received, pa.RecordBatch):
            self._hand_out(consumer.number, consumer.served.group, received)
        else:
            self._on_nothing(consumer.number, received or ClosedError("the group is closed"))

    def _on_nothing(self, number: int, error: TarryError) -> None:
        self._out.write(frame(FrameKind.POLLED, number, *error_frame(number, error)[1:]))

    def _give_back(self, number: int) -> None:
        """Give back a batch that nobody took, so that others get its messages at once."""
        untaken = self._untaken.pop(number, None)
        if untaken is not None:
            group, leases, offsets = untaken
            try:
                group.nack(leases, offsets, 0)
            except TarryError as error:
                log.warning("%d messages that nobody took come again with their leases: %s", len(leases), error)
