"""Makes spans with OpenTelemetry's SDK, and sends them by OTLP over HTTP. Takes the extra ``otel``.

Names and attributes: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from tarry.base.version import VERSION
from tarry.broker.traces.answers import bounded_session
from tarry.broker.traces.spans import HandOutSpan, WaitSpan
from tarry.message.trace_context import wait_span_id

PATH = "/v1/traces"
_MS = 1_000_000
"""Nanoseconds."""


class _Ids(RandomIdGenerator):  # type: ignore[misc]
    """Numbers of spans: the one that is given, once, else one by chance."""

    given: int | None = None

    def generate_span_id(self) -> int:
        given, self.given = self.given, None
        return super().generate_span_id() if given is None else given


class _Collect(SpanProcessor):  # type: ignore[misc]
    """Keeps the spans that have ended."""

    def __init__(self, ended: list[Any]) -> None:
        self._ended = ended

    def on_end(self, span: Any) -> None:
        self._ended.append(span)


class OtlpSender:
    """Implements :class:`Sends`, on one thread but for :meth:`stop`."""

    def __init__(self, endpoint: str) -> None:
        """Make one. Headers, timeouts and certificates are those of OpenTelemetry's own variables."""
        # It says in lines of its own, in many, what is counted and told here once a minute.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)

        self._ended: list[Any] = []
        self._ids = _Ids()
        resource = Resource.create({"service.version": VERSION})
        if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "tarry"}))
        provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(_Collect(self._ended))
        self._tracer = provider.get_tracer("tarry", VERSION)
        self._exporter = OTLPSpanExporter(endpoint=url_of(endpoint), session=bounded_session())

    def send(self, spans: Sequence[WaitSpan | HandOutSpan]) -> bool:
        """See :meth:`Sends.send`."""
        for span in spans:
            self._make(span)
        made, self._ended[:] = list(self._ended), []
        return bool(self._exporter.export(made) is SpanExportResult.SUCCESS)

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
            made.set_status(trace.Status(trace.StatusCode.ERROR, span.outcome))
        made.end(max(span.ended_ms, message.handed_ms) * _MS)

    def _begin(
        self, operation: str, parent: int, start_ms: int, span: WaitSpan | HandOutSpan, number: int | None
    ) -> Any:
        message = span.message
        before = trace.SpanContext(
            message.producer.trace_id, parent, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
        )
        self._ids.given = number
        return self._tracer.start_span(
            f"{operation} {message.topic}",
            context=trace.set_span_in_context(trace.NonRecordingSpan(before), Context()),
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


def url_of(endpoint: str) -> str:
    """Return where spans are posted to: the collector's URL, and the path that OTLP has for them."""
    return endpoint if endpoint.endswith(PATH) else endpoint.rstrip("/") + PATH
