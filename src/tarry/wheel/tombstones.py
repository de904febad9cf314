"""Messages that were cancelled while the wheel had them, or was about to.

Taking a row out of a slice of a large batch would copy the batch, so the row stays, and is left out when it is taken. A
cancellation becomes durable some time after it is decided. Until then it is *undecided*: a row that is taken meanwhile
is held back, for the cancellation may fail (a full disk), and then the row is due after all. The same holds for all
messages of a bulk job, which is cancelled as a whole: then one number stands for them.

All of this is guarded by the wheel's lock.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s, Key, Mask
from tarry.message.bulk import CancelledJobs, among
from tarry.wheel.due import Due
from tarry.wheel.handed import NONE_HANDED, PerhapsHanded

PURGE_ROWS = 4096


class Tombstones:
    """The cancelled messages of the wheel.

    There are no more than rows in the wheel: a cancellation beyond ``loaded`` is removed as soon as the registry has
    it. ``jobs`` are the cancelled bulk jobs; it is changed by whoever cancels them.
    """

    def __init__(self, jobs: CancelledJobs, perhaps_handed: PerhapsHanded = NONE_HANDED) -> None:
        self._jobs = jobs
        self._perhaps_handed = perhaps_handed
        self._durable: dict[int, int] = {}  # due times by seq, also in the next one
        self._undecided: dict[int, int] = {}
        self._held: list[tuple[int, Due]] = []
        self._undecided_jobs: set[int] = set()
        self._held_of_jobs: list[tuple[int, Due]] = []
        self._purge_at = PURGE_ROWS

    def __len__(self) -> int:
        return len(self._durable) + len(self._undecided) + bool(self._jobs) + len(self._undecided_jobs)

    def mask(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Return a mask of these messages that are cancelled, or about to be."""
        if not self:
            return np.zeros(len(seq), np.bool_)
        durable, undecided = self._durable, self._undecided
        cancelled = self._jobs.mask(due_ms, seq) | among(seq, self._undecided_jobs)
        if durable or undecided:
            cancelled |= np.fromiter((s in durable or s in undecided for s in seq.tolist()), np.bool_, len(seq))
        return cancelled

    def seqs(self) -> Int64s:
        """Return all messages that were cancelled one by one."""
        seqs = [*self._durable, *self._undecided]
        return np.fromiter(seqs, np.int64, len(seqs))

    @property
    def latest_ms(self) -> int:
        """The latest due time of messages that were cancelled one by one."""
        return max((*self._durable.values(), *self._undecided.values()), default=int(np.iinfo(np.int64).min))

    @property
    def holds_rows(self) -> bool:
        """True if rows are held back.

        They are neither in the wheel nor fired, so no checkpoint may be taken.
        """
        return bool(self._held or self._held_of_jobs)

    def add(self, seqs: list[int], due_ms: list[int]) -> None:
        """Add cancellations that are decided; :meth:`confirm` or :meth:`revoke` follows."""
        self._undecided.update(zip(seqs, due_ms, strict=True))

    def confirm(self, loaded: Key) -> None:
        """Note that all that was added is durable, and in the registry.

        Messages beyond ``loaded`` are dropped: the loader leaves them out.
        """
        for seq, _ in self._held:
            self._undecided.pop(seq, None)
        self._durable.update({seq: due for seq, due in self._undecided.items() if (due, seq) < loaded})
        self._undecided.clear()
        self._held.clear()

    def revoke(self) -> list[pa.RecordBatch]:
        """Drop all that was added, since it failed; return the rows that were held back, which are due."""
        rows = [due.batch for _, due in self._held]
        self._undecided.clear()
        self._held.clear()
        return rows

    def add_job(self, number: int) -> None:
        """Note that a bulk job is about to be cancelled: its due rows are held back until that is decided."""
        self._undecided_jobs.add(number)

    def confirm_job(self, number: int, late: Mapping[int, int]) -> None:
        """Note that a bulk job is cancelled, durably, and that ``jobs`` has it.

        ``late``: due times, by seq, of its messages that were here and lie before the place from which on the job is
        cancelled.
        """
        self._undecided_jobs.discard(number)
        self._durable.update(late)
        self._held_of_jobs = [(n, due) for n, due in self._held_of_jobs if n != number]

    def revoke_job(self, number: int) -> list[pa.RecordBatch]:
        """Note that a bulk job was not cancelled; return the rows that were held back, which are due."""
        rows = [due.batch for n, due in self._held_of_jobs if n == number]
        self.confirm_job(number, {})
        return rows

    def leave_out(self, due: Due, fired: Key) -> Due:
        """Return the rows that were taken, without the cancelled ones."""
        if self._jobs or self._undecided_jobs:
            due = self._without_jobs(due)
        seq = due.batch.column("seq").to_numpy()
        cancelled = self.mask(due.due_ms, seq)
        if not cancelled.any():
            self._purge(fired)
            return due
        for value in seq[cancelled].tolist():
            if value in self._undecided:
                self._held.append((value, due.split(seq == value)[0]))
            else:
                del self._durable[value]
        return due.split(cancelled)[1]

    def _without_jobs(self, due: Due) -> Due:
        for number in self._undecided_jobs:
            seq = due.batch.column("seq").to_numpy()
            # Messages that a consumer may have had before a crash are not cancelled with their job, and are delivered.
            of_job = among(seq, [number]) & ~self._perhaps_handed.mask(due.due_ms, seq)
            if of_job.any():
                held, due = due.split(of_job)
                self._held_of_jobs.append((number, held))
        cancelled = self._jobs.mask(due.due_ms, due.batch.column("seq").to_numpy())
        return due.split(cancelled)[1] if cancelled.any() else due

    def _purge(self, fired: Key) -> None:
        # Rows that the loader itself left out are never taken; their entries would stay here forever.
        if len(self._durable) >= self._purge_at:
            self._durable = {s: d for s, d in self._durable.items() if Key(d, s) >= fired}
            self._purge_at = max(PURGE_ROWS, 2 * len(self._durable))
