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

    def __init__(self, tracer_provider: Any = None, *, link: bool = False) -> None:
        """Make one.

        Args:
            tracer_provider: of OpenTelemetry; None: the process'.
            link: have the span begin a trace of its own, with a link to the one of the producer: for delays of days.

        Raises:
            NotFoundError: OpenTelemetry is not installed.
        """
        try:
            from opentelemetry import context, propagate, trace
        except ImportError as error:
            raise NotFoundError(missing_extra("the middleware Traces", "otel", error)) from error
        self._trace, self._extract, self._link = trace, propagate.extract, link
        self._nothing = context.Context()
        self._tracer = trace.get_tracer("tarry.worker", tracer_provider=tracer_provider)

    async def __call__(self, message: Delivery, call_next: Call) -> Any:
        """See :data:`tarry.worker.handler.Middleware`."""
        before = self._extract(message.properties)
        of: dict[str, Any] = {"context": before}
        if self._link:
            producer = self._trace.get_current_span(before).get_span_context()
            of = {"context": self._nothing, "links": [self._trace.Link(producer)] if producer.is_valid else []}
        attributes = {
            "messaging.system": "tarry",
            "messaging.operation.type": "process",
            "messaging.destination.name": message.topic,
            "messaging.message.id": message.id,
            "messaging.message.body.size": len(message.body),
            "tarry.attempt": message.attempt,
        }
        kind = self._trace.SpanKind.CONSUMER
        with self._tracer.start_as_current_span(f"process {message.topic}", kind=kind, attributes=attributes, **of):
            return await call_next(message)
