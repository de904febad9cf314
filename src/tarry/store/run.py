"""Writes a sorted run of any length: rows come in order, files go out, memory holds one file at most.

A file ends at the first bucket's end at which it has 8 MiB; anywhere once it has 16 MiB of several buckets, or
``bytes_max`` (the others are parts of that). So of one run no file but the last is small, and a large one lies in one
bucket: rows that were cut once are not chosen to be cut again (``upkeep.py``). Buckets are those of twice the distance,
for the same reason.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tarry.api.jobs import StagedFile
from tarry.store.layout import bucket_starts, cut_by_size
from tarry.store.place import Place
from tarry.store.stage import GROUP_BYTES_MAX, GROUP_ROWS_MAX, FileWriter, put, row_bytes, sync_names

FILE_BYTES_MAX = 256 << 20
"""Bytes of the largest file.

1/32 of it is enough at the end of a bucket, 1/16 is the most of several buckets, 1/64 a row group.
"""
REACH = 2
_GROUP_BYTES_MIN = 64 << 10


class RunWriter:
    """Writer of a sorted run; takes rows of :data:`tarry.message.schema.SCHEMA` by (due_ms, seq).

    :meth:`finish` returns durable files.

    ``cancelled``: they are cancellations, which have a bucket of their own.
    """

    def __init__(
        self, root: str, prefix: str, now_ms: int, *, shard: int, bytes_max: int = FILE_BYTES_MAX, cancelled: bool
    ) -> None:
        self._place = Place.of(root)
        self._prefix, self._shard, self._now_ms = prefix, shard, now_ms
        self._bytes_max, self._cancelled = bytes_max, cancelled
        self._group_bytes = min(GROUP_BYTES_MAX, max(_GROUP_BYTES_MIN, bytes_max // 64))
        self._last_due: int | None = None
        self._file: _RunFile | None = None
        self._done: list[StagedFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """More rows, which come after those before.

        Raises:
            OSError: the disk is full or broken; :meth:`abandon` is then due.
        """
        at = 0
        for start in [*self._starts(rows), rows.num_rows]:
            if start > at:
                self._take(rows.slice(at, start - at))
            if start < rows.num_rows:
                self._new_bucket()
            at = start

    def finish(self) -> list[StagedFile]:
        """Close the last file and make all names durable."""
        self._close()
        sync_names(self._place, self._done)
        return self._done

    def abandon(self) -> None:
        """Remove what was written, as far as possible: a full disk must not be made fuller by every attempt."""
        self._place.remove(file.path for file in self._done)

    def _starts(self, rows: pa.RecordBatch) -> list[int]:
        """Return the rows at which a bucket begins; 0 may be one of them."""
        if self._cancelled or rows.num_rows == 0:
            return []
        due = rows.column("due_ms").to_numpy()
        before = [] if self._last_due is None else [self._last_due]
        starts = bucket_starts(np.concatenate([np.array(before, np.int64), due]), self._now_ms, reach=REACH)
        self._last_due = int(due[-1])
        return [start - len(before) for start in starts]

    def _new_bucket(self) -> None:
        if self._file is not None:
            if self._file.size >= self._bytes_max // 32 and self._is_worth_a_file(self._file):
                self._close()
            else:
                self._file.buckets += 1

    def _take(self, rows: pa.RecordBatch) -> None:
        for start, stop in cut_by_size(row_bytes(rows), rows_max=GROUP_ROWS_MAX, bytes_max=self._group_bytes):
            part = rows.slice(start, stop - start)
            if self._file is not None and self._file.size + part.nbytes > self._bytes_max:
                self._close()
            if self._file is None:
                self._file = _RunFile(self._group_bytes, cancelled=self._cancelled)
            self._file.add(part)
            if (
                self._file.buckets > 1
                and self._file.size >= self._bytes_max // 16
                and self._is_worth_a_file(self._file)
            ):
                self._close()

    def _is_worth_a_file(self, file: _RunFile) -> bool:
        # Waiting rows are not compressed yet, and may need very little.
        return file.written >= self._bytes_max // 64

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._done.append(put(file.finish(), self._place, self._shard, self._prefix, cancelled=self._cancelled))


class _RunFile:
    """One Parquet file in memory. Row groups are filled up, whatever the batches are that come in."""

    def __init__(self, group_bytes: int, *, cancelled: bool) -> None:
        self.buckets = 1
        self._group_bytes = group_bytes
        self._writer = FileWriter(cancelled=cancelled)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    @property
    def written(self) -> int:
        """Bytes written."""
        return self._writer.bytes

    @property
    def size(self) -> int:
        """Bytes written, and those of less than a row group that wait, not compressed yet."""
        return self.written + self._waiting_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += int(row_bytes(rows).sum())
        if self._waiting_rows >= GROUP_ROWS_MAX or self._waiting_bytes >= self._group_bytes:
            self._flush(whole=False)

    def _flush(self, *, whole: bool) -> None:
        """Write row groups; ``whole``: also the last one, which is not full."""
        if not self._waiting:
            return
        rows = pa.concat_batches(self._waiting)
        sizes = row_bytes(rows)
        runs = cut_by_size(sizes, rows_max=GROUP_ROWS_MAX, bytes_max=self._group_bytes)
        last, full = runs[-1], int(sizes[slice(*runs[-1])].sum()) >= self._group_bytes // 2
        kept = not whole and len(runs) > 1 and not full
        for start, stop in runs[:-1] if kept else runs:
            self._writer.write_group(rows.slice(start, stop - start))
        self._waiting = [rows.slice(last[0])] if kept else []
        self._waiting_rows = last[1] - last[0] if kept else 0
        self._waiting_bytes = int(sizes[slice(*last)].sum()) if kept else 0

    def finish(self) -> pa.Buffer:
        """Return the whole file; nothing may be added any more."""
        self._flush(whole=True)
        return self._writer.finish()
