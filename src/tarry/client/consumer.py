"""A consumer as a person uses it: something to iterate over."""

from __future__ import annotations

import queue
import time
import weakref
from collections.abc import Iterator
from typing import Any

from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.delivery import Delivery, DeliveryBatch, duration_ms
from tarry.client.feed import Feed
from tarry.client.settling import check_prefetch

PUSH_SHARE = 4
"""Acks are sent at once when a share of 1/4 of the prefetch has been worked through."""


class Consumer:
    """Messages of a topic for a group, as they fall due. Iterate, and settle each message.

    It connects again by itself when the broker was away; what was not acknowledged comes again. Several threads may
    iterate; each message goes to one of them. Close it, or use it in a ``with`` block: what it holds then goes to
    others at once.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        group: str,
        *,
        prefetch: int = 1000,
        lease: Delay | None = None,
        timeout: float | None = None,
        auto_ack: bool = False,
        start: str | None = None,
        broadcast: str | None = None,
    ) -> None:
        self._auto_ack = auto_ack
        self._timeout_s = timeout
        self._push_rows = max(1, check_prefetch(prefetch) // PUSH_SHARE)
        self._worked_rows = 0
        self._queue: queue.SimpleQueue[DeliveryBatch | TarryError | None] = queue.SimpleQueue()
        command = consume_command(topic, group, prefetch=prefetch, lease=lease, start=start, broadcast=broadcast)
        self._feed = Feed(address, command, self._queue.put)
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
            settler, auto_ack = batch.settler, self._auto_ack
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
            if self._worked_rows >= self._push_rows:
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
        end = None if self._timeout_s is None else time.monotonic() + self._timeout_s
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


def consume_command(
    topic: str, group: str, *, prefetch: int, lease: Delay | None, start: str | None, broadcast: str | None
) -> dict[str, Any]:
    """What a consumer's stream begins with."""
    return {
        "op": "consume",
        "topic": topic,
        "group": group,
        "prefetch": prefetch,
        "lease_ms": None if lease is None else duration_ms(lease, 1),
        "start": start,
        "broadcast": broadcast,
    }


def check_seconds(name: str, seconds: float | None) -> float | None:
    """``seconds`` itself, when it is a waiting time.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9
    ):
        raise InvalidArgumentError(f"{name} is {seconds!r}; allowed: a number of seconds, 0 or more")
    return seconds
