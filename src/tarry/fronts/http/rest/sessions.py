"""Consumers of event streams, and the messages sent to each, for resuming after a disconnect.

A stream that ends keeps its messages for the rest of their leases: its client may be working on them, and settles them
by other requests. When the client comes back, it names the last event that it got. Messages sent after that one never
arrived: they are given back at once. All others are still its own.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.base.errors import OverloadedError, QuotaExceededError
from tarry.fronts.kit.receiving import ReceiveQueue, leases_of
from tarry.identity.principal import Principal

SESSIONS_MAX = 10_000
SHARES = 4
"""One identity may have this part of them."""


class EventSession:
    """One consumer. What it was sent and has not settled is among the last ``prefetch`` messages."""

    def __init__(
        self, queue: ReceiveQueue, subscription: Subscription, prefetch: int, lease_ms: int, owner: str
    ) -> None:
        self.id = secrets.token_hex(8)
        self.owner = owner
        """Name of the caller that has begun it: nobody else goes on with it."""
        self.queue = queue
        self.subscription = subscription
        self.prefetch = prefetch
        self.lease_ms = lease_ms
        self.number = 0
        """The number of the last event."""
        self.replaced = asyncio.Event()
        """Another connection goes on with this session."""
        self.waiting: asyncio.Future[pa.RecordBatch | None] | None = None
        """The messages that its connection waits for."""
        self.ending: asyncio.TimerHandle | None = None
        self._sent: deque[tuple[int, int, int]] = deque(maxlen=prefetch)

    @property
    def group(self) -> ConsumerGroup:
        return self.queue.group

    @property
    def room(self) -> int:
        """The number of messages that it may still get: the prefetch less those held."""
        return max(0, self.prefetch - self.subscription.held)

    def add(self, batch: pa.RecordBatch) -> Iterator[str]:
        """Yield the ids of the events of a batch, each when it is sent."""
        for lease, offset in zip(*(column.tolist() for column in leases_of(batch)), strict=True):
            self.number += 1
            self._sent.append((self.number, lease, offset))
            yield f"{self.id}.{self.number}"

    def give_back_after(self, number: int) -> None:
        """Give back the messages that were sent after the event of this number."""
        lost = [entry for entry in self._sent if entry[0] > number]
        if lost:
            columns = np.array(lost, np.int64)
            self.group.nack(columns[:, 1], columns[:, 2], 0)
            self._sent = deque((entry for entry in self._sent if entry[0] <= number), maxlen=self.prefetch)


class EventSessions:
    """Sessions that are connected, or may come back. On the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_id: dict[str, EventSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def check_room(self, principal: Principal) -> None:
        """Check that a caller may open one more session.

        Raises:
            OverloadedError: there are too many. QuotaExceededError: too many of them are this caller's.
        """
        count, share = len(self._by_id), SESSIONS_MAX // SHARES
        if count >= SESSIONS_MAX:
            raise OverloadedError(f"{count} event streams are open; allowed: {SESSIONS_MAX}")
        if principal.is_local or count < share:
            return
        own = sum(session.owner == principal.name for session in self._by_id.values())
        if own >= share:
            raise QuotaExceededError(f"{own} event streams of {principal.name} are open; allowed: {share}")

    def add(self, session: EventSession) -> None:
        self._by_id[session.id] = session

    def resume(self, event_id: str, topic: str, group: str, owner: str) -> EventSession | None:
        """Return the session of a client that got this event last; None: it has none any more.

        Its former connection, if the broker believes it to be alive, is told to end.
        """
        id, _, number = event_id.partition(".")
        session = self._by_id.get(id)
        if (
            session is None
            or session.owner != owner
            or not (number.isascii() and number.isdigit() and len(number) < 19)
        ):
            return None
        if session.subscription.closed or (session.group.topic_name, session.group.name) != (topic, group):
            return None
        session.replaced.set()
        if session.waiting is not None:
            session.waiting.cancel()  # what is given back is not for the former connection
        session.replaced = asyncio.Event()
        if session.ending is not None:
            session.ending.cancel()
            session.ending = None
        session.give_back_after(int(number))
        return session

    def rest(self, session: EventSession) -> None:
        """Keep a session whose connection has ended, until the last of its leases is over."""
        if session.subscription.closed:
            self._end(session)
        else:
            session.ending = self._loop.call_later(session.lease_ms / 1000, self._end, session)

    def _end(self, session: EventSession) -> None:
        self._by_id.pop(session.id, None)
        session.subscription.close()
