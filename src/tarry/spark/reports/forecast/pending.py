"""Pending messages as a DataFrame of a few numbers each, from a store's files and a broker's intake.

A row of work is a file or a range of seqs; tasks read them with Arrow and return sizes, not bodies, so no body enters
the JVM, and any storage can be read to which the pipeline writes. Cancelled messages are removed by an anti-join, as in
the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tarry.base.errors import CorruptError, NotFoundError
from tarry.link.credentials import find_token
from tarry.message.bulk import SEQ_MIN, first_seq
from tarry.message.schema import Kind, kinds_of
from tarry.spark.broker_client import BrokerClient, IntakeState
from tarry.spark.broker_store import check_table
from tarry.spark.pipeline.stage_task import read_all
from tarry.store.layout import CANCELLED
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = "topic string, seq long, due_ms long, body_bytes long, row_bytes long, kind int, target long"
"""Columns of :func:`rows_of`.

``row_bytes``: the message's size in memory, by its columns. ``target``: the seq that a cancellation cancels.
"""
_ROWS = pa.schema(
    [
        ("topic", pa.string()),
        *((name, pa.int64()) for name in ("seq", "due_ms", "body_bytes", "row_bytes")),
        ("kind", pa.int32()),
        ("target", pa.int64()),
    ]
)
_WORK = "path string, start_seq long, end_seq long"
FIXED_BYTES = 72
"""Bytes of a row in memory, beside its texts: six numbers, and the offsets of seven texts."""
RANGE_ROWS = 1_000_000
_TEXTS = ("topic", "id", "key", "tag", "repeat")
_COLUMNS = ("topic", "seq", "due_ms", *_TEXTS[1:], "body", "kind")


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """The files of one version of a store, over all of its shards."""

    uri: str
    table_id: str
    version: int
    committed_seq: int
    """That of the shard asked for: by default 0, the broker's if there is one."""
    messages: list[str]
    latest_ms: list[int]
    """The highest due time of each file in ``messages``."""
    cancelled: list[str]
    rows: int
    bytes: int

    @property
    def files(self) -> int:
        """Number of files."""
        return len(self.latest_ms) + len(self.cancelled)

    def later_than(self, from_ms: int) -> list[str]:
        """Return those of ``messages`` that have rows due then or later."""
        return [path for path, latest in zip(self.messages, self.latest_ms, strict=True) if latest >= from_ms]

    @classmethod
    def of(cls, uri: str, *, version: int | None = None, shard: int = 0) -> StoreVersion:
        """Read the table's log; nothing is written.

        Raises:
            NotFoundError: there is no table. CorruptError: its log cannot be read.
        """
        try:
            table = DeltaTable(Place.of(uri).uri, version=version)
            actions = pa.table(table.get_add_actions(flatten=True))
            committed = int(table.transaction_version(f"intake-{shard}") or 0)
        except TableNotFoundError as error:
            raise NotFoundError(f"there is no store at {uri}") from error
        except (DeltaError, OSError) as error:
            raise CorruptError(f"the log of the store at {uri} cannot be read: {error}") from error
        bucket = _column(actions, "partition.bucket", pa.string())
        is_cancelled = pc.fill_null(pc.equal(bucket, CANCELLED), False)
        latest = pc.fill_null(_column(actions, "max.due_ms", pa.int64()), np.iinfo(np.int64).max)
        rows = pc.fill_null(_column(actions, "num_records", pa.int64()), 0)
        has_messages = pc.invert(is_cancelled)
        paths = actions["path"]
        return cls(
            uri=Place.of(uri).uri,
            table_id=str(table.metadata().id),
            version=int(table.version()),
            committed_seq=committed,
            messages=paths.filter(has_messages).to_pylist(),
            latest_ms=latest.filter(has_messages).to_pylist(),
            cancelled=paths.filter(is_cancelled).to_pylist(),
            rows=int(pc.sum(rows.filter(has_messages)).as_py() or 0),
            bytes=int(pc.sum(_column(actions, "size_bytes", pa.int64())).as_py() or 0),
        )


def _column(actions: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    return (
        actions[name].cast(kind) if name in actions.column_names else pa.chunked_array([pa.nulls(len(actions), kind)])
    )


def rows_of(
    spark: SparkSession, files: StoreVersion | None, *, endpoint: str | None = None, intake: tuple[int, int] = (0, 0)
) -> DataFrame:
    """Return :data:`ROWS` of a store's files, and of a range of the intake at ``endpoint``.

    The range is one of seqs. The rows are messages and cancellations.
    """
    work: list[tuple[str | None, int | None, int | None]] = []
    if files is not None:
        work += [(path, None, None) for path in [*files.cancelled, *files.messages]]
    start, end = intake
    work += [(None, at, min(at + RANGE_ROWS, end)) for at in range(start, end, RANGE_ROWS)]
    # One file a task, or a few: a task that fails repeats little, and many run at the same time.
    parts = max(1, min(len(work), 10_000))
    planned = spark.createDataFrame(work, _WORK).repartition(parts) if work else spark.createDataFrame([], _WORK)
    token = None if endpoint is None else find_token(endpoint)  # here, on the driver: a task's machine may have none
    read = partial(_read, root=files.uri if files is not None else "", endpoint=endpoint, token=token)
    return planned.mapInArrow(read, ROWS)


def _read(
    batches: Iterable[pa.RecordBatch], *, root: str, endpoint: str | None, token: str | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, start, end in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            batches_of = _in_intake(endpoint or "", token, start, end) if path is None else _in_file(root, path)
            yield from (sized(rows) for rows in batches_of)


def _in_file(root: str, path: str) -> Iterator[pa.RecordBatch]:
    place = Place.of(root)
    for group in groups(place, path):
        yield read_group(place, path, group.number, [*_COLUMNS, "properties"])


def _in_intake(endpoint: str, token: str | None, start: int, end: int) -> Iterator[pa.RecordBatch]:
    with BrokerClient(endpoint, token) as client:
        for _, batch in read_all(client, start, end):
            yield batch


def sized(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return :data:`ROWS` of messages and cancellations as they are stored."""
    rows = batch.num_rows
    kinds = kinds_of(batch)
    body = _lengths(batch.column("body"))
    size = FIXED_BYTES + body + sum(_lengths(batch.column(name)) for name in _TEXTS)
    properties = batch.column("properties")
    if properties.null_count < rows:
        pairs = pc.fill_null(pc.list_value_length(properties), 0).to_numpy(zero_copy_only=False)
        texts = properties.keys.nbytes + properties.items.nbytes
        size = size + (pairs * (texts / max(1, int(pairs.sum())))).astype(np.int64)
    target = np.zeros(rows, np.int64)
    for row in np.flatnonzero(kinds == Kind.CANCEL).tolist():
        target[row] = int.from_bytes(batch.column("body")[row].as_py(), "little", signed=True)
    columns = [
        batch.column("topic"),
        batch.column("seq"),
        batch.column("due_ms"),
        body,
        size,
        kinds.astype(np.int32),
        target,
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=_ROWS)


def _lengths(column: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False), np.int64)


def pending(
    rows: DataFrame,
    *,
    from_ms: int,
    fired_seq: int | None = None,
    cancelled_jobs: Sequence[Sequence[int]] = (),
) -> DataFrame:
    """Return the messages of :data:`ROWS` that will fall due.

    Args:
        from_ms: messages due before have fired,
        fired_seq: ... except those accepted from this number on (None: all of them have).
        cancelled_jobs: of bulk jobs ``[number, due_ms, seq]``: from that place on, nothing of them is delivered.
    """
    messages = rows.where(F.col("kind") == int(Kind.MESSAGE))
    dead = rows.where(F.col("kind") == int(Kind.CANCEL)).select(F.col("due_ms"), F.col("target").alias("seq"))
    late = F.col("due_ms") >= F.lit(from_ms)
    if fired_seq is not None:
        late |= (F.col("seq") >= F.lit(fired_seq)) & (F.col("seq") < F.lit(SEQ_MIN))
    for number, due_ms, seq in cancelled_jobs:
        of_job = (F.col("seq") >= F.lit(first_seq(number))) & (F.col("seq") < F.lit(first_seq(number + 1)))
        since = (F.col("due_ms") > F.lit(due_ms)) | ((F.col("due_ms") == F.lit(due_ms)) & (F.col("seq") >= F.lit(seq)))
        messages = messages.where(~(of_job & since))
    return messages.where(late).join(dead, ["due_ms", "seq"], "left_anti")


def look(endpoint: str, store: str | None) -> tuple[StoreVersion, IntakeState]:
    """Return a version of the store and a state of the intake that together have every message.

    Messages that the version lacks are in the intake, or have fired.

    Raises:
        UnavailableError: no broker there. NotFoundError: it has no store yet that can be read from here.
        InvalidArgumentError: the table that is there is not its store.
    """
    with BrokerClient(endpoint) as client:
        files = None
        while True:
            uri = store or client.state().store_uri
            before = None if files is None else files.version
            files = StoreVersion.of(uri, shard=client.state().shard)
            state = client.state()
            check_table(files.uri, files.table_id, state)
            # The intake may have deleted messages that only a newer version has: then that version is read.
            if state.first_seq <= files.committed_seq or files.version == before:
                return files, state
