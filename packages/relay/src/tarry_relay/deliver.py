"""The deliver query's work for one shard: read due records from the store, and write them to Kafka.

The shard's marker, an offset on the marker topic's partition of that number, holds the place ``{t, v}`` up to which the
shard has delivered. It is committed in one transaction with the records, and read after the transactional id was taken
over; the shard then delivers from there to the end of the batch. So a batch that is replayed, one that overlaps
another, or one of a lost checkpoint writes exactly what is missing, and nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.base.clock import SystemClock
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Key
from tarry.store import FileColumns, Snapshot, StaleCommitError, read_window
from tarry_relay.cancels import Cancels
from tarry_relay.files import File, Reached
from tarry_relay.markers import Marker
from tarry_relay.positions import OFFSET_BITS
from tarry_relay.schedule import ShardResult
from tarry_relay.sending import ReadyRecords, RecordSender, retry_while_refused
from tarry_relay.settings import RelaySettings
from tarry_relay.writer import KafkaWriter, KafkaWriters

log = logging.getLogger(__name__)

BATCH_ROWS = 8192
_LOWEST = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class DeliverPlan:
    """One shard's part of a delivery.

    ``files`` are all that may have rows of the shard. With ``ahead``, rows due after ``start`` were read ahead, and
    ``files`` are those that came late.
    """

    shard: int
    start: Reached
    end: Reached
    files: tuple[File, ...]
    cancelled: tuple[str, ...]
    rows: int
    ahead: bool = False


def reached(marker: Marker) -> Reached | None:
    """Return the place in a marker; None if the marker is empty.

    Raises:
        InvalidArgumentError: another program has committed it: somebody has reset the group's offsets.
    """
    if marker.offset is None:
        return None
    if not marker.data.keys() >= {"t", "v", "shards"}:
        raise InvalidArgumentError(
            f"the marker {marker.offset} of the deliver group was committed by another program; its offsets are not to "
            "be reset: delete them, and what is in the store is delivered anew; or use another name"
        )
    return Reached(int(marker.data["t"]), int(marker.data["v"]))


def marker_of(place: Reached, shards: int) -> Marker:
    """Return the marker for a place.

    Its offset is for people: the instant until which all is delivered.
    """
    return Marker(place.t, {"t": place.t, "v": place.v, "shards": shards})


ReadAheadRows = Callable[[int, int], Iterator[ReadyRecords]]
"""Records read before they were due: those due after the first argument and by the second."""


class DeliverWork:
    """Carries out the plans of one shard."""

    def __init__(self, settings: RelaySettings, root: str) -> None:
        self._settings = settings
        self._root = root
        self._cancels = Cancels()

    def __call__(self, plan: DeliverPlan, writers: KafkaWriters, ahead: ReadAheadRows | None = None) -> ShardResult:
        """Deliver. A plan with ``ahead`` set needs the argument ``ahead``.

        Raises:
            TarryError: it could not be done; another attempt, anywhere, does exactly what is missing.
        """
        return retry_while_refused(
            writers,
            plan.shard,
            lambda writer, refused: self._deliver(plan, writer, RecordSender(self._settings, writer, refused), ahead),
        )

    def _deliver(
        self, plan: DeliverPlan, writer: KafkaWriter, sender: RecordSender, ahead: ReadAheadRows | None
    ) -> ShardResult:
        done, at = ShardResult(plan.shard), (self._settings.marker_topic, plan.shard)
        marker = reached(writer.markers([at])[at])
        before = marker or plan.start
        start, end = plan.start.joined(before), plan.end
        if start.joined(end) != end:
            raise StaleCommitError(
                f"shard {plan.shard} has delivered up to {before}, and this batch ends at {end}: it was planned from "
                "another state, or another relay of this name is at work; nothing was delivered"
            )
        if marker == end:
            return done
        dues = []
        cancels = self._cancels
        cancels.load(self._root, plan.cancelled)
        for ready in self._records(plan, start, end, ahead):
            alive, records = cancels.alive(ready.batch), ready.records
            if not alive.all():
                records = [records[row] for row in np.flatnonzero(alive).tolist()]
            sender.send(records)
            dues.append(ready.due_ms[alive])
            done.counts["cancelled"] += len(alive) - len(records)
            done.counts["delivered"] += len(records)
        sender.settle()
        writer.commit({at: marker_of(end, self._settings.shards)})
        done.counts["refused"] += sender.dead
        done.lateness_ms.record(SystemClock().now_ms() - np.concatenate([*dues, np.empty(0, np.int64)]))
        return done

    def _records(
        self, plan: DeliverPlan, start: Reached, end: Reached, ahead: ReadAheadRows | None
    ) -> Iterator[ReadyRecords]:
        for batch in self.rows(plan, start, end):
            yield ReadyRecords.of(self._settings, batch)
        if plan.ahead:
            assert ahead is not None
            yield from ahead(start.t, end.t)

    def rows(self, plan: DeliverPlan, start: Reached, end: Reached) -> Iterator[pa.RecordBatch]:
        """Yield a shard's rows from ``start`` to ``end``, by due time.

        Late rows come first, then the others, unless they were read ahead.
        """
        late = [f for f in plan.files if f.version > start.v]
        spans = [(late, _LOWEST, min(start.t, end.t))]
        if not plan.ahead:
            spans.append((list(plan.files), start.t + 1, end.t))
        for files, first, last in spans:
            snapshot = snapshot_of(self._root, end.v, files)
            for batch in read_window(snapshot, Key(first, _LOWEST), last + 1, batch_rows=BATCH_ROWS):
                number = batch.column("seq").to_numpy() >> OFFSET_BITS
                of_shard = number % self._settings.shards == plan.shard
                if of_shard.any():
                    yield batch if of_shard.all() else batch.filter(pa.array(of_shard))


def snapshot_of(root: str, version: int, files: Sequence[File]) -> Snapshot:
    """Return some files of a version of the store, as a snapshot to read them from."""

    def numbers(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([getattr(file, name) for file in files], np.int64)

    columns = FileColumns(
        path=[file.path for file in files],
        due_min_ms=numbers("due_min_ms"),
        due_max_ms=numbers("due_max_ms"),
        seq_min=numbers("seq_min"),
        seq_max=numbers("seq_max"),
        rows=numbers("rows"),
        size=numbers("size"),
        topic_min=[None] * len(files),
        topic_max=[None] * len(files),
    )
    return Snapshot(root=root, version=version, committed_seq=0, files=columns)
