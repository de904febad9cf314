"""The schedule query's work for one shard: read its ranges, stage what is due later, send on the rest.

The rest is what has no delay, what is due already or within ``near_ms``, and dead letters. It goes straight to Kafka,
in one transaction with a marker: the source's own offsets, for the group ``NAME-schedule``. Staged files become visible
by the driver's commit, afterwards. A crash between the two repeats the batch: the marker then shows that the records
below it were sent on already, and by which ``cut`` (all that was due by then was), so that the second attempt stages
exactly the others. Nothing else is needed: the decision on a record depends on the record, the settings and the cut
alone.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from tarry.api.jobs import StagedFile
from tarry.base.clock import SystemClock
from tarry.base.histogram import Histogram
from tarry.message.schema import Kind
from tarry.store import stage
from tarry_relay.headers import RecordAction, decide
from tarry_relay.markers import Marker
from tarry_relay.positions import OffsetRange, Partition, number_of, seq_of
from tarry_relay.record import RecordRows, headers_text, key_text
from tarry_relay.rules import TopicRules
from tarry_relay.sending import RecordSender, record_to_send, retry_while_refused
from tarry_relay.settings import RelaySettings
from tarry_relay.writer import KafkaRecord, KafkaWriter, KafkaWriters

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 << 20
"""Bytes gathered before they are staged and sent on, which bounds the memory of a shard."""
NOW_ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """One shard's part of a batch. All that is due by ``cut_ms`` is sent on at once."""

    shard: int
    cut_ms: int
    ranges: tuple[OffsetRange, ...]

    @property
    def rows(self) -> int:
        """Upper bound of the number of records."""
        return sum(r.end - r.start for r in self.ranges)


@dataclass(slots=True)
class ShardResult:
    """A shard's result, for the driver."""

    shard: int
    counts: Counter[str] = field(default_factory=Counter)
    files: list[StagedFile] = field(default_factory=list)
    lateness_ms: Histogram = field(default_factory=Histogram)


class Cuts:
    """Due times until which records of a partition were, or are, sent on at once.

    They come from the marker and the plan. The marker keeps them as ``[[offset, cut], …]``: records below the offset,
    and not below that of the entry before, were sent on if they were due by the cut.
    """

    def __init__(self, marker: Marker, whole: OffsetRange, cut_ms: int) -> None:
        if marker.data.get("number") != whole.number:
            marker = Marker(None)  # of a deleted topic of the same name
        earlier: Iterable[tuple[int, int]] = marker.data.get("cuts", ())
        self.done_to = max(marker.offset or 0, whole.start)
        self._cuts = [(upto, cut) for upto, cut in earlier if upto > whole.start]
        if self.done_to < whole.end:
            self._cuts.append((whole.end, cut_ms))

    def of(self, offset: int) -> int:
        """Return the cut for a record."""
        return next(cut for upto, cut in self._cuts if offset < upto)

    @property
    def only(self) -> int | None:
        """The cut for all records, if there is one: no earlier attempt of the batch has sent any on."""
        return self._cuts[0][1] if len(self._cuts) == 1 else None

    @property
    def all(self) -> list[tuple[int, int]]:
        """The content of the marker when the range is done."""
        return list(self._cuts)


class ScheduleWork:
    """Carries out plans, in a task or in the driver.

    Threads may call it at the same time, for different shards.
    """

    def __init__(self, settings: RelaySettings, root: str) -> None:
        self._settings = settings
        self._root = root

    def __call__(self, plan: SchedulePlan, writers: KafkaWriters) -> ShardResult:
        """Schedule the records of a plan.

        Raises:
            TarryError: it could not be done; another attempt, anywhere, does exactly what is missing.
        """
        return retry_while_refused(
            writers,
            plan.shard,
            lambda writer, refused: _Shard(self._settings, self._root, plan, writer, refused).run(),
        )


class _Shard:
    def __init__(
        self, settings: RelaySettings, root: str, plan: SchedulePlan, writer: KafkaWriter, refused: dict[str, str]
    ) -> None:
        self._settings, self._root, self._plan, self._writer = settings, root, plan, writer
        self._sender = RecordSender(settings, writer, refused)
        self._rules = TopicRules(settings)
        self._clock = SystemClock()
        self._done = ShardResult(plan.shard)
        self._rows = RecordRows()
        self._now: list[tuple[int, int, KafkaRecord]] = []
        self._near: list[tuple[int, int, KafkaRecord, bytes | None]] = []
        self._cancelled: dict[tuple[int, bytes | None], int] = {}
        self._dues: list[int] = []
        markers = writer.markers([(r.topic, r.partition) for r in plan.ranges])
        self._cuts = {(r.topic, r.partition): Cuts(markers[r.topic, r.partition], r, plan.cut_ms) for r in plan.ranges}

    def run(self) -> ShardResult:
        for whole, messages in self._writer.source.read(self._plan.ranges):
            self._add(whole, messages)
            if self._rows.bytes >= CHUNK_BYTES or len(self._now) >= NOW_ROWS_MAX:
                self._flush()
        self._flush()
        self._wait_for_near()
        self._commit()
        return self._done

    def _add(self, whole: OffsetRange, messages: Sequence[Any]) -> None:
        """Decide for each record; most go from here to the rows to be stored."""
        rule, cuts, add = self._rules.of(whole.topic), self._cuts[whole.topic, whole.partition], self._rows.add
        only_cut, delay_ms_max = cuts.only, self._settings.delay_ms_max
        place, number, actions = f"{whole.topic}/{whole.partition}/", whole.number, [0] * len(RecordAction)
        for message in messages:
            offset, key, value = message.offset(), message.key(), message.value()
            kind, stamp = message.timestamp()
            timestamp_ms = None if kind == TIMESTAMP_NOT_AVAILABLE or stamp < 0 else stamp
            cut_ms = cuts.of(offset) if only_cut is None else only_cut
            decision = decide(rule, message.headers(), key, value is None, timestamp_ms, cut_ms, delay_ms_max)
            action, own, target, due_ms, _, _ = decision
            actions[action] += 1
            source, seq = f"{place}{offset}", seq_of(number, offset)
            if action is RecordAction.AT and due_ms > cut_ms:
                born_ms = -1 if timestamp_ms is None else timestamp_ms
                add(seq, target, due_ms, source, key_text(key), headers_text(own), value, born_ms, Kind.MESSAGE)
            elif action is RecordAction.CANCEL:
                self._cancel(seq, whole.topic, source, decision.key, timestamp_ms, cut_ms)
            elif offset >= cuts.done_to:
                record = record_to_send(self._settings, source, key, value, timestamp_ms, decision)
                self._send_on(seq, due_ms if action is RecordAction.AT else None, record, key)
        self._done.counts["read"] += len(messages)
        self._done.counts.update({_COUNTED[action]: n for action, n in zip(RecordAction, actions, strict=True) if n})

    def _send_on(self, seq: int, due_ms: int | None, record: KafkaRecord, key: bytes | None) -> None:
        if due_ms is not None and due_ms > self._clock.now_ms():
            self._near.append((due_ms, seq, record, key))
        else:
            self._now.append((due_ms or 0, seq, record))

    def _cancel(self, seq: int, topic: str, source: str, key: bytes, timestamp_ms: int | None, cut_ms: int) -> None:
        # A near record that was read before is not sent on yet, and can still be cancelled.
        self._cancelled[number_of(seq), key] = seq
        self._rows.add(
            seq=seq,
            topic=topic,
            # Until then a record before it may be pending; afterwards none can be.
            due_ms=cut_ms + self._settings.delay_ms_max,
            id=source,
            key=key_text(key),
            headers=None,
            # Its own seq, which no message has: read as a broker's cancellation, it cancels nothing.
            body=seq.to_bytes(8, "little"),
            born_ms=-1 if timestamp_ms is None else timestamp_ms,
            kind=Kind.CANCEL,
        )

    def _flush(self) -> None:
        if len(self._rows):
            prefix = f"relay-{self._plan.shard:02d}"
            staged = stage(self._rows.table(), self._root, prefix, self._plan.cut_ms, shard=self._settings.store_shard)
            self._done.files.extend(staged)
            self._done.counts["stored"] += len(self._rows)
            self._rows = RecordRows()
        if self._now:
            # By due time, then by seq; records without a delay first.
            self._now.sort(key=lambda entry: entry[:2])
            self._send([(due_ms, record) for due_ms, _, record in self._now])
            self._now = []

    def _send(self, records: Sequence[tuple[int, KafkaRecord]]) -> None:
        self._sender.send([record for _, record in records])
        self._dues += [due_ms for due_ms, _ in records if due_ms]

    def _wait_for_near(self) -> None:
        """Send near records when they are due.

        Never early: this is the last step before Kafka, and it compares the clock. Staging has taken most of this time
        already.
        """
        near = [n for n in sorted(self._near, key=lambda n: n[:2]) if not self._is_cancelled(n[1], n[3])]
        self._done.counts["cancelled"] += len(self._near) - len(near)
        if not near:
            return
        left = self._clock.seconds_until(near[-1][0])
        while left > 0:
            time.sleep(left)
            left = self._clock.seconds_until(near[-1][0])
        self._send([(due_ms, record) for due_ms, _, record, _ in near])

    def _is_cancelled(self, seq: int, key: bytes | None) -> bool:
        return self._cancelled.get((number_of(seq), key), -1) > seq

    def _commit(self) -> None:
        self._sender.settle()
        markers: dict[Partition, Marker] = {}
        for r in self._plan.ranges:
            cuts = self._cuts[r.topic, r.partition]
            if cuts.done_to < r.end:
                data = {"cuts": cuts.all, "number": r.number, "rules": self._settings.fingerprint()}
                markers[r.topic, r.partition] = Marker(r.end, data)
        if markers:
            self._writer.commit(markers)
        self._done.counts["refused"] += self._sender.dead
        self._done.lateness_ms.record(self._clock.now_ms() - np.array(self._dues, np.int64))


_COUNTED = {
    RecordAction.PASS: "passed",
    RecordAction.AT: "scheduled",
    RecordAction.CANCEL: "cancels",
    RecordAction.DEAD: "dead",
}
