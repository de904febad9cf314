"""Queries, carried out: pages of pending messages, peeks, forecasts, histories, figures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tarry.api.internal_topics import hidden
from tarry.api.local import CheckTopic, any_topic
from tarry.api.operations import (
    GetForecast,
    GetHandles,
    GetHistory,
    GetMessage,
    GetOverview,
    GetPending,
    GetRates,
    ListPending,
    Peek,
)
from tarry.api.rates import RateHistory
from tarry.api.views import Forecast, History, Page
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import CorruptError
from tarry.base.memory import resident_bytes
from tarry.broker.acceptance import Acceptance
from tarry.broker.queries import overview
from tarry.broker.queries.cut import Places, look_at
from tarry.broker.queries.forecast import forecast
from tarry.broker.queries.found import find_message
from tarry.broker.queries.history import HistorySources, history
from tarry.broker.queries.lateness import Lateness
from tarry.broker.queries.listing import Listing, list_pending
from tarry.broker.queries.next_due import next_due_by_topic
from tarry.broker.queries.peek import peek
from tarry.broker.queries.pending_counts import count_pending
from tarry.broker.queries.rates import rates
from tarry.broker.queries.series import list_series
from tarry.groups import ConsumerGroups
from tarry.log.files import Files
from tarry.message import handle
from tarry.message.criteria import Criteria
from tarry.message.receipt import TopicPending
from tarry.message.topics import check_topic
from tarry.queue import ReadyLog

QUERIES_MAX = 4
"""Queries carried out at a time; others wait.

Each may need some tens of megabytes, and none is in a hurry.
"""


@dataclass(eq=False)
class Queries:
    """Any thread. ``status`` gives the broker's health and counters."""

    _config: Config
    _clock: Clock
    _files: Files
    _places: Places
    _ready: ReadyLog
    _groups: ConsumerGroups
    _history_sources: HistorySources
    _lateness: Lateness
    _acceptance: Acceptance
    _status: Callable[[], dict[str, Any]]
    _slots: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(QUERIES_MAX))

    def pending(self, request: GetPending) -> list[TopicPending]:
        """Return the pending messages of every topic: exact counts in O(topics), and the next due times."""
        counts = count_pending(self._places, self._ready)
        moments = (
            next_due_by_topic(self._places, {n for n, count in counts.items() if count}) if request.next_due else {}
        )
        return [TopicPending(n, counts[n], moments.get(n), self._ready_count(n)) for n in sorted(counts)]

    def _ready_count(self, name: str) -> int:
        topic = self._ready.topics.get(name)
        if topic is None:
            return 0
        unsettled = self._groups.unsettled(name)
        return topic.end - topic.first if unsettled is None else unsettled

    def list_pending(self, request: ListPending) -> Page:
        """Return a page of pending messages, by due time."""
        page = self.list_whole(request)
        return replace(page, rows=hidden(page.rows))

    def list_whole(self, request: ListPending) -> Page:
        """Return such a page with all that messages of Tarry's own topics say: for the front whose they are."""
        listing = Listing.of(request)
        with self._slots:
            if listing.wanted == Criteria(listing.wanted.topic, repeating=True) and self._places.registry.knows_series:
                return look_at(self._places, lambda cut: list_series(cut, self._history_sources.finder, listing))
            return list_pending(self._places, listing)

    def peek(self, request: Peek) -> pa.RecordBatch:
        """Messages that are ready; nobody is given them."""
        with self._slots:
            rows = peek(
                *(self._ready, self._groups, request.topic, request.group, request.limit),
                waiting_only=request.waiting_only,
            )
        return hidden(rows)

    def forecast(self, request: GetForecast) -> Forecast:
        """Forecast the load."""
        pending = {entry.topic: entry.pending for entry in self.pending(GetPending(next_due=False))}
        with self._slots:
            return forecast(self._places, self._clock.now_ms(), pending, request.topic, request.unit, request.until_ms)

    def rates(self, request: GetRates) -> RateHistory:
        """Return what the past has brought."""
        if request.topic is not None:
            check_topic(request.topic)
        with self._slots:
            return rates(self._config.data, self._clock.now_ms(), request)

    def history(self, request: GetHistory, check: CheckTopic = any_topic) -> History:
        """Return the history of a message; what ``check`` refuses of it is left out, as if it were not there."""
        now_ms, retention_ms = self._clock.now_ms(), self._config.retention_ms
        with self._slots:
            return history(self._history_sources, now_ms, retention_ms, request.what, request.topic, check)

    def message(self, request: GetMessage) -> pa.RecordBatch:
        """Return a message, wherever it is."""
        with self._slots:
            return hidden(find_message(self._history_sources, request.seq, request.due_ms))

    def handles(self, request: GetHandles) -> list[str]:
        """Return handles of listed messages: each is a batch of one, as that of a key is."""
        secret = self._history_sources.secret
        pairs = zip(map(int, request.seqs), map(int, request.due_ms), strict=True)
        return [handle.encode(seq, due_ms, seq, 1, handle.sign(secret, seq, 1)) for seq, due_ms in pairs]

    def overview(self, request: GetOverview) -> dict[str, Any]:
        """Return all figures at one moment."""
        places, snapshot = self._places, self._places.store.snapshot
        try:
            pending = self.pending(GetPending(next_due=request.next_due))
        except CorruptError:
            # Figures of a broker must not fail for a damaged file: that is when they are needed most.
            pending = self.pending(GetPending(next_due=False))
        return {
            **self._status(),
            "now_ms": self._clock.now_ms(),
            "disk": {"free_bytes": self._acceptance.free_bytes, "free_bytes_min": self._config.disk_free_bytes_min},
            "memory": {"resident_bytes": resident_bytes()},
            "topics": overview.topics(places.intake, self._ready, pending, request.most, request.always),
            "groups": overview.groups(self._groups, request.most, request.always_groups),
            "wheel": overview.wheel(places.wheel),
            "intake": overview.intake(places.intake, snapshot.committed_seq),
            "store": overview.store(places.store.place, snapshot),
            "lateness": {**overview.lateness(self._lateness), "fsync_us": overview.fsyncs(self._files)},
        }
