"""Spans of traced messages: their wait in the broker, and each hand-out to a consumer.

``recorder`` notes what happens, ``spans`` is the bounded queue, ``exporter`` sends by OTLP. With the setting
``otlp_endpoint`` alone.
"""

from __future__ import annotations

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.broker.traces.exporter import SpanExport
from tarry.broker.traces.recorder import HandOutRecorder


def traces_of(config: Config) -> SpanExport | None:
    """Return the sender of spans, not started; None: none are made.

    Raises:
        InvalidArgumentError: OpenTelemetry is not installed.
    """
    return None if config.otlp_endpoint is None else SpanExport.to(config.otlp_endpoint)


def recorder_of(traces: SpanExport | None, clock: Clock) -> HandOutRecorder | None:
    """Return what groups tell of their hand-outs."""
    return None if traces is None else HandOutRecorder(clock, traces.queue)


__all__ = ["SpanExport", "recorder_of", "traces_of"]
