"""The consumers of one connection: their polls are served as messages fall due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tarry.api.accounts import QuotaAccount
from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.base.errors import ClosedError, CorruptError, InvalidArgumentError, TarryError, UnavailableError
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import HasRoom, Received, Waiter
from tarry.fronts.link.groups import GroupTable, ServedGroup
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import FrameKind, Poll, decode_int, encode_batch, error_frame, frame, numbered

PREFETCH_MAX = (1 << 32) - 1
"""Largest prefetch of a poll."""
LOOK_S = 0.25
"""Seconds between checks that a consumer has settled what lies before a damaged file."""


@dataclass(slots=True, eq=False)
class _Consumer:
    """A subscription, and its poll that waits."""

    number: int
    served: ServedGroup
    subscription: Subscription
    prefetch: int
    waiter: Waiter | None = None
    later: asyncio.TimerHandle | None = None
    """Asks again for a poll whose error is told later."""

    def stop_waiting(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            self.served.queue.remove(waiter)
        if self.later is not None:
            self.later.cancel()
            self.later = None


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
        of_client: bool = False,
        account_of: Callable[[Poll], QuotaAccount | None],
    ) -> None:
        """Serve consumers.

        Args:
            groups: the groups that polls name.
            out: where messages are sent.
            on_handed_out: called for each BATCH, before it is sent.
            room: limit on what is sent and not read; None: the other side is trusted to read.
            consumers_max: most consumers at a time; None: no limit.
            of_client: each POLL says how much the consumer may hold, and is answered, also when it is withdrawn or the
                consumer is silent: by POLLED without an error. That a file is damaged is told when what came before is
                settled, as the client then ends the consumer.
            account_of: returns the account of the identity for which a consumer's first poll is.
        """
        self._groups, self._out = groups, out
        self._on_handed_out = on_handed_out
        self._room, self._consumers_max = room, consumers_max
        self._of_client = of_client
        self._account_of = account_of
        self._consumers: dict[int, _Consumer] = {}
        self._batches = 0

    def poll(self, number: int, poll: Poll) -> None:
        """Carry out a POLL: its answer is BATCH or, for an error, POLLED."""
        try:
            consumer = self._find_or_add(number, poll)
        except TarryError as error:
            self.on_nothing(number, error)
            return
        self._wait(consumer, poll.rows_max)

    def withdraw(self, number: int, payload: memoryview) -> None:
        consumer = self._consumers.get(number)
        if consumer is not None and consumer.waiter is not None:
            consumer.stop_waiting()
            if self._of_client:
                self.on_nothing(number, None)

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

    def hand_out(self, number: int, group: ConsumerGroup, batch: pa.RecordBatch) -> bool:
        """Send messages to a consumer; False: they may not be sent any more, and were given back."""
        encoded = encode_batch(batch)
        if holds_back(group, batch):
            return False
        self._batches += 1
        if self._on_handed_out is not None:
            self._on_handed_out(self._batches, group, batch)
        self._out.write(frame(FrameKind.BATCH, number, numbered(self._batches), encoded))
        return True

    def on_nothing(self, number: int, error: TarryError | None) -> None:
        """Send that there are no messages for a poll, and no error or this one."""
        self._out.write(frame(FrameKind.POLLED, number, *([] if error is None else error_frame(number, error)[1:])))

    def _find_or_add(self, number: int, poll: Poll) -> _Consumer:
        consumer = self._consumers.get(number)
        if consumer is None:
            if self._consumers_max is not None and len(self._consumers) >= self._consumers_max:
                raise InvalidArgumentError(f"one consumer more; allowed on a connection: {self._consumers_max}")
            served = self._groups.find(poll.group)
            prefetch_max = PREFETCH_MAX if self._of_client else poll.prefetch
            subscription = served.group.subscribe(
                prefetch=prefetch_max, lease_ms=poll.lease_ms, account=self._account_of(poll)
            )
            consumer = self._consumers[number] = _Consumer(number, served, subscription, prefetch_max)
        elif consumer.waiter is not None:
            raise InvalidArgumentError(f"consumer {number} polls twice; allowed: once at a time")
        if self._of_client and (poll.prefetch != consumer.prefetch or consumer.subscription.silent):
            consumer.prefetch = poll.prefetch
            consumer.subscription.resize(poll.prefetch)
        return consumer

    def _wait(self, consumer: _Consumer, rows_max: int) -> None:
        consumer.waiter = Waiter(
            consumer.subscription,
            rows_max,
            lambda received: self._on_polled(consumer, rows_max, received),
            is_full=lambda: consumer.subscription.held >= consumer.prefetch,
            room=self._room,
            # An error would end the client's consumer, and so give back what it works on.
            is_patient=self._of_client,
        )
        consumer.served.queue.add(consumer.waiter)

    def _remove(self, number: int) -> _Consumer | None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            consumer.stop_waiting()
        return consumer

    def _on_polled(self, consumer: _Consumer, rows_max: int, received: Received) -> None:
        if self._of_client and isinstance(received, CorruptError) and consumer.subscription.held:
            self._wait_later(consumer, rows_max)
            return
        if isinstance(received, pa.RecordBatch):
            waiter, consumer.waiter = consumer.waiter, None
            if not self.hand_out(consumer.number, consumer.served.group, received):
                consumer.waiter = waiter
                self._wait_later(consumer, rows_max)
            return
        consumer.waiter = None
        if received is None and consumer.subscription.silent:
            self.on_nothing(consumer.number, None)  # it asks again, unless it stands still
        else:
            self.on_nothing(consumer.number, self._reason(consumer.served.group, received))

    def _wait_later(self, consumer: _Consumer, rows_max: int) -> None:
        """Go on with a poll whose answer cannot be sent now."""
        consumer.later = asyncio.get_running_loop().call_later(LOOK_S, self._wait, consumer, rows_max)

    def _reason(self, group: ConsumerGroup, error: TarryError | None) -> TarryError:
        """Return the reason for which a poll got nothing; None: its group is closed.

        ``closed`` is for a group that was deleted alone: a client would end its consumer for good.
        """
        if error is not None and not isinstance(error, ClosedError):
            return error
        if self._of_client and not group.deleted:
            return UnavailableError("the broker is stopping; try again later")
        return error or ClosedError("the group is closed")
