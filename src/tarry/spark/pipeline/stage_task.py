"""A Spark task's work on its range: fetch it from the intake, and stage what has not fired.

The files are sorted. Runs inside ``mapInArrow``. Only ranges come in and only descriptions of files go out, so message
bodies stay in Arrow, in this process. Memory is bounded by :data:`CHUNK_BYTES`, however large the range.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.api.jobs import StagedFile
from tarry.base.errors import CorruptError, TarryError
from tarry.message.schema import SCHEMA
from tarry.spark.broker_client import BrokerClient, IntakeState
from tarry.spark.runtime.worker import rest
from tarry.store import check_same_table, stage

CHUNK_BYTES = 128 << 20
"""A range with more bytes is staged in parts. About three times this is needed while sorting."""

RESULT_SCHEMA = "result string"
"""A row for each range: a :class:`RangeResult` as JSON."""
_RESULT = pa.schema([("result", pa.string())])


@dataclass(frozen=True)
class RangeResult:
    """Result of one range: the number of messages read, and the files of those that had not fired."""

    start_seq: int
    end_seq: int
    rows_read: int
    files: tuple[StagedFile, ...]


@dataclass(frozen=True)
class StageTask:
    """The function for ``mapInArrow``; plain data, so that it travels to any executor."""

    flight: str
    root: str
    table_id: str
    shard: int
    token: str | None = field(default=None, repr=False)
    """Shown to the broker; None: the task's process finds one by itself."""
    epoch: int | None = None
    """That of the owner for which the driver works: what another one has is not staged."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_same_table(self.root, self.table_id)
        with BrokerClient(self.flight, self.token, epoch=self.epoch) as client:
            for batch in batches:
                for start, end in zip(batch["start_seq"].to_pylist(), batch["end_seq"].to_pylist(), strict=True):
                    result = json.dumps(asdict(self.stage_range(client, start, end)))
                    yield pa.RecordBatch.from_pydict({"result": [result]}, schema=_RESULT)
        rest()

    def stage_range(self, client: BrokerClient, start_seq: int, end_seq: int) -> RangeResult:
        """Fetch and stage ``[start_seq, end_seq)``."""
        files: list[StagedFile] = []
        rows_read = chunk_bytes = 0
        chunk: list[pa.RecordBatch] = []
        now_ms = 0

        def stage_chunk() -> None:
            nonlocal chunk, chunk_bytes
            prefix = f"intake-{start_seq:020d}-{end_seq:020d}"
            table, chunk, chunk_bytes = pa.Table.from_batches(chunk, schema=SCHEMA), [], 0
            files.extend(stage(table, self.root, prefix, now_ms, shard=self.shard))

        for state, batch in read_all(client, start_seq, end_seq):
            now_ms = state.now_ms
            rows_read += batch.num_rows
            chunk.append(_unfired(batch, state))
            chunk_bytes += chunk[-1].nbytes
            if chunk_bytes >= CHUNK_BYTES:
                stage_chunk()
        stage_chunk()
        return RangeResult(start_seq, end_seq, rows_read, tuple(files))


def read_all(client: BrokerClient, start_seq: int, end_seq: int) -> Iterator[tuple[IntakeState, pa.RecordBatch]]:
    """Yield every message of ``[start_seq, end_seq)`` that the intake still has, each seq exactly once.

    The intake deletes from its front what is in the store or has fired; such a gap is no loss, and it may open while we
    read. Any other gap would be one: the commit of this range lets the broker delete it.

    Raises:
        CorruptError: the intake gave something else than the range.
    """
    at = start_seq
    while at < end_seq:
        state = client.state()
        at = max(at, min(state.first_seq, end_seq))
        if at == end_seq:
            return
        before = at
        try:
            for batch in client.read(at, end_seq):
                at = _continued(batch, at, end_seq)
                yield state, batch
        except TarryError:
            if client.state().first_seq <= at:
                raise
            continue  # messages of the range fired and were deleted during the read
        if at == before or (at < end_seq and client.state().first_seq <= at):
            raise CorruptError(f"the intake ended at seq {at} of [{start_seq}, {end_seq}), though it has them")


def decode(rows: Iterable[Any]) -> list[RangeResult]:
    """Return the results that the tasks yielded, in seq order."""
    return sorted((_decoded(row["result"]) for row in rows), key=lambda result: result.start_seq)


def _decoded(result: str) -> RangeResult:
    fields = json.loads(result)
    return RangeResult(**{**fields, "files": tuple(StagedFile(**file) for file in fields["files"])})


def _unfired(batch: pa.RecordBatch, state: IntakeState) -> pa.RecordBatch:
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    fired = (due < state.fired_until_ms) & (seq < state.fired_seq)
    return batch.filter(pc.invert(pa.array(fired))) if fired.any() else batch


def _continued(batch: pa.RecordBatch, at: int, end_seq: int) -> int:
    seq = batch.column("seq").to_numpy()
    if len(seq) == 0:
        return at
    if seq[0] != at or seq[-1] >= end_seq or not (np.diff(seq) == 1).all():
        raise CorruptError(f"the intake gave seqs {seq[0]} to {seq[-1]} ({len(seq)} rows) where {at} was next")
    return int(seq[-1]) + 1
