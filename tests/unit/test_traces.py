"""Spans of the broker: what a collector gets of a message that is traced, and what a collector that is gone costs."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.otlp_receiver import attributes_of, receiver

from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.broker import Broker
from tarry.broker.traces.exporter import SpanExport
from tarry.broker.traces.otlp import OtlpSender, url_of
from tarry.broker.traces.spans import HandOutSpan, SpanQueue, Traced, WaitSpan
from tarry.message.schema import PROPERTIES
from tarry.message.trace_context import TraceContext, parse_traceparent, sampled_rows, wait_span_id

TRACE, PRODUCER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PRODUCER}-01", f"00-{TRACE}-{PRODUCER}-00"
NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (SAMPLED, True),
        (NOT_SAMPLED, False),
        (f"00-{TRACE}-{PRODUCER}-ff", True),
        (f"cc-{TRACE}-{PRODUCER}-01-what-will-be", True),
        (f"00-{TRACE}-{PRODUCER}-01-more", None),
        (f"cc-{TRACE}-{PRODUCER}-01-\r\nhost: other", None),
        (f"ff-{TRACE}-{PRODUCER}-01", None),
        (f"00-{'0' * 32}-{PRODUCER}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (SAMPLED.upper(), None),
        (f" {SAMPLED}", None),
        (f"{SAMPLED}\n", None),
        ("", None),
        (f"00-\u0660{TRACE[1:]}-{PRODUCER}-01", None),
    ],
)
def test_what_a_traceparent_says(text: str, is_sampled: bool | None) -> None:
    found = parse_traceparent(text)
    wanted = None if is_sampled is None else TraceContext(int(TRACE, 16), int(PRODUCER, 16), is_sampled)
    assert found == wanted


_PAIRS = st.lists(
    st.tuples(st.sampled_from(["a", "traceparent"]), st.sampled_from([SAMPLED, NOT_SAMPLED, "nonsense"])), max_size=3
)


@given(st.lists(st.none() | _PAIRS, max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_the_sampled_rows_of_any_slice_are_found(rows: list[Any], low: int, count: int) -> None:
    part = pa.array(rows, PROPERTIES).slice(min(low, len(rows)), count)
    wanted = [at for at, pairs in enumerate(rows[low : low + count]) if ("traceparent", SAMPLED) in (pairs or [])]
    assert [row for row, _ in sampled_rows(part)] == wanted


def broker_at(data: Path, clock: TestClock, endpoint: str | None, **settings: object) -> Broker:
    config = Config(data=data, pipeline="off", otlp_endpoint=endpoint, **settings)
    return Broker.open(config, clock=clock, threads=False)


def test_a_message_has_a_span_of_its_wait_and_one_of_each_hand_out(tmp_path: Path) -> None:
    clock = TestClock(NOW_MS)
    with receiver() as collector, broker_at(tmp_path, clock, collector.endpoint) as broker:
        receipt = broker.schedule(
            "orders", b"three", delay=60, id="first", properties={"x": "y", "traceparent": SAMPLED}
        )
        broker.schedule("orders", b"", delay=60, properties={"traceparent": NOT_SAMPLED})
        broker.schedule("orders", b"", delay=60)
        consumer = broker.subscribe("orders", "billing")
        clock.advance_ms(61_000)
        broker.step()
        batch = consumer.fetch(10, 0)
        assert batch is not None
        leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
        clock.advance_ms(500)
        consumer.nack(leases[:1], offsets[:1], 2000)
        consumer.ack(leases[1:], offsets[1:])
        clock.advance_ms(2000)
        again = consumer.fetch(10, 0)
        assert again is not None
        clock.advance_ms(250)
        consumer.ack(*(again.column(name).to_numpy() for name in ("lease", "offset")))
        wait, first, second = collector.wait(3)
    assert broker.status()["traces"] == {"exported": 3, "dropped": 0, "waiting": 0}
    assert [span.name for span in (wait, first, second)] == ["wait orders", "lease orders", "lease orders"]
    assert {span.trace_id.hex() for span in (wait, first, second)} == {TRACE}
    assert wait.parent_span_id.hex() == PRODUCER
    seq = receipt.seq
    assert int.from_bytes(wait.span_id, "big") == wait_span_id(
        TraceContext(int(TRACE, 16), int(PRODUCER, 16), True), "orders", "billing", seq
    )
    assert first.parent_span_id == second.parent_span_id == wait.span_id
    assert first.span_id != second.span_id
    began_ms = [span.start_time_unix_nano // 1_000_000 - NOW_MS for span in (wait, first, second)]
    ended_ms = [span.end_time_unix_nano // 1_000_000 - NOW_MS for span in (wait, first, second)]
    assert (began_ms, ended_ms) == ([0, 61_000, 63_500], [61_000, 61_500, 63_750])
    [due] = wait.events
    assert (due.name, due.time_unix_nano // 1_000_000 - NOW_MS) == ("due", 60_000)
    common = {
        "messaging.system": "tarry",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": "first",
        "messaging.message.body.size": 5,
    }
    own = {"messaging.operation.name": "wait", "tarry.due_ms": NOW_MS + 60_000, "tarry.lateness_ms": 1000}
    assert attributes_of(wait) == {**common, **own}
    leased = {**common, "messaging.operation.name": "lease"}
    assert attributes_of(first) == {**leased, "tarry.attempt": 1, "tarry.outcome": "given back"}
    assert attributes_of(second) == {**leased, "tarry.attempt": 2, "tarry.outcome": "acknowledged"}
    assert [(span.status.code, span.status.message) for span in (first, second)] == [(2, "given back"), (0, "")]
    assert {each["service.name"] for each in collector.resources} == {"tarry"}
    assert collector.paths == {"/v1/traces"}


@pytest.mark.parametrize("outcome", ["lease expired", "consumer gone", "dead letter", "released", "seek"])
def test_a_hand_out_says_how_it_ended(tmp_path: Path, outcome: str) -> None:
    clock = TestClock(NOW_MS)
    with receiver() as collector, broker_at(tmp_path, clock, collector.endpoint, lease_ms=1000) as broker:
        broker.schedule("orders", b"", properties={"traceparent": SAMPLED})
        group = broker.group("orders", "billing")
        consumer = broker.subscribe("orders", "billing")
        broker.step()
        batch = consumer.fetch(10, 0)
        assert batch is not None
        held = [batch.column(name).to_numpy() for name in ("lease", "offset")]
        if outcome == "lease expired":
            clock.advance_ms(1001)
            consumer.fetch(10, 0)
        elif outcome == "consumer gone":
            consumer.close()
        elif outcome == "dead letter":
            group.reject(*held)
        elif outcome == "released":
            group.give_back(*held)
            assert consumer.fetch(10, 0) is not None  # it has had its wait
        else:
            broker.seek("orders", "billing", "latest")
        wait, lease = collector.wait(2)
        assert len(collector.spans) == 2
    assert (wait.name, lease.name) == ("wait orders", "lease orders")
    assert attributes_of(lease)["tarry.outcome"] == outcome
    assert (lease.status.code == 2) == (outcome not in ("released", "seek"))


def test_without_the_setting_nobody_looks_for_traces(tmp_path: Path) -> None:
    with broker_at(tmp_path, TestClock(NOW_MS), None) as broker:
        assert broker.components.traces is None
        assert broker.status()["traces"] is None


def test_a_collector_that_is_gone_costs_spans_and_nothing_else(tmp_path: Path) -> None:
    clock = TestClock(NOW_MS)
    with receiver() as collector:
        gone = collector.endpoint
    with broker_at(tmp_path, clock, gone) as broker:
        for _ in range(20):
            broker.schedule("orders", b"", properties={"traceparent": SAMPLED})
        consumer = broker.subscribe("orders", "billing")
        broker.step()
        batch = consumer.fetch(100, 0)
        assert batch is not None
        assert batch.num_rows == 20
        assert consumer.ack(*(batch.column(name).to_numpy() for name in ("lease", "offset"))) == 20
        traces = broker.components.traces
        assert traces is not None
    assert traces.state == {"exported": 0, "dropped": 40, "waiting": 0}


def test_an_answer_without_end_does_not_fill_the_memory() -> None:
    wrote = 0

    def answer(listening: socket.socket) -> None:
        nonlocal wrote
        taken, _ = listening.accept()
        with taken, suppress(OSError):
            taken.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while wrote < 256 << 20:
                taken.sendall(bytes(1 << 20))
                wrote += 1 << 20

    traced = Traced(TraceContext(1, 2, True), "t", "g", 3, "id", 4, NOW_MS, NOW_MS, NOW_MS, 1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        sender = OtlpSender(f"http://127.0.0.1:{listening.getsockname()[1]}")
        is_taken = False
        with suppress(Exception):  # the one that calls it counts its spans as dropped
            is_taken = sender.send([WaitSpan(traced)])
        thread.join(30)
        sender.stop()
    assert not is_taken
    assert wrote < 64 << 20


def test_the_queue_is_bounded_and_counts_what_it_drops() -> None:
    message = Traced(TraceContext(1, 2, True), "orders", "billing", 3, "3", 0, 0, 0, 0, 1)

    class Slow:
        def __init__(self) -> None:
            self.begun, self.go_on, self.sent = threading.Event(), threading.Event(), 0

        def send(self, spans: Sequence[WaitSpan | HandOutSpan]) -> bool:
            self.begun.set()
            assert self.go_on.wait(30)
            self.sent += len(spans)
            return self.sent > 1

        def stop(self) -> None:
            pass

    slow = Slow()
    traces = SpanExport(slow, queue=SpanQueue(4), pause_s=0.001)
    traces.queue.add(WaitSpan(message))
    traces.start()
    assert slow.begun.wait(30)
    for _ in range(7):
        traces.queue.add(WaitSpan(message))
    assert traces.state == {"exported": 0, "dropped": 3, "waiting": 4}
    slow.go_on.set()
    traces.close()
    assert traces.state == {"exported": 4, "dropped": 4, "waiting": 0}


@pytest.mark.parametrize(
    "url", ["collector:4318", "ftp://collector", "http://", "http://user:secret@host", "http://host?x", "http://h:x"]
)
def test_a_collector_is_named_by_its_url(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"otlp_endpoint is .*; allowed: http:// or https://"):
        Config(otlp_endpoint=url)


def test_spans_are_posted_to_the_path_of_otlp() -> None:
    paths = {url_of(f"http://host:4318{path}") for path in ("", "/", "/v1/traces")}
    assert paths == {"http://host:4318/v1/traces"}
    assert url_of("https://host/otlp/") == "https://host/otlp/v1/traces"


def test_without_opentelemetry_a_start_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tarry.broker.traces.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidArgumentError, match="otlp_endpoint needs the extra 'otel'"):
        broker_at(tmp_path, TestClock(NOW_MS), "http://127.0.0.1:4318")
