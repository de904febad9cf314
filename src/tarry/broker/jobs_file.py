"""The file ``jobs.db``: SQLite, checked when it is opened. Format: ``docs/formats.md``.

Nothing else knows which jobs were cancelled. So the file is checked against how far it had been durable, and its rows
have checksums, which SQLite itself does not make.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tarry.base.errors import CorruptError, DiskFullError, OverloadedError
from tarry.log.format_version import is_newer, newer_format

VERSION = 2
VERSIONS = (1, 2)
"""Readable versions; the first had no ``registry_writes`` and no checksums."""
_SCHEMA = """
create table attempt (
  number integer primary key, job text not null, state text not null, reserved integer not null default 0,
  rows integer not null default 0, topics text not null default '{}', due_min_ms integer, due_max_ms integer,
  begun_ms integer not null, committed_ms integer, cancelled integer not null default 0,
  since_due_ms integer, since_seq integer, keys integer, attempt text,
  registry_writes integer not null default 0, crc integer);
create index attempt_job on attempt (job, number);
"""
_UPGRADE = """
alter table attempt add column registry_writes integer not null default 0;
alter table attempt add column crc integer;
"""
_WRITTEN = "select user_version, (select count(*) from sqlite_master) from pragma_user_version"
_CHECKED = (
    "number, job, state, reserved, rows, topics, due_min_ms, due_max_ms, begun_ms, committed_ms, cancelled, "
    "since_due_ms, since_seq, keys, attempt, registry_writes"
)
_CHANGES_AT = 24
"""Offset of SQLite's file change counter, which each commit increments."""
_ADVICE = "Restore the directory from one copy"
_FOR_NOW = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN)


class JobsFile:
    """The file, which exists once something was written. One thread writes at a time."""

    def __init__(self, path: Path, changes_min: int, on_change: Callable[[Path], None] | None = None) -> None:
        """Check the file, if it exists.

        Args:
            path: the file.
            changes_min: :attr:`changes` as recorded in the checkpoint.
            on_change: called with the path after each change.

        Raises:
            CorruptError: it is damaged, of another version, missing, or older than the checkpoint.
        """
        self._path, self._on_change = path, on_change
        self.version = 0
        """Version of the file; 0 until something was written."""
        self.changes = 0
        """A number that grows with each change, and covers durable changes only."""
        # An empty file was left by a process that died before it had written the first job.
        if path.exists() and path.stat().st_size:
            self._check()
            self.changes = self._read_changes()
        if self.changes < changes_min:
            raise CorruptError(
                f"{path} is {'older than it was' if self.exists else 'missing'}: change {changes_min} of it had been "
                f"durable, it has {self.changes}; nothing else knows which bulk jobs were cancelled. {_ADVICE}"
            )

    @property
    def exists(self) -> bool:
        """True if anything was ever written."""
        return self.version > 0

    def content(self) -> bytes | None:
        """Return the bytes of the file; None: there is none. Nobody may write meanwhile."""
        return self._path.read_bytes() if self.exists else None

    def _check(self) -> None:
        with self.read() as db:
            [(self.version, tables)] = db.execute(_WRITTEN)
            if not (self.version or tables):
                return  # nothing was written yet; even a copy of nothing has a page
            if is_newer(self.version, VERSIONS):
                raise CorruptError(newer_format(str(self._path), self.version, VERSIONS))
            if self.version not in VERSIONS:
                readable = " or ".join(map(str, VERSIONS))
                raise CorruptError(f"{self._path} is of version {self.version}; this program reads {readable}")
            [fault] = db.execute("pragma integrity_check(1)").fetchone()
            if fault != "ok":
                raise CorruptError(f"{self._path} is damaged: {fault}. {_ADVICE}")
            for *row, crc in db.execute(f"select {_CHECKED}, crc from attempt") if self.version == VERSION else ():
                if crc is not None and crc != _crc(row):
                    what = f"the checksum of attempt {row[0]} does not hold"
                    raise CorruptError(f"{self._path} is damaged: {what}. {_ADVICE}")

    def _read_changes(self) -> int:
        with self._path.open("rb") as file:
            return int.from_bytes(file.read(_CHANGES_AT + 4)[_CHANGES_AT:], "big")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for a while.

        It is opened each time, since that is seldom: nothing stays open, and nothing has to be closed after a crash.

        Raises:
            CorruptError: the file is damaged.
            DiskFullError, OverloadedError: not now; nothing was changed.
        """
        try:
            with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
                # EXTRA: when a commit returns, the removal of the journal from the directory is durable, too.
                db.execute("pragma synchronous = extra")
                yield db
        except sqlite3.Error as error:
            raise self._translated(error) from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Make one change, durable at the end.

        A caller that updates a row sets its ``crc`` to null. Raises the same errors as :meth:`read`.
        """
        with self.read() as db:
            db.execute("begin immediate")
            try:
                if self.version != VERSION:
                    for statement in (_UPGRADE if self.version else _SCHEMA).split(";"):
                        db.execute(statement)
                    db.execute(f"pragma user_version = {VERSION}")
                yield db
                changed = db.execute(f"select {_CHECKED} from attempt where crc is null").fetchall()
                crcs = [(_crc(row), row[0]) for row in changed]
                db.executemany("update attempt set crc = ? where number = ?", crcs)
                db.execute("commit")
            except BaseException:
                if db.in_transaction:
                    db.execute("rollback")
                raise
        self.version, self.changes = VERSION, self._read_changes()
        if self._on_change is not None:
            self._on_change(self._path)

    def _translated(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL:
            return DiskFullError(f"the disk of {self._path} is full: nothing was changed; try again")
        if code in _FOR_NOW:
            return OverloadedError(f"{self._path} cannot be opened for now ({error}): nothing was changed; try again")
        return CorruptError(f"{self._path}: {error}")


def _crc(row: Sequence[Any]) -> int:
    # A value that is neither a number nor a text was never written by us; its checksum will not match either.
    return zlib.crc32(json.dumps(list(row), separators=(",", ":"), default=repr).encode())
