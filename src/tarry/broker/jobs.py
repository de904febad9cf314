"""The table of bulk jobs, on disk: attempts and their outcomes. In SQLite, one row per attempt.

An attempt is *open* until its files are handed in. It is *committing* from before the store's commit until the intake's
log says that it is committed; then *committed*, and perhaps *cancelled*. An attempt that was given up, or replaced by a
later one of its job, is *aborted*. The intake's rows about jobs are applied again after a crash, so that none is lost;
applying them twice changes nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tarry.api.bounds import JOB
from tarry.api.jobs import Job, JobState
from tarry.base.errors import InvalidArgumentError, NotFoundError, OverloadedError
from tarry.broker.jobs_file import JobsFile
from tarry.message.bulk import NUMBERS_MAX, ROWS_MAX, CancelledJobs, JobRow, first_seq
from tarry.message.schema import Kind
from tarry.store import StaleCommitError

FILE = "jobs.db"
RESERVED_ROWS = 1 << 26
"""Seqs that are reserved durably at once; handing them out then needs no disk."""

_COLUMNS = "number, job, state, reserved, rows, topics, due_min_ms, due_max_ms, begun_ms, committed_ms, cancelled, keys"


class Jobs:
    """The table of bulk jobs. Thread-safe. Nothing is on disk before the first job."""

    def __init__(self, directory: Path, changes_min: int = 0, on_change: Callable[[Path], None] | None = None) -> None:
        """Open the table.

        Args:
            directory: the directory of ``jobs.db``.
            changes_min: :attr:`changes` as recorded in the checkpoint.
            on_change: called with the file's path when a change is in it, before anything rests on that.

        Raises:
            CorruptError: the file is damaged, of another version, or older than the checkpoint.
        """
        self._file = JobsFile(directory / FILE, changes_min, on_change)
        self._lock = threading.RLock()
        self._left: dict[int, tuple[int, int]] = {}  # by attempt: seqs that are reserved and not handed out
        self.cancelled = CancelledJobs()
        """The attempts that were cancelled and not forgotten, needed to tell the fate of their messages."""
        self.registry_writes = 0
        """Durable batches of changes of the registry when keys of a job were last registered in it."""
        if self._file.exists:
            with self._file.read() as db:
                rows = db.execute(
                    "select number, since_due_ms, since_seq from attempt where state = ? and since_seq is not null",
                    (JobState.CANCELLED,),
                )
                self.cancelled.update({number: (due_ms, seq) for number, due_ms, seq in rows})
                if self._file.version >= 2:
                    [[highest]] = db.execute("select coalesce(max(registry_writes), 0) from attempt")
                    self.registry_writes = highest

    @property
    def changes(self) -> int:
        """A number that grows with each change, and covers durable changes only."""
        return self._file.changes

    def content(self) -> bytes | None:
        """Return the file as it is now, between two changes; None: nothing was ever written."""
        with self._lock:
            return self._file.content()

    # -- an attempt's way ------------------------------------------------------------------------------------------

    def begin(self, job: str, now_ms: int, *, number_min: int = 0, attempt: str | None = None) -> Job:
        """Begin a new attempt, or return the one that has committed the job already.

        Former open attempts are aborted. The exception is one begun with the same ``attempt``, a text that the members
        of one cooperating run draw: they share it.

        Raises:
            InvalidArgumentError: the name is empty or too long.
            OverloadedError: the job is being committed.
        """
        if not JOB.fits(job):
            raise InvalidArgumentError(f"job {job!r:.80}; allowed: a text of 1 to {JOB.bytes_max} bytes")
        with self._lock:
            last = self.last(job)
            if last is not None and last.state in (JobState.COMMITTED, JobState.CANCELLED):
                return last
            if last is not None and last.state is JobState.COMMITTING:
                raise OverloadedError(f"job {job!r} is being committed; try again")
            shared = last is not None and last.state is JobState.OPEN and attempt is not None
            if last is not None and shared and self._begun_with(last.number) == attempt:
                return last
            with self._file.write() as db:
                aborted = (JobState.ABORTED, job, JobState.OPEN)
                db.execute("update attempt set crc = null, state = ? where job = ? and state = ?", aborted)
                (highest,) = db.execute("select coalesce(max(number), -1) from attempt").fetchone()
                number = max(highest + 1, number_min)
                if number >= NUMBERS_MAX:
                    raise OverloadedError(f"{number} bulk jobs were begun; allowed: {NUMBERS_MAX}")
                db.execute(
                    "insert into attempt (number, job, state, begun_ms, attempt) values (?, ?, ?, ?, ?)",
                    (number, job, JobState.OPEN, now_ms, attempt),
                )
            return self.get(number)

    def next_number(self) -> int:
        """Return a number above those of all attempts ever begun."""
        if not self._file.exists:
            return 0
        with self._file.read() as db:
            [[highest]] = db.execute("select coalesce(max(number), -1) from attempt")
        return int(highest) + 1

    def _begun_with(self, number: int) -> str | None:
        with self._file.read() as db:
            (attempt,) = db.execute("select attempt from attempt where number = ?", (number,)).fetchone()
            return None if attempt is None else str(attempt)

    def reserve(self, number: int, rows: int) -> int:
        """Reserve ``rows`` seqs, and return the first.

        Raises:
            NotFoundError, StaleCommitError: no such attempt; it is not open.
            InvalidArgumentError: too many.
        """
        with self._lock:
            attempt = self.open_one(number)
            at, end = self._left.get(number, (attempt.reserved, attempt.reserved))
            if rows < 1 or at + rows > ROWS_MAX:
                raise InvalidArgumentError(f"{rows} rows after {at}; allowed: 1 or more, and {ROWS_MAX} for a job")
            if at + rows > end:
                # Seqs that were reserved before a restart and not used are skipped.
                end = at + rows + RESERVED_ROWS
                self._update("reserved = ? where number = ?", (end, number))
            self._left[number] = (at + rows, end)
            return first_seq(number) + at

    def committing(self, number: int, topics: dict[str, int], span_ms: tuple[int, int], keys: int | None) -> None:
        """Note that the store's commit is about to be made. ``keys``: 0 if no message has one."""
        rows, keys = sum(topics.values()), 0 if keys == 0 else None
        self._update(
            "state = ?, rows = ?, topics = ?, due_min_ms = ?, due_max_ms = ?, keys = ? where number = ?",
            (JobState.COMMITTING, rows, json.dumps(topics), *span_ms, keys, number),
        )

    def named(self, number: int, keys: int, registry_writes: int) -> None:
        """Note that ``keys`` messages of the attempt had keys, all of which are registered, durably.

        They are in the registry's first ``registry_writes`` batches of changes.
        """
        self._update("keys = ?, registry_writes = ? where number = ?", (keys, registry_writes, number))

    def reopen(self, number: int) -> None:
        """Note that the store's commit was not made."""
        self._update("state = ? where number = ? and state = ?", (JobState.OPEN, number, JobState.COMMITTING))

    def abort(self, number: int) -> None:
        """Refuse the attempt's commit from now on. A committed attempt stays committed."""
        self._update("state = ? where number = ? and state = ?", (JobState.ABORTED, number, JobState.OPEN))
        self._left.pop(number, None)

    def apply(self, rows: Iterable[JobRow], now_ms: int) -> set[int]:
        """Apply rows of the intake's log; return the attempts that they say are committed."""
        committed: set[int] = set()
        cancelled: dict[int, int] = {}
        since: dict[int, tuple[int, int]] = {}
        for row in rows:
            if row.kind is Kind.JOB:
                committed.add(row.number)
            else:
                cancelled[row.number] = cancelled.get(row.number, 0) + row.rows
                since[row.number] = row.since or (-(1 << 63), 0)
        if not committed and not cancelled:
            return committed
        with self._lock, self._file.write() as db:
            db.executemany(
                "update attempt set crc = null, state = ?, committed_ms = coalesce(committed_ms, ?) "
                "where number = ? and state = ?",
                [(JobState.COMMITTED, now_ms, n, JobState.COMMITTING) for n in sorted(committed)],
            )
            db.executemany(
                "update attempt set crc = null, state = ?, cancelled = ?, since_due_ms = ?, since_seq = ? "
                "where number = ?",
                [(JobState.CANCELLED, count, *since[n], n) for n, count in cancelled.items()],
            )
        self.cancelled.update(since)
        return committed

    def done(self, number: int, now_ms: int) -> None:
        """Note that an attempt without messages is committed: the log need not record it."""
        self._update("state = ?, committed_ms = ?, keys = 0 where number = ?", (JobState.COMMITTED, now_ms, number))

    def forbid(self, number: int) -> None:
        """Note that a job was cancelled before it had committed anything."""
        self._update("state = ? where number = ?", (JobState.CANCELLED, number))

    def sweep(self, fired_until_ms: int, old_ms: int) -> None:
        """Forget attempts that are older than ``old_ms`` as a whole and due before ``fired_until_ms``.

        After a long pause the broker may not have reached old messages yet: those of a forgotten cancelled attempt
        would then be delivered. Cancelled attempts are remembered for as long as delivered ones. Otherwise a query for
        one of their messages would be answered with "delivered" as soon as the last of them is past.
        """
        if not self._file.exists:
            return
        with self._lock, self._file.write() as db:
            db.execute(
                "delete from attempt where max(begun_ms, coalesce(committed_ms, 0), coalesce(due_max_ms, 0)) < ? "
                "and (due_max_ms is null or due_max_ms < ?) "
                "and state != ? and number < (select max(number) from attempt)",
                (old_ms, fired_until_ms, JobState.COMMITTING),
            )
            left = db.execute("select number from attempt where state = ?", (JobState.CANCELLED,))
            self.cancelled.keep(number for (number,) in left)

    # -- asking ----------------------------------------------------------------------------------------------------

    def get(self, number: int) -> Job:
        """Return an attempt.

        Raises:
            NotFoundError: there is none of that number, or it was forgotten.
        """
        attempt = self._first("where number = ?", (number,))
        if attempt is None:
            raise NotFoundError(f"there is no attempt {number} of a bulk job")
        return attempt

    def open_one(self, number: int) -> Job:
        """Return an attempt that may still be filled and committed.

        Raises:
            NotFoundError: there is no such attempt.
            StaleCommitError: it is not open any more.
        """
        attempt = self.get(number)
        if attempt.state is not JobState.OPEN:
            raise StaleCommitError(f"attempt {number} of job {attempt.job!r} is {attempt.state}; allowed: an open one")
        return attempt

    def last(self, job: str) -> Job | None:
        """Return the last attempt of a job: the one that the job's name stands for."""
        return self._first("where job = ? order by number desc limit 1", (job,))

    def recent(self, limit: int) -> list[Job]:
        """Return the last attempt of each job, the newest first."""
        return self._select(
            "where number in (select max(number) from attempt group by job) order by 1 desc limit ?", (limit,)
        )

    def unannounced(self) -> Job | None:
        """Return the attempt that is committing; there is one at most."""
        return self._first("where state = ?", (JobState.COMMITTING,))

    def unnamed(self) -> list[Job]:
        """Return the committed attempts whose keys are not all registered."""
        return self._select("where state = ? and keys is null order by number", (JobState.COMMITTED,))

    def _first(self, where: str, values: tuple[Any, ...]) -> Job | None:
        return next(iter(self._select(where, values)), None)

    def _select(self, where: str, values: tuple[Any, ...]) -> list[Job]:
        if not self._file.exists:
            return []
        with self._lock, self._file.read() as db:
            rows = db.execute(f"select {_COLUMNS} from attempt {where}", values).fetchall()
        return [Job(r[0], r[1], JobState(r[2]), r[3], r[4], json.loads(r[5]), *r[6:]) for r in rows]

    def _update(self, what: str, values: tuple[Any, ...]) -> None:
        with self._lock, self._file.write() as db:
            db.execute(f"update attempt set crc = null, {what}", values)
