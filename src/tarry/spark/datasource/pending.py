"""``what=pending``: all that is not due yet, as at one moment.

The moment is a version of the store's table, the intake's rows from that version's ``committed_seq`` up to what was
durable, and what had fired. A version's files do not change, and stay for a day after they were replaced. What the
intake held may move to the store while it is read; it is then taken from there, by its seqs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tarry.base.bulk import SEQ_MIN, CancelledJobs
from tarry.base.errors import TarryError, UnavailableError
from tarry.base.message import SCHEMA, Kind, cancelled_seqs, kinds_of
from tarry.base.types import Int64s
from tarry.spark.datasource.bounded import BoundedReader
from tarry.spark.datasource.calls import BrokerClient
from tarry.spark.datasource.filters import Bounds, Span
from tarry.spark.datasource.options import ReadOptions
from tarry.spark.datasource.shape import MESSAGE, by_name
from tarry.store import Snapshot
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry.store.snapshot import FileColumns

PARTITION_BYTES = 128 << 20
"""Files are put together up to this for one task."""
INTAKE_ROWS = 500_000
"""Rows of the intake for one task."""
_NEEDED = ("seq", "due_ms", "topic", "kind")


@dataclass(frozen=True)
class Moment:
    """What was so when the read was planned. ``fired``: (fired_until_ms, fired_seq); of a cancelled job its number, and
    the place in the order of (due_ms, seq) from which on it is.
    """

    root: str
    shard: int
    fired: tuple[int, int]
    cancelled_jobs: tuple[tuple[int, int, int], ...]
    cancelled_files: tuple[str, ...]


@dataclass
class Files(InputPartition):  # type: ignore[misc]
    """Some of the store's files. ``gone``: seqs that cancellations in the intake name, of these due times."""

    moment: Moment
    paths: tuple[str, ...]
    span: Span
    gone: Int64s


@dataclass
class Accepted(InputPartition):  # type: ignore[misc]
    """Seqs ``[start, end)`` of the intake."""

    moment: Moment
    start: int
    end: int
    gone: Int64s


@dataclass
class Nothing(InputPartition):  # type: ignore[misc]
    """Spark wants one partition at least."""


class PendingReader(BoundedReader):
    """Plans on the driver, reads in the tasks. Spark makes the tasks' copy before it asks for partitions, so what these
    find out travels with them.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema, MESSAGE)

    def partitions(self) -> list[InputPartition]:
        """On the driver: what there is at this moment."""
        with BrokerClient(self._endpoint) as client:
            state = client.intake_state()
            # In this order: what is accepted from here on may or may not be there, what was before is.
            snapshot = pinned(state["store_uri"], state["shard"])
            moment = Moment(
                snapshot.root,
                state["shard"],
                (state["fired_until_ms"], state["fired_seq"]),
                tuple((number, due_ms, seq) for number, due_ms, seq in state.get("cancelled_jobs", ())),
                tuple(snapshot.cancelled),
            )
            start, end = max(snapshot.committed_seq, state["first_seq"]), state["durable_seq"]
            named = list(client.cancelled(start, end)) if start < end else []
        gone_due = np.concatenate([np.empty(0, np.int64), *(b.column("due_ms").to_numpy() for b in named)])
        gone = np.concatenate([np.empty(0, np.int64), *(b.column("seq").to_numpy() for b in named)])
        found: list[InputPartition] = []
        for paths, span in _packed(snapshot.files, self._bounds, moment.fired[0]):
            here = (gone_due >= span.low) & (gone_due <= span.high)
            found.append(Files(moment, paths, span, np.unique(gone[here])))
        for low in range(start, end, INTAKE_ROWS):
            found.append(Accepted(moment, low, min(end, low + INTAKE_ROWS), np.unique(gone)))
        return found or [Nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        if isinstance(partition, Files):
            place = Place.of(partition.moment.root)
            gone = [partition.gone, *_stored_cancellations(place, partition.moment.cancelled_files, partition.span)]
            rows = _file_rows(place, partition.paths, self._bounds, self._shape.needed(*_NEEDED))
            yield from self._pending(rows, partition.moment, np.unique(np.concatenate(gone)))
        elif isinstance(partition, Accepted):
            with BrokerClient(self._endpoint) as client:
                rows = intake_rows(client, partition.moment, partition.start, partition.end)
                yield from self._pending(rows, partition.moment, partition.gone)

    def _pending(self, batches: Iterator[pa.RecordBatch], moment: Moment, gone: Int64s) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keep = is_pending(batch, moment, gone) & wanted(batch, self._bounds)
            if keep.any():
                rows = batch if keep.all() else batch.filter(pa.array(keep))
                yield self._shape.shaped(by_name(rows))


def is_pending(batch: pa.RecordBatch, moment: Moment, gone: Int64s) -> npt.NDArray[np.bool_]:
    """Which rows are messages that are neither fired nor cancelled, one by one or with their job."""
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    fired_until_ms, fired_seq = moment.fired
    # What bulk loads has seqs above all others: it is taken up at once, and has fired like the rest.
    fired = (due < fired_until_ms) & ((seq < fired_seq) | (seq >= SEQ_MIN))
    keep = (kinds_of(batch) == Kind.MESSAGE) & ~fired
    if len(gone):
        keep &= np.isin(seq, gone, invert=True)
    if moment.cancelled_jobs:
        jobs = CancelledJobs()
        jobs.update({number: (due_ms, first) for number, due_ms, first in moment.cancelled_jobs})
        keep &= ~jobs.mask(due, seq)
    return np.asarray(keep, np.bool_)


def wanted(batch: pa.RecordBatch, bounds: Bounds) -> npt.NDArray[np.bool_]:
    """Which rows are within the bounds."""
    due = batch.column("due_ms").to_numpy()
    keep = (due >= bounds.due_ms.low) & (due <= bounds.due_ms.high)
    if bounds.topics is not None:
        topics = pc.is_in(batch.column("topic"), value_set=pa.array(sorted(bounds.topics), pa.string()))
        keep &= topics.to_numpy(zero_copy_only=False)
    return np.asarray(keep, np.bool_)


def pinned(uri: str, shard: int) -> Snapshot:
    """The newest version of the store, without changing anything there.

    Raises:
        UnavailableError: it cannot be read from here.
    """
    place = Place.of(uri)
    try:
        table = DeltaTable(place.uri)
        actions = pa.table(table.get_add_actions(flatten=True))
        committed = int(table.transaction_version(f"intake-{shard}") or 0)
        return Snapshot(place.uri, int(table.version()), committed, *FileColumns.of_actions(actions, shard))
    except (DeltaError, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise UnavailableError(f"the store at {place.uri} cannot be read from here: {first_line}") from error


def _packed(files: FileColumns, bounds: Bounds, fired_until_ms: int) -> Iterator[tuple[tuple[str, ...], Span]]:
    """Files that may have what is wanted, some for each task, and the span of due time that they have."""
    held: list[int] = []
    size = 0
    for i in range(len(files)):
        low, high = int(files.due_min_ms[i]), int(files.due_max_ms[i])
        only_fired = high < fired_until_ms and int(files.seq_min[i]) >= SEQ_MIN
        topics = files.topic_min[i], files.topic_max[i]
        if only_fired or not bounds.due_ms.meets(low, high) or not bounds.may_have(*topics):
            continue
        held.append(i)
        size += int(files.size[i])
        if size >= PARTITION_BYTES:
            yield _part(files, held)
            held, size = [], 0
    if held:
        yield _part(files, held)


def _part(files: FileColumns, some: list[int]) -> tuple[tuple[str, ...], Span]:
    span = Span(int(files.due_min_ms[some].min()), int(files.due_max_ms[some].max()))
    return tuple(files.path[i] for i in some), span


def _file_rows(place: Place, paths: Sequence[str], bounds: Bounds, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        for group in groups(place, path):
            if bounds.due_ms.meets(group.due_min_ms, group.due_max_ms) and bounds.may_have(
                group.topic_min, group.topic_max
            ):
                yield read_group(place, path, group.number, columns)


def _stored_cancellations(place: Place, paths: Sequence[str], span: Span) -> Iterator[Int64s]:
    """Seqs that the store's cancellations of these due times name."""
    for path in paths:
        for group in groups(place, path):
            if span.meets(group.due_min_ms, group.due_max_ms):
                yield cancelled_seqs(read_group(place, path, group.number, ("due_ms", "body")))


def intake_rows(client: BrokerClient, moment: Moment, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows of ``[start, end)``, from the intake and, where it has let them go meanwhile, from the store.

    What has fired meanwhile and is in neither is left out: it is delivered, and no more pending.
    """
    at = start
    while at < end:
        before = at
        try:
            for batch in client.read(at, end):
                if not batch.num_rows:
                    continue
                first, last = (int(batch.column("seq")[i].as_py()) for i in (0, batch.num_rows - 1))
                if first > at:
                    yield from _moved(moment, at, first)
                yield batch
                at = last + 1
        except TarryError:
            if client.state().first_seq <= at:
                raise
        if at < end:
            kept_from = min(end, client.state().first_seq)
            if kept_from > at:
                yield from _moved(moment, at, kept_from)
                at = kept_from
            elif at == before:
                raise UnavailableError(f"the intake has not given seqs {at} to {end}, though it has them")


def _moved(moment: Moment, start: int, end: int) -> Iterator[pa.RecordBatch]:
    snapshot = pinned(moment.root, moment.shard)
    place, files = Place.of(snapshot.root), snapshot.files
    for i in np.flatnonzero((files.seq_min < end) & (files.seq_max >= start)).tolist():
        for group in groups(place, files.path[i]):
            if group.seq_min < end and group.seq_max >= start:
                batch = read_group(place, files.path[i], group.number, SCHEMA.names)
                seq = batch.column("seq").to_numpy()
                yield batch.filter(pa.array((seq >= start) & (seq < end)))
