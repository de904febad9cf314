"""Bulk jobs between the store's commit and the intake's log, which must name a job before it fires.

The store has an attempt of a job from its commit on; the log names it a little later. In between, the loader must not
take up the store's new version, and no checkpoint may be made that knows of the job before the loader has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from tarry.base.clock import Clock
from tarry.broker.jobs import Jobs
from tarry.message.bulk import read_job_rows
from tarry.wheel import Loader


@dataclass(slots=True, eq=False)
class JobAnnouncements:
    """Attempts that are committed but not announced, or not covered by a checkpoint yet.

    ``look_lock`` is held while the loader looks at the store, and while the commit of a bulk job begins.
    ``unannounced`` is the attempt that the store may have and that the intake's log does not name yet.
    """

    _jobs: Jobs
    _loader: Loader
    _clock: Clock
    look_lock: threading.Lock = field(default_factory=threading.Lock)
    unannounced: int | None = None
    _early: int | None = None
    _announced: dict[int, int] = field(default_factory=dict)

    def apply(self, rows: pa.RecordBatch) -> None:
        """Apply the rows of the intake about bulk jobs: in order, and again after a crash."""
        for number in self._jobs.apply(read_job_rows(rows), self._clock.now_ms()):
            self._announced[number] = int(rows.column("seq")[0].as_py())
            # Before it is published: no checkpoint that knows of the job may be made until the loader has it.
            if number != self._early:
                self._loader.untaken.add(number)

    def find_unannounced(self, store_number: Callable[[], int | None]) -> None:
        """Find, for recovery, the attempt that is committing, if any, and whether the store has it.

        If it is the store's last one (``store_number``), the loader has it already, though the log does not name it.
        """
        attempt = self._jobs.unannounced()
        if attempt is not None:
            self.unannounced = attempt.number
            if store_number() == attempt.number:
                self._early = attempt.number

    def announced(self, number: int) -> None:
        """Note that the log names this attempt, durably."""
        if self._early == number:
            self._early = None
            self._loader.untaken.discard(number)

    @property
    def to_load(self) -> list[int]:
        """Return, after recovery, the attempts whose messages due early the loader must bring."""
        return [*self._announced, *([] if self._early is None else [self._early])]

    def hold_checkpoints(self) -> None:
        """Prevent checkpoints, after recovery, until the log names the attempt that only the store has."""
        if self._early is not None:
            self._loader.untaken.add(self._early)

    def needed_ms(self, fired_seq: int) -> list[int]:
        """Return from when on the store's messages are needed for a recovery from ``fired_seq``.

        There is one due time for each bulk job that the checkpoint of ``fired_seq`` does not know of: after a crash,
        its messages have to be brought again.
        """
        numbers = [n for n, seq in list(self._announced.items()) if seq >= fired_seq]
        numbers += [] if self.unannounced is None else [self.unannounced]
        return [due for n in numbers if (due := self._jobs.get(n).due_min_ms) is not None]

    def forget_below(self, fired_seq: int) -> None:
        """Forget the attempts that the log named below ``fired_seq``: the checkpoint knows of them."""
        for number in [n for n, seq in list(self._announced.items()) if seq < fired_seq]:
            del self._announced[number]
