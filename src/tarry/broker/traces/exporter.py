"""Sends spans to a collector by OTLP over HTTP, with OpenTelemetry's SDK, on a thread of its own.

A collector that is slow or gone costs spans, which are counted, and nothing else. How much is sent in a second is
bounded, too: the thread shares the interpreter with the delivery of messages.

Names and attributes: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from tarry.base.errors import InvalidArgumentError
from tarry.base.extras import missing_extra
from tarry.base.version import VERSION
from tarry.broker.traces.spans import HandOutSpan, SpanQueue, WaitSpan
from tarry.message.trace_context import wait_span_id

log = logging.getLogger(__name__)

BATCH_SPANS = 256
"""Most spans of a request."""
PAUSE_S = 0.25
"""Between two requests; so no more than 1,024 spans are sent in a second."""
CLOSE_S = 1.0
"""Longest time that a stop gives to what still waits, and to a request that it ends."""
WARN_S = 60.0
"""Between two lines that say that spans are lost."""
PATH = "/v1/traces"
_MS = 1_000_000
"""Nanoseconds."""


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


class OtlpSender:
    """Implements :class:`Sends`, on one thread but for :meth:`stop`."""

    def __init__(self, endpoint: str) -> None:
        """Make one. Headers, timeouts and certificates are those of OpenTelemetry's own variables.

        Raises:
            InvalidArgumentError: OpenTelemetry is not installed.
        """
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
            from opentelemetry.sdk.trace.export import SpanExportResult
            from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        except ImportError as error:
            raise InvalidArgumentError(missing_extra("otlp_endpoint", "otel", error)) from error
        # It says in lines of its own, in many, what is counted and told here once a minute.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)

        class Ids(RandomIdGenerator):  # type: ignore[misc]
            """Numbers of spans: the one that is given, once, else one by chance."""

            given: int | None = None

            def generate_span_id(self) -> int:
                given, self.given = self.given, None
                return super().generate_span_id() if given is None else given

        class Collect(SpanProcessor):  # type: ignore[misc]
            def on_end(self, span: Any) -> None:
                ended.append(span)

        ended: list[Any] = []
        self._ended, self._ids, self._trace, self._success = ended, Ids(), trace, SpanExportResult.SUCCESS
        resource = Resource.create({"service.version": VERSION})
        if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "tarry"}))
        provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(Collect())
        self._tracer = provider.get_tracer("tarry", VERSION)
        self._exporter = OTLPSpanExporter(endpoint=url_of(endpoint))

    def send(self, spans: Sequence[WaitSpan | HandOutSpan]) -> bool:
        """See :meth:`Sends.send`."""
        for span in spans:
            self._make(span)
        made, self._ended[:] = list(self._ended), []
        return bool(self._exporter.export(made) is self._success)

    def stop(self) -> None:
        """See :meth:`Sends.stop`."""
        self._exporter.shutdown()

    def _make(self, span: WaitSpan | HandOutSpan) -> None:
        message = span.message
        wait_id = wait_span_id(message.producer, message.topic, message.group, message.seq)
        if isinstance(span, WaitSpan):
            made = self._begin("wait", message.producer.span_id, message.accepted_ms, span, wait_id)
            made.set_attributes(
                {"tarry.due_ms": message.due_ms, "tarry.lateness_ms": message.handed_ms - message.ready_ms}
            )
            if message.due_ms >= message.accepted_ms:
                made.add_event("due", timestamp=message.due_ms * _MS)
            made.end(message.handed_ms * _MS)
            return
        made = self._begin("lease", wait_id, message.handed_ms, span, None)
        made.set_attributes({"tarry.attempt": message.attempt, "tarry.outcome": span.outcome})
        if span.is_error:
            made.set_status(self._trace.Status(self._trace.StatusCode.ERROR, span.outcome))
        made.end(max(span.ended_ms, message.handed_ms) * _MS)

    def _begin(
        self, operation: str, parent: int, start_ms: int, span: WaitSpan | HandOutSpan, number: int | None
    ) -> Any:
        message, trace = span.message, self._trace
        before = trace.SpanContext(
            message.producer.trace_id, parent, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
        )
        self._ids.given = number
        return self._tracer.start_span(
            f"{operation} {message.topic}",
            context=trace.set_span_in_context(trace.NonRecordingSpan(before), _nothing()),
            start_time=start_ms * _MS,
            attributes={
                "messaging.system": "tarry",
                "messaging.operation.name": operation,
                "messaging.destination.name": message.topic,
                "messaging.consumer.group.name": message.group,
                "messaging.message.id": message.id,
                "messaging.message.body.size": message.body_bytes,
            },
        )


def _nothing() -> Any:
    from opentelemetry.context import Context

    return Context()


def url_of(endpoint: str) -> str:
    """Return where spans are posted to: the collector's URL, and the path that OTLP has for them."""
    return endpoint if endpoint.endswith(PATH) else endpoint.rstrip("/") + PATH
