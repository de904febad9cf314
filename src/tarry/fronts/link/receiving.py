"""The consumers of one connection: their polls are served as messages fall due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.base.errors import ClosedError, InvalidArgumentError, TarryError
from tarry.fronts.kit.receiving import HasRoom, Received, Waiter
from tarry.fronts.link.groups import GroupTable, ServedGroup
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import FrameKind, Poll, decode_int, encode_batch, error_frame, frame, numbered


@dataclass(slots=True, eq=False)
class _Consumer:
    """A subscription, and its poll that waits."""

    number: int
    served: ServedGroup
    subscription: Subscription
    waiter: Waiter | None = None

    def stop_waiting(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            self.served.queue.remove(waiter)


OnHandedOut = Callable[[int, ConsumerGroup, pa.RecordBatch], None]
"""Callback for messages that are sent, with the number of their BATCH."""


class LinkConsumers:
    """Consumers by number. On the loop's thread.

    Methods with a payload handle the frame that bears their name.
    """

    def __init__(
        self,
        groups: GroupTable,
        out: Outgoing,
        on_handed_out: OnHandedOut | None = None,
        *,
        room: HasRoom | None = None,
        consumers_max: int | None = None,
    ) -> None:
        """Serve consumers.

        Args:
            groups: the groups that polls name.
            out: where messages are sent.
            on_handed_out: called for each BATCH, before it is sent.
            room: limit on what is sent and not read; None: the other side is trusted to read.
            consumers_max: most consumers at a time; None: no limit.
        """
        self._groups, self._out = groups, out
        self._on_handed_out = on_handed_out
        self._room, self._consumers_max = room, consumers_max
        self._consumers: dict[int, _Consumer] = {}
        self._batches = 0

    def poll(self, number: int, poll: Poll) -> None:
        """Carry out a POLL: its answer is BATCH or, for an error, POLLED."""
        try:
            consumer = self._find_or_add(number, poll)
        except TarryError as error:
            self.on_nothing(number, error)
            return
        consumer.waiter = Waiter(
            consumer.subscription, poll.rows_max, lambda received: self._on_polled(consumer, received), room=self._room
        )
        consumer.served.queue.add(consumer.waiter)

    def withdraw(self, number: int, payload: memoryview) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None:
            consumer.stop_waiting()

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

    def subscription(self, number: int) -> Subscription | None:
        """Return the subscription of a consumer; None: there is no such consumer."""
        consumer = self._consumers.get(number)
        return None if consumer is None else consumer.subscription

    def stop_waiting(self) -> None:
        """Serve no more polls."""
        for consumer in self._consumers.values():
            consumer.stop_waiting()

    def close_all(self) -> None:
        """Give back, for others to have at once, all that the consumers hold."""
        for number in list(self._consumers):
            self.close(number, memoryview(b""))

    @property
    def held(self) -> int:
        """Number of messages that the consumers hold."""
        return sum(consumer.subscription.held for consumer in self._consumers.values())

    def hand_out(self, number: int, group: ConsumerGroup, batch: pa.RecordBatch) -> None:
        """Send messages to a consumer."""
        self._batches += 1
        if self._on_handed_out is not None:
            self._on_handed_out(self._batches, group, batch)
        self._out.write(frame(FrameKind.BATCH, number, numbered(self._batches), encode_batch(batch)))

    def on_nothing(self, number: int, error: TarryError | None) -> None:
        """Send that there are no messages for a poll, and no error or this one."""
        self._out.write(frame(FrameKind.POLLED, number, *([] if error is None else error_frame(number, error)[1:])))

    def _find_or_add(self, number: int, poll: Poll) -> _Consumer:
        consumer = self._consumers.get(number)
        if consumer is None:
            if self._consumers_max is not None and len(self._consumers) >= self._consumers_max:
                raise InvalidArgumentError(f"one consumer more; allowed on a connection: {self._consumers_max}")
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
            self.hand_out(consumer.number, consumer.served.group, received)
        else:
            self.on_nothing(consumer.number, received or ClosedError("the group is closed"))
