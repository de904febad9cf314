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

import logging
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from tarry.api.backups import HeldFiles
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, NotFoundError, OverloadedError
from tarry.broker import credential_days, hand_out_bound
from tarry.broker.audit_log import HEAD_FILE
from tarry.broker.bulk import Bulk
from tarry.broker.directory import ID_FILE, Checkpoint
from tarry.broker.hand_out_bound import read_whole
from tarry.broker.held_files import HeldDirectory
from tarry.broker.jobs import FILE as JOBS_FILE
from tarry.broker.jobs import Jobs
from tarry.broker.progress import Checkpointer
from tarry.broker.small_files import present
from tarry.log.engine import LogEngine
from tarry.log.file_engine import FileEngine
from tarry.log.files import TRY_AGAIN, not_now
from tarry.log.frame import LogKind
from tarry.store import Store

log = logging.getLogger(__name__)

DIRECTORY = "held-for-backup"
"""Name of the hold in the data directory."""
HELD_S = 30.0
"""Time for which files are held when nobody extends that."""
REGISTRY = "registry"


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
                # Of a name of its own: who copies from a hold that has ended finds nothing.
                held = self._take(engine, token_hex(8))
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

    def _take(self, engine: FileEngine, name: str) -> HeldFiles:
        data = self._config.data
        held = HeldDirectory(data, self._directory / name)
        with self._bulk.held(), self._progress.held():
            at_ms = self._clock.now_ms()
            for each in (ID_FILE, *present(data)):
                if each not in (hand_out_bound.FILE, HEAD_FILE):
                    held.hold(each)
            with suppress(FileNotFoundError):
                held.hold(credential_days.FILE)
            if (jobs := self._jobs.content()) is not None:
                held.write(JOBS_FILE, jobs)
            version = self._store.snapshot().version
            registry = held.root / REGISTRY
            for each, path in self._progress.files_beside_logs(registry).items():
                if path.parent != registry:
                    held.hold(each, path)
            checkpoint = Checkpoint.read(data)
            first = {LogKind.INTAKE: checkpoint.intake_first, LogKind.READY: checkpoint.ready_first}
            lengths = held.hold_logs(engine, first)
            held.write(hand_out_bound.FILE, read_whole(data / hand_out_bound.FILE))
        root, milliseconds = self._store.root, int(1000 * self.held_s)
        return HeldFiles(name, str(held.root), lengths, str(data), root, version, at_ms, milliseconds)
