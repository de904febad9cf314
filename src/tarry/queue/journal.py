"""The journal of the groups: which there are, which offsets are settled, and which are to be tried again. Format:
``docs/formats.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tarry.base.errors import DiskFullError, TarryError
from tarry.log import frame
from tarry.log.commit import GroupCommit
from tarry.log.files import DISK_FULL, Files, sync_directory
from tarry.log.frame import LogKind
from tarry.log.recover import recover_tail
from tarry.log.segment import SegmentReader, SegmentWriter, list_segments, segment_path

log = logging.getLogger(__name__)

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("group", pa.string()),
        ("op", pa.int8()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("attempt", pa.int32()),
        ("at_ms", pa.int64()),
    ]
)
SNAPSHOT_BEGINS, SNAPSHOT_ENDS = 1, 2


class Op(IntEnum):
    """What a row of the journal says."""

    GROUP = 0
    ACK = 1
    RETRY = 2
    SEEK = 3
    DELETE = 4


class Entry(NamedTuple):
    """One row: ``op`` for offsets ``first … last-1``.

    For GROUP, all below ``first`` is settled, ``last`` messages were lost to retention so far, and ``attempt`` is 1
    where the group began at the latest message. For SEEK, all below ``first`` is settled, and nothing from there on.
    """

    topic: str
    group: str
    op: Op
    first: int
    last: int = 0
    attempt: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Item:
    entries: list[Entry]
    ticket: int
    done: Callable[[TarryError | None], None] | None


class Journal:
    """Entries given together wait for one fsync, which comes after the ready log's (``docs/formats.md`` says why).

    ``sync_ready(ticket)`` makes the ready log durable up to a ticket of its own, or all of it (None).
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        segment_bytes_max: int,
        sync_ready: Callable[[int | None], None],
        snapshot: Callable[[], Iterable[Entry]],
        on_fatal: Callable[[BaseException], None],
        threaded: bool,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes_max = segment_bytes_max
        self._sync_ready = sync_ready
        self._snapshot = snapshot
        self._fatal = on_fatal
        self._owed: list[Entry] = []
        self._dead = False
        self._writer: SegmentWriter
        self._threaded = threaded
        self._commits: GroupCommit[_Item] | None = None
        self._roll_bytes = segment_bytes_max

    def start(self) -> None:
        """Take entries from now on; recovery is over."""
        self._commits = GroupCommit(
            "tarry-acks", self._commit, self._failed, weight_max=1 << 62, threaded=self._threaded
        )

    def write(self, entries: list[Entry], ticket: int, done: Callable[[TarryError | None], None] | None = None) -> None:
        """Make entries durable. ``ticket``: what of the ready log they refer to. ``done`` is told from the journal's
        thread.
        """
        assert self._commits is not None
        self._commits.submit(_Item(entries, ticket, done), 1)

    def _commit(self, items: list[_Item]) -> None:
        entries = self._owed + [e for item in items for e in item.entries]
        error: TarryError | None = None
        try:
            self._sync_ready(max((item.ticket for item in items), default=None))
            self._append(entries)
            self._owed = []
        except OSError as failure:
            if failure.errno not in DISK_FULL:
                raise
            # Consumers go on; what they acknowledged is owed to the disk, and would be delivered again after a crash.
            self._owed = entries
            error = DiskFullError(f"the disk of {self._directory} is full: the acknowledgement is not durable yet")
        else:
            self._writer.sync()
            if self._writer.size >= self._roll_bytes:
                self._roll()
        for item in items:
            if item.done is not None:
                item.done(error)

    def _append(self, entries: list[Entry], kind: int = 0) -> None:
        columns = list(zip(*entries, strict=True)) if entries else [()] * len(SCHEMA)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )
        self._writer.append(frame.encode(batch, base=0, kind=kind, durable_to=self._writer.durable))

    def _roll(self) -> None:
        """Begin a new file with what is true now. The old files go only when it is durable."""
        old = self._writer
        try:
            fresh = SegmentWriter(self._files, self._directory, LogKind.ACKS, old.base + 1)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return
        self._writer = fresh
        # The snapshot is taken after the last entry of the old file was written, and later entries follow it in the new
        # one. The state may be ahead of the entries written (they are queued): replaying them again changes nothing.
        # But it must not be ahead of the ready log on disk, so that log is synced once more.
        try:
            entries = list(self._snapshot())
            self._sync_ready(None)
            self._append(entries, SNAPSHOT_BEGINS)
            self._append([], SNAPSHOT_ENDS)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._writer = old
            fresh.close()
            self._files.remove(fresh.path)
            sync_directory(self._directory)
            return
        fresh.sync()
        old.close()
        # A snapshot may be larger than a segment; then one for each commit would be most of the writing.
        self._roll_bytes = max(self._segment_bytes_max, 2 * fresh.size)
        for base in list_segments(self._directory):
            if base < fresh.base:
                self._files.remove(segment_path(self._directory, base))

    def _failed(self, error: BaseException, items: list[_Item]) -> None:
        from tarry.log.commit import as_tarry_error

        self._dead = True
        self._fatal(error)
        for item in items:
            if item.done is not None:
                item.done(as_tarry_error(error, "writing the journal of acknowledgements"))

    def recover(self) -> Iterator[Entry]:
        """Open what is on disk and give its entries, oldest first; a later one wins.

        Raises:
            CorruptError: for damage in what had been durable.
        """
        bases = list_segments(self._directory)
        for base in bases[-1:]:
            recover_tail(self._files, segment_path(self._directory, base), LogKind.ACKS, base)
        # A last file whose snapshot is not whole died while rolling: the file before it has everything.
        while len(bases) > 1 and not _is_whole(segment_path(self._directory, bases[-1])):
            self._files.remove(segment_path(self._directory, bases.pop()))
            recover_tail(self._files, segment_path(self._directory, bases[-1]), LogKind.ACKS, bases[-1])
        for base in bases[-1:]:
            with SegmentReader(segment_path(self._directory, base)) as reader:
                for _, _, batch in reader.read_all(SCHEMA):
                    for row in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                        yield Entry(row[0], row[1], Op(row[2]), *row[3:])
        self._writer = SegmentWriter(self._files, self._directory, LogKind.ACKS, bases[-1] if bases else 0)
        # Before anything is served: its writer may have died before the fsync.
        self._writer.sync()
        for base in bases[:-1]:
            self._files.remove(segment_path(self._directory, base))

    def close(self) -> None:
        """Write what waits, and stop."""
        if self._commits is not None:
            self._commits.close()
            if self._owed and not self._dead:
                self._commit([])  # what a full disk kept from being written, if there is room now
        if hasattr(self, "_writer"):  # recovery may have ended before there was one
            self._writer.close()


def _is_whole(path: Path) -> bool:
    with SegmentReader(path) as reader:
        return any(at.header.kind == SNAPSHOT_ENDS for at in reader.headers())
