"""Writing rows as sorted Parquet files under the table's root, for a later commit to publish.

A staged file is already in its final place, ``shard=S/bucket=LABEL/PREFIX-UUID-CRC-CRC.parquet``: readers of a table
see only what its log names, so an unfinished batch is harmless, nothing has to be moved, and a second attempt never
touches the files of the first (the UUID). ``orphans.py`` removes what was never committed. On a local disk every file
and every directory above it is fsynced before :func:`stage` returns, because the commit that follows lets the broker
delete its own copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarry.api.jobs import StagedFile
from tarry.base.errors import DiskFullError, InvalidArgumentError
from tarry.base.types import Int64s
from tarry.log.files import TRY_AGAIN
from tarry.message.schema import SCHEMA, Kind, cancelled_seqs, messages_only
from tarry.store.claims import FileContent
from tarry.store.columns import STORED, stored
from tarry.store.due_counts import KEY, DueCounter
from tarry.store.footers import checksums_of
from tarry.store.layout import CANCELLED, cut, cut_by_size, label
from tarry.store.parquet import groups_in
from tarry.store.place import Place, sync_file, sync_up

FILES_MAX = 16
"""Most files of one call."""

FILE_BYTES_MIN = 8 << 20
"""Below about this size, neighbouring buckets share a file."""

GROUP_ROWS_MAX = 8192
GROUP_BYTES_MAX = 4 << 20
"""A row group is the unit of reading: a window of a minute reads one for each file that overlaps it."""

STAGE_BYTES_MAX = 1 << 30
"""Most bytes of one call: sorting needs them in one piece, and Arrow's 32-bit offsets end at 2 GiB."""

_DELTA_ENCODED = dict.fromkeys(("seq", "due_ms", "due", "born_ms"), "DELTA_BINARY_PACKED")


def stage(
    table: pa.Table, root: str, prefix: str, now_ms: int, *, shard: int = 0, files_max: int = FILES_MAX
) -> list[StagedFile]:
    """Sort ``table`` by ``(due_ms, seq)``, cut it into buckets and write them, durably.

    ``table`` is of :data:`tarry.message.schema.SCHEMA`. Cancellations go to files of their own, in the bucket
    "cancelled"; a message whose cancellation is in the same table is left out. If writing fails, written files are
    removed again as far as possible.

    Raises:
        InvalidArgumentError: the schema is another one, or the table is larger than :data:`STAGE_BYTES_MAX`.
        OSError: the disk is full or broken.
    """
    if table.schema != SCHEMA:
        raise InvalidArgumentError(
            f"the schema to stage is {table.schema.names}; allowed: {SCHEMA.names}, in the types of a message"
        )
    if table.nbytes > STAGE_BYTES_MAX:
        raise InvalidArgumentError(
            f"{table.nbytes} bytes to stage at once; allowed: {STAGE_BYTES_MAX}; stage them in parts"
        )
    messages, cancelled = _by_kind(table)
    if messages.num_rows + cancelled.num_rows == 0:
        return []
    place = Place.of(root)
    staged: list[StagedFile] = []
    try:
        for start, stop in _cut_messages(messages, now_ms, files_max):
            content = _parquet(messages.slice(start, stop - start), cancelled=False)
            staged.append(put(content, place, shard, prefix, cancelled=False))
        if cancelled.num_rows:
            staged.append(put(_parquet(cancelled, cancelled=True), place, shard, prefix, cancelled=True))
        sync_names(place, staged)
    except BaseException:
        # A full disk must not be made fuller by every attempt. The file that failed is _write's to remove.
        place.remove(file.path for file in staged)
        raise
    return staged


@contextmanager
def staging(root: str, what: str) -> Iterator[list[StagedFile]]:
    """Collect files that are staged one after the other, for one commit; if that fails, delete them.

    Raises:
        DiskFullError: in place of the system's error; ``what`` is not scheduled then.
    """
    files: list[StagedFile] = []
    try:
        yield files
    except BaseException as error:
        # Removed at once, since no commit will name them: a full disk needs the room.
        Place.of(root).remove(file.path for file in files)
        if isinstance(error, OSError) and error.errno in TRY_AGAIN:
            raise DiskFullError(
                f"the disk of the store at {root} is full: {error}; nothing of {what} is scheduled; "
                "make room, then run it again with the same job id"
            ) from error
        raise


def sync_names(place: Place, staged: Iterable[StagedFile]) -> None:
    """Make the names of staged files durable, on a local disk."""
    if place.local is not None:
        for directory in sorted({(place.local / file.path).parent for file in staged}):
            sync_up(directory, place.local)


def _cut_messages(messages: pa.RecordBatch, now_ms: int, files_max: int) -> list[tuple[int, int]]:
    rows_min = FILE_BYTES_MIN * messages.num_rows // max(messages.nbytes, 1)
    return cut(messages.column("due_ms").to_numpy(), now_ms, rows_min=rows_min, slices_max=files_max)


def _by_kind(table: pa.Table) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Messages and cancellations, each sorted."""
    whole = _combined(table)
    messages = messages_only(whole)
    if messages is whole:
        return _sorted(whole), whole.slice(0, 0)
    cancelled = whole.filter(pc.equal(whole.column("kind"), int(Kind.CANCEL)))
    kept = ~np.isin(messages.column("seq").to_numpy(), cancelled_seqs(cancelled))
    return _sorted(messages.filter(pa.array(kept))), _sorted(cancelled)


def _combined(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=SCHEMA)


def _sorted(batch: pa.RecordBatch) -> pa.RecordBatch:
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    # From the intake rows come in seq order: then one stable sort by due time does.
    in_seq_order = bool((np.diff(seq) > 0).all())
    if in_seq_order and bool((np.diff(due) >= 0).all()):
        return batch
    order = np.argsort(due, kind="stable") if in_seq_order else np.lexsort((seq, due))
    return batch.take(pa.array(order))


def put(content: pa.Buffer, place: Place, shard: int, prefix: str, *, cancelled: bool) -> StagedFile:
    """Store a whole Parquet file under a new name, durably but for the names in directories.

    The returned description is that of its footer. ``cancelled``: it is of cancellations, which have a bucket of their
    own.
    """
    has = FileContent.of(groups_in(pq.read_metadata(pa.BufferReader(content))))
    assert has.due_min_ms is not None and has.due_max_ms is not None
    bucket = CANCELLED if cancelled else label(has.due_min_ms, has.due_max_ms)
    directory = f"shard={shard}/bucket={bucket}"
    relative = f"{directory}/{prefix}-{uuid.uuid4().hex}-{checksums_of(content)}.parquet"
    path = place.path(relative)
    place.filesystem.create_dir(place.path(directory), recursive=True)
    try:
        with place.filesystem.open_output_stream(path) as file:
            file.write(content)
        if place.local is not None:
            sync_file(Path(path))
    except BaseException:
        place.remove([relative])
        raise
    return StagedFile(path=relative, shard=shard, bucket=bucket, size=content.size, **has._asdict())


def _parquet(rows: pa.RecordBatch, *, cancelled: bool) -> pa.Buffer:
    # In memory first: the name has the footer's checksum, and an object store gets the file in one piece.
    file = FileWriter(cancelled=cancelled)
    for start, stop in cut_by_size(row_bytes(rows), rows_max=GROUP_ROWS_MAX, bytes_max=GROUP_BYTES_MAX):
        file.write_group(rows.slice(start, stop - start))
    return file.finish()


class FileWriter:
    """A store file in memory, written a row group at a time; ``cancelled``: it is of cancellations."""

    def __init__(self, *, cancelled: bool) -> None:
        self._cancelled = cancelled
        self._content = pa.BufferOutputStream()
        self._counter = DueCounter()
        self._writer: Any = pq.ParquetWriter(
            self._content,
            STORED,
            compression="zstd",
            compression_level=1,
            use_dictionary=["topic"],
            column_encoding=_DELTA_ENCODED,
            write_statistics=["due_ms", "due", "seq", "topic"],
            write_page_checksum=True,
        )

    @property
    def bytes(self) -> int:
        """Written until now."""
        return int(self._content.tell())

    def write_group(self, rows: pa.RecordBatch) -> None:
        """Write a row group of rows of :data:`tarry.message.schema.SCHEMA`, which come after those before."""
        self._writer.write_batch(stored(rows, cancelled=self._cancelled), row_group_size=rows.num_rows)
        if not self._cancelled:
            self._counter.add(rows)

    def finish(self) -> pa.Buffer:
        """Return the whole file; nothing may be written any more."""
        counts = self._counter.counts()
        if counts is not None:
            self._writer.add_key_value_metadata({KEY: counts.to_bytes()})
        self._writer.close()
        return self._content.getvalue()


def row_bytes(rows: pa.RecordBatch) -> Int64s:
    """Bytes of each body, plus an even share of the other columns."""
    lengths = pc.binary_length(rows.column("body")).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    others = max(0, rows.nbytes - int(lengths.sum())) // max(1, rows.num_rows)
    return np.asarray(lengths + others, np.int64)
