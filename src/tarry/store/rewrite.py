"""Rewrites some files of the store as one sorted run, without rows that are not needed any more.

A :class:`Work` is plain data, so that it can be carried out in any process. Messages are left out when they have fired
(``floor_ms``), when a cancellation names them, or when their bulk job was cancelled; cancellations, when no file has
their message. All are streams in due order, so memory holds about a row group of each file that overlaps.

A Work stays right while others commit: a cancellation is never taken back, and a message with a cancellation in the
store never comes into the store again, since it was there before or was left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.api.jobs import StagedFile
from tarry.base.errors import CorruptError
from tarry.base.types import Int64s, Key, Mask
from tarry.message.bulk import SEQ_MIN, CancelledJobs
from tarry.message.schema import cancelled_seqs, messages_only
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry.store.run import FILE_BYTES_MAX, RunWriter
from tarry.store.snapshot import FileColumns, Snapshot
from tarry.store.window import read_window

BATCH_ROWS = 8192
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_KEYS = ("due_ms", "seq")


@dataclass(frozen=True, slots=True)
class Work:
    """Files to rewrite: ``files`` are replaced by files without the rows that are not needed.

    ``against``: for messages the files of cancellations, for cancellations those of messages. If less than
    ``dead_share_min`` of the rows would be left out, nothing is rewritten. ``cancelled_jobs``: as
    :meth:`tarry.message.bulk.CancelledJobs.to_wire` returns them. ``reason`` is for people.
    """

    reason: str
    root: str
    shard: int
    files: FileColumns
    against: FileColumns
    cancellations: bool
    now_ms: int
    floor_ms: int
    cancelled_jobs: tuple[tuple[int, int, int], ...] = ()
    file_bytes_max: int = FILE_BYTES_MAX
    dead_share_min: float = 0.0

    @property
    def bytes(self) -> int:
        """The bytes of ``files``, all of which are read."""
        return int(self.files.size.sum())


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Result of a Work: ``files``, staged, replace ``removed``. Both empty: it was not worth it."""

    removed: tuple[str, ...]
    files: tuple[StagedFile, ...]
    rows_read: int
    bytes_read: int

    @property
    def rows(self) -> int:
        """Number of rows that are left."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes that were written."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class DamagedWork:
    """Result of a Work that found a damaged or missing file; nothing was rewritten.

    ``error`` names the file; ``paths`` are those of the Work's own files that it names.
    """

    error: str
    paths: tuple[str, ...]


def rewrite_sound(work: Work) -> Rewritten | DamagedWork:
    """:func:`rewrite`, where a damaged file is a result: the works beside it are not its matter.

    Raises:
        OSError: the disk is full or broken.
    """
    try:
        return rewrite(work)
    except CorruptError as error:
        text = str(error)
        return DamagedWork(text, tuple(path for path in work.files.path if path in text))


def rewrite(work: Work) -> Rewritten:
    """Read ``work.files`` and stage what is left of them, durably; nothing is published.

    When it fails, what was written is removed again as far as possible.

    Raises:
        CorruptError: a file is missing or damaged. OSError: the disk is full or broken.
    """
    if work.dead_share_min > 0:
        rows, dead = dead_rows(work)
        if dead < work.dead_share_min * rows:
            return Rewritten((), (), 0, 0)
    lost = _Orphaned(work) if work.cancellations else _Cancelled(work)
    prefix = f"run-{work.reason}"
    writer = RunWriter(
        work.root,
        prefix,
        work.now_ms,
        shard=work.shard,
        bytes_max=work.file_bytes_max,
        cancelled=work.cancellations,
    )
    try:
        for batch in _sorted(work.root, work.files, work.floor_ms, _HIGHEST):
            rows = batch if work.cancellations else messages_only(batch)
            cancelled = lost.mask(rows)
            writer.add(rows.filter(pa.array(~cancelled)) if cancelled.any() else rows)
        files = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    finally:
        pa.default_memory_pool().release_unused()
    return Rewritten(tuple(work.files.path), tuple(files), int(work.files.rows.sum()), work.bytes)


def dead_rows(work: Work) -> tuple[int, int]:
    """Return the number of rows of ``work.files``, and how many of them a rewrite would leave out.

    Of messages, reads two columns of the row groups that can have any.
    """
    rows = dead = 0
    place = Place.of(work.root)
    if work.cancellations:
        orphaned = _Orphaned(work)
        for batch in _sorted(work.root, work.files, _LOWEST, _HIGHEST):
            mask = orphaned.mask(batch) | (batch.column("due_ms").to_numpy() < work.floor_ms)
            rows, dead = rows + batch.num_rows, dead + int(mask.sum())
        return rows, dead
    for path in work.files.path:
        lost = _Cancelled(work)
        for group in groups(place, path):
            rows += group.rows
            if not lost.may_be_in(group.due_min_ms, group.due_max_ms, group.seq_min, group.seq_max):
                continue
            batch = read_group(place, path, group.number, _KEYS)
            dead += int((lost.mask(batch) | (batch.column("due_ms").to_numpy() < work.floor_ms)).sum())
    return rows, dead


def _sorted(root: str, files: FileColumns, from_ms: int, until_ms: int) -> Iterator[pa.RecordBatch]:
    return read_window(Snapshot(root, 0, 0, files), Key(from_ms, _LOWEST), until_ms, batch_rows=BATCH_ROWS)


class _Cancelled:
    """Tells which messages are cancelled; asked in due order, it reads the cancellations beside."""

    def __init__(self, work: Work) -> None:
        self._jobs = CancelledJobs.of_wire(work.cancelled_jobs)
        low = int(work.files.due_min_ms.min())
        high = min(int(work.files.due_max_ms.max()), _HIGHEST - 1)
        self._coming = _sorted(work.root, work.against, max(low, work.floor_ms), high + 1)
        self._due: Int64s = np.empty(0, np.int64)
        self._seq: Int64s = np.empty(0, np.int64)
        self._ended = False

    def mask(self, rows: pa.RecordBatch) -> Mask:
        due, seq = rows.column("due_ms").to_numpy(), rows.column("seq").to_numpy()
        dead = self._jobs.mask(due, seq)
        if len(due):
            self._move_to(int(due[0]), int(due[-1]))
        if len(self._due):
            dead |= _among(due, seq, self._due, self._seq)
        return dead

    def may_be_in(self, due_min_ms: int, due_max_ms: int, seq_min: int, seq_max: int) -> bool:
        """Return whether a row within these bounds may be cancelled."""
        self._move_to(due_min_ms, due_max_ms)
        within = (self._due >= due_min_ms) & (self._due <= due_max_ms) & (self._seq >= seq_min) & (self._seq <= seq_max)
        return bool(within.any()) or bool(self._jobs and seq_max >= SEQ_MIN)

    def _move_to(self, due_min_ms: int, due_max_ms: int) -> None:
        """Have the cancellations of these due times at hand, and let go of those before."""
        low = int(np.searchsorted(self._due, due_min_ms))
        due, seq = [self._due[low:]], [self._seq[low:]]
        last = int(self._due[-1]) if len(self._due) else _LOWEST
        while not self._ended and last <= due_max_ms:
            batch = next(self._coming, None)
            if batch is None:
                self._ended = True
                break
            due.append(batch.column("due_ms").to_numpy())
            seq.append(cancelled_seqs(batch))
            last = int(due[-1][-1])
        self._due, self._seq = np.concatenate(due), np.concatenate(seq)


class _Orphaned:
    """Tells which cancellations have no message in the store."""

    def __init__(self, work: Work) -> None:
        self._messages = work.against
        self._place = Place.of(work.root)

    def mask(self, rows: pa.RecordBatch) -> Mask:
        due, target = rows.column("due_ms").to_numpy(), cancelled_seqs(rows)
        has_message = np.zeros(len(due), np.bool_)
        if len(due) == 0:
            return has_message
        files = self._messages
        for i in np.flatnonzero((files.due_max_ms >= due[0]) & (files.due_min_ms <= due[-1])).tolist():
            if not _within(due, target, files, i).any():
                continue
            for group in groups(self._place, files.path[i]):
                wanted = ~has_message & (due >= group.due_min_ms) & (due <= group.due_max_ms)
                wanted &= (target >= group.seq_min) & (target <= group.seq_max)
                if not wanted.any():
                    continue
                batch = read_group(self._place, files.path[i], group.number, _KEYS)
                pairs = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
                has_message |= wanted & _among(due, target, *pairs)
        return ~has_message


def _within(due: Int64s, seq: Int64s, files: FileColumns, i: int) -> Mask:
    within = (due >= files.due_min_ms[i]) & (due <= files.due_max_ms[i])
    return np.asarray(within & (seq >= files.seq_min[i]) & (seq <= files.seq_max[i]))


def _among(due: Int64s, seq: Int64s, other_due: Int64s, other_seq: Int64s) -> Mask:
    """Return which of the pairs are among the others; a seq has one due time."""
    order = np.argsort(other_seq)
    at = np.minimum(np.searchsorted(other_seq, seq, sorter=order), len(other_seq) - 1)
    return np.asarray((other_seq[order[at]] == seq) & (other_due[order[at]] == due))
