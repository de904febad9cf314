"""The metrics front: what it tells, how it is asked, and what bad requests do to it."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.base.histogram import Histogram
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.metrics import collector, server
from tarry.fronts.metrics.front import MetricsFront
from tarry.fronts.metrics.shared_logs import shared_logs
from tarry.testing import TestBroker, open_broker


class Served:
    """A broker that stands still, and its metrics."""

    def __init__(self, broker: TestBroker) -> None:
        self.broker = broker
        self.front = MetricsFront.start(broker, "127.0.0.1:0")
        self.host, _, port = self.front.address.rpartition(":")
        self.port = int(port)

    def request(
        self, method: str = "GET", path: str = "/metrics", headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection((self.host, self.port), timeout=10) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65536):
                answer += part
            return answer

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        answer, body = self.request()
        assert answer.status == 200
        return {
            (s.name, frozenset(s.labels.items())): s.value
            for family in text_string_to_metric_families(body.decode())
            for s in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, frozenset(labels.items())))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with open_broker(tmp_path) as broker:
        found = Served(broker)
        yield found
        found.front.stop()


def test_what_it_tells(served: Served) -> None:
    b = served.broker
    consumer = b.subscribe("a", "g", prefetch=2)
    for n in range(5):
        b.schedule("a", b"x", delay=1 + n / 1000)
    gone = b.schedule("a", b"x", delay=3600)
    b.schedule("b", b"x", delay=3600)
    b.cancel(gone.handle)
    b.advance(1.002)
    batch = consumer.fetch(1, 0)
    assert batch is not None
    b.advance(1)
    consumer.fetch(5, 0)
    found = served.samples()

    def value(name: str, **labels: str) -> float | None:
        return found.get((name, frozenset(labels.items())))

    assert value("tarry_accepted_messages_total", topic="a") == 6
    assert value("tarry_cancelled_messages_total", topic="a") == 1
    assert value("tarry_dispatched_messages_total", topic="a") == 5
    assert value("tarry_pending_messages", topic="a") == 0
    assert value("tarry_pending_messages", topic="b") == 1
    assert value("tarry_pending_messages", topic="") is None
    assert value("tarry_ready_messages", topic="a", group="g") == 5
    assert value("tarry_group_messages", topic="a", group="g", state="leased") == 2
    assert value("tarry_group_messages", topic="a", group="g", state="ready") == 3
    assert value("tarry_group_paused", topic="a", group="g") == 0
    oldest = value("tarry_group_oldest_due_timestamp_seconds", topic="a", group="g")
    assert oldest == batch["due_ms"][0].as_py() / 1000
    assert value("tarry_handed_out_messages_total") == 2
    assert value("tarry_queue_lateness_seconds_count") == 5
    assert value("tarry_queue_lateness_seconds_bucket", le="0.001") == 5
    assert value("tarry_lateness_seconds_count", topic="a") == 2
    # The first when it was due, or 2 ms later; the second a second later, to a consumer that was there all the while.
    assert value("tarry_lateness_seconds_bucket", topic="a", le="0.5") == 1
    assert value("tarry_lateness_seconds_bucket", topic="a", le="2.5") == 2
    assert value("tarry_lateness_seconds_bucket", topic="a", le="+Inf") == 2
    assert value("tarry_wheel_messages") == 0
    assert value("tarry_overdue_seconds") == 0
    assert (value("tarry_intake_waiting_messages") or 0) >= 7
    assert (value("tarry_intake_bytes") or 0) > 0
    assert value("tarry_store_version") == 0
    assert (value("tarry_disk_free_bytes") or 0) > 0
    assert value("tarry_serving") == 1
    assert (value("tarry_fsync_duration_seconds_count") or 0) > 0
    assert value("tarry_pipeline_up") is None
    assert any(name == "tarry_build_info" for name, _ in found)
    assert value("process_resident_memory_bytes") is not None


def test_a_pipeline_is_up_or_not(served: Served) -> None:
    b = served.broker
    b.set_pipeline_status({"supervisor": {"state": "waiting", "restarts": 3}})
    assert served.value("tarry_pipeline_up") == 0
    assert served.value("tarry_pipeline_restarts_total") == 3
    b.set_pipeline_status({"supervisor": {"state": "running", "restarts": 3}})
    assert served.value("tarry_pipeline_up") == 1
    b.set_pipeline_status({"supervisor": None, "reported_ms": b.clock.now_ms() - 1000})
    assert served.value("tarry_pipeline_up") == 1
    b.clock.advance_ms(120_000)
    assert served.value("tarry_pipeline_up") == 0


def test_overdue_is_seen_while_nothing_is_dispatched(served: Served) -> None:
    served.broker.schedule("a", b"x", delay=1)
    served.broker.step()
    served.broker.clock.advance_ms(31_000)
    assert served.value("tarry_overdue_seconds") == 30


def test_labels_are_bounded_and_counters_never_go_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("TOPICS_MAX", "GROUPS_MAX"):
        monkeypatch.setattr(collector, limit, 3)
    served.front.stop()
    served.__init__(served.broker)  # type: ignore[misc]
    b, last, total = served.broker, dict[Any, float](), 0
    for n in range(8):
        for _ in range(n + 1):
            b.schedule(f"t{n}", b"x")
            total += 1
        b.group(f"t{n}", "g")
        b.step()
        found = served.samples()
        accepted = {k: v for k, v in found.items() if k[0] == "tarry_accepted_messages_total"}
        assert len(accepted) == min(n + 1, 4)
        assert sum(accepted.values()) == total
        ready = {k: v for k, v in found.items() if k[0] == "tarry_ready_messages"}
        assert len(ready) == min(n + 1, 4)
        assert sum(ready.values()) == total
        for key, value in last.items():
            assert accepted[key] >= value
        last = accepted
    assert ("tarry_accepted_messages_total", frozenset({("topic", "")})) in last


def test_other_paths_and_methods(served: Served) -> None:
    assert served.request(path="/")[0].status == 404
    assert served.request(path="/metrics/x")[0].status == 404
    assert served.request(path="/metrics?name[]=up")[0].status == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer, _ = served.request(method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert served.request("FOO")[0].status == 400
    answer, body = served.request("HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 1000
    assert served.request("HEAD", "/x")[0].status == 404


def test_formats(served: Served) -> None:
    plain, _ = served.request()
    assert plain.headers["Content-Type"].startswith("text/plain; version=")
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer, body = served.request(headers={"Accept": accept})
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    for nonsense in ("application/openmetrics-text;version=x.y", "*/*;;;", "text/plain;version=1..0", "ä"):
        answer, body = served.request(headers={"Accept": nonsense})
        assert answer.status == 200
        assert b"tarry_serving 1.0" in body


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 500 + b"\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nx",
    ],
    ids=range(8),
)
def test_malformed_requests_do_no_harm(served: Served, request_: bytes) -> None:
    answer = served.raw(request_)
    assert not answer.startswith(b"HTTP/1.1 200")
    assert served.value("tarry_serving") == 1


def test_silent_clients_are_let_go(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LIMITS", HttpLimits(header_s=0.2, half_open_max=server.CONNECTIONS_MAX))
    served.front.stop()
    served.__init__(served.broker)  # type: ignore[misc]
    silent = [socket.create_connection((served.host, served.port), timeout=10) for _ in range(30)]
    for connection in silent:
        # Each is closed: the last few after their time, the others because of them.
        answer = b""
        while part := connection.recv(4096):
            answer += part
        assert answer[:12] in (b"", b"HTTP/1.1 408")
        connection.close()
    assert served.value("tarry_serving") == 1


def test_requests_that_are_never_finished_keep_nobody_out(served: Served) -> None:
    half = [socket.create_connection((served.host, served.port), timeout=10) for _ in range(300)]
    for connection in half:
        with suppress(OSError):  # closed for a later one
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
    assert served.value("tarry_serving") == 1
    for connection in half:
        connection.close()


def test_a_broker_that_fails_is_an_error_and_not_the_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TestBroker, "call", lambda *_, **__: 1 / 0)
        answer, body = served.request()
        assert (answer.status, body) == (500, b"see the broker's log\n")
    assert served.value("tarry_serving") == 1


def test_it_listens_where_it_is_told_and_no_longer_than_that(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        front = MetricsFront.start(broker, "127.0.0.1:0")
        with pytest.raises(UnavailableError, match=rf"cannot listen on {front.address}: Address already in use"):
            MetricsFront.start(broker, front.address)
        front.stop()
        host, _, port = front.address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
        with pytest.raises(InvalidArgumentError):
            MetricsFront.start(broker, "nowhere")
        with pytest.raises(UnavailableError, match="cannot listen on no-such-host"):
            MetricsFront.start(broker, "no-such-host.invalid:0")


def test_ipv6(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker, MetricsFront.start(broker, "[::1]:0") as front:
        port = int(front.address.removeprefix("[::1]:"))
        connection = http.client.HTTPConnection("::1", port, timeout=10)
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 200
        connection.close()


def test_the_documented_metrics_are_those_there_are(served: Served) -> None:
    b = served.broker
    b.set_push("s", topic="a", url="https://example.com/")
    b.schedule("a", b"x")
    b.step()
    b.receive("a", "g")
    b.set_pipeline_status({"supervisor": {"state": "running", "restarts": 0}, "reported_ms": 0})
    _, body = served.request()
    kinds = {f.name: f for f in text_string_to_metric_families(body.decode()) if f.name.startswith("tarry_")}
    shown = {n if f.type != "counter" else f"{n}_total": f.type for n, f in kinds.items()}
    log = {"leased": True, "epoch": 1, "answered_before_ms": 1, "requests": {"put": 1}}
    of_owners = shared_logs({"log": log, "rounds_us": Histogram().to_json()})
    traced = collector.spans({"traces": {"exported": 1, "dropped": 0}})
    shown |= {m.name if m.type != "counter" else f"{m.name}_total": m.type for m in (*of_owners, *traced)}
    text = (Path(__file__).parents[2] / "docs/operations-metrics.md").read_text()
    table = re.findall(r"^\| (`tarry_.*?) \| (counter|gauge|histogram) \|", text, re.MULTILINE)
    documented = {
        name: kind for names, kind in table for name in re.findall(r"`(tarry_[a-z_]+)(?:\{[a-z,]*\})?`", names)
    }
    assert documented == shown
