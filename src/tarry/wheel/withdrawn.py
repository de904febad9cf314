"""Messages that were cancelled while the wheel had them, or was about to.

Taking a row out of a slice of a large batch would copy the batch, so the row stays and is left out when it is taken.
Cancelling is durable some time after it is decided. Until then it is *open*: a row that is taken meanwhile is kept
aside, for the cancellation may fail (a full disk), and then it is due after all. The same holds for all messages of a
bulk job, which is cancelled as a whole: then one number stands for them.

All of this is guarded by the wheel's lock.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tarry.base.bulk import CancelledJobs, among
from tarry.base.types import Int64s, Key, Mask
from tarry.wheel.due import Due

PURGE_ROWS = 4096


class Withdrawn:
    """Due times by seq. Its size is bounded by the rows of the wheel: what is beyond ``loaded`` is taken out as soon as
    the registry has it.
    """

    def __init__(self) -> None:
        self._due_ms: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._aside: list[tuple[int, Due]] = []
        self._purge_at = PURGE_ROWS
        self.jobs = CancelledJobs()
        """Bulk jobs that are cancelled; whoever cancels them changes it."""
        self._open_jobs: set[int] = set()
        self._aside_jobs: list[tuple[int, Due]] = []

    def __len__(self) -> int:
        return len(self._due_ms) + len(self._open) + bool(self.jobs) + len(self._open_jobs)

    def mask(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Which of these are withdrawn."""
        if not self:
            return np.zeros(len(seq), np.bool_)
        settled, undecided = self._due_ms, self._open
        gone = self.jobs.mask(due_ms, seq) | among(seq, self._open_jobs)
        if settled or undecided:
            gone |= np.fromiter((s in settled or s in undecided for s in seq.tolist()), np.bool_, len(seq))
        return gone

    def seqs(self) -> Int64s:
        """All of them that are withdrawn one by one."""
        several = [*self._due_ms, *self._open]
        return np.fromiter(several, np.int64, len(several))

    @property
    def kept_aside(self) -> bool:
        """Whether rows are neither here nor there, so that no checkpoint may be taken."""
        return bool(self._aside or self._aside_jobs)

    def add(self, seqs: list[int], due_ms: list[int]) -> None:
        """It is decided that these messages are cancelled."""
        self._open.update(zip(seqs, due_ms, strict=True))

    def settle(self, loaded: Key) -> None:
        """All that is open is durable, and in the registry. What lies beyond ``loaded`` the loader leaves out."""
        for seq, _ in self._aside:
            self._open.pop(seq, None)
        self._due_ms.update({s: d for s, d in self._open.items() if (d, s) < loaded})
        self._open.clear()
        self._aside.clear()

    def undo(self) -> list[pa.RecordBatch]:
        """All that is open did not come to pass; the rows that were kept aside, which are due."""
        rows = [due.batch for _, due in self._aside]
        self._open.clear()
        self._aside.clear()
        return rows

    def add_job(self, number: int) -> None:
        """A bulk job is about to be cancelled: what falls due of it is kept aside until it is settled."""
        self._open_jobs.add(number)

    def settle_job(self, number: int, late: Mapping[int, int]) -> None:
        """It is cancelled, durably; :attr:`jobs` has it. ``late``: due times, by seq, of those of its messages that
        were here and lie before the place from which on it is cancelled.
        """
        self._open_jobs.discard(number)
        self._due_ms.update(late)
        self._aside_jobs = [(n, due) for n, due in self._aside_jobs if n != number]

    def undo_job(self, number: int) -> list[pa.RecordBatch]:
        """It was not cancelled; the rows that were kept aside, which are due."""
        rows = [due.batch for n, due in self._aside_jobs if n == number]
        self.settle_job(number, {})
        return rows

    def leave_out(self, due: Due, fired: Key) -> Due:
        """The rows without those that are cancelled."""
        if self.jobs or self._open_jobs:
            due = self._without_jobs(due)
        seq = due.batch.column("seq").to_numpy()
        gone = self.mask(due.due_ms, seq)
        if not gone.any():
            self._purge(fired)
            return due
        for value in seq[gone].tolist():
            if value in self._open:
                self._aside.append((value, due.split(seq == value)[0]))
            else:
                del self._due_ms[value]
        return due.split(gone)[1]

    def _without_jobs(self, due: Due) -> Due:
        for number in self._open_jobs:
            kept = among(due.batch.column("seq").to_numpy(), [number])
            if kept.any():
                aside, due = due.split(kept)
                self._aside_jobs.append((number, aside))
        gone = self.jobs.mask(due.due_ms, due.batch.column("seq").to_numpy())
        return due.split(gone)[1] if gone.any() else due

    def _purge(self, fired: Key) -> None:
        # What the loader itself left out is never taken, and would stay here for ever.
        if len(self._due_ms) >= self._purge_at:
            self._due_ms = {s: d for s, d in self._due_ms.items() if Key(d, s) >= fired}
            self._purge_at = max(PURGE_ROWS, 2 * len(self._due_ms))
