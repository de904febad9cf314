"""The scrub: reads a serving broker's files slowly, so that damage is found before a message is due.

It leaves out files that cannot be judged while they are written: the last segment of each log (and of the audit log),
the registry, and the pipeline's checkpoint. It also leaves out a store that is not on a local disk: the service keeps
its own checksums. ``tarry verify`` checks all of that, offline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import CorruptError
from tarry.broker import hand_out_bound
from tarry.broker.directory import owner_of, read_secret
from tarry.broker.hand_out_bound import check_bound
from tarry.broker.jobs import Jobs
from tarry.broker.store_view import StoreFollower
from tarry.broker.verification import audit_log_checks, json_versions, own_front_state_checks
from tarry.log.file_engine import DIRECTORIES
from tarry.log.files import Files
from tarry.log.frame import LogKind
from tarry.log.segment import list_segments
from tarry.store.place import Place
from tarry.verify import Check, Finding
from tarry.verify.logs import segment_checks
from tarry.verify.small_files import small_checks
from tarry.verify.store import local_entry_checks, snapshot_checks

log = logging.getLogger(__name__)

FIRST_S = 600.0
"""The first pass begins so long after the start, which has read much already."""
PASS_S = 86_400.0
"""A pass begins so long after the one before it began, at the earliest."""


class _EndingError(Exception):
    """The broker ends."""


@dataclass(slots=True)
class Scrub:
    """Scrubber of a broker's files.

    One thread calls :meth:`run` or :meth:`run_pass`; any thread asks for its progress. ``on_damage`` is called for each
    damaged place.
    """

    _config: Config
    _clock: Clock
    _files: Files
    _store: StoreFollower
    _ending: threading.Event
    _on_damage: Callable[[CorruptError], None]
    _passes: int = 0
    _ended_ms: int | None = None
    _bytes: int = 0
    _checked: int = 0
    _of_bytes: int = 0
    _paid_s: float = field(default_factory=time.monotonic)

    @property
    def progress(self) -> dict[str, Any]:
        """Return passes made, the end of the last one, bytes read in all, and the state of the pass under way."""
        return {
            "passes": self._passes,
            "ended_ms": self._ended_ms,
            "bytes": self._bytes,
            "checked_bytes": self._checked,
            "of_bytes": self._of_bytes,
        }

    def run(self) -> None:
        """Until the broker ends: one pass after the other."""
        if not self._config.scrub_bytes_per_s:
            return
        wait_s = FIRST_S
        while not self._ending.wait(wait_s):
            began_s = time.monotonic()
            try:
                self.run_pass()
            except Exception:
                # Whatever it was (no descriptor is free, say), a broker does not end for want of a check.
                log.exception("scrub: the pass was given up; the next one begins in %d hours", PASS_S // 3600)
            wait_s = max(0.0, began_s + PASS_S - time.monotonic())

    def run_pass(self) -> None:
        """Check everything once; ends early when the broker ends."""
        checks = list(self.plan())
        self._checked, self._of_bytes = 0, sum(check.bytes for check in checks)
        self._paid_s = time.monotonic()
        damaged = 0
        try:
            for check in checks:
                damaged += self._check(check)
        except _EndingError:
            return
        self._passes, self._ended_ms = self._passes + 1, self._clock.now_ms()
        log.info("scrub: %d files of %d bytes were checked, %d places are damaged", len(checks), self._checked, damaged)

    def plan(self) -> Iterator[Check]:
        """Yield the checks of all files that are not being written."""
        data, snapshot = self._config.data, self._store.snapshot
        secret, bound = partial(read_secret, self._files, data), partial(check_bound, data / hand_out_bound.FILE)
        yield from small_checks(data, json_versions(data), partial(owner_of, data), secret, bound, Jobs, in_use=True)
        yield from own_front_state_checks(data)
        for log_kind in (LogKind.INTAKE, LogKind.READY):
            directory = data / DIRECTORIES[log_kind]
            bases = list_segments(directory)
            # The last one is being written. A sealed one was written to the end before the next was begun.
            yield from list(segment_checks(directory, log_kind, bases, None))[: -1 if bases else None]
        yield from audit_log_checks(data, in_use=True)
        place = Place.of(snapshot.root)
        if place.local is not None:
            yield from local_entry_checks(place.local)
            yield from snapshot_checks(place, (snapshot.files, snapshot.cancellations))

    def _check(self, check: Check) -> int:
        """Run one check; how many places are damaged. What was deleted meanwhile is passed over."""
        damaged = 0
        for result in check.results(self._pace):
            if isinstance(result, Finding) and self._is_still_there(result):
                damaged += 1
                self._on_damage(CorruptError(str(result)))
        self._checked += check.bytes
        return damaged

    def _is_still_there(self, finding: Finding) -> bool:
        if Path(finding.path).exists():
            return True
        snapshot = self._store.snapshot
        place = Place.of(snapshot.root)
        named = {place.path(path) for files in (snapshot.files, snapshot.cancellations) for path in files.path}
        return finding.path in named

    def _pace(self, more: int) -> None:
        """Wait until what was read is paid for at the rate that is set."""
        self._bytes += more
        # Time that was not used is not saved up: a rate is a rate.
        self._paid_s = max(self._paid_s, time.monotonic()) + more / self._config.scrub_bytes_per_s
        if self._ending.wait(max(0.0, self._paid_s - time.monotonic())):
            raise _EndingError
