"""The store as the broker reads it: the loader's snapshot, and the taking up of newer ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.base.errors import UnavailableError
from tarry.base.types import Key
from tarry.broker.job_announcements import JobAnnouncements
from tarry.store import Snapshot, Store, read_window
from tarry.store.damaged import OnDamage, state_of
from tarry.store.jobs import read_jobs
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry.wheel import Loader

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of the store, as :class:`tarry.wheel.loader.StoreView` wants it."""

    snapshot: Snapshot
    _first: list[tuple[Key, Key | None]] = field(default_factory=list, compare=False, repr=False)
    """A place, and the first row from there on: what :meth:`first_due_ms` has found last."""

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def committed_seq(self) -> int:
        return self.snapshot.committed_seq

    def read_window(self, after: Key, until_ms: int, batch_rows: int, on_damage: OnDamage) -> Iterator[pa.RecordBatch]:
        return read_window(self.snapshot, after, until_ms, batch_rows=batch_rows, on_damage=on_damage)

    def read_jobs(
        self, numbers: Sequence[int], until_ms: int, batch_rows: int, on_damage: OnDamage
    ) -> Iterator[pa.RecordBatch]:
        return read_jobs(self.snapshot, numbers, until_ms, batch_rows, on_damage)

    def state_of(self, path: str) -> tuple[int, ...]:
        return state_of(Place.of(self.snapshot.root), path)

    def groups_of(self, path: str) -> list[int]:
        return [group.number for group in groups(Place.of(self.snapshot.root), path)]

    def read_group(self, path: str, number: int) -> pa.RecordBatch:
        return read_group(Place.of(self.snapshot.root), path, number)

    def first_due_ms(self, after: Key) -> int | None:
        """Return the lowest due time from ``after`` on; None when nothing is left.

        The loader finds unreadable files when their time comes. Files of one version do not change: it is read again
        only once ``after`` has passed what was found, or where a file could not be read, which may be repaired.
        """
        for since, first in self._first:
            if since <= after and (first is None or after <= first):
                return None if first is None else first.due_ms
        damaged: list[object] = []
        until_ms = np.iinfo(np.int64).max
        row = next(read_window(self.snapshot, after, until_ms, batch_rows=1, on_damage=damaged.append), None)
        first = None if row is None else Key(row.column("due_ms")[0].as_py(), row.column("seq")[0].as_py())
        if not damaged:
            self._first[:] = [(after, first)]
        return None if first is None else first.due_ms


class StoreFollower:
    """:meth:`take_up` is called by the loader's thread, everything else by any."""

    def __init__(self, store: Store, loader: Loader, announcements: JobAnnouncements) -> None:
        self._store = store
        self._loader = loader
        self._announcements = announcements
        self._has_news = True

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that the loader reads."""
        view = self._loader.view
        assert isinstance(view, View)
        return view.snapshot

    @property
    def place(self) -> tuple[str, str]:
        """The table's absolute path or URI, and its id."""
        return self._store.root, self._store.table_id

    @property
    def epoch(self) -> int | None:
        """The epoch under which the store is committed to; None: it is not fenced."""
        return self._store.epoch

    def newest(self) -> Snapshot:
        """Return the store's newest snapshot, which the loader may not have."""
        return self._store.snapshot()

    def expect_news(self) -> None:
        """Have the next :meth:`take_up` look at the store."""
        self._has_news = True

    def announce(self) -> None:
        """Have the store's new version taken up soon."""
        self.expect_news()
        self._loader.wake.set()

    def take_up(self) -> None:
        """Have the loader read the newest snapshot, where there may be news."""
        with self._announcements.look_lock:
            # A bulk job must be in the log before any of it fires; until then the present snapshot is good enough.
            if self._has_news and self._announcements.unannounced is None:
                self._has_news = False
                try:
                    untaken = list(self._loader.untaken)
                    self._loader.take_up(View(self._store.snapshot()), untaken)
                except UnavailableError as error:
                    # Committed messages are read from the present snapshot; the next look may find the store again.
                    log.warning("the store cannot be read: %s", error)
