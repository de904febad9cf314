"""Reschedules a message: cancels it where it is and stores it anew at its new time, in one frame.

A message of a transaction that is committed is stored in its real topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tarry.api.outcome import Outcome, Rescheduled
from tarry.base.errors import TarryError
from tarry.broker.commands.cancel import CancelTarget
from tarry.broker.commands.write_batch import WriteBatch, places
from tarry.message import handle
from tarry.message.receipt import Receipt
from tarry.names import NameEntry, name_of_key


@dataclass(slots=True, eq=False)
class Move:
    """A command: reschedule a message.

    ``target`` is the message as it was found, ``row`` (one, of UNNUMBERED) the one to store instead. ``done`` gets None
    if the caller has to look the message up again: since then the series has gone on to its next occurrence, or the key
    was replaced.
    """

    _target: CancelTarget
    _row: pa.RecordBatch
    _done: Callable[[Rescheduled | TarryError | None], None]
    _secret: bytes
    _answer: Rescheduled | None = None

    def decide(self, batch: WriteBatch) -> pa.RecordBatch | None:
        """Return the message at its new time, and the cancellation of the former."""
        target = self._target
        if target.name is not None:
            [entry] = batch.entries([target.name])
            # No entry: the first occurrence of a series, or no series; the message that was found is still the one.
            if entry is not None and entry.seq != target.seq:
                return None
        due, seq = places([NameEntry(target.seq, target.due_ms, 0)])
        [outcome] = batch.withdraw(due, seq)
        self._answer = Rescheduled(outcome)
        if outcome is not Outcome.DONE:
            return None
        self._register(batch)
        # The topic of the former message: the new one may be in another.
        former = batch.cancellations(due, seq, pa.array([target.topic], pa.string()))
        return pa.concat_batches([self._row, former])

    def _register(self, batch: WriteBatch) -> None:
        row = {n: self._row.column(n)[0].as_py() for n in ("topic", "key", "id", "due_ms")}
        entry = NameEntry(batch.next_seq, row["due_ms"], batch.now_ms)
        batch.new.add(entry.seq)
        if row["key"] is not None:
            batch.names[name_of_key(row["topic"], row["key"])] = entry
        token = handle.sign(self._secret, entry.seq, 1)
        receipt = Receipt(row["id"], entry.seq, entry.due_ms, entry.seq, 1, token)
        self._answer = Rescheduled(Outcome.DONE, receipt)

    def on_durable(self, first_seq: int) -> None:
        self._done(self._answer)

    def on_refused(self, error: TarryError) -> None:
        self._done(error)
