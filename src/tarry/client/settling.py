"""Acks, nacks and extensions on their way to the broker: collected for a moment, sent in bulk.

Consumers' threads only append to lists. The first ack sets a timer on the clients' event loop, which sends what has
gathered some milliseconds later; a consumer that has settled much of its prefetch pushes at once, since the broker may
be waiting for room.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.base.types import Int64s
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.stream_op import StreamOp
from tarry.link.frames import LEASES_MAX

log = logging.getLogger(__name__)

GATHER_S = 0.02
"""Seconds that an ack may wait for others."""

Source = tuple[str, str]


_What = tuple[StreamOp, int, Source, str]
"""An op, its argument, what it is about, and its reason."""
_NONE: Int64s = np.empty(0, np.int64)


class SendSettlement(Protocol):
    """Carries a settlement of one source's messages to the broker, and does not wait for its answer.

    On a TarryError they come again.
    """

    def __call__(
        self, op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str
    ) -> None: ...


class Settler:
    """Collects what is settled of the messages of one connection, and sends it. Thread-safe."""

    def __init__(
        self,
        send: SendSettlement,
        *,
        loop: asyncio.AbstractEventLoop | None,
        tend: Callable[[], float | None] | None = None,
        on_void: Callable[[int], None] | None = None,
    ) -> None:
        """Make a settler.

        Args:
            send: called under :meth:`lock`, on the loop or in the thread that pushes.
            loop: sends what has gathered; None: nothing is sent but by :meth:`push`.
            tend: called on the loop whenever something is sent there; returns in how many seconds to call it again at
                the latest, None: with the next that is sent.
            on_void: called with the number of messages that were acknowledged and not sent by :meth:`close`, or are
                acknowledged after it. Any thread.
        """
        self._send = send
        self._loop = loop
        self._tend = tend
        self._on_void = on_void
        self._window: int | None = None
        self._lock = threading.Lock()
        self._dirty: deque[DeliveryBatch] = deque()
        self._ready: list[tuple[_What, tuple[Int64s, Int64s]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._idle = True
        """Nothing has been added since the loop has last looked."""
        self._error: TarryError | None = None
        self.closed = False
        """The connection is over: what was not sent by now comes again by itself."""

    def mark(self, batch: DeliveryBatch) -> None:
        """``batch`` has newly acknowledged rows."""
        self._dirty.append(batch)
        self._wake_or_void()

    def order(
        self, op: StreamOp, argument: int, batch: DeliveryBatch, rows: int | list[int] | None, reason: str = ""
    ) -> None:
        """Something other than the ack of one row; ``rows`` None means the whole batch."""
        chosen = None if rows is None else np.array([rows] if isinstance(rows, int) else rows, np.int64)
        with self._lock:
            # What was acknowledged before comes first: a message is settled once.
            self._ready.append(((StreamOp.ACK, 0, batch.source, ""), batch.take_acked()))
            settled = batch.take(chosen, settle=op is not StreamOp.EXTEND)
            self._ready.append(((op, argument, batch.source, reason), settled))
        self._wake_or_void()

    def extend(self, batch: DeliveryBatch, lease_ms: int) -> None:
        """Hold the batch for ``lease_ms`` from now: one row of it tells the broker which it is."""
        with self._lock:
            self._ready.append(((StreamOp.ACK, 0, batch.source, ""), batch.take_acked()))
            self._ready.append(((StreamOp.EXTEND, lease_ms, batch.source, ""), batch.last_open()))

    def resize(self, window: int) -> None:
        """Have the broker hand out up to so many unsettled messages; goes first of what is sent next."""
        with self._lock:
            self._window = window
        if self._idle:
            self.wake()

    def _wake_or_void(self) -> None:
        # After what was added: either this sees the end, or close() sees what was added.
        if self.closed:
            self.push()
        elif self._idle:
            self.wake()

    def wake(self) -> None:
        """There is something to send, or to tend."""
        self._idle = False
        if self._loop is not None:
            post(self._loop, self._plan, GATHER_S)

    def hurry(self) -> None:
        """Have the loop send now what has gathered."""
        if self._loop is not None:
            post(self._loop, self._run)

    def push(self) -> None:
        """Send what has gathered, in the caller's thread."""
        void = 0
        with self._lock:
            for (op, argument, source, reason), leases, offsets in self._gathered():
                if self.closed:
                    void += len(leases) if op is StreamOp.ACK else 0
                    continue
                try:
                    self._send(op, argument, source, leases, offsets, reason)
                except TarryError as error:
                    log.warning("%d messages could not be settled and will come again: %s", len(leases), error)
                    self._error = self._error or error
        if void and self._on_void is not None:
            self._on_void(void)

    def take_error(self) -> TarryError | None:
        """Return the first error of a push since the last call."""
        with self._lock:
            error, self._error = self._error, None
        return error

    def lock(self) -> threading.Lock:
        """Lock held while sending: whoever owns the stream takes it to end the stream."""
        return self._lock

    def close(self) -> None:
        """Send nothing from now on."""
        with self._lock:
            self.closed = True
        self.push()
        if self._loop is not None:
            post(self._loop, self._stop_timer)

    # -- on the loop ---------------------------------------------------------------------------------------------------

    def _plan(self, after_s: float) -> None:
        """Look again in so many seconds, or sooner where that was planned."""
        assert self._loop is not None
        if self.closed:
            return
        if self._timer is not None and self._timer.when() <= self._loop.time() + after_s:
            return
        self._stop_timer()
        self._timer = self._loop.call_later(after_s, self._run)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._stop_timer()
        if self.closed:
            return
        # From here on an ack plans another look; what was appended before is gathered now. So none is missed.
        self._idle = True
        try:
            tend_s = None if self._tend is None else self._tend()
            self.push()
        except Exception:
            log.exception("settling failed")
            tend_s = GATHER_S
        if tend_s is not None:
            self._plan(tend_s)

    def _gathered(self) -> Iterator[tuple[_What, Int64s, Int64s]]:
        """Yield what is to be sent, joined as far as it can be; under the lock."""
        window, self._window = self._window, None
        if window is not None:
            # First: what is given back must not come again at once where there is less room from now on.
            yield (StreamOp.WINDOW, window, ("", ""), ""), _NONE, _NONE
        ready, self._ready = self._ready, []
        for _ in range(len(self._dirty)):
            batch = self._dirty.popleft()
            ready.append(((StreamOp.ACK, 0, batch.source, ""), batch.take_acked()))
        joined: dict[_What, list[tuple[Int64s, Int64s]]] = {}
        for what, pairs in ready:
            joined.setdefault(what, []).append(pairs)
        for what, parts in joined.items():
            leases, offsets = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            for start in range(0, len(leases), LEASES_MAX):
                end = start + LEASES_MAX
                yield what, leases[start:end], offsets[start:end]
