"""Cancelling messages: by the place that a handle names, or by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.api.outcome import Outcome
from tarry.base.errors import TarryError
from tarry.broker.commands.write_batch import WriteBatch, places
from tarry.names import NameEntry, name_of_series


@dataclass(frozen=True, slots=True)
class CancelTarget:
    """A message to cancel.

    ``name`` is what it is registered under: a key, or its series, by the seq of the first occurrence. Where the message
    is then, the registry says when the command is decided. ``topic`` is None where the message was not found, so that
    there is nothing to write a cancellation for.
    """

    seq: int
    due_ms: int
    topic: str | None
    name: bytes | None = None

    @property
    def registered_name(self) -> bytes:
        """The name whose message is meant."""
        return self.name or name_of_series(self.seq)

    def current(self, registered: NameEntry | None) -> NameEntry:
        """Return where the message is, by what its name has in the registry."""
        return NameEntry(self.seq, self.due_ms, 0) if registered is None else registered


class CancelCommand:
    """A command: cancel messages. ``done`` gets an outcome for each target.

    ``handed_too``: also cancel messages that a consumer may have had before a crash, so that they do not come again.
    """

    def __init__(
        self,
        targets: Sequence[CancelTarget],
        done: Callable[[list[Outcome] | TarryError], None],
        *,
        handed_too: bool = False,
    ) -> None:
        self._targets = targets
        self._done = done
        self._handed_too = handed_too
        self._outcomes: list[Outcome] = []

    def decide(self, batch: WriteBatch) -> pa.RecordBatch | None:
        """Return the cancellations to write."""
        due, seq = places(self._current(batch))
        # One after the other: where a message is named twice, the second one finds it cancelled.
        here = np.array([t.topic is not None for t in self._targets], np.bool_)
        done_here = iter(batch.withdraw(due[here], seq[here], handed_too=self._handed_too))
        outcomes = iter(batch.outcomes(due[~here], seq[~here]))
        self._outcomes = [next(done_here) if h else _without_row(next(outcomes)) for h in here.tolist()]
        rows = [i for i, o in enumerate(self._outcomes) if o is Outcome.DONE]
        if not rows:
            return None
        topics = pa.array([self._targets[i].topic for i in rows], pa.string())
        return batch.cancellations(due[rows], seq[rows], topics)

    def _current(self, batch: WriteBatch) -> list[NameEntry]:
        named = [t.registered_name for t in self._targets]
        return [target.current(entry) for target, entry in zip(self._targets, batch.entries(named), strict=True)]

    def on_durable(self, first_seq: int) -> None:
        self._done(self._outcomes)

    def on_refused(self, error: TarryError) -> None:
        self._done(error)


def _without_row(outcome: Outcome) -> Outcome:
    # It would be pending, if it were anywhere: the due time that was named is not that of the message.
    return Outcome.UNKNOWN if outcome is Outcome.DONE else outcome
