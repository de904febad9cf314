"""Bulk jobs between the store's commit and the intake's log, which must name a job before any of it fires.

The store has an attempt of a job from its commit on; the log names it a little later. In between the loader must not
take up the store's new version, and no checkpoint may be made that knows of the job before the loader has it.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from tarry.base.bulk import read_job_rows
from tarry.base.clock import Clock
from tarry.broker.jobs import Jobs
from tarry.wheel import Loader


class JobAnnouncements:
    """``gate`` is held while the loader looks at the store, and while a bulk job begins to be committed."""

    def __init__(self, jobs: Jobs, loader: Loader, clock: Clock) -> None:
        self._jobs = jobs
        self._loader = loader
        self._clock = clock
        self.gate = threading.Lock()
        self.unannounced: int | None = None
        """The attempt of a bulk job that the store may have, and that the intake's log does not name yet."""
        self._early: int | None = None
        self._announced: dict[int, int] = {}

    def apply(self, rows: pa.RecordBatch) -> None:
        """Take up what rows of the intake say of bulk jobs: in order, and again after a crash."""
        for number in self._jobs.apply(read_job_rows(rows), self._clock.now_ms()):
            self._announced[number] = int(rows.column("seq")[0].as_py())
            # Before it is published: no checkpoint may be made that knows of the job, until the loader has it.
            if number != self._early:
                self._loader.untaken.add(number)

    def found_in_store(self, number: int) -> None:
        """Recovery found that the store has this attempt, which the log does not name: the loader has it already."""
        self._early = number

    def announced(self, number: int) -> None:
        """The log names this attempt, durably."""
        if self._early == number:
            self._early = None
            self._loader.untaken.discard(number)

    @property
    def to_load(self) -> list[int]:
        """After recovery: the attempts of which the loader brings what falls due early."""
        return [*self._announced, *([] if self._early is None else [self._early])]

    def hold_checkpoints(self) -> None:
        """After recovery: no checkpoint is made before the log names the attempt that only the store has."""
        if self._early is not None:
            self._loader.untaken.add(self._early)

    def needed_ms(self, fired_seq: int) -> list[int]:
        """From when on the store's messages of bulk jobs are needed that the checkpoint of ``fired_seq`` does not know
        of: after a crash, they are to be brought again.
        """
        numbers = [n for n, seq in list(self._announced.items()) if seq >= fired_seq]
        numbers += [] if self.unannounced is None else [self.unannounced]
        return [due for n in numbers if (due := self._jobs.get(n).due_min_ms) is not None]

    def forget_below(self, fired_seq: int) -> None:
        """The checkpoint knows of the attempts that the log named below ``fired_seq``."""
        for number in [n for n, seq in list(self._announced.items()) if seq < fired_seq]:
            del self._announced[number]
