"""A consumer by HTTP: it asks for half a second's work, and keeps the leases of that."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from tarry.base.back_off import BackOff
from tarry.base.errors import ClosedError, TarryError, UnavailableError
from tarry.base.extras import needs_native
from tarry.client.consume_options import CheckedConsumeOptions
from tarry.client.delivery import Delivery, reason_of
from tarry.client.http.received import HttpBatch, Works
from tarry.client.http.settling import HttpSettler
from tarry.client.outages import outage_of, refusal_at
from tarry.client.stream_op import StreamOp
from tarry.client.way import WORK_S, handle_each

if TYPE_CHECKING:
    from tarry.client.delivery_batch import DeliveryBatch

FIRST, MOST = 4, 256
"""Messages of the first receive, and of the largest."""
AHEAD_S = 0.5
"""Seconds of work that a receive brings."""
WAIT_S = 20.0
"""Seconds that a receive waits, at most.

Nor longer than half a lease, whose age is that of the request.
"""
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
"""The first and the longest pause where the broker cannot be reached, or refuses for now."""

Fetch = Callable[[int, float], HttpBatch]
"""Receives up to so many messages, and waits up to so many seconds for the first."""


class HttpConsumer:
    """A :class:`tarry.client.way.Consumes`. Several threads may iterate; each message goes to one of them."""

    def __init__(
        self,
        fetch: Fetch,
        lease_ms: Callable[[], int],
        settler: HttpSettler,
        options: CheckedConsumeOptions,
        address: str,
        name: str,
    ) -> None:
        """``lease_ms``: asks for the lease of what was received, in milliseconds.

        ``address``, ``name``: the broker's and the consumer's, in the log.
        """
        self._outage, self._name = outage_of(address), name
        self._own_trouble = refusal_at(address)
        self._fetch, self._lease_ms, self._settler, self._options = fetch, lease_ms, settler, options
        self._fetching = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Delivery, HttpBatch]] = deque()
        self._works = Works()
        self._iterators = 0
        self._held: list[HttpBatch] = []
        """Batches with messages that are not settled, under the lock."""
        self._kept_ms = 0
        self._extended_s = 0.0
        self._size, self._began_s = FIRST, 0.0
        self._is_closed = False
        # Whom nobody knows any more: what it held is ready again at once, and not when its leases end.
        weakref.finalize(self, settler.abandon, self._held)

    def __iter__(self) -> Iterator[Delivery]:
        """Messages, for ever; or until none came for ``timeout`` seconds, or :meth:`close`.

        Raises:
            TarryError: as of :class:`tarry.client.consumer.Consumer`.
        """
        with self._lock:
            self._iterators += 1
        try:
            while (taken := self._next()) is not None:
                message, batch = taken
                try:
                    yield message
                finally:
                    with self._lock:
                        batch.in_hand -= 1
                if self._options.auto_ack:
                    message.ack()
        finally:
            with self._lock:
                self._iterators -= 1
                is_last = not self._iterators
            if is_last:
                self._give_back()

    def batches(self) -> Iterator[DeliveryBatch]:
        """Refuse: batches are columns of Arrow's.

        Raises:
            NativeOnlyError: always.
        """
        raise needs_native("to receive columns", "this")

    def run(self, handle: Callable[[Delivery], object]) -> None:
        """Call ``handle`` with each message, and acknowledge it when that returns; see the native consumer."""
        handle_each(self, handle)

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until all acks so far are durable in the broker.

        Raises:
            StaleLeaseError, UnavailableError: some were not settled; those messages come again.
            UnavailableError: there was no answer within ``timeout`` seconds.
        """
        self._settler.flush(timeout)

    def close(self, timeout: float = WORK_S) -> None:
        """Send the last acks, wait until they are durable, and give back the rest."""
        self._works.wait(timeout)
        self._end("")

    def fail(self, error: BaseException, timeout: float = WORK_S) -> None:
        """Give back what was handed out and is not settled: ``error`` is why; then :meth:`close`."""
        self._works.wait(timeout)
        self._end(reason_of(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.close()
        else:
            self.fail(error)

    def tend(self) -> None:
        """Extend the leases, at a third of them. Called by the settler's thread."""
        with self._lock:
            now_s = time.monotonic()
            self._held[:] = [each for each in self._held if now_s < each.until_s and each.take(None, settle=False)]
            if self._is_closed or now_s < self._extended_s + self._kept_ms / 3000:
                return
            kept = [batch for batch in self._held if batch.is_kept]
        # Without the lock: an answer may take long. Until it is there, the leases end when they would have.
        if kept and self._settler.extend(kept, self._kept_ms):
            with self._lock:
                self._extended_s = now_s
            for batch in kept:
                batch.hold_until(now_s + self._kept_ms / 1000)

    def _end(self, reason: str) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            held = self._held[:]
            self._held.clear()
        self._give_back()
        for batch in held:
            if reason:
                self._settler.order(StreamOp.FAIL, -1, batch, None, reason)
            else:
                self._settler.order(StreamOp.NACK, -1, batch, None)
        self._settler.push()

    def _give_back(self) -> None:
        """Give back what nobody has taken yet: it is ready again at once, as its next try."""
        while self._waiting:
            try:
                message, batch = self._waiting.popleft()
            except IndexError:
                return
            with self._lock:
                batch.waiting -= 1
            self._settler.order(StreamOp.NACK, 0, batch, message.row)

    def _next(self) -> tuple[Delivery, HttpBatch] | None:
        while not self._is_closed:
            with self._lock:
                if self._waiting:
                    message, batch = self._waiting.popleft()
                    batch.waiting -= 1
                    if time.monotonic() < batch.until_s:
                        batch.in_hand += 1
                        return message, batch
                    continue  # its lease is over: it is, or will be, somebody else's
            with self._fetching:
                if not self._waiting and not self._receive():
                    return None
        return None

    def _receive(self) -> bool:
        """Bring messages; False: none came in time."""
        now_s = time.monotonic()
        if self._began_s:
            self._size = min(self._size * 2, MOST) if now_s - self._began_s < AHEAD_S / 2 else max(1, self._size // 2)
        self._settler.push()
        end_s = None if self._options.timeout is None else now_s + self._options.timeout
        back_off = BackOff(PAUSE_S, PAUSE_S_MAX)
        while not self._is_closed:
            asked_s = time.monotonic()
            left_s = self._wait_s if end_s is None else min(self._wait_s, end_s - asked_s)
            try:
                batch = self._fetch(min(self._size, self._options.prefetch), max(0.0, left_s))
            except ClosedError:
                return False
            except TarryError as error:
                if not error.retryable or (end_s is not None and time.monotonic() >= end_s):
                    raise
                outage = self._outage if isinstance(error, UnavailableError) else self._own_trouble
                outage.begin(error, self._name)
                time.sleep(back_off.fail())
                continue
            self._outage.end()
            self._own_trouble.end()
            if len(batch) and self._take(batch, asked_s):
                return True
            if end_s is not None and time.monotonic() >= end_s:
                return False
        return False

    @property
    def _wait_s(self) -> float:
        return min(WAIT_S, self._kept_ms / 2000) if self._kept_ms else WAIT_S

    def _take(self, batch: HttpBatch, asked_s: float) -> bool:
        """Have a batch that was asked for at ``asked_s``; False: it may be somebody else's by now.

        The process may have stood still with the answer on its way: the leases may be as old as the request.
        """
        if is_first := not self._kept_ms:
            self._kept_ms = self._lease_ms()
            self._settler.tend(self)
        batch.keeper = self._works
        lease_s = self._kept_ms / 1000
        with self._lock:
            now_s = self._began_s = time.monotonic()
            # Of the first one the wait may have been longer than the lease, which was not known.
            began_s = now_s if is_first else asked_s
            batch.until_s = began_s + lease_s - min(1.0, lease_s / 10)
            if now_s >= batch.until_s:
                return False
            self._extended_s = min(self._extended_s, began_s) if self._held else began_s
            self._held.append(batch)
            batch.waiting = len(batch)
            self._waiting.extend((message, batch) for message in batch.messages())
        return True
