"""Sends spans to a collector, on a thread of its own.

A collector that is slow or gone costs spans, which are counted, and nothing else. How much is sent in a second is
bounded, too: the thread shares the interpreter with the delivery of messages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from tarry.base.errors import InvalidArgumentError
from tarry.base.extras import missing_extra
from tarry.broker.traces.spans import HandOutSpan, SpanQueue, WaitSpan

log = logging.getLogger(__name__)

BATCH_SPANS = 256
"""Most spans of a request."""
PAUSE_S = 0.25
"""Between two requests; so no more than 1,024 spans are sent in a second."""
CLOSE_S = 1.0
"""Longest time that a stop gives to what still waits, and to a request that it ends."""
WARN_S = 60.0
"""Between two lines that say that spans are lost."""


class Sends(Protocol):
    """Makes spans of what happened, and sends them."""

    def send(self, spans: Sequence[WaitSpan | HandOutSpan]) -> bool:
        """Return whether the collector took them."""
        ...

    def stop(self) -> None:
        """Have a request that waits to be tried again end."""
        ...


class SpanExport:
    """Spans on their way to a collector. Any thread."""

    def __init__(self, sender: Sends, *, queue: SpanQueue | None = None, pause_s: float = PAUSE_S) -> None:
        self.queue = SpanQueue() if queue is None else queue
        self._sender = sender
        self._pause_s = pause_s
        self._exported = self._refused = 0
        self._warned_s, self._told = -WARN_S, 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tarry-traces", daemon=True)

    @classmethod
    def to(cls, endpoint: str) -> SpanExport:
        """Return one for a collector's URL.

        Raises:
            InvalidArgumentError: OpenTelemetry is not installed.
        """
        try:
            from tarry.broker.traces.otlp import OtlpSender
        except ImportError as error:
            raise InvalidArgumentError(missing_extra("otlp_endpoint", "otel", error)) from error
        return cls(OtlpSender(endpoint))

    @property
    def state(self) -> dict[str, int]:
        """Numbers of spans since the process began: taken by the collector, dropped, waiting."""
        dropped = self.queue.overflowed + self._refused
        return {"exported": self._exported, "dropped": dropped, "waiting": len(self.queue)}

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send what waits, for so long as :data:`CLOSE_S`; the rest is dropped."""
        self._stopped.set()
        is_begun = self._thread.ident is not None
        if is_begun:
            self._thread.join(CLOSE_S)
        self._sender.stop()
        if is_begun:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s):
            self._send()
        while len(self.queue):
            self._send()

    def _send(self) -> None:
        spans = self.queue.take(BATCH_SPANS)
        if not spans:
            return
        try:
            taken = self._sender.send(spans)
        except Exception as error:  # noqa: BLE001  whatever a library raises, messages are delivered
            log.warning("spans were not sent: %s", error)
            taken = False
        if taken:
            self._exported += len(spans)
        else:
            self._refused += len(spans)
        self._warn()

    def _warn(self) -> None:
        dropped, now_s = self.state["dropped"], time.monotonic()
        if dropped > self._told and now_s - self._warned_s >= WARN_S:
            log.warning("%d spans were dropped: the collector is gone or too slow", dropped - self._told)
            self._warned_s, self._told = now_s, dropped
