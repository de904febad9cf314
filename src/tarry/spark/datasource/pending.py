"""``what=pending``: all messages that are not due yet, as at one moment.

The moment is a version of the store's table, the intake's rows from that version's ``committed_seq`` up to the durable
end, and the fired messages. A version's files do not change, and stay for a day after they were replaced. Rows of the
intake may move to the store while they are read; they are then read from there, by their seqs.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tarry.base.errors import TarryError, UnavailableError
from tarry.base.types import Int64s
from tarry.message.bulk import SEQ_MIN, CancelledJobs
from tarry.message.schema import SCHEMA, Kind, cancelled_seqs, kinds_of
from tarry.spark.broker_client import BrokerClient
from tarry.spark.datasource.filters import Bounds, EmptyPartition, ReadBounds, Span
from tarry.spark.datasource.options import ReadOptions
from tarry.spark.datasource.shape import MESSAGE, Shape, by_name
from tarry.store import Snapshot
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry.store.snapshot import FileColumns

PARTITION_BYTES = 128 << 20
"""Files are put together up to this many bytes for one task."""
INTAKE_ROWS = 500_000
"""Rows of the intake for one task."""
_NEEDED = ("seq", "due_ms", "topic", "kind")


@dataclass(frozen=True)
class PlannedState:
    """The state of broker and store when the read was planned.

    ``fired``: (fired_until_ms, fired_seq); ``cancelled_jobs``: the number of each, and the (due_ms, seq) from which on
    it is cancelled; ``cancelled_files``: the store's files of cancellations.
    """

    root: str
    table_id: str
    shard: int
    fired: tuple[int, int]
    cancelled_jobs: tuple[tuple[int, int, int], ...]
    cancelled_files: tuple[str, ...]


@dataclass
class FilesPartition(InputPartition):  # type: ignore[misc]
    """Some of the store's files.

    ``cancelled``: seqs that cancellations in the intake cancel, of these due times.
    """

    state: PlannedState
    paths: tuple[str, ...]
    span: Span
    cancelled: Int64s


@dataclass
class IntakePartition(InputPartition):  # type: ignore[misc]
    """Seqs ``[start, end)`` of the intake. ``cancelled``: seqs that cancellations in the intake cancel."""

    state: PlannedState
    start: int
    end: int
    cancelled: Int64s


class PendingReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks.

    Spark copies the reader for the tasks before it asks for partitions, so partitions carry all results of planning.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._broker = options.broker
        self._shape = Shape.of(schema, MESSAGE)
        self._bounds = ReadBounds(options)
        self._bounds.offer_filters(self)

    def partitions(self) -> list[InputPartition]:
        """Plan the read of the current state. Runs on the driver."""
        with self._broker.client() as client:
            intake = client.state()
            # In this order: messages accepted from here on may or may not be read, those accepted before are.
            snapshot = open_snapshot(intake.store_uri, intake.shard, intake.table_id)
            start, end = max(snapshot.committed_seq, intake.first_seq), intake.durable_seq
            named = list(client.cancelled(start, end)) if start < end else []
        state = PlannedState(
            snapshot.root,
            intake.table_id,
            intake.shard,
            (intake.fired_until_ms, intake.fired_seq),
            tuple((number, due_ms, seq) for number, due_ms, seq in intake.cancelled_jobs),
            tuple(snapshot.cancelled),
        )
        none = np.empty(0, np.int64)
        cancelled_due = np.concatenate([none, *(b.column("due_ms").to_numpy() for b in named)])
        cancelled = np.concatenate([none, *(b.column("seq").to_numpy() for b in named)])
        partitions: list[InputPartition] = []
        for paths, span in _packed(snapshot.files, self._bounds.now, intake.fired_until_ms):
            within = (cancelled_due >= span.low) & (cancelled_due <= span.high)
            partitions.append(FilesPartition(state, paths, span, np.unique(cancelled[within])))
        for low in range(start, end, INTAKE_ROWS):
            partitions.append(IntakePartition(state, low, min(end, low + INTAKE_ROWS), np.unique(cancelled)))
        return partitions or [EmptyPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition. Runs in a task."""
        if isinstance(partition, FilesPartition):
            place, state = Place.of(partition.state.root), partition.state
            cancelled = [partition.cancelled, *_stored_cancellations(place, state.cancelled_files, partition.span)]
            rows = _file_rows(place, partition.paths, self._bounds.now, self._shape.needed(*_NEEDED))
            yield from self._pending(rows, state, np.unique(np.concatenate(cancelled)))
        elif isinstance(partition, IntakePartition):
            with self._broker.client() as client:
                rows = intake_rows(client, partition.state, partition.start, partition.end)
                yield from self._pending(rows, partition.state, partition.cancelled)

    def _pending(
        self, batches: Iterator[pa.RecordBatch], state: PlannedState, cancelled: Int64s
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keep = is_pending(batch, state, cancelled) & self._bounds.now.rows_within(batch)
            if keep.any():
                rows = batch if keep.all() else batch.filter(pa.array(keep))
                yield self._shape.shaped(by_name(rows))


def is_pending(batch: pa.RecordBatch, state: PlannedState, cancelled: Int64s) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that are pending messages: one boolean a row.

    They have not fired and are cancelled neither by seq nor with their bulk job. ``cancelled`` ascends.
    """
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    fired_until_ms, fired_seq = state.fired
    # Rows of bulk jobs have seqs above all others; the broker reads them at once, so they have fired like the rest.
    fired = (due < fired_until_ms) & ((seq < fired_seq) | (seq >= SEQ_MIN))
    keep = (kinds_of(batch) == Kind.MESSAGE) & ~fired
    if len(cancelled):
        keep &= np.isin(seq, cancelled, invert=True)
    if state.cancelled_jobs:
        jobs = CancelledJobs()
        jobs.update({number: (due_ms, first) for number, due_ms, first in state.cancelled_jobs})
        keep &= ~jobs.mask(due, seq)
    return np.asarray(keep, np.bool_)


def open_snapshot(uri: str, shard: int, table_id: str) -> Snapshot:
    """Return the newest version of the store, without changing anything there.

    Raises:
        UnavailableError: it cannot be read from here, or the table that is seen from here is another one.
    """
    place = Place.of(uri)
    try:
        table = DeltaTable(place.uri)
        if (found := table.metadata().id) != table_id:
            raise UnavailableError(
                f"the store at {place.uri} is the table {table_id}, but {socket.gethostname()} sees the table {found} "
                "there; allowed: to read it where the broker's own table is seen, or on object storage"
            )
        actions = pa.table(table.get_add_actions(flatten=True))
        committed = int(table.transaction_version(f"intake-{shard}") or 0)
        return Snapshot(place.uri, int(table.version()), committed, *FileColumns.of_actions(actions, shard))
    except (DeltaError, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise UnavailableError(f"the store at {place.uri} cannot be read from here: {first_line}") from error


def _packed(files: FileColumns, bounds: Bounds, fired_until_ms: int) -> Iterator[tuple[tuple[str, ...], Span]]:
    """Yield files that may have rows within the bounds, some for each task, and their span of due times."""
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
    """Yield the seqs that the store's cancellations of these due times cancel."""
    for path in paths:
        for group in groups(place, path):
            if span.meets(group.due_min_ms, group.due_max_ms):
                yield cancelled_seqs(read_group(place, path, group.number, ("due_ms", "body")))


def intake_rows(client: BrokerClient, state: PlannedState, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``[start, end)``, from the intake or, if it deleted them since, from the store.

    Messages that have fired meanwhile and are in neither are left out: they are delivered, and no longer pending.
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
                    yield from _moved(state, at, first)
                yield batch
                at = last + 1
        except TarryError:
            if client.state().first_seq <= at:
                raise
        if at < end:
            kept_from = min(end, client.state().first_seq)
            if kept_from > at:
                yield from _moved(state, at, kept_from)
                at = kept_from
            elif at == before:
                raise UnavailableError(f"the intake has not given seqs {at} to {end}, though it has them")


def _moved(state: PlannedState, start: int, end: int) -> Iterator[pa.RecordBatch]:
    snapshot = open_snapshot(state.root, state.shard, state.table_id)
    place, files = Place.of(snapshot.root), snapshot.files
    for i in np.flatnonzero((files.seq_min < end) & (files.seq_max >= start)).tolist():
        for group in groups(place, files.path[i]):
            if group.seq_min < end and group.seq_max >= start:
                batch = read_group(place, files.path[i], group.number, SCHEMA.names)
                seq = batch.column("seq").to_numpy()
                yield batch.filter(pa.array((seq >= start) & (seq < end)))
