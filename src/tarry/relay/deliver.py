"""What a batch of the deliver query does for one shard: read what has fallen due from the store, and write it to Kafka.

The shard's marker, an offset on the marker topic's partition of that number, holds the place ``{t, v}`` up to which
the shard has delivered. It is committed in one transaction with the records, and read after the transactional id was
taken over; the shard then delivers from there to the end of the batch. So a batch that is replayed, one that overlaps
another's, one of a checkpoint that was lost: all of them write what is missing, and nothing twice.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.base.clock import SystemClock
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Key
from tarry.relay.cancels import Cancels
from tarry.relay.ledger import File, Reached
from tarry.relay.outbox import Marker, Outbox, Outboxes
from tarry.relay.positions import OFFSET_BITS
from tarry.relay.schedule import Done
from tarry.relay.sending import Ready, Sender, until_taken
from tarry.relay.settings import Settings
from tarry.store import FileColumns, Snapshot, StaleCommitError, read_window

log = logging.getLogger(__name__)

BATCH_ROWS = 8192
_LOWEST = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class DeliverPlan:
    """One shard's part of a delivery. ``files`` are all that may have rows of it; where ``ahead``, what is due after
    ``start`` was read ahead, and they are those that came late.
    """

    shard: int
    start: Reached
    end: Reached
    files: tuple[File, ...]
    cancelled: tuple[str, ...]
    rows: int
    ahead: bool = False

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DeliverPlan:
        """The inverse of :meth:`to_json`."""
        told: dict[str, Any] = json.loads(text)
        told["start"], told["end"] = Reached(**told["start"]), Reached(**told["end"])
        told["files"] = tuple(File(**file) for file in told["files"])
        told["cancelled"] = tuple(told["cancelled"])
        return cls(**told)


def reached(marker: Marker) -> Reached | None:
    """The place that a marker says; None without one.

    Raises:
        InvalidArgumentError: it is none of ours: somebody has reset the group's offsets.
    """
    if marker.offset is None:
        return None
    if not marker.told.keys() >= {"t", "v", "shards"}:
        raise InvalidArgumentError(
            f"the marker {marker.offset} of the deliver group was committed by another program; its offsets are not to "
            "be reset: delete them, and what is in the store is delivered anew; or use another name"
        )
    return Reached(int(marker.told["t"]), int(marker.told["v"]))


def marker_of(place: Reached, shards: int) -> Marker:
    """The marker for a place; the number beside it is for people: the instant until which all is delivered."""
    return Marker(place.t, {"t": place.t, "v": place.v, "shards": shards})


_CANCELS = threading.local()


def _cancels(root: str) -> Cancels:
    """Those that this thread has read; shards work side by side, and each has its own list of files."""
    known: dict[str, Cancels] = _CANCELS.__dict__
    return known.setdefault(root, Cancels())


class DeliverWork:
    """The work on one plan, in a task or in the driver, where some is read ``ahead``: by shard, after, until."""

    def __init__(
        self, settings: Settings, root: str, ahead: Callable[[int, int, int], Iterator[Ready]] | None = None
    ) -> None:
        self._settings = settings
        self._root = root
        self._ahead = ahead

    def __call__(self, plan: DeliverPlan, outboxes: Outboxes) -> Done:
        """Do it.

        Raises:
            TarryError: it could not be done; another attempt, anywhere, does exactly what is missing.
        """
        return until_taken(
            outboxes,
            plan.shard,
            lambda outbox, refused: self._deliver(plan, outbox, Sender(self._settings, outbox, refused)),
        )

    def _deliver(self, plan: DeliverPlan, outbox: Outbox, sender: Sender) -> Done:
        done, at = Done(plan.shard), (self._settings.marker_topic, plan.shard)
        marker = reached(outbox.markers([at])[at])
        told = marker or plan.start
        start, end = plan.start.joined(told), plan.end
        if start.joined(end) != end:
            raise StaleCommitError(
                f"shard {plan.shard} has delivered up to {told}, and this batch ends at {end}: it was planned from "
                "another state, or another relay of this name is at work; nothing was delivered"
            )
        if marker == end:
            return done
        dues = []
        cancels = _cancels(self._root)
        cancels.load(self._root, plan.cancelled)
        for ready in self._records(plan, start, end):
            alive, records = cancels.alive(ready.batch), ready.records
            if not alive.all():
                records = [records[row] for row in np.flatnonzero(alive).tolist()]
            sender.send(records)
            dues.append(ready.due_ms[alive])
            done.add("cancelled", len(alive) - len(records))
            done.add("delivered", len(records))
        sender.settle()
        outbox.commit({at: marker_of(end, self._settings.shards)})
        done.add("refused", sender.dead)
        done.lateness_ms.record(SystemClock().now_ms() - np.concatenate([*dues, np.empty(0, np.int64)]))
        return done

    def _records(self, plan: DeliverPlan, start: Reached, end: Reached) -> Iterator[Ready]:
        for batch in self.rows(plan, start, end):
            yield Ready.of(self._settings, batch)
        if plan.ahead:
            assert self._ahead is not None
            yield from self._ahead(plan.shard, start.t, end.t)

    def rows(self, plan: DeliverPlan, start: Reached, end: Reached) -> Iterator[pa.RecordBatch]:
        """What a shard reads to deliver from ``start`` to ``end``, by due time: first what came late, then the others,
        where they were not read ahead.
        """
        late = [f for f in plan.files if f.version > start.v]
        spans = [(late, _LOWEST, min(start.t, end.t))]
        if not plan.ahead:
            spans.append((list(plan.files), start.t + 1, end.t))
        for files, first, last in spans:
            snapshot = snapshot_of(self._root, end.v, files)
            for batch in read_window(snapshot, Key(first, _LOWEST), last + 1, batch_rows=BATCH_ROWS):
                number = batch.column("seq").to_numpy() >> OFFSET_BITS
                ours = number % self._settings.shards == plan.shard
                if ours.any():
                    yield batch if ours.all() else batch.filter(pa.array(ours))


def snapshot_of(root: str, version: int, files: Sequence[File]) -> Snapshot:
    """Some files of a version of the store, for who reads them."""

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
