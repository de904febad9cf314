"""Keep the past by the minute: counts, what is pending and ready, lateness, and herds.

Once a minute the figures that there are anyway are read, in O(topics + groups), and their differences written as a row.
While messages pass, nothing is done for it but to count.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tarry.base.clock import Clock
from tarry.base.histogram import Histogram
from tarry.broker.minute_files import COUNTS, LEVELS, Minute, MinuteFigures, MinuteWriter
from tarry.broker.queries.lateness import Lateness
from tarry.groups import ConsumerGroups, Group
from tarry.message.receipt import TopicPending

log = logging.getLogger(__name__)

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class _Counters:
    """The counters at one moment. ``groups``: of each, what was handed out and acknowledged."""

    at_ms: int
    accepted: Mapping[str, int]
    fired: Mapping[str, int]
    groups: Mapping[Group, tuple[int, int]]
    lateness: Mapping[str, Histogram]


@dataclass(eq=False)
class Minutes:
    """Writes a row when a minute is over. Any thread."""

    _data: Path
    _clock: Clock
    _accepted: Callable[[], Mapping[str, int]]
    _fired: Callable[[], Mapping[str, int]]
    _pending: Callable[[], list[TopicPending]]
    _groups: ConsumerGroups
    _lateness: Lateness
    _threaded: bool
    """Without threads nothing is kept by itself."""
    _last: _Counters | None = field(init=False)
    _writer: MinuteWriter = field(init=False)
    # The thread that looks may be there still when the broker is closed: it may be asking a store that is away.
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._writer = MinuteWriter(self._data)
        self._last = self._count()

    def look(self) -> None:
        """Write the minute of the last row's end if it is over. Now and then."""
        with self._lock:
            last = self._last
            if last is not None and self._clock.now_ms() // MINUTE_MS != last.at_ms // MINUTE_MS:
                try:
                    self._last = self._count()
                    self._keep(last, self._last)
                except Exception:
                    # The thread that looks keeps the logs: a fault in what is only for people must not end the broker.
                    log.exception("the history of a minute is not kept")

    def close(self) -> None:
        """Write what there is of this minute, and close the file; nothing is written afterwards."""
        with self._lock:
            last, self._last = self._last, None
            if last is not None and self._threaded:
                self._keep(last, self._count())
            self._writer.close()

    def _keep(self, last: _Counters, now: _Counters) -> None:
        # Of a clock that was set back, nobody knows how long it was: a row must not claim a time that was not.
        covered_ms = now.at_ms - last.at_ms
        if covered_ms <= 0:
            return
        herd_due_ms, herd_rows = self._lateness.take_herd()
        late = _late(now.lateness, last.lateness)
        minute = Minute(
            # A look comes up to a second into the next minute; the counts are of the one before.
            max(last.at_ms, now.at_ms - MINUTE_MS // 2) // MINUTE_MS,
            covered_ms,
            MinuteFigures(),
            self._topics(last, now, late),
            herd_rows=herd_rows,
            herd_due_ms=herd_due_ms,
        )
        try:
            self._writer.write(_with_sums(minute, _percentiles(_merged(late))))
        except OSError as error:
            # Messages go on without their history; its next row is tried in a minute.
            log.warning("the history of minute %d is not written: %s", minute.number, error)
            self._writer.close()

    def _count(self) -> _Counters:
        return _Counters(
            self._clock.now_ms(),
            self._accepted(),
            self._fired(),
            {group: group.moved for group in self._groups.all()},
            {name: histogram.copy() for name, histogram in self._lateness.by_topic().items()},
        )

    def _topics(self, last: _Counters, now: _Counters, late: Mapping[str, Histogram]) -> dict[str, MinuteFigures]:
        handed_out: dict[str, int] = {}
        acknowledged: dict[str, int] = {}
        dead: dict[str, int] = {}
        for group, (handed, settled) in now.groups.items():
            before = last.groups.get(group, (0, 0))
            topic = group.topic_name
            handed_out[topic] = handed_out.get(topic, 0) + handed - before[0]
            acknowledged[topic] = acknowledged.get(topic, 0) + settled - before[1]
            dead[topic] = dead.get(topic, 0) + self._groups.dead_letters.count(topic, group.name)
        return {
            each.topic: MinuteFigures(
                accepted=_more(now.accepted, last.accepted, each.topic),
                fired=_more(now.fired, last.fired, each.topic),
                handed_out=handed_out.get(each.topic, 0),
                acknowledged=acknowledged.get(each.topic, 0),
                pending=each.pending,
                ready=each.ready,
                dead=dead.get(each.topic, 0),
                **_percentiles(late.get(each.topic)),
            )
            for each in self._pending()
        }


def _more(now: Mapping[str, int], last: Mapping[str, int], topic: str) -> int:
    # A topic that was forgotten, and has come again, counts from 0 on.
    count, before = now.get(topic, 0), last.get(topic, 0)
    return count - before if count >= before else count


def _late(now: Mapping[str, Histogram], last: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """Return the lateness of the time between, by topic."""
    return {name: each.since(last[name]) if name in last else each for name, each in now.items()}


def _merged(late: Mapping[str, Histogram]) -> Histogram:
    merged = Histogram()
    for each in late.values():
        if each.count:
            merged.merge(each)
    return merged


def _percentiles(late: Histogram | None) -> dict[str, Any]:
    p50, p99, most = (None, None, None) if late is None else late.percentiles([50, 99, 100])
    return {"lateness_p50_ms": p50, "lateness_p99_ms": p99, "lateness_max_ms": most}


def _with_sums(minute: Minute, lateness: Mapping[str, Any]) -> Minute:
    """Return the minute with the figures of the broker, which are the sums of its topics."""
    sums = {name: sum(getattr(each, name) for each in minute.topics.values()) for name in (*COUNTS, *LEVELS)}
    return replace(minute, figures=MinuteFigures(**sums, **lateness))
