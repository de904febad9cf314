"""The journal of the groups: makes durable what they have settled, and restores it after a restart.

Format: ``docs/formats.md``. A file begins with a snapshot of all groups, so only the last whole file counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from tarry.base.errors import OverloadedError, TarryError
from tarry.base.placement import ANY_CORE, Placement
from tarry.log import frame
from tarry.log.commit import GroupCommit, as_tarry_error
from tarry.log.engine import Log
from tarry.log.files import TRY_AGAIN, not_now
from tarry.log.segment import SegmentReader, SegmentWriter, list_segments, segment_path
from tarry.queue.entries import SCHEMA, JournalEntry, from_batch, serialized_one, to_batch
from tarry.queue.journal_recovery import SNAPSHOT_BEGINS, SNAPSHOT_ENDS, recover_journal

ENTRIES_MAX = 1 << 18
"""Entries that may wait to be written before consumers are refused: some 50 MB.

As many again may be kept for a full disk.
"""
BATCHES_READ = 1024
"""Batches of the file that are turned into entries at once."""
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class _Item:
    entries: list[JournalEntry]
    ticket: int
    on_result: Callable[[TarryError | None], None] | None


class Journal:
    """Writes what groups have settled. Open it, read :meth:`entries`, then write.

    Entries given together wait for one fsync, which comes after the ready log's (``docs/formats.md`` says why).

    **Bounding the queue.** :meth:`write` neither waits nor refuses, for three reasons:

    * It is called with a group's lock held. The journal's own thread takes that lock for a snapshot, so waiting
      for that thread would be a deadlock.
    * It is called from the intake's writer, which reports that dead-letter copies are durable, and must not wait for
      another log's disk.
    * Its entries have happened already: refusing one would lose an acknowledgement.

    Instead, the calls that lead to entries are bounded. While ``ENTRIES_MAX`` wait, :meth:`check_room` refuses calls
    that settle, move, or create groups, before anything is changed and without a lock; the caller may try again.
    Nothing is handed out either (:attr:`is_full`). Some entries still come by themselves: leases end, copies under way
    become durable, retention deletes. Their number is bounded by what had been handed out before. The journal's thread
    depends on none of the refused callers, so the queue shrinks as soon as the disk allows.

    Entries that a full disk did not take are kept, to be written later; consumers go on. When there are too many of
    them, they are dropped, and a snapshot of the groups, which contains them all, is written later instead.
    """

    def __init__(
        self,
        log: Log,
        *,
        segment_bytes_max: int,
        sync_ready: Callable[[int | None], None],
        snapshot: Callable[[], Iterable[JournalEntry]],
        on_fatal: Callable[[BaseException], None],
        threaded: bool,
        durable: tuple[int, int] = (0, 0),
        placement: Placement = ANY_CORE,
    ) -> None:
        """Open what is on disk.

        Args:
            sync_ready: makes the ready log durable up to a ticket of its own, or all of it (None).
            snapshot: gives the state of all groups.
            on_fatal: called with the error because of which an entry can never become durable.
            durable: the :attr:`position` recorded in the checkpoint; (0, 0) if it has none.

        Raises:
            CorruptError: for damage in what had been durable.
        """
        self._opened_with = recover_journal(log, durable)
        self._writer = SegmentWriter(log, self._opened_with)
        try:
            # Before anything is served: the former process may have died before the fsync.
            self.position = self._opened_with, self._writer.sync()
            """Number of the file being written, and the position up to which it is durable."""
        except BaseException:
            self._writer.close()
            raise
        self._log = log
        self._segment_bytes_max = self._roll_bytes = segment_bytes_max
        self._sync_ready = sync_ready
        self._snapshot = snapshot
        self._on_fatal = on_fatal
        self._owed: list[JournalEntry] = []
        self._owes_snapshot = self._failed = False
        self._count_lock = threading.Lock()
        self._waiting = 0
        self._commits: GroupCommit[_Item] = GroupCommit(
            "tarry-acks",
            self._commit,
            self._on_failure,
            weight_max=_UNLIMITED,
            threaded=threaded,
            placement=placement,
        )

    def entries(self) -> Iterator[JournalEntry]:
        """Yield the entries found on disk, oldest first; a later one wins. Read them before writing.

        Raises:
            CorruptError: for damage in what had been durable.
        """
        with SegmentReader(segment_path(self._log.directory, self._opened_with)) as reader:
            batches = (batch for _, _, batch in reader.read_all(SCHEMA))
            # Nearly all have a single entry, and what an entry costs in Python is mostly the batch's columns.
            while some := list(islice(batches, BATCHES_READ)):
                yield from from_batch(pa.concat_batches(some))
        self._remove_before(self._opened_with)

    # -- for groups --------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """True if too many entries wait to be written: begin nothing that leads to more."""
        return self._waiting >= ENTRIES_MAX

    def check_room(self) -> None:
        """Check for room before anything is changed on behalf of a caller.

        Raises:
            OverloadedError: too many entries wait to be written.
        """
        if self._waiting >= ENTRIES_MAX:
            raise OverloadedError(
                f"{self._waiting} entries wait to be written to {self._log.directory}; allowed: {ENTRIES_MAX}; "
                "try again"
            )

    def write(
        self, entries: list[JournalEntry], ticket: int, on_result: Callable[[TarryError | None], None] | None = None
    ) -> None:
        """Make entries durable.

        Args:
            entries: what happened, in order.
            ticket: the part of the ready log that they refer to.
            on_result: called from the journal's thread.

        Raises:
            ClosedError: the journal was closed, or has failed.
        """
        with self._count_lock:
            self._waiting += len(entries)
        self._commits.submit(_Item(entries, ticket, on_result), 1)

    # -- its thread --------------------------------------------------------------------------------------------------

    def _commit(self, items: list[_Item]) -> None:
        entries = [entry for item in items for entry in item.entries]
        error: TarryError | None = None
        try:
            self._sync_ready(max((item.ticket for item in items), default=None))
            if not self._owes_snapshot:
                self._append(self._owed + entries)
        except OSError as failure:
            if failure.errno not in TRY_AGAIN:
                raise
            self._owe(entries)
            error = self._not_durable(failure)
        else:
            error = self._after_append()
        with self._count_lock:
            self._waiting -= len(entries)
        for item in items:
            if item.on_result is not None:
                item.on_result(error)

    def _after_append(self) -> TarryError | None:
        """Finish a commit whose entries are written, or will be in the snapshot to come.

        Return the reason if they are not durable.
        """
        if self._owes_snapshot:
            # Order counts: append nothing while earlier entries are missing from the file.
            failure = self._roll()
            self._owes_snapshot = failure is not None
            return None if failure is None else self._not_durable(failure)
        self._owed = []
        self.position = self._writer.base, self._writer.sync()
        if self._writer.size >= self._roll_bytes:
            self._roll()
        return None

    def _owe(self, entries: list[JournalEntry]) -> None:
        # Consumers go on. What they acknowledged is kept for the disk; after a crash it would be delivered again.
        if self._owes_snapshot or len(self._owed) + len(entries) > ENTRIES_MAX:
            # Each group applied its entry before writing it here, so a snapshot contains them all.
            self._owed, self._owes_snapshot = [], True
        else:
            self._owed += entries

    def _not_durable(self, failure: OSError) -> TarryError:
        return not_now(failure, self._log.directory, "the acknowledgement is not durable yet")

    def _append(self, entries: list[JournalEntry], kind: int = 0) -> None:
        rows = serialized_one(entries[0]) if len(entries) == 1 else to_batch(entries)
        durable = self._writer.durable
        self._writer.append(frame.encode(rows, base=0, kind=kind, durable_to=durable))

    def _roll(self) -> OSError | None:
        """Begin a new file with a snapshot of the groups.

        Return the error if the disk is too full for that, or no descriptor is free. The old files are deleted only when
        the new one is durable.
        """
        old = self._writer
        try:
            fresh = SegmentWriter(self._log, old.base + 1)
        except OSError as error:
            if error.errno not in TRY_AGAIN:
                raise
            return error
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
            if error.errno not in TRY_AGAIN:
                raise
            self._writer = old
            fresh.discard()
            return error
        self.position = fresh.base, fresh.sync()
        old.close()
        # A snapshot may be larger than a segment; then one for each commit would be most of the writing.
        self._roll_bytes = max(self._segment_bytes_max, 2 * fresh.size)
        self._remove_before(fresh.base)
        return None

    def _remove_before(self, base: int) -> None:
        for older in list_segments(self._log.directory):
            if older < base:
                self._log.trim(older)

    def _on_failure(self, error: BaseException, items: list[_Item]) -> None:
        self._failed = True
        self._on_fatal(error)
        for item in items:
            if item.on_result is not None:
                item.on_result(as_tarry_error(error, "writing the journal of acknowledgements"))

    def close(self) -> None:
        """Write what is queued, and stop."""
        self._commits.close()
        if (self._owed or self._owes_snapshot) and not self._failed:
            self._commit([])  # entries that a full disk refused, if there is room now
        self._writer.close()
