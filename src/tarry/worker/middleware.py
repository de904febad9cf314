"""Middleware that is ready: a line in the log for each message, and a span of OpenTelemetry.

worker.middleware(LogEach())
worker.middleware(Traces())
"""

from __future__ import annotations

import logging
import time
from typing import Any

from tarry.base.errors import NotFoundError
from tarry.base.extras import missing_extra
from tarry.client.delivery import Delivery
from tarry.message.trace_context import TRACEPARENT, parse_traceparent, wait_span_id
from tarry.worker.handler import Call


class LogEach:
    """Logs each message that was handled, with its time; of one that failed the worker says why."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._log = logger or logging.getLogger("tarry.worker")
        self._level = level

    async def __call__(self, message: Delivery, call_next: Call) -> Any:
        """See :data:`tarry.worker.handler.Middleware`."""
        began_s = time.perf_counter()
        result = await call_next(message)
        ms = (time.perf_counter() - began_s) * 1000
        self._log.log(
            self._level, "%s %s, attempt %d: handled in %.1f ms", message.topic, message.id, message.attempt, ms
        )
        return result


class Traces:
    """Makes a span of OpenTelemetry of each message, below the one that its ``traceparent`` names.

    Whoever schedules puts that property there: ``opentelemetry.propagate.inject(properties)``.
    """

    def __init__(self, tracer_provider: Any = None, *, link: bool = False, broker: bool = False) -> None:
        """Make one.

        Args:
            tracer_provider: of OpenTelemetry; None: the process'.
            link: have the span begin a trace of its own, with a link to the one of the producer: for delays of days.
            broker: have the span be below the broker's of the message's wait, or linked to it, in the place of the
                producer's: where the broker sends spans (its setting ``otlp_endpoint``).

        Raises:
            NotFoundError: OpenTelemetry is not installed.
        """
        try:
            from opentelemetry import context, propagate, trace
        except ImportError as error:
            raise NotFoundError(missing_extra("the middleware Traces", "otel", error)) from error
        self._trace, self._extract, self._link, self._broker = trace, propagate.extract, link, broker
        self._nothing = context.Context()
        self._tracer = trace.get_tracer("tarry.worker", tracer_provider=tracer_provider)

    async def __call__(self, message: Delivery, call_next: Call) -> Any:
        """See :data:`tarry.worker.handler.Middleware`."""
        before = self._extract(message.properties)
        if self._broker:
            before = self._below_wait(before, message)
        of: dict[str, Any] = {"context": before}
        if self._link:
            producer = self._trace.get_current_span(before).get_span_context()
            of = {"context": self._nothing, "links": [self._trace.Link(producer)] if producer.is_valid else []}
        attributes = {
            "messaging.system": "tarry",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": message.topic,
            "messaging.consumer.group.name": message.group,
            "messaging.message.id": message.id,
            "messaging.message.body.size": len(message.body),
            "tarry.attempt": message.attempt,
        }
        kind = self._trace.SpanKind.CONSUMER
        with self._tracer.start_as_current_span(f"process {message.topic}", kind=kind, attributes=attributes, **of):
            return await call_next(message)

    def _below_wait(self, before: Any, message: Delivery) -> Any:
        """Return the context of the broker's span, or that which the message came with."""
        producer = parse_traceparent(message.properties.get(TRACEPARENT, ""))
        if producer is None or not producer.is_sampled:
            return before
        came = self._trace.get_current_span(before).get_span_context()
        wait = self._trace.SpanContext(
            producer.trace_id,
            wait_span_id(producer, message.topic, message.group, message.seq),
            is_remote=True,
            trace_flags=came.trace_flags,
            trace_state=came.trace_state,
        )
        return self._trace.set_span_in_context(self._trace.NonRecordingSpan(wait), before)
