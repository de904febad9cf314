"""A broker's figures as Prometheus knows them.

Names have their unit last, seconds and bytes, and ``_total`` for what only grows. ``docs/operations-metrics.md`` has
the table.

Cardinality is bounded: the first topics and groups to be seen keep labels of their own as long as the process lives,
so that no counter ever goes back; the sum of all others has the label "".
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tarry.api.operation import Caller
from tarry.api.operations import GetOverview, GetQuotaUse, ListPushSubscriptions
from tarry.api.push import PushInfo
from tarry.api.quotas import QuotaUse
from tarry.fronts.metrics.histograms import add_histogram
from tarry.fronts.metrics.shared_logs import shared_logs

TOPICS_MAX = 100
GROUPS_MAX = 100
IDENTITIES_MAX = 100
OTHERS = ""
"""The label of all others together."""
LATENESS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
FSYNC_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
PUSH_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
REPORT_MS_MAX = 60_000
"""A pipeline that the broker did not start is up as long as it reports this often."""
STATES = ("ready", "leased", "waiting", "blocked", "burying")

K = TypeVar("K")


class _Labelled(Generic[K]):
    """The names that have a label of their own: the first ``most`` that were seen."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: dict[K, None] = {}

    @property
    def keys(self) -> tuple[K, ...]:
        """Those names, in the order in which they were seen."""
        return tuple(self._keys)

    def select(self, rows: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], K]) -> list[dict[str, Any]]:
        """Select the ``rows`` whose ``key`` has a label; the first ones get one while there are labels left."""
        rows = list(rows)
        for row in rows:
            if len(self._keys) < self._most:
                self._keys.setdefault(key(row))
        return [row for row in rows if key(row) in self._keys]


class BrokerCollector(Collector):
    """For one broker; reads it at each scrape."""

    def __init__(self, broker: Caller) -> None:
        self._broker = broker
        self._topics: _Labelled[str] = _Labelled(TOPICS_MAX)
        self._groups: _Labelled[tuple[str, str]] = _Labelled(GROUPS_MAX)
        self._identities: _Labelled[str] = _Labelled(IDENTITIES_MAX)

    def describe(self) -> Iterable[Metric]:
        """No names: without this method, a registry reads the broker to learn them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All figures, as at one moment."""
        # Who has a label is always among what is listed, however little it has: its counters must not go back.
        overview = self._broker.call(
            GetOverview(most=max(TOPICS_MAX, GROUPS_MAX), always=self._topics.keys, always_groups=self._groups.keys)
        )
        yield from _process(overview)
        yield from self._by_topic(overview["topics"])
        yield from self._by_group(overview["groups"])
        yield from _lateness(overview["lateness"])
        yield from _storage(overview)
        yield from shared_logs(overview)
        yield from _pipeline(overview["pipeline"], overview["now_ms"])
        yield from _push(self._broker.call(ListPushSubscriptions()))
        yield from _gateways(overview["gateways"])
        yield from _certificates(overview["certificates"])
        yield from self._by_identity(self._broker.call(GetQuotaUse()))

    def _by_identity(self, uses: list[QuotaUse]) -> Iterator[Metric]:
        rows = [{"identity": each.identity, "use": each} for each in uses if each.quotas]
        labelled: list[QuotaUse] = [row["use"] for row in self._identities.select(rows, lambda row: row["identity"])]
        refused = CounterMetricFamily(
            "tarry_quota_refused", "Requests refused for a quota.", labels=["identity", "quota"]
        )
        delayed = CounterMetricFamily(
            "tarry_quota_delayed_seconds", "Time by which requests were delayed for a rate.", labels=["identity"]
        )
        for use in labelled:
            delayed.add_metric([use.identity], use.delayed_ms / 1000)
            for quota in use.quotas:
                refused.add_metric([use.identity, quota], use.refused.get(quota, 0))
        yield from (refused, delayed)

    def _by_topic(self, topics: dict[str, Any]) -> Iterator[Metric]:
        labelled = self._topics.select(topics["listed"], lambda row: row["topic"])
        for metric, name in _topic_metrics():
            for row in labelled:
                metric.add_metric([row["topic"]], row[name])
            if topics["count"] > len(labelled):
                metric.add_metric([OTHERS], topics["sums"][name] - sum(row[name] for row in labelled))
            yield metric

    def _by_group(self, groups: dict[str, Any]) -> Iterator[Metric]:
        labelled = self._groups.select(groups["listed"], lambda row: (row["topic"], row["group"]))
        labels = ["topic", "group"]
        ready = GaugeMetricFamily(
            "tarry_ready_messages", "Messages that are due and not settled by the group.", labels=labels
        )
        states = GaugeMetricFamily(
            "tarry_group_messages", "The same, by where in their delivery they are.", labels=[*labels, "state"]
        )
        dead = GaugeMetricFamily("tarry_dead_letters", "Dead letters neither respawned nor purged.", labels=labels)
        lost = CounterMetricFamily(
            "tarry_lost_messages", "Messages that retention deleted before the group had settled them.", labels=labels
        )
        paused = GaugeMetricFamily("tarry_group_paused", "1 while the group is paused.", labels=labels)
        oldest = GaugeMetricFamily(
            "tarry_group_oldest_due_timestamp_seconds",
            "Due time of the first message that the group has not settled; absent where there is none.",
            labels=labels,
        )
        for row in labelled:
            names = [row["topic"], row["group"]]
            ready.add_metric(names, row["lag"])
            for state in STATES:
                states.add_metric([*names, state], row[state])
            dead.add_metric(names, row["dead"])
            lost.add_metric(names, row["lost"])
            paused.add_metric(names, int(row["paused"]))
            if row["oldest_due_ms"] is not None:
                oldest.add_metric(names, row["oldest_due_ms"] / 1000)
        if groups["count"] > len(labelled):
            ready.add_metric([OTHERS, OTHERS], groups["lag"] - sum(row["lag"] for row in labelled))
        yield from (ready, states, dead, lost, paused, oldest)


def _topic_metrics() -> list[tuple[Any, str]]:
    labels = ["topic"]
    return [
        (CounterMetricFamily("tarry_accepted_messages", "Messages accepted, ever.", labels=labels), "accepted"),
        (CounterMetricFamily("tarry_cancelled_messages", "Messages cancelled, ever.", labels=labels), "cancelled"),
        (CounterMetricFamily("tarry_dispatched_messages", "Messages put into queues, ever.", labels=labels), "fired"),
        (GaugeMetricFamily("tarry_pending_messages", "Messages that are not due yet.", labels=labels), "pending"),
    ]


def _process(overview: Mapping[str, Any]) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "tarry_build",
        "The program.",
        {"version": overview["version"], "python": platform.python_version(), "pyarrow": pa.__version__},
    )
    yield GaugeMetricFamily(
        "tarry_serving",
        "1 while the broker serves: has not failed, and its bucket answers.",
        int(overview["state"] == "serving"),
    )
    damage = overview["damage"]
    yield GaugeMetricFamily(
        "tarry_damaged_places", "Damaged places of files that were met while serving.", len(damage["places"])
    )
    yield GaugeMetricFamily(
        "tarry_unreadable_messages",
        "Messages due soon, or due before, that lie in damaged files.",
        damage["unreadable_messages"],
    )
    if (backup := overview.get("backup")) is not None:
        yield GaugeMetricFamily(
            "tarry_last_backup_timestamp_seconds",
            "Moment of the last backup that ended well; 0: there was none.",
            (backup["at_ms"] or 0) / 1000,
        )
    audit = overview["audit"]
    yield CounterMetricFamily("tarry_audit_lines", "Lines of the audit log since the process began.", audit["lines"])
    yield CounterMetricFamily("tarry_audit_lost_lines", "Lines that could not be written.", audit["lost"])
    refused = CounterMetricFamily("tarry_refused_calls", "Callers refused, by the reason.", labels=["reason"])
    for reason, count in audit["refused"].items():
        refused.add_metric([reason], count)
    yield refused
    yield from spans(overview)
    scrub = overview["scrub"]
    yield CounterMetricFamily("tarry_scrub_passes", "How often all files were checked.", scrub["passes"])
    yield CounterMetricFamily("tarry_scrubbed_bytes", "Read to check files for damage.", scrub["bytes"])
    yield CounterMetricFamily(
        "tarry_handed_out_messages", "Messages given to consumers since the process began.", overview["handed_out"]
    )


def _lateness(lateness: Mapping[str, Any]) -> Iterator[Metric]:
    queued = HistogramMetricFamily(
        "tarry_queue_lateness_seconds", "From the due time, or acceptance if later, into the queue."
    )
    add_histogram(queued, [], lateness["queued"], LATENESS_S, 1000)
    yield queued
    yield CounterMetricFamily("tarry_overdue_messages", "Accepted after their due time.", lateness["overdue"])
    delivered = HistogramMetricFamily(
        "tarry_lateness_seconds", "From the due time, or acceptance if later, to a waiting consumer.", labels=["topic"]
    )
    for topic, histogram in lateness["topics"].items():
        add_histogram(delivered, [topic], histogram, LATENESS_S, 1000)
    yield delivered
    if (fsync := lateness.get("fsync_us")) is not None:
        metric = HistogramMetricFamily("tarry_fsync_duration_seconds", "How long the disk takes to sync a log.")
        add_histogram(metric, [], fsync, FSYNC_S, 1_000_000)
        yield metric


def _push(subscriptions: list[PushInfo]) -> Iterator[Metric]:
    """Of all subscriptions, whose number is bounded by the broker."""
    labels = ["subscription"]
    requests = CounterMetricFamily(
        "tarry_push_requests", "Requests of push subscriptions, by what came of them.", labels=[*labels, "outcome"]
    )
    durations = HistogramMetricFamily("tarry_push_duration_seconds", "How long pushes took.", labels=labels)
    in_flight = GaugeMetricFamily("tarry_push_in_flight", "Requests without an answer yet.", labels=labels)
    opened = CounterMetricFamily("tarry_push_breaker_opened", "Circuit breakers that opened.", labels=labels)
    states = GaugeMetricFamily("tarry_push_state", "1 for the state it is in.", labels=[*labels, "state"])
    for info in subscriptions:
        names = [info.name]
        requests.add_metric([*names, "pushed"], info.pushed)
        requests.add_metric([*names, "failed"], info.failed)
        if info.duration_us:
            add_histogram(durations, names, info.duration_us, PUSH_S, 1_000_000)
        in_flight.add_metric(names, info.in_flight)
        opened.add_metric(names, info.breaker_opened)
        states.add_metric([*names, info.state], 1)
    yield from (requests, durations, in_flight, opened, states)


def _certificates(certificates: list[dict[str, Any]]) -> Iterator[Metric]:
    ends = GaugeMetricFamily(
        "tarry_certificate_ends_timestamp_seconds", "When the certificate of a setting ends.", labels=["setting"]
    )
    for each in certificates:
        if each["ends_ms"] is not None:
            ends.add_metric([each["setting"]], each["ends_ms"] / 1000)
    yield ends


def _gateways(workers: list[dict[str, Any]]) -> Iterator[Metric]:
    """Of the workers that have a link to the broker; each says it of itself every second."""
    labels = ["front", "worker"]
    metrics: list[tuple[Any, str, float]] = [
        (GaugeMetricFamily("tarry_gateway_connections", "Connections of clients.", labels=labels), "connections", 1),
        (GaugeMetricFamily("tarry_gateway_clients", "Clients that are known.", labels=labels), "clients", 1),
        (GaugeMetricFamily("tarry_gateway_resident_bytes", "Resident memory.", labels=labels), "resident_bytes", 1),
        (CounterMetricFamily("tarry_gateway_cpu_seconds", "CPU since it began.", labels=labels), "cpu_ms", 1000),
        (
            CounterMetricFamily("tarry_gateway_restarts", "How often it began again.", labels=labels),
            "restarts",
            1,
        ),
        (CounterMetricFamily("tarry_gateway_sent_messages", "To the broker.", labels=labels), "sent", 1),
        (CounterMetricFamily("tarry_gateway_received_messages", "From it.", labels=labels), "received", 1),
    ]
    for metric, name, unit in metrics:
        for worker in workers:
            if name in worker:  # not every front knows clients beside their connections
                metric.add_metric([worker["front"], worker["name"]], worker[name] / unit)
        yield metric


def _storage(overview: Mapping[str, Any]) -> Iterator[Metric]:
    wheel, intake, store, disk = (overview[name] for name in ("wheel", "intake", "store", "disk"))
    overdue_ms = 0 if wheel["next_due_ms"] is None else max(0, overview["now_ms"] - wheel["next_due_ms"])
    for name, text, value in (
        ("tarry_wheel_messages", "Messages in memory that are due soon.", wheel["rows"]),
        ("tarry_wheel_bytes", "Their memory.", wheel["bytes"]),
        ("tarry_wheel_loaded_until_timestamp_seconds", "Up to when all is in memory.", wheel["loaded_until_ms"] / 1000),
        ("tarry_overdue_seconds", "How long the first message in memory is due; 0: it is not.", overdue_ms / 1000),
        ("tarry_intake_bytes", "Files of what was accepted.", intake["bytes"]),
        ("tarry_intake_waiting_bytes", "Of that, what the store does not have.", intake["waiting_bytes"]),
        ("tarry_intake_waiting_messages", "Rows of that.", intake["waiting_rows"]),
        ("tarry_store_version", "Version of the store's table that the broker reads.", store["version"]),
        ("tarry_store_files", "Files of messages in that version.", store["files"]),
        ("tarry_store_bytes", "Their size.", store["bytes"]),
        ("tarry_store_messages", "Their messages, those that were due since included.", store["rows"]),
        ("tarry_disk_free_bytes", "Free disk under the data directory.", disk["free_bytes"]),
        ("tarry_disk_free_min_bytes", "Below which producers are refused.", disk["free_bytes_min"]),
    ):
        yield GaugeMetricFamily(name, text, value)


def _pipeline(status: Mapping[str, Any], now_ms: int) -> Iterator[Metric]:
    supervisor, reported_ms = status.get("supervisor"), status.get("reported_ms")
    if supervisor is None and reported_ms is None:
        return  # there is none
    reports = reported_ms is not None and now_ms - reported_ms < REPORT_MS_MAX
    up = reports if supervisor is None else supervisor["state"] == "running"
    yield GaugeMetricFamily("tarry_pipeline_up", "1 while the pipeline runs.", int(up))
    if supervisor is not None:
        yield CounterMetricFamily("tarry_pipeline_restarts", "How often it was started again.", supervisor["restarts"])
    if reported_ms is not None:
        name, text = "tarry_pipeline_reported_timestamp_seconds", "When it last said how it is."
        yield GaugeMetricFamily(name, text, reported_ms / 1000)


def spans(overview: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of traces; nothing where no collector is named."""
    if (traces := overview["traces"]) is not None:
        yield CounterMetricFamily("tarry_exported_spans", "Spans that the collector took.", traces["exported"])
        yield CounterMetricFamily("tarry_dropped_spans", "Spans that were dropped.", traces["dropped"])
