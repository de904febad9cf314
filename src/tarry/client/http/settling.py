"""Settlements by HTTP: gathered for some milliseconds, and sent by a thread of its own.

One thread sends at a time, in the order in which it was said.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

from tarry.api.operations.messages import HANDLES_MAX
from tarry.api.paths import GROUP
from tarry.base.errors import NativeOnlyError, TarryError, UnavailableError
from tarry.base.extras import needs_native
from tarry.client.encoding import encoded
from tarry.client.http.exchange import Asked, Exchange
from tarry.client.http.operations import path_of
from tarry.client.http.received import HttpBatch
from tarry.client.stream_op import StreamOp

log = logging.getLogger(__name__)

GATHER_S = 0.005
TEND_S = 0.5
"""Seconds between two looks at leases."""
_WAYS = {StreamOp.ACK: "ack", StreamOp.NACK: "nack", StreamOp.FAIL: "nack", StreamOp.EXTEND: "extend"}
_What = tuple[StreamOp, int, tuple[str, str], str]
"""An order, its argument, topic and group, and the reason."""


class HttpSettler:
    """A :class:`tarry.client.delivery.Settles`. Any thread."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._gathering = threading.Lock()
        self._sending = threading.Lock()
        self._dirty: deque[HttpBatch] = deque()
        self._abandoned: deque[HttpBatch] = deque()
        self._ready: list[tuple[_What, list[str]]] = []
        self._error: TarryError | None = None
        self._wakes = threading.Condition()
        self._is_woken = False
        self._thread: threading.Thread | None = None
        self._tended: weakref.WeakSet[Any] = weakref.WeakSet()
        self.closed = False

    def tend(self, consumer: Any) -> None:
        """Call the ``tend`` of a consumer, which extends its leases, twice a second, for as long as it exists."""
        self._tended.add(consumer)
        self._wake()

    def mark(self, batch: HttpBatch) -> None:
        """``batch`` has newly acknowledged rows."""
        self._dirty.append(batch)
        self._wake()

    def order(
        self, op: StreamOp, argument: int, batch: HttpBatch, rows: int | list[int] | None, reason: str = ""
    ) -> None:
        """Something other than the ack of one row; ``rows`` None means the whole batch.

        Raises:
            NativeOnlyError: HTTP has no such order.
        """
        if op not in _WAYS:
            raise self._no_way(op)
        chosen = [rows] if isinstance(rows, int) else rows
        if op is StreamOp.EXTEND:
            batch.say_extended(time.monotonic() + argument / 1000)
        with self._gathering:
            # What was acknowledged before comes first: a message is settled once.
            self._ready.append(((StreamOp.ACK, 0, batch.source, ""), batch.take_acked()))
            taken = batch.take(chosen, settle=op is not StreamOp.EXTEND)
            self._ready.append(((op, argument, batch.source, reason), taken))
        self._wake()

    def abandon(self, batches: list[HttpBatch]) -> None:
        """Give back what is not settled of these, soon. Takes no lock: a finalizer may run anywhere."""
        self._abandoned.extend(batches)

    def extend(self, batches: Sequence[HttpBatch], lease_ms: int) -> bool:
        """Extend the leases of what is not settled of batches of one source.

        Return whether the broker said that it did.
        """
        until_s = time.monotonic() + lease_ms / 1000
        names = [name for batch in batches for name in batch.take_shorter(until_s)]
        try:
            with self._sending:
                for start in range(0, len(names), HANDLES_MAX):
                    chosen = names[start : start + HANDLES_MAX]
                    self._send(StreamOp.EXTEND, lease_ms, batches[0].source, "", chosen)
        except TarryError as error:
            log.warning("leases are not extended, and end if that goes on: %s", error)
            return False
        return True

    def push(self) -> None:
        """Send what has gathered, in the caller's thread."""
        with self._sending:
            self._push()

    def _push(self) -> None:
        while self._abandoned:
            with suppress(IndexError):  # another thread has taken it
                self.order(StreamOp.NACK, 0, self._abandoned.popleft(), None)
        for what, names in self._gathered():
            for start in range(0, len(names), HANDLES_MAX):
                try:
                    self._send(*what, names[start : start + HANDLES_MAX])
                except TarryError as error:
                    log.warning("messages could not be settled and will come again: %s", error)
                    self._error = self._error or error

    def hurry(self) -> None:
        """Have the thread send now what has gathered."""
        self._wake()

    def flush(self, timeout_s: float = math.inf) -> None:
        """Send what has gathered, and wait until it is durable.

        After ``timeout_s``, that goes on without the caller.

        Raises:
            TarryError: the first refusal since the last call. UnavailableError: there was no answer within that time.
        """
        if timeout_s == math.inf:
            self.push()
        elif not self._push_within(min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)):
            text = f"no answer within {timeout_s:g} s to what was settled"
            raise UnavailableError(f"{text}; it is not known to be durable")
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _push_within(self, timeout_s: float) -> bool:
        """Push, and return whether that ended in time.

        A request that was given up may have been carried out, or not; so it is left to a thread that goes on.
        """
        until_s = time.monotonic() + timeout_s
        if not self._sending.acquire(timeout=timeout_s):
            return False  # the settler's thread, which is at it, sends the rest next
        pushing: Future[None] = Future()
        try:
            threading.Thread(target=self._push_on, args=[pushing], name="tarry-http-flush", daemon=True).start()
        except BaseException:
            self._sending.release()
            raise
        with suppress(FutureTimeoutError):
            pushing.result(max(until_s - time.monotonic(), 0.0))
        return pushing.done()

    def _push_on(self, pushing: Future[None]) -> None:
        """Push for who has locked, and waits for the future."""
        failure: BaseException | None = None
        try:
            self._push()
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            failure = error
        self._sending.release()  # before the caller goes on
        if failure is None:
            pushing.set_result(None)
        else:
            pushing.set_exception(failure)

    def close(self) -> None:
        """Send what has gathered, and nothing from now on."""
        self.push()
        self.closed = True
        self._wake()

    def _gathered(self) -> list[tuple[_What, list[str]]]:
        with self._gathering:
            ready, self._ready = self._ready, []
            for _ in range(len(self._dirty)):
                batch = self._dirty.popleft()
                ready.append(((StreamOp.ACK, 0, batch.source, ""), batch.take_acked()))
        joined: list[tuple[_What, list[str]]] = []
        for what, names in ready:
            if not names:
                continue
            if joined and joined[-1][0] == what:
                joined[-1][1].extend(names)
            else:
                joined.append((what, names))
        return joined

    def _send(self, op: StreamOp, argument: int, source: tuple[str, str], reason: str, names: list[str]) -> None:
        topic, group = source
        body: dict[str, Any] = {"deliveries": names}
        if op is StreamOp.EXTEND:
            body["lease_ms"] = argument
        elif op is not StreamOp.ACK and argument >= 0:
            body["delay_ms"] = argument
        if reason:
            body["reason"] = reason
        path = path_of(f"{GROUP}/{_WAYS[op]}", {"topic": topic, "group": group})
        # Read, too: what stands between here and the broker may answer for it, and nothing is settled then.
        self._exchange.ask(Asked("POST", path, encoded(body))).read(lambda answer: int(answer["settled"]))

    def _no_way(self, op: StreamOp) -> NativeOnlyError:
        what = "to reject a message" if op is StreamOp.REJECT else "to release a message"
        return needs_native(what, self._exchange.text)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with self._wakes:
            if self._thread is None and not self.closed:
                self._thread = threading.Thread(
                    target=_work, args=(weakref.ref(self), self._wakes), name="tarry-http", daemon=True
                )
                self._thread.start()
            self._is_woken = True
            self._wakes.notify()

    def wait(self) -> bool:
        """Wait for something to do; return whether there may be more, later. The thread's."""
        with self._wakes:
            if not self._is_woken:
                self._wakes.wait(TEND_S)
            woken, self._is_woken = self._is_woken, False
        if self.closed:
            return False
        if woken:
            time.sleep(GATHER_S)  # so that acks travel together
        return True

    def work(self) -> None:
        """Send what has gathered, and extend leases. The thread's."""
        for consumer in list(self._tended):
            consumer.tend()
        self.push()


def _work(settler: Callable[[], HttpSettler | None], _: threading.Condition) -> None:
    while (each := settler()) is not None and each.wait():
        try:
            each.work()
        except Exception:
            log.exception("settling failed")
        del each
