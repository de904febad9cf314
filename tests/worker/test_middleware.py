"""Middleware that is ready."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import tarry
from tarry.message.trace_context import parse_traceparent, wait_span_id
from tarry.testing import TestBroker
from tarry.worker.middleware import LogEach, Traces

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def handled(broker: TestBroker, middleware: Any) -> None:
    worker = tarry.Worker()
    worker.middleware(middleware)

    @worker.on("orders", group="billing", retry={ValueError: tarry.Reject})
    def bill(body: bytes) -> None:
        if body == b"bad":
            raise ValueError("no price")

    broker.schedule("orders", b"good", properties={"traceparent": PARENT})
    broker.schedule("orders", b"bad")
    with broker.run(worker):
        broker.advance(0)


def test_a_line_for_each_that_was_handled(tarry_broker: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "shop"):
        handled(tarry_broker, LogEach(logging.getLogger("shop")))
    [line] = [each.message for each in caplog.records if each.name == "shop"]
    assert line.startswith("orders 0000000000000000, attempt 1: handled in ")


@pytest.mark.parametrize(("link", "broker"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_span_for_each_continues_what_the_producer_began(tarry_broker: TestBroker, link: bool, broker: bool) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, spans = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    handled(tarry_broker, Traces(provider, link=link, broker=broker))
    good, bad = spans.get_finished_spans()
    assert (good.name, good.kind.name, good.attributes["messaging.message.id"]) == (
        "process orders",
        "CONSUMER",
        "0000000000000000",
    )
    named = ("messaging.operation.name", "messaging.destination.name", "messaging.consumer.group.name")
    assert [good.attributes[each] for each in named] == ["process", "orders", "billing"]
    [producer] = [each.context for each in good.links] if link else [good.parent]
    before = parse_traceparent(PARENT)
    assert before is not None
    parent_id = wait_span_id(before, "orders", "billing", 0) if broker else before.span_id
    assert (producer.trace_id, producer.span_id) == (before.trace_id, parent_id)
    assert (good.parent is None) == link
    assert (bad.parent, bad.links) == (None, ())
    assert (bad.status.description, len(bad.events)) == ("ValueError: no price", 1)
