"""The port of ``tarry work`` for whoever watches it: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tarry.fronts.http.exchange import HttpApplication, HttpRequest, HttpResponse
from tarry.fronts.http.health import HEALTHY, READY
from tarry.fronts.metrics.server import FiguresPort
from tarry.worker.supervisor import ProcessState

SILENT_S = 60.0
"""A process that has not reported for so long hangs: a handler blocks its event loop, say."""
TEXT = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"))

_Key = tuple[str, str]
"""Topic and group."""


class WorkFigures(Collector):
    """Work of all processes, also of those that have ended. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: Counter[tuple[str, str, str]] = Counter()
        self._busy_s: Counter[_Key] = Counter()
        self.states: Callable[[], list[ProcessState]] = list
        """Of the processes that there are."""

    def on_ended(self, report: Mapping[str, Any]) -> None:
        """Keep what a process has done that is gone."""
        with self._lock:
            _count(report, self._ended, self._busy_s)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the figures; see :mod:`prometheus_client`."""
        states = self.states()
        reports = [report for state in states if (report := state.report) is not None]
        with self._lock:
            ended, busy_s = self._ended.copy(), self._busy_s.copy()
        in_work: Counter[_Key] = Counter()
        for report in reports:
            _count(report, ended, busy_s)
            for each in report["handlers"]:
                in_work[each["topic"], each["group"]] += each["in_work"]
        messages = CounterMetricFamily(
            "tarry_worker_messages", "messages that handlers were given, by how that ended", labels=[*_LABELS, "ending"]
        )
        for labels, count in ended.items():
            messages.add_metric(labels, count)
        busy = CounterMetricFamily(
            "tarry_worker_busy_seconds", "time in which handlers had messages, summed", labels=_LABELS
        )
        for key, seconds in busy_s.items():
            busy.add_metric(key, seconds)
        now = GaugeMetricFamily("tarry_worker_in_work", "messages that handlers have now", labels=_LABELS)
        for key, count in in_work.items():
            now.add_metric(key, count)
        yield from (messages, busy, now)
        yield GaugeMetricFamily(
            "tarry_worker_processes", "processes that the broker hands messages to", sum(map(is_served, reports))
        )
        yield CounterMetricFamily(
            "tarry_worker_restarts", "how often a process was started again", sum(state.restarts for state in states)
        )


_LABELS = ["topic", "group"]


def _count(report: Mapping[str, Any], ended: Counter[tuple[str, str, str]], busy_s: Counter[_Key]) -> None:
    for each in report["handlers"]:
        key = each["topic"], each["group"]
        busy_s[key] += each["busy_s"]
        for ending, count in each["ended"].items():
            ended[(*key, ending)] += count


def is_served(report: Mapping[str, Any]) -> bool:
    """Return whether a process gets messages for each of its handlers."""
    return bool(report["handlers"]) and all(each["is_served"] for each in report["handlers"])


def is_healthy(states: list[ProcessState], now_s: float) -> bool:
    """Return whether each process is there, and reports."""
    return all(now_s - state.reported_s < SILENT_S for state in states)


def is_ready(states: list[ProcessState]) -> bool:
    """Return whether each process gets messages."""
    return all((report := state.report) is not None and is_served(report) for state in states)


def health_port(address: str, figures: WorkFigures) -> FiguresPort:
    """Serve the port.

    Args:
        address: HOST:PORT, or a port of this machine alone.
        figures: what is served.

    Raises:
        InvalidArgumentError: the address cannot be parsed.
        UnavailableError: it cannot be listened on.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(figures)
    answers = {
        HEALTHY: _answering(lambda: is_healthy(figures.states(), time.monotonic())),
        READY: _answering(lambda: is_ready(figures.states())),
    }
    return FiguresPort(registry, address if ":" in address else f"127.0.0.1:{address}", answers)


def _answering(holds: Callable[[], bool]) -> HttpApplication:
    def answer(request: HttpRequest) -> None:
        request.keep_alive = False
        request.answer(HttpResponse(200, b"ok\n", TEXT) if holds() else HttpResponse(503, b"no\n", TEXT))

    return HttpApplication(answer, whole=False)
