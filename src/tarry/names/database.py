"""The registry's database: RocksDB on a directory, opened, read, written, made durable and discarded.

All of it is derived. So a database that cannot be read is never repaired: the next start rebuilds it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rocksdict import BlockBasedOptions, Cache, Checkpoint, DBRecoveryMode, Options, Rdict, WriteBatch

from tarry.base.descriptors import when_free
from tarry.base.errors import ClosedError, CorruptError
from tarry.base.placement import Placement
from tarry.log.files import Files, passing_error
from tarry.log.permissions import denied_error
from tarry.names.continuity import MARKS_MAX, WRITES_KEY, Continuity
from tarry.names.encoding import MARK, META
from tarry.names.record_files import find_endless_record

log = logging.getLogger(__name__)

BUFFER_BYTES = 8 << 20
CACHE_BYTES = 8 << 20
VERSION = b"1"
_VERSION = META + b"version"
_COMPLETE = META + b"complete"

T = TypeVar("T")


def new_batch() -> WriteBatch:
    """Return an empty batch of changes, which are written together or not at all."""
    return WriteBatch(raw_mode=True)


class Database:
    """The database. One thread makes the counted writes; any thread reads and deletes."""

    def __init__(self, files: Files, directory: Path, placement: Placement) -> None:
        self.directory = directory
        self._placement = placement
        self._files = files
        self._db: Any = None
        self._closed = False
        self._continuity = Continuity()

    @property
    def is_open(self) -> bool:
        return self._db is not None

    @property
    def writes(self) -> int:
        """Number of batches that were ever written to it."""
        return self._continuity.writes

    # -- opening and closing -------------------------------------------------------------------------------------------

    def recover(self, writes_min: int) -> bool:
        """Open what is on disk; if it is unusable (:meth:`open_whole`), discard it and return False."""
        if not self.directory.is_dir():
            return False
        fault = self.open_whole(writes_min)
        if fault is None:
            return True
        log.warning("%s cannot be used: %s", self.directory, fault)
        self.discard()
        return False

    def open_whole(self, writes_min: int) -> str | None:
        """Open what is on disk, and return the reason if it is not to be used; None if it is sound.

        It is unusable if it is damaged, was not filled to the end, or has fewer than ``writes_min`` of its batches. The
        caller has to close it then.

        Raises:
            OSError: it cannot be opened for now, since the disk is full, no descriptor is free, or this process may not
                read it.
        """
        fault = find_endless_record(self.directory)
        if fault is not None:
            return fault
        try:
            self._open()
            return self._find_fault(writes_min)
        except Exception as error:  # RocksDB's bindings raise nothing more specific
            if (passing := passing_error(error, self.directory)) is not None:
                raise passing from error
            if (denied := denied_error(error, self.directory)) is not None:  # it may be whole
                raise denied from error
            return f"it cannot be opened: {str(error).partition(chr(10))[0]}"

    def read_all(self) -> None:
        """Read every entry, so that every checksum is checked.

        Raises:
            CorruptError: one does not match.
        """

        def read() -> None:
            at = self._db.iter()
            at.seek_to_first()
            while at.valid():
                at.next()
            at.status()  # the iterator ends at damage as it does at the end

        self._guarded(read)

    def _find_fault(self, writes_min: int) -> str | None:
        if self._db.get(_VERSION) != VERSION:
            return f"it is of another version; this program reads {VERSION.decode()}"
        if self._db.get(_COMPLETE) is None:
            return "it was not filled to the end"
        self._continuity = Continuity()
        marks = self._read_range(MARK, MARK + b"\xff" * 9, MARKS_MAX + 1)
        gap = self._continuity.resume(self._db.get(WRITES_KEY), [(key, self._db.get(key)) for key in marks])
        if gap is None and self.writes < writes_min:
            return f"it ends with write {self.writes}, but write {writes_min} had been durable"
        return gap

    def begin(self, writes: int) -> None:
        """Begin an empty database, which is then filled, and counts on from ``writes``.

        Until :meth:`complete` it counts as damaged: after a crash, the next start rebuilds it.
        """
        self.discard()
        self._open()
        self._continuity = Continuity(writes)
        self._db.put(_VERSION, VERSION)

    def complete(self) -> None:
        """Record, durably, that the database is filled completely."""
        changes = new_batch()
        changes.put(_COMPLETE, b"")
        self.write(changes)
        self.sync()

    def _open(self) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        # RocksDB ignores its log behind a damaged place. `recover` finds out whether that part had been durable.
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        options.set_write_buffer_size(BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        # Most ids that are looked up are new. Without a filter, finding that out descends the buffer's whole tree.
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(0.05)
        options.set_max_background_jobs(2)
        options.set_max_open_files(64)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(CACHE_BYTES))
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._closed = False
        self._placement.apart()  # RocksDB's threads inherit the cores of the thread that opens it
        self._db = when_free(lambda: Rdict(str(self.directory), options))
        self._files.adopt(self, self.directory)

    def sync(self) -> None:
        """Make all changes until now durable."""
        if self._db is not None:
            self._db.flush_wal(True)

    def copy_to(self, directory: Path) -> None:
        """Make a copy as of now, whose files never change; those that this one has, too, take no room.

        Raises:
            OSError: the disk is full, or no descriptor is free.
        """
        if self._db is not None:
            self._guarded(lambda: Checkpoint(self._db).create_checkpoint(str(directory)))

    def close(self) -> None:
        self._closed = True
        db, self._db = self._db, None
        if db is None:
            return
        try:
            db.close()
        except Exception as error:  # noqa: BLE001 - RocksDB's bindings raise nothing more specific
            # RocksDB's own threads met damage. What was synced is in the files, and the next start checks them.
            log.warning("%s was closed with an error: %s", self.directory, str(error).partition("\n")[0])

    def discard(self) -> None:
        """Close it, and delete it from the disk."""
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- writing and reading -------------------------------------------------------------------------------------------

    def write(self, changes: WriteBatch) -> None:
        """Write a counted batch."""
        self._continuity.count(changes)
        self._guarded(lambda: self._db.write(changes))

    def delete(self, changes: WriteBatch) -> None:
        """Write deletions of old entries, uncounted: if they were lost, they would be repeated."""
        self._guarded(lambda: self._db.write(changes))

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys; None for a missing key, and for all keys if no database is open."""
        if self._db is None or not keys:
            return [None] * len(keys)
        return self._guarded(lambda: self._db.get(list(keys)))

    def keys_between(self, low: bytes, high: bytes, keys_max: int) -> list[bytes]:
        """Return the first keys from ``low`` on and below ``high``, at most ``keys_max``."""
        return [] if self._db is None else self._guarded(lambda: self._read_range(low, high, keys_max))

    def _read_range(self, low: bytes, high: bytes, keys_max: int) -> list[bytes]:
        keys: list[bytes] = []
        at = self._db.iter()
        at.seek(low)
        while at.valid() and len(keys) < keys_max and (key := at.key()) < high:
            keys.append(key)
            at.next()
        at.status()
        return keys

    def last_key_up_to(self, high: bytes) -> bytes | None:
        """Return the last key that is not above ``high``."""

        def read() -> bytes | None:
            at = self._db.iter()
            at.seek_for_prev(high)
            return at.key() if at.valid() else None

        return self._guarded(read)

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return when_free(work)
        except Exception as error:
            if self._closed:
                # A reader ran into close(): nothing is wrong with the files.
                raise ClosedError("the broker is closed") from error
            if (passing := passing_error(error, self.directory)) is not None:
                raise passing from error
            if (denied := denied_error(error, self.directory)) is not None:
                raise denied from error
            # Damage on disk. The registry is derived: the next start rebuilds it.
            self._files.remove(self.directory / "CURRENT")
            raise CorruptError(f"{self.directory} is damaged: {error}; the next start makes it again") from error
