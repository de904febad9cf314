"""Carrying out what the upkeep has planned: works by whoever runs them, a commit for each, and the deletion of what
nobody reads any more.

Whoever dies on the way leaves files that nothing names; whoever comes second with the same files is refused by the
table.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tarry.store import Rewritten, StaleCommitError, Store, Work, remove_orphans, remove_replaced
from tarry.store.orphans import ORPHAN_AGE_HOURS
from tarry.store.run import FILE_BYTES_MAX
from tarry.store.upkeep import Memory

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3600.0
ORPHANS_EVERY_S = 86_400.0
"""A search for orphans lists the whole table."""

Runner = Callable[[list[Work]], list[Rewritten]]


@dataclass(frozen=True, slots=True)
class Settings:
    """``interval_ms`` 0: never. ``retention_ms`` None: what the table says."""

    interval_ms: int = 60_000
    tasks: int = 1
    file_bytes_max: int = FILE_BYTES_MAX
    retention_ms: int | None = None
    compact: bool = True
    """False: expire and tidy alone."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Settings:
        """From a command line that has :func:`add_options`."""
        return cls(
            interval_ms=options.compact_interval_ms,
            tasks=options.compact_tasks,
            file_bytes_max=options.compact_file_bytes,
            retention_ms=options.store_retention_ms,
        )


def retention_hours(store: Store, retention_ms: int | None) -> int:
    """How long files that were replaced stay, rounded up, since Delta counts in hours. Tells the table, if it is new.

    Raises:
        UnavailableError: the log cannot be written.
    """
    if retention_ms is None:
        return store.kept_hours
    hours = -(-retention_ms // 3_600_000)
    store.keep_for(hours)
    return hours


class Carrier:
    """For one store; not thread-safe."""

    def __init__(self, store: Store, settings: Settings, run: Runner) -> None:
        self._store, self._settings, self._run = store, settings, run
        self._memory = Memory()
        self.totals: Counter[str] = Counter()
        """What was done until now."""
        self._tidied = self._searched = -float("inf")

    def carry_out(self, works: list[Work]) -> int:
        """Have works done, and publish them; how many.

        Raises:
            TarryError: the store is out of reach, or a file is damaged.
        """
        started, published = time.monotonic(), 0
        for work, result in zip(works, self._run(works), strict=True):
            self._memory.note(work, result)
            if not result.removed:
                continue
            try:
                self._store.replace(result.removed, result.files)
            except StaleCommitError as error:
                # Somebody else was quicker. What was staged is left to the search for orphans: after a commit of which
                # no answer came, it may be our own that we see.
                log.warning("a rewriting was in vain: %s", error)
                continue
            published += 1
            self.totals.update(
                works=1,
                files_removed=len(result.removed),
                files_added=len(result.files),
                rows_read=result.rows_read,
                rows_written=result.rows,
                bytes_read=result.bytes_read,
                bytes_written=result.bytes,
            )
            log.info(
                "%s: %d files of %d rows became %d of %d, %.2f s",
                work.reason,
                *(len(result.removed), result.rows_read, len(result.files), result.rows),
                time.monotonic() - started,
            )
        return published

    def tidy(self) -> None:
        """Now and then: delete files that were replaced a retention ago, and what was never committed."""
        now = time.monotonic()
        if now - self._tidied < TIDY_EVERY_S and now - self._searched < ORPHANS_EVERY_S:
            return
        hours = retention_hours(self._store, self._settings.retention_ms)
        if now - self._tidied >= TIDY_EVERY_S:
            self._tidied = now
            self.totals.update(deleted_files=len(remove_replaced(self._store.root, older_than_hours=hours)))
        if now - self._searched >= ORPHANS_EVERY_S:
            self._searched = now
            found = remove_orphans(self._store.root, older_than_hours=max(hours, ORPHAN_AGE_HOURS))
            self.totals.update(deleted_files=len(found))
