"""Holds the files of a serving broker as they are at one moment, for somebody who copies them.

A hold is a directory of hard links beside the files, so it takes a moment and next to no room, and the broker may go on
deleting and replacing. What is written in place is copied into it (``handed``, ``jobs.db``, parts of the registry). A
log's last segment goes on growing: the hold says how much of it counts.

What is held is a state that a crash may leave, so a start recovers it. That rests on the order, in which each part may
be ahead of those before it, and never behind: the checkpoint, small files, ``jobs.db``, the store, the registry, then
the logs from the acknowledgements back to the intake, and last how far hand-outs had come. No bulk job is committed
meanwhile, for that is one change of four parts. Decision 63 has the reasons.

Who copies says now and then that it lives. A hold that nobody extends ends, and so does that of a former life.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from tarry.api.backups import HeldFiles
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, NotFoundError, OverloadedError
from tarry.broker import credential_days, hand_out_bound
from tarry.broker.audit_log import DIRECTORY as AUDIT
from tarry.broker.audit_log import HEAD_FILE, AuditHead
from tarry.broker.bulk import Bulk
from tarry.broker.directory import ID_FILE, Checkpoint
from tarry.broker.hand_out_bound import read_whole
from tarry.broker.jobs import FILE as JOBS_FILE
from tarry.broker.jobs import Jobs
from tarry.broker.progress import Checkpointer
from tarry.broker.small_files import present
from tarry.log.engine import LogEngine
from tarry.log.file_engine import DIRECTORIES, FileEngine
from tarry.log.files import TRY_AGAIN, not_now
from tarry.log.frame import LogKind
from tarry.log.segment import list_segments, segment_path
from tarry.store import Store

log = logging.getLogger(__name__)

DIRECTORY = "held-for-backup"
"""Name of the hold in the data directory."""
HELD_S = 30.0
"""Time for which files are held when nobody extends that."""
_TRIES = 20
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV)


@dataclass(slots=True)
class _Hold:
    name: str
    until_s: float


@dataclass(eq=False)
class Backups:
    """The hold of files for one backup at a time. Any thread."""

    _config: Config
    _clock: Clock
    _engine: LogEngine
    _progress: Checkpointer
    _bulk: Bulk
    _jobs: Jobs
    _store: Store
    held_s: float = HELD_S
    _hold: _Hold | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._clear()  # of a former life, whose caller has no connection any more

    # -- operations ----------------------------------------------------------------------------------------------------

    def begin(self) -> HeldFiles:
        """Hold all files as they are now: see :class:`tarry.api.operations.backups.BeginBackup`."""
        engine = self._engine
        if not isinstance(engine, FileEngine):
            uri = "an object store" if engine.shared is None else engine.shared.state["uri"]
            raise InvalidArgumentError(
                f"the logs of this broker are in {uri}, and its directory is a cache; allowed: a copy of the bucket, "
                "log and store at one moment (docs/backup.md)"
            )
        self.look()
        with self._lock:
            if self._hold is not None:
                raise OverloadedError("another backup of this broker is under way; allowed: one at a time; try again")
            self._clear()
            try:
                held = self._take(engine)
            except OSError as error:
                self._clear()
                if error.errno not in TRY_AGAIN:
                    raise
                raise not_now(error, self._directory, "there is no backup") from error
            except BaseException:
                self._clear()
                raise
            self._hold = _Hold(held.backup, time.monotonic() + self.held_s)
        log.info("backup %s: the files of this moment are held", held.backup)
        return held

    def extend(self, backup: str) -> None:
        """Hold the files of a backup for as long again. Raises NotFoundError."""
        self.look()
        with self._lock:
            self._get(backup).until_s = time.monotonic() + self.held_s

    def end(self, backup: str) -> None:
        """Let go of a backup's files. Raises NotFoundError."""
        self.look()
        with self._lock:
            self._get(backup)
            self._hold = None
            self._clear()
        log.info("backup %s: the files are held no longer", backup)

    def look(self) -> None:
        """End a hold that nobody has extended. Called now and then."""
        hold = self._hold
        if hold is None or time.monotonic() < hold.until_s:
            return
        with self._lock:
            if self._hold is hold and time.monotonic() >= hold.until_s:
                log.warning("backup %s: nobody has asked for %.0f s; the files are held no longer", hold.name, HELD_S)
                self._hold = None
                self._clear()

    def _get(self, backup: str) -> _Hold:
        if self._hold is None or self._hold.name != backup:
            raise NotFoundError(
                f"backup {backup!r:.80} is not held: it has ended, nobody extended it for {self.held_s:g} s, or the "
                "broker has started since; begin another one"
            )
        return self._hold

    # -- holding -------------------------------------------------------------------------------------------------------

    @property
    def _directory(self) -> Path:
        return self._config.data / DIRECTORY

    def _clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _take(self, engine: FileEngine) -> HeldFiles:
        data, held = self._config.data, self._directory
        held.mkdir(mode=0o700)
        with self._bulk.held(), self._progress.held():
            at_ms = self._clock.now_ms()
            for name in (ID_FILE, credential_days.FILE, *present(data)):
                if name not in (hand_out_bound.FILE, HEAD_FILE):
                    self._link(name, data / name)
            if (jobs := self._jobs.content()) is not None:
                self._write(JOBS_FILE, jobs)
            version = self._store.snapshot().version
            for name, path in self._progress.files_beside_logs(held / "registry").items():
                if not path.is_relative_to(held):
                    self._link(name, path)
            lengths = self._hold_logs(engine, Checkpoint.read(data))
            self._write(hand_out_bound.FILE, read_whole(data / hand_out_bound.FILE))
        root, milliseconds = self._store.root, int(1000 * self.held_s)
        return HeldFiles(token_hex(8), str(held), lengths, str(data), root, version, at_ms, milliseconds)

    def _hold_logs(self, engine: FileEngine, checkpoint: Checkpoint) -> dict[str, int]:
        """Link the segments, and return the length that counts of each last one.

        Segments of ``acks`` and ``audit`` may be deleted meanwhile: what takes their place is there then.
        """
        first = {LogKind.INTAKE: checkpoint.intake_first, LogKind.READY: checkpoint.ready_first}
        for last_try in (False,) * (_TRIES - 1) + (True,):
            try:
                with self._undone_on_failure():
                    # Before the ends: it may be behind its log, and never ahead.
                    if (head := self._config.data / HEAD_FILE).exists():
                        self._link(HEAD_FILE, head)
                    lengths: dict[str, int] = {}
                    for kind, end in engine.end().items():
                        lengths |= self._hold_log(kind, end.segment, end.position, first.get(kind))
                    self._check_audit()
                    return lengths
            except FileNotFoundError:
                if last_try:
                    raise
        raise AssertionError

    def _hold_log(self, kind: LogKind, last: int, position: int, first: int | None) -> dict[str, int]:
        name = DIRECTORIES[kind]
        directory = self._config.data / name
        lengths = {}
        for base in list_segments(directory):
            # What is before the first is left over from a crash. A segment without a durable byte was not begun.
            if base > last or (first is not None and base < first) or (base == last and not position):
                continue
            path = segment_path(directory, base)
            self._link(f"{name}/{path.name}", path)
            if base == last:
                lengths[f"{name}/{path.name}"] = position
            elif (index := path.with_suffix(".idx")).exists():
                self._link(f"{name}/{index.name}", index)
        return lengths

    def _check_audit(self) -> None:
        """Raise FileNotFoundError: the oldest file of the audit log was deleted since its head was read."""
        head, bases = AuditHead.read(self._directory), list_segments(self._directory / AUDIT)
        if head is not None and (not bases or bases[0] > head.first or bases[-1] < head.file):
            raise FileNotFoundError(errno.ENOENT, "the audit log has moved on", str(self._directory / AUDIT))

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            for name in DIRECTORIES.values():
                shutil.rmtree(self._directory / name, ignore_errors=True)
            raise

    def _link(self, name: str, path: Path) -> None:
        target = self._directory / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except FileNotFoundError:
            if name not in (ID_FILE, credential_days.FILE):
                raise  # else it is one that need not be there
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copy2(path, target)

    def _write(self, name: str, content: bytes) -> None:
        target = self._directory / name
        with target.open("wb") as file:
            os.fchmod(file.fileno(), 0o640)
            file.write(content)
