"""A task's work on its partition of a bulk job: check it in chunks, number them, and have them staged.

The two ways differ in the writer of the files: the task itself, straight into the store (``bulk``), or the broker,
which is sent the rows (``flight``). Staged files cannot be seen before the driver commits, and files of a failed
attempt are never committed: so retries and speculative copies of a task are harmless. Memory is a few times
:data:`CHUNK_BYTES`, however large the partition.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from tarry.api.jobs import StagedFile
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError
from tarry.message.bulk import prefix_of
from tarry.message.schema import chunks, count_topics, numbered
from tarry.spark.broker_client import BrokerClient, BulkAttempt, Staged
from tarry.spark.datasource.rows import RowChecker
from tarry.store import stage, staging, table_id_at
from tarry.store.place import Place
from tarry.store.stage import FILES_MAX

CHUNK_BYTES = 128 << 20
"""Rows are sorted and written in chunks of this size. About three times this is needed meanwhile."""
FILES_LATER = 2
"""Maximum number of files of each chunk but a task's first.

A partition of a hundred chunks must not make 1,600 files.
"""


@dataclass
class StagingTask:
    """The work of one task for one attempt of a job."""

    client: BrokerClient
    job: BulkAttempt
    files: list[StagedFile] = field(default_factory=list)
    topics: Counter[str] = field(default_factory=Counter)
    keys: int | None = 0

    def run(self, batches: Iterable[pa.RecordBatch], checker: RowChecker, partition: int, way: str) -> Staged:
        """Stage a partition.

        Raises:
            InvalidMessageError: a row is refused. UnavailableError: the broker, or the store, cannot be reached.
            DiskFullError: the store's disk, or the broker's, is full. OSError: the disk is broken.
        """
        admitted = checker.admitted(batches, partition)
        if way == "flight" or (way == "auto" and not can_reach(self.job)):
            self._send(admitted)
        else:
            self._write(admitted, partition)
        return Staged(tuple(self.files), dict(self.topics), self.keys)

    # -- the task writes -----------------------------------------------------------------------------------------------

    def _write(self, admitted: Iterator[pa.RecordBatch], partition: int) -> None:
        with staging(self.job.store_uri, "the DataFrame") as self.files:
            for chunk in chunks(admitted, CHUNK_BYTES):
                if not self.files and not can_reach(self.job):
                    raise InvalidArgumentError(
                        f"this task cannot write to the store at {self.job.store_uri}; allowed: mode 'bulk' where all "
                        "tasks reach it; without the option, tasks that do not send their rows to the broker"
                    )
                self._stage(chunk, partition)

    def _stage(self, chunk: list[pa.RecordBatch], partition: int) -> None:
        table = pa.Table.from_batches(chunk)
        first = self.client.reserve(self.job.number, table.num_rows)
        prefix = f"{prefix_of(self.job.number)}{partition}"
        files_max = FILES_LATER if self.files else FILES_MAX
        self.files += stage(
            numbered(table, first),
            self.job.store_uri,
            prefix,
            self.job.now_ms,
            shard=self.job.shard,
            files_max=files_max,
        )
        if self.keys is not None:
            self.keys += table.num_rows - table.column("key").null_count
        count_topics(table.column("topic"), self.topics)

    # -- the broker writes ---------------------------------------------------------------------------------------------

    def _send(self, admitted: Iterator[pa.RecordBatch]) -> None:
        first = next(admitted, None)
        if first is None:
            return

        def rows() -> Iterator[pa.RecordBatch]:
            yield first
            yield from admitted

        staged = self.client.send(self.job.number, rows())
        self.files += staged.files
        self.topics.update(staged.topics)
        self.keys = staged.keys


def can_reach(job: BulkAttempt) -> bool:
    """Return whether this process can write into the job's store.

    A directory of that name may be another machine's own.
    """
    try:
        _check_reached(job.number, job.store_uri, job.table_id)
    except (OSError, pa.ArrowException, TarryError):
        return False  # and the next task tries again: a late mount is seen
    return True


@lru_cache(maxsize=1)
def _check_reached(number: int, store_uri: str, table_id: str) -> None:
    # A worker looks once for all its tasks of a job (``number``): opening a table takes as long as staging some
    # thousand rows.
    place = Place.of(store_uri)
    if place.local is not None:
        reached = os.access(place.local, os.W_OK) and table_id_at(place) == table_id
    else:
        reached = place.filesystem.get_file_info(f"{place.base}/_delta_log").type.name != "NotFound"
    if not reached:
        raise NotFoundError(f"the table {table_id} is not at {store_uri}, as this machine sees it")
