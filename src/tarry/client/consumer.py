"""A consumer as a person uses it: something to iterate over."""

from __future__ import annotations

import queue
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from tarry.api.settings import Start
from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.delivery import Delivery, DeliveryBatch, duration_ms
from tarry.client.feed import Feed

PUSH_SHARE = 4
"""Acks are sent at once when a share of 1/4 of the prefetch has been worked through."""


class HoldOptions(TypedDict, total=False):
    """How messages are held.

    - ``lease``: for how long a message is this consumer's before it goes to another; default: the group's, 30 s where
      it has none.
    - ``start``: where a group that is new begins: at the "earliest" message that is kept (the default), or the
      "latest".
    - ``broadcast``: a name of this consumer: it gets all messages, not a share, as a group of its own,
      ``group@broadcast``, which begins at the latest.
    """

    lease: Delay | None
    start: Start | None
    broadcast: str | None


class ReceiveOptions(HoldOptions, total=False):
    """- ``max_messages``: at most so many, 1 by default. ``wait``: for so many seconds for the first, 0 by default."""

    max_messages: int
    wait: float


class ConsumeOptions(HoldOptions, total=False):
    """
    - ``prefetch``: how many unsettled messages may be here, 1000 by default. More for herds, 1 for long work.
    - ``timeout``: end when no message came for so many seconds; else it goes on for ever.
    - ``auto_ack``: acknowledge each message when the loop asks for the next.
    """

    prefetch: int
    timeout: float | None
    auto_ack: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """:class:`ConsumeOptions`, checked.

    Raises:
        InvalidArgumentError: one is not allowed.
    """

    prefetch: int = 1000
    lease: Delay | None = None
    timeout: float | None = None
    auto_ack: bool = False
    start: Start | None = None
    broadcast: str | None = None

    def __post_init__(self) -> None:
        check_seconds("timeout", self.timeout)
        check_count("prefetch", self.prefetch)

    @property
    def push_rows(self) -> int:
        """Acks are sent at once when so many messages have been worked through."""
        return max(1, self.prefetch // PUSH_SHARE)

    def command(self, topic: str, group: str) -> dict[str, Any]:
        """The command that a consumer's stream begins with."""
        return {
            "op": "consume",
            "topic": topic,
            "group": group,
            "prefetch": self.prefetch,
            **held_by(self.lease, self.start, self.broadcast),
        }


def held_by(lease: Delay | None, start: Start | None, broadcast: str | None) -> dict[str, Any]:
    """:class:`HoldOptions` on the wire."""
    return {"lease_ms": None if lease is None else duration_ms(lease, 1), "start": start, "broadcast": broadcast}


class Consumer:
    """Messages of a topic for a group, as they fall due. Iterate, and settle each message.

    It connects again by itself when the broker was away; what was not acknowledged comes again. Several threads may
    iterate; each message goes to one of them. Close it, or use it in a ``with`` block: what it holds then goes to
    others at once.
    """

    def __init__(self, address: str, topic: str, group: str, **options: Unpack[ConsumeOptions]) -> None:
        self._options = Consuming(**options)
        self._worked_rows = 0
        self._queue: queue.SimpleQueue[DeliveryBatch | TarryError | None] = queue.SimpleQueue()
        self._feed = Feed(address, self._options.command(topic, group), self._queue.put)
        # The feed does not know the consumer: forgotten without close(), it gives back what it holds all the same.
        weakref.finalize(self, self._feed.abandon)

    def __iter__(self) -> Iterator[Delivery]:
        """Messages, for ever; or until none came for ``timeout`` seconds, or :meth:`close`.

        With ``auto_ack``, a message is acknowledged when the loop asks for the next one.

        Raises:
            InvalidArgumentError: the broker refuses the topic, the group or an option.
            NotFoundError: the group was deleted.
            CorruptError: what comes next lies in a damaged file of the broker; names it. What came before was given.
        """
        for batch in self.batches():
            settler, auto_ack = batch.settler, self._options.auto_ack
            for message in batch.messages():
                if settler.closed:
                    break  # the connection was lost: the broker delivers the rest of the batch again
                yield message
                if auto_ack:
                    message.ack()

    def batches(self) -> Iterator[DeliveryBatch]:
        """The same by the batch, for columnar consumers: ``batch.data`` is Arrow. ``auto_ack`` does not apply."""
        while (batch := self._next()) is not None:
            yield batch
            self._worked_rows += len(batch)
            if self._worked_rows >= self._options.push_rows:
                # The broker may be waiting for room in the prefetch. Otherwise the settler's thread does it.
                self._worked_rows = 0
                batch.settler.push()

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until all acks so far are durable in the broker.

        Raises:
            StaleLeaseError: some leases had ended before their ack; those messages come again.
            UnavailableError: the connection was lost, or there was no answer within ``timeout`` seconds.
        """
        self._feed.flush(timeout)

    def close(self) -> None:
        """Send the last acks, wait until they are durable, give back the rest."""
        self._feed.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> DeliveryBatch | None:
        timeout_s = self._options.timeout
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                item = self._queue.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
            except queue.Empty:
                return None
            if isinstance(item, DeliveryBatch):
                if not item.settler.closed:
                    return item
                continue  # of a connection that was lost; it comes again
            self._queue.put(None)  # for the other threads, and for who iterates again
            if isinstance(item, TarryError):
                raise item
            return None


def check_seconds(name: str, seconds: float | None) -> float | None:
    """Check a waiting time, and give it back.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9
    ):
        raise InvalidArgumentError(f"{name} is {seconds!r}; allowed: a number of seconds, 0 or more")
    return seconds


def check_count(name: str, count: int) -> None:
    """
    Raises:
        InvalidArgumentError: ``count`` is no number of messages.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgumentError(f"{name} is {count!r}; allowed: 1 or more")
