"""Metrics of logs that another machine may take over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tarry.fronts.metrics.histograms import add_histogram

ROUND_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def shared_logs(overview: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of an owner; nothing where the logs are in the data directory."""
    log = overview.get("log")
    if log is None:
        return
    for name, text, value in (
        ("tarry_log_leased", "1 while messages may be handed out.", int(log["leased"])),
        ("tarry_log_epoch", "Number of this owner's epoch.", log["epoch"]),
        (
            "tarry_log_answered_seconds",
            "How long ago the store answered the last round.",
            log["answered_before_ms"] / 1000,
        ),
    ):
        yield GaugeMetricFamily(name, text, value)
    requests = CounterMetricFamily("tarry_log_requests", "Requests to the store of the logs.", labels=["kind"])
    for kind, count in log["requests"].items():
        requests.add_metric([kind], count)
    yield requests
    rounds = HistogramMetricFamily("tarry_log_round_duration_seconds", "From a round's PUT until it is answered.")
    add_histogram(rounds, [], overview["rounds_us"], ROUND_S, 1_000_000)
    yield rounds
