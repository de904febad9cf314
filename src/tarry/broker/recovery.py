"""Opening a data directory: the order of things after a clean stop and after a crash alike.

Lock → checkpoint → store → validate and cut the logs' tails → find what fired since the checkpoint → what arrived since
the checkpoint and was due before it → groups. The loader then brings the window from ``fired_until_ms`` on, without
what was found fired. Its time depends on the tail and the window, not on what is pending.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tarry.base.bulk import read_job_rows
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import CorruptError
from tarry.base.types import Int64s, Key
from tarry.broker.directory import Checkpoint, DirectoryLock, read_secret
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.groups import Groups
from tarry.broker.jobs import Jobs
from tarry.broker.series import Series
from tarry.intake import Intake
from tarry.intake.intake import tally
from tarry.log.files import Files
from tarry.names import Registry
from tarry.names.rebuild import rebuild
from tarry.queue import Journal, ReadyLog
from tarry.store import Snapshot, Store, read_window
from tarry.store.jobs import read_jobs
from tarry.wheel.loader import Loader
from tarry.wheel.wheel import Piece, Wheel

if TYPE_CHECKING:
    from tarry.broker.broker import Broker


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of the store, as the loader sees it."""

    snapshot: Snapshot

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def committed_seq(self) -> int:
        return self.snapshot.committed_seq

    def read_window(self, after: Key, until_ms: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return read_window(self.snapshot, after, until_ms, batch_rows=batch_rows)

    def read_jobs(self, numbers: Sequence[int], until_ms: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return read_jobs(self.snapshot, numbers, until_ms, batch_rows)

    def first_due_ms(self, after: Key) -> int | None:
        """The lowest due time from ``after`` on; None when nothing is left."""
        first = next(read_window(self.snapshot, after, np.iinfo(np.int64).max, batch_rows=1), None)
        return None if first is None else int(first.column("due_ms")[0].as_py())


@dataclass(slots=True)
class Rooms:
    """The parts of an open broker."""

    lock: DirectoryLock
    checkpoint: Checkpoint
    secret: bytes
    store: Store
    intake: Intake
    registry: Registry
    ready: ReadyLog
    wheel: Wheel
    loader: Loader
    dispatcher: Dispatcher
    series: Series
    journal: Journal
    clock: Clock
    broker: Broker
    groups: Groups
    jobs: Jobs
    gate: threading.Lock = field(default_factory=threading.Lock)
    """Held while the loader looks at the store, and while a bulk job begins to be committed."""
    unannounced: int | None = None
    """The attempt of a bulk job that the store may have, and the intake's log does not tell of yet."""
    early: int | None = None
    """The one that recovery found in the store: the loader has it, before the log tells of it."""
    announced: dict[int, int] = field(default_factory=dict)
    """Attempts, and from which seq on the log tells of them; those of which the checkpoint does not know."""

    @property
    def view(self) -> View:
        """The snapshot of the store that the loader reads."""
        view = self.loader.view
        assert isinstance(view, View)
        return view

    def store_view(self) -> View:
        """The newest snapshot of the store."""
        return View(self.store.snapshot())

    def register(self, batch: pa.RecordBatch, plain: bool = False) -> None:
        """Take up what rows of the intake say of names, cancellations and bulk jobs: in order, and again after a
        crash. ``plain``: all of them are messages.
        """
        self.registry.apply(batch, plain=plain)
        if plain:
            return
        for number in self.jobs.apply(read_job_rows(batch), self.clock.now_ms()):
            self.announced[number] = int(batch.column("seq")[0].as_py())
            # Before it is published: no checkpoint may be made that knows of the job, until the loader has it.
            if number != self.early:
                self.loader.untaken.add(number)

    def needed_ms(self, fired_seq: int) -> list[int]:
        """From when on the store's messages of bulk jobs are needed that the checkpoint of ``fired_seq`` does not know
        of: after a crash, they are to be brought again.
        """
        numbers = [n for n, seq in list(self.announced.items()) if seq >= fired_seq]
        numbers += [] if self.unannounced is None else [self.unannounced]
        return [due for n in numbers if (due := self.jobs.get(n).due_min_ms) is not None]

    def close(self) -> None:
        self.intake.close()
        self.registry.close()
        self.ready.close()
        self.lock.release()


def open_rooms(config: Config, clock: Clock, files: Files, broker: Broker) -> Rooms:
    """Open every part of a data directory, in order; on failure nothing stays open or locked.

    Raises:
        LockedError, CorruptError
    """
    with ExitStack() as undo:
        rooms = _open_rooms(config, clock, files, broker, undo)
        undo.pop_all()
        return rooms


def _open_rooms(config: Config, clock: Clock, files: Files, broker: Broker, undo: ExitStack) -> Rooms:
    data = config.data
    lock = DirectoryLock(data)
    undo.callback(lock.release)
    checkpoint = Checkpoint.read(data)
    store = Store.open(config.store_uri, shard=config.shard)
    view = View(store.snapshot())
    secret = read_secret(files, data)
    registry = Registry(files, data / "registry", history_ms=config.retention_ms, dedupe_ms=config.dedupe_ms)
    undo.callback(registry.close)
    jobs = Jobs(data)
    registry.cancelled_jobs = jobs.cancelled
    intake = Intake(
        files,
        data / "intake",
        segment_bytes_max=config.segment_bytes_max,
        secret=secret,
        publish=broker.publish,
        begin_round=broker.begin_round,
        register=lambda batch, plain: rooms.register(batch, plain),
    )
    intake.recover(next_seq=max(checkpoint.fired_seq, view.committed_seq), durable=checkpoint.intake)
    undo.callback(intake.close)
    _check_store(checkpoint, intake, view, config)
    ready = ReadyLog(
        files, data / "ready", segment_bytes_max=config.segment_bytes_max, cache_bytes_max=config.ready_cache_bytes_max
    )
    ready.recover(place=checkpoint.ready, ends=checkpoint.offsets)
    undo.callback(ready.close)
    ready.on_append = broker.queued
    ready.stored_rows = checkpoint.stored_rows + ready.stored_rows_after(checkpoint.ready)
    fired, fired_due_ms = _fired_since(ready, checkpoint)
    wheel = Wheel(Key(checkpoint.fired_until_ms, 0), Key(fired_due_ms + 1, 0))
    wheel.withdrawn.jobs = jobs.cancelled
    loader = Loader(
        wheel, intake, clock, view, horizon_ms=config.horizon_ms, bytes_max=config.wheel_bytes_max, dead=registry.dead
    )
    loader.exclude(fired, fired_due_ms)
    dispatcher = Dispatcher(wheel, intake, ready, loader, clock)
    series = Series(wheel, ready, broker.carry_out, missed_after_ms=config.missed_after_ms, threaded=broker.threaded)
    dispatcher.series = series
    # Lease numbers must not repeat those of a former run: a consumer that outlived it may still settle with them. Not
    # from the clock, which may have been set back since.
    lease_ids = itertools.count(secrets.randbits(42) << 20)

    def sync_ready(ticket: int | None) -> None:
        ready.sync(ready.ticket() if ticket is None else ticket)

    journal = Journal(
        files,
        data / "acks",
        segment_bytes_max=config.segment_bytes_max,
        sync_ready=sync_ready,
        snapshot=lambda: groups.entries(),
        on_fatal=broker.fail,
        threaded=broker.threaded,
    )
    undo.callback(journal.close)
    groups = Groups(config, clock, files, ready, journal, lease_ids, broker.handed_out, broker.put)
    rooms = Rooms(
        lock=lock,
        checkpoint=checkpoint,
        secret=secret,
        store=store,
        intake=intake,
        registry=registry,
        ready=ready,
        wheel=wheel,
        loader=loader,
        dispatcher=dispatcher,
        series=series,
        journal=journal,
        clock=clock,
        broker=broker,
        groups=groups,
        jobs=jobs,
    )
    groups.recover()
    # Last: to open it changes files, and a directory that is refused is left as it was found.
    if not registry.recover() and checkpoint.registry:
        # Not the clock alone: it may have been set back, or show the moment of what fell due last. What was cancelled
        # and due before `fired_until_ms` may have left the intake without a trace.
        known_from_ms = max(clock.now_ms(), checkpoint.fired_until_ms)
        rebuild(registry, intake, view.snapshot, checkpoint.fired_seq, known_from_ms=known_from_ms)
    _arrived_since(rooms, fired)
    # After it: where the crash came when the log told of the job and `jobs` did not know it yet, it does now. Taken for
    # one that is still to be told of, it would stay among the untaken, and the loader would bring it a second time.
    _settle_committing(rooms)
    # What they brought below `fired_until_ms` the loader would pass over.
    loader.take_up(view, [*rooms.announced, *([] if rooms.early is None else [rooms.early])])
    if rooms.early is not None:
        loader.untaken.add(rooms.early)  # no checkpoint before the log tells of it
    return rooms


def _settle_committing(rooms: Rooms) -> None:
    """Did the store's commit of a bulk job take place, before the crash? The log is told later: the writer is not there
    yet.
    """
    attempt = rooms.jobs.unannounced()
    if attempt is None:
        return
    rooms.unannounced = attempt.number
    if rooms.store.bulk_number() == attempt.number:
        rooms.early = attempt.number


def _check_store(checkpoint: Checkpoint, intake: Intake, view: View, config: Config) -> None:
    has = f"the store {config.store_uri} has the messages below seq {view.committed_seq}"
    if view.committed_seq < checkpoint.committed_seq:
        raise CorruptError(
            f"{has}, but it had those below {checkpoint.committed_seq}, and the intake relied on it: "
            "it was replaced, or restored from an older copy"
        )
    if view.committed_seq > intake.published_seq:
        raise CorruptError(
            f"{has}, but the intake ends at {intake.published_seq}: it is not this directory's store, "
            "or the intake was restored from an older copy"
        )


def _fired_since(ready: ReadyLog, checkpoint: Checkpoint) -> tuple[Int64s, int]:
    seqs, due_max = [np.empty(0, np.int64)], checkpoint.fired_until_ms - 1
    for batch in ready.rows_after(*checkpoint.ready):
        # Copies: a view would keep the bodies of the whole batch in memory.
        seqs.append(batch.column("seq").to_numpy().copy())
        due_max = max(due_max, int(batch.column("due_ms").to_numpy().max()))
    return np.sort(np.concatenate(seqs)), due_max


def _arrived_since(rooms: Rooms, fired: Int64s) -> None:
    """Count and register what was accepted since the checkpoint; what of it was due before the checkpoint's
    ``fired_until_ms``, and did not fire, is late.
    """
    checkpoint, intake, registry = rooms.checkpoint, rooms.intake, rooms.registry
    intake.accepted, intake.cancelled = Counter(checkpoint.accepted), Counter(checkpoint.cancelled)
    late: list[pa.RecordBatch] = []
    for batch in intake.read(max(checkpoint.fired_seq, intake.first_seq), intake.published_seq):
        rooms.register(batch)
        messages = tally(batch, intake.accepted, intake.cancelled)
        due, seq = messages.column("due_ms").to_numpy(), messages.column("seq").to_numpy()
        rows = (due < checkpoint.fired_until_ms) & ~np.isin(seq, fired)
        if rows.any():
            late.append(messages.filter(pa.array(rows)))
    for batch in late:
        # Only now: a cancellation comes after what it cancels.
        dead = registry.dead(batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy())
        rooms.wheel.add(Piece.of(batch.filter(pa.array(~dead)), stored=False))


def data_files(data: Path) -> list[Path]:
    """The log files of a data directory, for ``tarry dump``."""
    return sorted(p for room in ("intake", "ready", "acks") for p in (data / room).glob("*.log"))
