"""A table that was read before it is opened, by one that stands by.

A claim builds on it without reading it again.

It need not be the newest version: a claim is the version after it, or fails, and then all is read. But it was read a
moment ago: after a day the entry behind it may have been cleaned up, and its name be free again.
"""

from __future__ import annotations

import threading
import time

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tarry.store.app_versions import AppVersions
from tarry.store.fence import epoch_id
from tarry.store.owner import bulk_id, intake_id
from tarry.store.place import Place

FRESH_S = 60.0


class WarmTable:
    """The table at a URI, with the numbers that a claim of ``shard`` looks at. Any thread."""

    def __init__(self, uri: str, shard: int) -> None:
        self._place, self._ids = Place.of(uri), (intake_id(shard), epoch_id(shard), bulk_id(shard))
        self._lock = threading.Lock()
        self._table: DeltaTable | None = None
        self._app_versions = AppVersions()
        self._read_s = 0.0

    def refresh(self) -> None:
        """Read it, or what is new of it. What cannot be read is none of its concern: who opens it is told."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        try:
            began_s = _now_s()
            if self._table is None:
                self._table = DeltaTable(self._place.uri)
            else:
                self._table.update_incremental()
            for each in self._ids:
                self._app_versions.of(self._table, each)
            self._read_s = began_s
        except (DeltaError, OSError):
            self._table = None

    def take(self) -> tuple[DeltaTable, AppVersions] | None:
        """Return what was read, which is the caller's from now on; None: nothing."""
        with self._lock:
            if self._table is not None and _now_s() - self._read_s > FRESH_S:
                self._refresh()
            table, self._table = self._table, None
            return None if table is None else (table, self._app_versions)


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
