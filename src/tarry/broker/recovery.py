"""Opening a data directory: the order of things after a clean stop and after a crash alike.

Lock → checkpoint → store → validate and cut the logs' tails → find what fired since the checkpoint → what arrived since
the checkpoint and was due before it → groups. The loader then brings the window from ``fired_until_ms`` on, without
what was found fired. Its time depends on the tail and the window, not on what is pending.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tarry.broker.directory import Checkpoint, DirectoryLock, read_secret
from tarry.clock import Clock
from tarry.config import Config
from tarry.errors import CorruptError
from tarry.intake import Intake
from tarry.intake.index import Int64s, Key
from tarry.intake.intake import count_topics
from tarry.log.files import Files
from tarry.ready import Group, Journal, ReadyLog, Topic
from tarry.ready.journal import Entry, Op
from tarry.store import Snapshot, Store, next_due, read_window
from tarry.wheel.dispatcher import Dispatcher
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

    def next_due(self, from_ms: int, topics: set[str]) -> dict[str, int]:
        return dict(next_due(self.snapshot, from_ms, topics))

    def first_due_ms(self, after: Key) -> int | None:
        """The lowest due time from ``after`` on; None when nothing is left."""
        first = next(read_window(self.snapshot, after, np.iinfo(np.int64).max, batch_rows=1), None)
        return None if first is None else int(first.column("due_ms")[0].as_py())


@dataclass(slots=True)
class Rooms:
    """The parts of an open broker."""

    lock: DirectoryLock
    checkpoint: Checkpoint
    store: Store
    intake: Intake
    ready: ReadyLog
    wheel: Wheel
    loader: Loader
    dispatcher: Dispatcher
    journal: Journal
    clock: Clock
    broker: Broker
    lease_ids: Iterator[int]

    def store_view(self) -> View:
        """The newest snapshot of the store."""
        return View(self.store.snapshot())

    def new_group(self, topic: Topic, name: str, floor: int) -> Group:
        """A group that is in no journal yet."""
        return Group(
            topic,
            name,
            clock=self.clock,
            journal=self.journal,
            ticket=self.ready.ticket,
            on_handout=self.broker.handed_out,
            lease_ids=self.lease_ids,
            floor=floor,
        )

    def group_entries(self) -> Iterator[Entry]:
        """The state of all groups, for a snapshot of the journal."""
        for topic in list(self.ready.topics.values()):
            for group in list(topic.groups.values()):
                yield from group.entries()

    def close(self) -> None:
        self.intake.close()
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
    intake = Intake(
        files,
        data / "intake",
        segment_bytes_max=config.segment_bytes_max,
        secret=read_secret(files, data),
        publish=broker.publish,
    )
    intake.recover(next_seq=max(checkpoint.fired_seq, view.committed_seq), durable=checkpoint.intake)
    undo.callback(intake.close)
    _check_store(checkpoint, intake, view, config)
    ready = ReadyLog(
        files, data / "ready", segment_bytes_max=config.segment_bytes_max, cache_bytes_max=config.ready_cache_bytes_max
    )
    ready.recover(place=checkpoint.ready, ends=checkpoint.offsets)
    undo.callback(ready.close)
    ready.stored_rows = checkpoint.stored_rows + ready.stored_rows_after(checkpoint.ready)
    fired, fired_due_ms = _fired_since(ready, checkpoint)
    wheel = Wheel(Key(checkpoint.fired_until_ms, 0), Key(fired_due_ms + 1, 0))
    loader = Loader(wheel, intake, clock, view, horizon_ms=config.horizon_ms, bytes_max=config.wheel_bytes_max)
    loader.exclude(fired, fired_due_ms)
    _arrived_since(intake, checkpoint, fired, wheel)
    dispatcher = Dispatcher(wheel, intake, ready, loader, clock)
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
        snapshot=lambda: rooms.group_entries(),
        on_fatal=broker.fail,
        threaded=broker.threaded,
    )
    undo.callback(journal.close)
    rooms = Rooms(lock, checkpoint, store, intake, ready, wheel, loader, dispatcher, journal, clock, broker, lease_ids)
    _recover_groups(rooms)
    return rooms


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


def _arrived_since(intake: Intake, checkpoint: Checkpoint, fired: Int64s, wheel: Wheel) -> None:
    """Count what was accepted since the checkpoint; what of it was due before the checkpoint's ``fired_until_ms``, and
    did not fire, is late.
    """
    intake.accepted = Counter(checkpoint.accepted)
    start = max(checkpoint.fired_seq, intake.first_seq)
    for batch in intake.read(start, intake.published_seq):
        intake.accepted.update(count_topics(iter([batch])))
        late = batch.column("due_ms").to_numpy() < checkpoint.fired_until_ms
        late &= ~np.isin(batch.column("seq").to_numpy(), fired)
        if late.any():
            wheel.add(Piece.of(batch.filter(pa.array(late)), stored=False))


def _recover_groups(rooms: Rooms) -> None:
    retries: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for entry in rooms.journal.recover():
        topic = rooms.ready.topic(entry.topic)
        group = topic.groups.get(entry.group)
        if group is None:
            floor = entry.first if entry.op is Op.GROUP else 0
            group = topic.groups[entry.group] = rooms.new_group(topic, entry.group, floor)
        group.replay(entry, retries.setdefault((entry.topic, entry.group), {}))
    for topic in rooms.ready.topics.values():
        for name, group in topic.groups.items():
            group.recovered(retries.get((topic.name, name), {}))


def data_files(data: Path) -> list[Path]:
    """The log files of a data directory, for ``tarry dump``."""
    return sorted(p for room in ("intake", "ready", "acks") for p in (data / room).glob("*.log"))
