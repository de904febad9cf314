"""The broker: one data directory, open. What it does on time and what it answers; how it starts is in ``recovery``."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tarry import __version__
from tarry.api.admission import Limits
from tarry.api.receipt import TopicPending
from tarry.base.clock import Clock, SystemClock
from tarry.base.config import Config
from tarry.base.delay import parse_levels
from tarry.base.errors import (
    ClosedError,
    DiskFullError,
    FatalError,
    OverloadedError,
    UnavailableError,
)
from tarry.base.types import Int64s
from tarry.broker.bulk import Bulk
from tarry.broker.changes import Changes
from tarry.broker.changing import Changing
from tarry.broker.consuming import Consuming
from tarry.broker.directory import Checkpoint
from tarry.broker.queries.lateness import Lateness
from tarry.broker.queries.methods import Looking
from tarry.broker.queries.next_due import next_due_by_topic
from tarry.broker.queues import Queues
from tarry.broker.recovery import Rooms, open_rooms
from tarry.intake import Submission
from tarry.log.commit import GroupCommit, as_tarry_error
from tarry.log.files import DISK_FULL, Files, OsFiles

log = logging.getLogger(__name__)

FLUSH_S = 0.05
"""How long due rows wait to share a frame of the ready log; nobody waits for them."""
LOOK_S = 0.25
"""How often the loader looks at the clock."""
JOBS_SWEEP_S = 600.0
FREE_CHECK_S = 0.2


class Broker(Changing, Consuming, Looking, Queues):
    """Open with :meth:`open`; thread-safe; close with :meth:`close` or a ``with`` block."""

    def __init__(self, config: Config, clock: Clock, files: Files, *, threads: bool) -> None:
        self.config = config
        self.clock = clock
        self._files = files
        self.threaded = threads
        self._limits = Limits(
            config.delay_ms_max,
            config.body_bytes_max,
            config.properties_bytes_max,
            levels=parse_levels(config.delay_levels),
            repeat_ms_min=config.repeat_ms_min,
        )
        self._fatal: BaseException | None = None
        self._fatal_event = threading.Event()
        self._closing = threading.Event()
        self._closed = False
        self._pipeline: dict[str, Any] = {"state": "off"}
        self._store_news = True
        self._free_checked_s = -1.0
        self._free_bytes = 0
        self.lateness = Lateness()
        self._handed_out = 0
        self._swept_s = -1e9
        self._started_ms = clock.now_ms()
        self._rooms: Rooms = open_rooms(config, clock, files, self)
        self._checkpoint: Checkpoint = self._rooms.checkpoint
        r = self._rooms
        self._changes = Changes(r, self.carry_out, self.begin_round)
        self._commits: GroupCommit[Submission] = GroupCommit(
            "tarry-intake", r.intake.commit, self._intake_failed, weight_max=config.inflight_bytes_max, threaded=threads
        )
        self.bulk = Bulk(r, self._limits, self.carry_out, self._check_open, self._check_disk, self._bulk_news)
        """Bulk jobs: see :class:`tarry.broker.bulk.Bulk`."""
        self.bulk.announce_alone()
        self._threads = [self._thread(n, f) for n, f in self._loops().items()] if threads else []
        for thread in self._threads:
            thread.start()
        self.bulk.naming.start()

    @classmethod
    def open(
        cls, config: Config, *, clock: Clock | None = None, threads: bool = True, files: Files | None = None
    ) -> Broker:
        """Open a data directory, recovering what a crash left.

        With ``threads=False`` nothing happens by itself: :meth:`step` does what is due (for tests, with a test clock).

        Raises:
            LockedError: another broker has it open. CorruptError: it is damaged.
        """
        return cls(config, clock or SystemClock(), files or OsFiles(), threads=threads)

    # -- looking -----------------------------------------------------------------------------------------------------

    def pending(self, *, next_due: bool = True) -> list[TopicPending]:
        """Every topic: exact counts in O(topics), and the next due time (which may read a little from disk; None: none
        found soon).
        """
        accepted, topics = Counter(self._rooms.intake.accepted), dict(self._rooms.ready.topics)
        accepted.subtract(self._rooms.intake.cancelled)
        names = sorted(accepted.keys() | topics.keys())
        counts = {n: max(0, accepted.get(n, 0) - (topics[n].end if n in topics else 0)) for n in names}
        found = next_due_by_topic(self._rooms, {n for n, c in counts.items() if c}) if next_due else {}
        return [TopicPending(n, counts[n], found.get(n), self._ready_count(n)) for n in names]

    def _ready_count(self, name: str) -> int:
        topic = self._rooms.ready.topics.get(name)
        if topic is None:
            return 0
        unsettled = self._rooms.groups.unsettled(name)
        return topic.end - topic.first if unsettled is None else unsettled

    def status(self) -> dict[str, Any]:
        """Health and counters, as plain data."""
        r = self._rooms
        return {
            "version": __version__,
            "state": "fatal" if self._fatal else "closed" if self._closed else "serving",
            "fatal": str(self._fatal) if self._fatal else None,
            "uptime_ms": self.clock.now_ms() - self._started_ms,
            "accepted": sum(r.intake.accepted.values()),
            "fired": sum(r.ready.ends().values()),
            "fired_from_store": r.ready.stored_rows,
            "handed_out": self._handed_out,
            "lateness_ms": self.lateness.delivered().summary(),
            "queue_lateness_ms": self.lateness.queued().summary(),
            "wheel": {"rows": r.wheel.rows, "bytes": int(r.wheel.bytes), "loaded_until_ms": r.wheel.loaded.due_ms},
            "intake": {"first_seq": r.intake.first_seq, "next_seq": r.intake.published_seq},
            "store": {"version": r.loader.view.version, "committed_seq": r.loader.view.committed_seq},
            "checkpoint": {"fired_until_ms": self._checkpoint.fired_until_ms, "fired_seq": self._checkpoint.fired_seq},
            "pipeline": self._pipeline,
        }

    def set_pipeline_status(self, status: Mapping[str, Any]) -> None:
        """What the pipeline, or its supervisor, says of itself; merged into ``status()["pipeline"]``."""
        self._pipeline = {**self._pipeline, **status}

    # -- for the pipeline --------------------------------------------------------------------------------------------

    def intake_state(self) -> dict[str, Any]:
        """What the schedule query plans with; fields are described in ``docs/formats.md`` (Flight)."""
        r = self._rooms
        committed = r.loader.view.committed_seq
        uncommitted = r.intake.published_seq > max(committed, r.intake.first_seq)
        return {
            "first_seq": r.intake.first_seq,
            "durable_seq": r.intake.published_seq,
            "committed_seq": committed,
            "waiting_bytes": r.intake.bytes_from(committed),
            "oldest_ms": r.intake.born_ms(committed) if uncommitted else None,
            "fired_until_ms": self._checkpoint.fired_until_ms,
            "fired_seq": self._checkpoint.fired_seq,
            "expire_until_ms": min([self._checkpoint.fired_until_ms, *r.needed_ms(self._checkpoint.fired_seq)]),
            "cancelled_jobs": r.jobs.cancelled.to_wire(),
            "now_ms": self.clock.now_ms(),
            "shard": self.config.shard,
            "store_uri": self.config.store_uri,
        }

    def read_intake(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Messages with ``start <= seq < end``, in order, without those that have fired and were deleted since."""
        return self._rooms.intake.read(start, end)

    def store_committed(self) -> None:
        """The store has a new version: take it up soon."""
        self._store_news = True
        self._rooms.loader.wake.set()

    def _bulk_news(self) -> None:
        self.store_committed()
        if not self.threaded:
            self._take_up_store()
            self._rooms.loader.step()

    # -- what goes on ------------------------------------------------------------------------------------------------

    def publish(self, batches: list[tuple[pa.RecordBatch, int]], add: Callable[[], None]) -> None:
        """From the intake's writer: frames are durable. See :mod:`tarry.wheel.loader` for the rule about who has a
        message.
        """
        wheel = self._rooms.wheel
        prepared = [wheel.prepare(batch, size) for batch, size in batches]
        with wheel.lock:
            add()
            sooner = False
            for arrival in prepared:
                sooner |= wheel.accept(arrival)
            if sooner:
                wheel.lock.notify_all()
            crowded = wheel.is_crowded or wheel.bytes > 1.25 * self.config.wheel_bytes_max
        if crowded:
            self._rooms.loader.wake.set()

    def handed_out(self, due_ms: Int64s, now_ms: int, topic: str, since_ms: int | None) -> None:
        """From a group: these were given to a consumer that has been waiting since then (None: or not)."""
        self._handed_out += len(due_ms)
        if since_ms is not None:
            self.lateness.note_delivered(topic, due_ms, now_ms, since_ms)

    def queued(self, due_ms: Int64s) -> None:
        """From the ready log: these are in their queues."""
        self.lateness.note_queued(due_ms, self.clock.now_ms())

    def step(self) -> None:
        """Do all that is to be done at the clock's time. Only without threads."""
        r = self._rooms
        self._check_open()
        while r.intake.seal():
            pass
        self._take_up_store()
        r.loader.step()
        while r.dispatcher.step() or self._load_more() or (r.series.waiting and r.series.step()):
            pass
        r.ready.flush()
        self.checkpoint()

    def _load_more(self) -> bool:
        """After a dispatch made room, load on; whether something is due now."""
        r = self._rooms
        if not r.loader.short:
            return False
        r.loader.step()
        with r.wheel.lock:
            due = r.wheel.next_fireable()
        return due is not None and due <= self.clock.now_ms()

    def next_event_ms(self) -> int | None:
        """When :meth:`step` will have something to deliver at the earliest (a lower bound); None when nothing is
        pending.
        """
        r = self._rooms
        with r.wheel.lock:
            moments = [r.wheel.next_due(), r.loader.next_unloaded_ms()]
        return min((m for m in moments if m is not None), default=None)

    def checkpoint(self) -> bool:
        """Make progress durable and delete what it makes superfluous; False when no consistent cut could be made
        now.
        """
        r = self._rooms
        progress = r.dispatcher.progress()
        if progress is None:
            return False
        checkpoint = Checkpoint(
            progress.fired_until_ms,
            progress.fired_seq,
            progress.ready,
            r.intake.position,
            progress.accepted,
            progress.offsets,
            progress.stored_rows,
            r.loader.view.committed_seq,
            progress.cancelled,
            registry=r.registry.exists,
        )
        if checkpoint != self._checkpoint:
            r.ready.sync(progress.ticket)
            r.registry.sync()
            checkpoint.write(self._files, self.config.data)
            self._checkpoint = checkpoint
            for number in [n for n, seq in list(r.announced.items()) if seq < checkpoint.fired_seq]:
                del r.announced[number]
        r.registry.sweep(progress.fired_until_ms, self.clock.now_ms())
        if time.monotonic() - self._swept_s > JOBS_SWEEP_S:
            self._swept_s = time.monotonic()
            r.jobs.sweep(progress.fired_until_ms, self.clock.now_ms() - self.config.retention_ms)
        r.groups.retry_copies()
        r.ready.delete_consumed(self.clock.now_ms(), self.config.retention_ms, r.groups.retention_guard)
        return True

    def _take_up_store(self) -> None:
        r = self._rooms
        with r.gate:
            # A bulk job must be in the log before any of it fires; meanwhile, what we have of the store is good enough.
            if self._store_news and r.unannounced is None:
                self._store_news = False
                try:
                    untaken = list(r.loader.untaken)
                    r.loader.take_up(r.store_view(), untaken)
                except UnavailableError as error:
                    # What is committed is read from the snapshot that we have; the next look may find the store again.
                    log.warning("the store cannot be looked at: %s", error)
        done = self._checkpoint
        self._rooms.intake.delete_below(done.committed_seq, done.fired_seq, done.fired_until_ms)

    def _loops(self) -> dict[str, Callable[[], None]]:
        return {
            "tarry-dispatch": self._rooms.dispatcher.run,
            "tarry-series": self._rooms.series.run,
            "tarry-load": self._load_loop,
            "tarry-keep": self._keep_loop,
        }

    def _load_loop(self) -> None:
        r = self._rooms
        polled = 0.0
        while not self._closing.is_set():
            r.loader.wake.clear()
            if time.monotonic() - polled > 5:
                polled, self._store_news = time.monotonic(), True
            self._take_up_store()
            r.loader.step()
            if not self._try_disk(r.intake.seal) and not (
                r.loader.short and r.wheel.bytes < 0.5 * self.config.wheel_bytes_max
            ):
                r.loader.wake.wait(LOOK_S)

    def _keep_loop(self) -> None:
        due = time.monotonic()
        while not self._closing.is_set():
            if self._rooms.ready.dirty.wait(max(0.0, min(due - time.monotonic(), LOOK_S))):
                self._closing.wait(FLUSH_S)
                self._try_disk(self._rooms.ready.flush)
            if time.monotonic() >= due:
                self.bulk.announce_again()
                made = self._try_disk(self.checkpoint)
                due = time.monotonic() + (self.config.checkpoint_interval_ms / 1000 if made else 0.05)

    def _try_disk(self, work: Callable[[], Any]) -> Any:
        """A full disk stops neither hand-out nor broker: what could not be written stays queued for the next try."""
        try:
            return work()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            log.warning("the disk is full: %s; trying again", error)
            self._closing.wait(LOOK_S)
            return False

    def _thread(self, name: str, loop: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                loop()
            except BaseException as error:  # noqa: BLE001  a dead thread must not look like a quiet one
                if not self._closing.is_set():
                    self.fail(error)

        return threading.Thread(target=run, name=name, daemon=True)

    # -- the end -----------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Something happened after which going on could lose what was acknowledged: stop, say so, answer nobody
        well.
        """
        if self._fatal is None:
            log.critical("fatal: %s: %s; the broker has stopped", type(error).__name__, error, exc_info=error)
            self._fatal = error
            self._fatal_event.set()
            self._closing.set()
            self._release_consumers()

    def _release_consumers(self) -> None:
        self._rooms.groups.stop()

    def wait_fatal(self, timeout_s: float | None = None) -> bool:
        """Wait until the broker has failed; whether it has."""
        return self._fatal_event.wait(timeout_s)

    def _intake_failed(self, error: BaseException, submissions: list[Submission]) -> None:
        self.fail(error)
        for submission in submissions:
            submission.fail(as_tarry_error(error, "writing the intake"))

    def _check_open(self) -> None:
        if self._fatal is not None:
            raise FatalError(f"the broker has failed: {self._fatal}")
        if self._closed:
            raise ClosedError("the broker is closed")

    def _check_room(self) -> None:
        # The loader gives up the wheel's far end when it is crowded. What cannot be given up is due at once, or was
        # made to be by a clock that was set back; then producers must wait for consumers.
        if self._rooms.wheel.bytes > 4 * self.config.wheel_bytes_max:
            raise OverloadedError(
                f"{int(self._rooms.wheel.bytes) >> 20} MiB of messages are due at once; "
                f"allowed: {4 * self.config.wheel_bytes_max >> 20} MiB (4 * wheel_bytes_max); try again"
            )
        self._check_disk()

    def _check_disk(self) -> None:
        now = time.monotonic()
        if now - self._free_checked_s > FREE_CHECK_S:
            self._free_checked_s, self._free_bytes = now, self._files.free_bytes(self.config.data)
        if self._free_bytes < self.config.disk_free_bytes_min:
            raise DiskFullError(
                f"{self._free_bytes >> 20} MiB of disk are free under {self.config.data}; producers are refused below "
                f"{self.config.disk_free_bytes_min >> 20} MiB (disk_free_bytes_min); try again later"
            )

    def close(self) -> None:
        """Answer what was submitted, make progress durable, and let go of the directory."""
        if self._closed:
            return
        self._closed = True
        r = self._rooms
        self.bulk.naming.stop()
        self._commits.close()
        self._closing.set()
        r.loader.wake.set()
        r.dispatcher.stop()
        r.series.stop()
        self._release_consumers()
        for thread in self._threads:
            thread.join()
        try:
            r.journal.close()
            if self._fatal is None:
                self._try_disk(self.checkpoint)
        finally:
            r.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
