"""Makes progress durable: writes checkpoints for recovery, and deletes what they make superfluous."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.broker.directory import CHECKPOINT_FILE, Checkpoint
from tarry.broker.disk_reserve import DiskReserve
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.dispatcher import FiredProgress as Cut
from tarry.broker.hand_out_bound import HandOutBound
from tarry.broker.job_announcements import JobAnnouncements
from tarry.broker.jobs import Jobs
from tarry.broker.small_files import SmallFiles
from tarry.broker.store_view import StoreFollower
from tarry.broker.topic_counts import TopicCounts
from tarry.groups import ConsumerGroups
from tarry.intake import Intake
from tarry.log.engine import SharedLogs
from tarry.log.files import DISK_FULL, Files
from tarry.names import Registry
from tarry.queue import Journal, ReadyLog

FORGET_S = 60.0
"""Time between searches for topics that nobody needs any more."""
NEVER_OLD_MS = 1 << 62
"""A retention that deletes nothing for its age."""
BASE_S = 120.0
"""Time between two checkpoints where machines share the logs: each is uploaded."""
FIRST_BASE_S = 10.0
"""Time from a start to the first one; of one whose former owner made none, it is due at once.

Else what short lives write would add up, and each claim would read more than the one before.
"""
_REGISTRY_COPY = "registry-copy"
JOBS_SWEEP_S = 600.0
"""Time between sweeps of old bulk jobs."""


@dataclass(slots=True, eq=False)
class Checkpointer:
    """:meth:`checkpoint` is called by one thread at a time. ``last`` is the checkpoint on disk."""

    _config: Config
    _clock: Clock
    _files: Files
    last: Checkpoint
    _counts: TopicCounts
    _small_files: SmallFiles
    _reserve: DiskReserve
    _bound: HandOutBound
    _dispatcher: Dispatcher
    _intake: Intake
    _ready: ReadyLog
    _groups: ConsumerGroups
    _journal: Journal
    _registry: Registry
    _store: StoreFollower
    _jobs: Jobs
    _announcements: JobAnnouncements
    _wheel_lock: AbstractContextManager[object]
    """Lock under which accepted rows are published, and due rows are taken out of the wheel."""
    _shared: SharedLogs | None
    base_s: float = BASE_S
    _one: threading.Lock = field(default_factory=threading.Lock)  # one checkpoint at a time
    _based_s: float = field(init=False)
    _swept_s: float = -1e9
    _looked_s: float = -1e9

    def __post_init__(self) -> None:
        is_first_due = self._shared is not None and self._shared.lacks_base
        self._based_s = time.monotonic() - self.base_s + (0.0 if is_first_due else FIRST_BASE_S)

    def checkpoint(self) -> bool:
        """Make progress durable and delete what it makes superfluous.

        Returns False if no consistent cut could be made now.
        """
        with self._one:
            return self._checkpoint()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the checkpoint on disk, and all that a start from it needs, meanwhile. For what is short.

        A newer one is made before, if that is possible now. The engine ``files`` alone.
        """
        with self._one, self._intake.kept():
            self._checkpoint()
            yield

    def _checkpoint(self) -> bool:
        if self._shared is not None and not self._is_base_due():
            self._groups.retry_copies()
            return True
        try:
            cut = self._dispatcher.progress()
        except OSError as error:
            if error.errno in DISK_FULL:
                # The ready log finds no room; what consumers are done with makes some.
                self._delete_consumed(0, NEVER_OLD_MS)
            raise
        if cut is None:
            self._groups.retry_copies()  # these go on while damage keeps every cut away
            return False
        committed_seq = self._store.snapshot.committed_seq
        idle = self._idle_topics(cut)
        accepted, cancelled, offsets = (
            {name: n for name, n in counts.items() if name not in idle} if idle else counts
            for counts in (cut.accepted, cut.cancelled, cut.offsets)
        )
        checkpoint = Checkpoint(
            cut.fired_until_ms,
            cut.fired_seq,
            cut.ready,
            self._intake.position,
            accepted,
            offsets,
            cut.stored_rows,
            committed_seq,
            cancelled,
            intake_first=self._intake.deletable_until(committed_seq, cut.fired_seq, cut.fired_until_ms),
            registry=self._registry.exists,
            # Read before they are synced; they have everything below the cut.
            registry_writes=self._registry.writes,
            jobs_changes=self._jobs.changes,
            acks=self._journal.position,
            ready_first=self._ready.first_segment,
            store_version=self._store.snapshot.version,
            small_files=self._small_files.names(),
        )
        if checkpoint != self.last:
            self._ready.sync(cut.ticket)
            self._registry.sync()
            checkpoint.write(self._files, self._config.data, self._counts)
            if self._shared is not None:
                self._keep_base(self._shared)
            self.last = checkpoint
            self._bound.release(checkpoint.fired_until_ms)
            self._announcements.forget_below(checkpoint.fired_seq)
        if idle:
            # Only now: while the checkpoint on disk has their counts, new messages for them would get offsets twice.
            self._groups.forget_topics(idle, self._forget)
        self._sweep(cut.fired_until_ms)
        if self._registry.exists:
            self._reserve.keep()
        return True

    def _is_base_due(self) -> bool:
        return time.monotonic() - self._based_s >= self.base_s

    def _keep_base(self, shared: SharedLogs) -> None:
        """Make the checkpoint on disk a base, before anything that it makes superfluous is deleted."""
        copy = self._config.data / _REGISTRY_COPY
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shared.keep_base(self.files_beside_logs(copy))
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        self._based_s = time.monotonic()

    def files_beside_logs(self, copy: Path) -> dict[str, Path]:
        """Return the files of the checkpoint on disk, and of the registry, by path in the directory.

        The registry is copied to ``copy`` for that, as it is now: ahead of the checkpoint, and of nothing that a log
        gets from now on. Nobody may make a checkpoint meanwhile.

        Raises:
            OSError: the disk is full, or no descriptor is free.
        """
        self._registry.copy_to(copy)
        files = {f"registry/{path.name}": path for path in copy.glob("*")}
        data = self._config.data
        there = (data / CHECKPOINT_FILE, *data.glob("topics-*.json"))
        return files | {path.name: path for path in there if path.exists()}

    def _idle_topics(self, cut: Cut) -> set[str]:
        """Return topics without pending or kept messages, groups and settings.

        They are looked for now and then; else the set is empty.
        """
        if time.monotonic() - self._looked_s < FORGET_S:
            return set()
        self._looked_s = time.monotonic()
        names = self._ready.empty_topics() | (cut.accepted.keys() - self._ready.topics.keys())
        return {
            name
            for name in names
            if cut.accepted.get(name, 0) - cut.cancelled.get(name, 0) == cut.offsets.get(name, 0)
            and not self._groups.uses_topic(name)
        }

    def _forget(self, names: list[str]) -> None:
        intake = self._intake

        def is_done(name: str, end: int) -> bool:
            done = intake.accepted.get(name, 0) - intake.cancelled.get(name, 0) == end
            if done:
                intake.accepted.pop(name, None)
                intake.cancelled.pop(name, None)
            return done

        with self._wheel_lock:
            self._ready.forget(names, is_done)

    def _sweep(self, fired_until_ms: int) -> None:
        now_ms, retention_ms = self._clock.now_ms(), self._config.retention_ms
        self._registry.sweep(fired_until_ms, now_ms)
        if time.monotonic() - self._swept_s > JOBS_SWEEP_S:
            self._swept_s = time.monotonic()
            self._jobs.sweep(fired_until_ms, now_ms - retention_ms)
        self._groups.retry_copies()
        self._delete_consumed(now_ms, retention_ms)

    def _delete_consumed(self, now_ms: int, retention_ms: int) -> None:
        # Only what is before the checkpoint's place: a start needs what follows.
        self._ready.delete_consumed(
            now_ms, retention_ms, self._groups.retention_guard, self._announce, below=self.last.ready[0]
        )

    def _announce(self, ready_first: int) -> None:
        """Write down that segments of the ready log before this one may be gone, before the first of them is."""
        self.last = replace(self.last, ready_first=ready_first)
        self.last.write(self._files, self._config.data, self._counts)
        if self._shared is not None:
            self._shared.keep(self._config.data / CHECKPOINT_FILE)  # else a new owner would miss these segments

    def end(self) -> None:
        """Make the last checkpoint, when nothing is handed out any more.

        Then the ready log has all messages that were handed out.
        """
        if self._shared is None:
            self.checkpoint()
        self._ready.sync(self._ready.ticket())
        self._bound.close(is_durable=True)

    def delete_stored(self) -> None:
        """Delete the segments of the intake that nobody needs, as the checkpoint on disk says."""
        if self.last.intake_first is not None:
            self._intake.delete_below(self.last.intake_first)

    @property
    def expire_until_ms(self) -> int:
        """Time before which due messages of the store are not needed any more."""
        done = self.last
        return min([done.fired_until_ms, *self._announcements.needed_ms(done.fired_seq)])
