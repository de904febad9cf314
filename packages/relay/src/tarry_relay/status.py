"""The status of a relay: a JSON line every few seconds, and the same figures for Prometheus."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

from tarry.base.clock import SystemClock
from tarry.base.histogram import Histogram
from tarry_relay.schedule import ShardResult

LATENESS_MS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000)


class RelayStatus:
    """Collects the reports of the driver's parts. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._queries: dict[str, dict[str, Any]] = {
            query: {"state": "starting", "batches": 0, "restarts": 0, "error": None, "last_batch": None}
            for query in ("schedule", "deliver")
        }
        self._process: dict[str, Any] = {
            "relay": name,
            "pid": os.getpid(),
            "started_ms": self._clock.now_ms(),
            "session_ms": None,
            "delivers_ms": None,
        }
        self._kafka: dict[str, Any] = {"state": "starting", "error": None}
        self._counts: dict[str, int] = {}
        self._lag: int | None = None
        self.lateness_ms = Histogram()

    def on_moment(self, name: str) -> None:
        """Note a step of the start.

        ``session_ms``: Spark's session is there. ``delivers_ms``: all shards deliver.
        """
        with self._lock:
            if self._process[name] is None:
                self._process[name] = self._clock.now_ms()

    def on_query(self, name: str, **changes: Any) -> None:
        """Note a change in the state of a query."""
        with self._lock:
            self._queries[name].update(changes)

    def on_restart(self, name: str, error: str) -> None:
        """Note that a query failed, and is started again."""
        with self._lock:
            self._queries[name]["restarts"] += 1
            self._queries[name].update(state="waiting", error=error)

    def on_kafka(self, error: str | None, lag: int | None = None) -> None:
        """Note that Kafka answered, or did not; ``lag``: records that were not read yet."""
        with self._lock:
            self._kafka = {"state": "away" if error else "there", "error": error}
            self._lag = self._lag if lag is None else lag

    def on_batch(self, name: str, batch: dict[str, Any], done: list[ShardResult]) -> None:
        """Count another batch."""
        with self._lock:
            query = self._queries[name]
            query.update(state="running", error=None, last_batch=batch, batches=query["batches"] + 1)
            for part in done:
                for what, rows in part.counts.items():
                    self._counts[what] = self._counts.get(what, 0) + rows
        for part in done:
            self.lateness_ms.merge(part.lateness_ms)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        lateness = self.lateness_ms.summary()
        with self._lock:
            return {
                **self._process,
                "now_ms": self._clock.now_ms(),
                "kafka": dict(self._kafka),
                "lag": self._lag,
                "counts": dict(self._counts),
                "lateness_ms": lateness,
                **{name: dict(query) for name, query in self._queries.items()},
            }


class StatusCollector:
    """The status for Prometheus. ``docs/cluster.md`` has the table."""

    def __init__(self, status: RelayStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        now = self._status.as_dict()
        records = CounterMetricFamily("tarry_relay_records", "Records, by what became of them.", labels=["what"])
        for what, rows in sorted(now["counts"].items()):
            records.add_metric([what], rows)
        yield records
        yield GaugeMetricFamily("tarry_relay_kafka_up", "1 while Kafka answers.", now["kafka"]["state"] == "there")
        if now["lag"] is not None:
            yield GaugeMetricFamily("tarry_relay_lag_records", "Records that were not read yet.", now["lag"])
        up = GaugeMetricFamily("tarry_relay_query_up", "1 while the query runs.", labels=["query"])
        batches = CounterMetricFamily("tarry_relay_batches", "Batches done.", labels=["query"])
        restarts = CounterMetricFamily("tarry_relay_restarts", "Restarts of a query.", labels=["query"])
        for name in ("schedule", "deliver"):
            up.add_metric([name], now[name]["state"] == "running")
            batches.add_metric([name], now[name]["batches"])
            restarts.add_metric([name], now[name]["restarts"])
        yield from (up, batches, restarts)
        lateness = self._status.lateness_ms.copy()
        below = lateness.counts_below([bound + 1 for bound in LATENESS_MS])
        buckets = [(str(b / 1000), float(n)) for b, n in zip(LATENESS_MS, below, strict=True)]
        buckets.append(("+Inf", float(lateness.count)))
        family = HistogramMetricFamily("tarry_relay_lateness_seconds", "From the due time to Kafka's acknowledgement.")
        family.add_metric([], buckets, sum_value=lateness.total / 1000)
        yield family
