"""Registers the keys of a bulk job's messages, a few thousand at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field

import pyarrow as pa

from tarry.api.jobs import Job
from tarry.base.errors import ClosedError, TarryError
from tarry.base.waiting import wait_for
from tarry.broker.commands.register_keys import COLUMNS, RegisterKeys
from tarry.broker.jobs import Jobs
from tarry.broker.store_view import StoreFollower
from tarry.intake import Command
from tarry.message.bulk import among
from tarry.names import Registry
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place

log = logging.getLogger(__name__)

ROWS_MAX = 4096
"""Messages registered in one write: producers wait while it is decided."""
RETRY_S = 1.0


@dataclass(eq=False)
class KeyBackfill:
    """Registers keys, one job after the other; in a thread of its own if ``threaded``.

    :meth:`stop` ends it between two writes.
    """

    _jobs: Jobs
    _store: StoreFollower
    _registry: Registry
    _carry_out: Callable[[Command], None]
    _: KW_ONLY
    threaded: bool
    _stopping: threading.Event = field(default_factory=threading.Event)
    _work: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to register the keys of jobs whose keys are not all registered, if there are any."""
        if not self._jobs.unnamed():
            return
        if not self.threaded:
            self._all()
            return
        self._work.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tarry-name", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._work.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._work.wait()
            self._work.clear()
            try:
                self._all()
            except ClosedError:
                return
            except TarryError as error:
                log.warning("the keys of a bulk job could not all be registered, trying again: %s", error)
                self._stopping.wait(RETRY_S)
                self._work.set()

    def _all(self) -> None:
        for job in self._jobs.unnamed():
            count = 0
            for rows in self._rows(job):
                if self._stopping.is_set():
                    return
                wait_for(lambda done, rows=rows: self._carry_out(RegisterKeys(rows, self._registry, done)))  # type: ignore[misc]
                count += rows.num_rows
            writes = self._registry.writes if count else 0
            if count:
                # Sync before the job is marked as done: changes that a power failure takes from the registry are not in
                # the log.
                self._registry.sync()
            self._jobs.named(job.number, count, writes)

    def _rows(self, job: Job) -> Iterator[pa.RecordBatch]:
        # Not the loader's view, which may not have the job yet.
        snapshot = self._store.newest().of_jobs([job.number])
        place = Place.of(snapshot.root)
        for path in snapshot.files.path:
            for group in groups(place, path):
                if read_group(place, path, group.number, ["key"]).column(0).null_count == group.rows:
                    continue
                batch = read_group(place, path, group.number, COLUMNS)
                chosen = among(batch.column("seq").to_numpy(), [job.number])
                chosen &= batch.column("key").is_valid().to_numpy(zero_copy_only=False)
                chosen &= ~self._registry.cancelled_mask(*(batch.column(n).to_numpy() for n in ("due_ms", "seq")))
                rows = batch.filter(pa.array(chosen))
                for start in range(0, rows.num_rows, ROWS_MAX):
                    yield rows.slice(start, ROWS_MAX)
