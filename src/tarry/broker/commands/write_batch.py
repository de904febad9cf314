"""One commit of the intake: its decisions so far, and the state of messages.

A message is *pending* until the dispatcher takes it. The dispatcher takes messages under the wheel's lock, and
decisions are made under it, too: a message that is cancelled there is never handed on. A cancellation is undone if the
disk refuses the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.api.outcome import Outcome
from tarry.base.clock import Clock
from tarry.base.types import Int64s, Key, Mask, at_or_after
from tarry.message.bulk import SEQ_MIN
from tarry.message.schema import cancellations
from tarry.names import NameEntry, Registry
from tarry.wheel import Loader, Wheel
from tarry.wheel.run import Run

LOCKED_ROWS = 1024
"""Messages that are judged while the dispatcher waits."""
_OUTCOMES = (Outcome.DONE, Outcome.DELIVERED, Outcome.CANCELLED, Outcome.UNKNOWN)
_DONE, _DELIVERED, _CANCELLED, _UNKNOWN = range(4)


@dataclass(slots=True)
class WriteBatch:
    """Decisions of one commit of the intake's writer.

    ``next_seq`` is the seq of the next row to write. The outcomes of messages that were due before ``known_from_ms``
    are not known any more.
    """

    wheel: Wheel
    loader: Loader
    registry: Registry
    now_ms: int
    next_seq: int
    known_from_ms: int
    names: dict[bytes, NameEntry] = field(default_factory=dict)
    """Names that are registered in this commit, but for ids."""
    ids: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    """The fields of the entries of the ids of this commit, by their digests."""
    new: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    """Occurrences of series that this commit decides to hand on."""
    known_rows: int = 0
    """Number of the commit's rows that are messages and have every name in :attr:`names` and :attr:`ids`."""

    def entries(self, names: Sequence[bytes]) -> list[NameEntry | None]:
        """Return the entries of names, registered by this commit or before it."""
        return [self.names.get(n, e) for n, e in zip(names, self.registry.get(names), strict=True)]

    def accepted_ids(self, digests: Sequence[bytes]) -> dict[bytes, NameEntry]:
        """Return the entries of ids that were accepted within the dedupe window, by their digests."""
        entries = self.registry.accepted_ids(digests, self.now_ms)
        if self.ids:
            entries |= {digest: NameEntry(*self.ids[digest]) for digest in digests if digest in self.ids}
        return entries

    def pending(self, due_ms: Int64s, seq: Int64s, *, handed_too: bool = False) -> Mask:
        """Return which of these messages are pending now.

        The dispatcher may take them before the caller acts on the answer. ``handed_too``: also those that are to be
        delivered again, because they may have been delivered before a crash.
        """
        outcomes = self.outcomes(due_ms, seq, handed_too=handed_too)
        return np.array([outcome is Outcome.DONE for outcome in outcomes], np.bool_)

    def outcomes(self, due_ms: Int64s, seq: Int64s, *, handed_too: bool = False) -> list[Outcome]:
        """Return the outcomes that cancelling would have now: "done" for pending messages."""
        return self._judge(due_ms, seq, withdraw=False, handed_too=handed_too)

    def withdraw(self, due_ms: Int64s, seq: Int64s, *, alive: bool = False, handed_too: bool = False) -> list[Outcome]:
        """Cancel those of these messages that are pending; all of them must exist.

        The caller writes a cancellation in this commit for each message with the outcome "done". ``alive``: no earlier
        commit has cancelled any of them. ``handed_too``: as for :meth:`pending`, for callers that only need to know
        that a message does not come again.
        """
        return self._judge(due_ms, seq, withdraw=True, alive=alive, handed_too=handed_too)

    def _judge(
        self, due_ms: Int64s, seq: Int64s, *, withdraw: bool, alive: bool = False, handed_too: bool = False
    ) -> list[Outcome]:
        # Before the lock: it may read from disk, and only this thread changes it.
        cancelled_before = np.zeros(len(seq), np.bool_) if alive else self.registry.cancelled_mask(due_ms, seq)
        outcomes: list[Outcome] = []
        for start in range(0, len(seq), LOCKED_ROWS):
            part = slice(start, start + LOCKED_ROWS)
            with self.wheel.lock:
                cancelled, pending = self._state(due_ms[part], seq[part], cancelled_before[part])
                if not handed_too:
                    pending &= ~self.wheel.perhaps_handed.mask(due_ms[part], seq[part])
                if withdraw:
                    # If a message is named twice, it is found cancelled the second time.
                    again = pending & _seen_before(seq[part])
                    cancelled, pending = cancelled | again, pending & ~again
                    self.wheel.tombstones.add(seq[part][pending].tolist(), due_ms[part][pending].tolist())
            past = np.where(due_ms[part] < self.known_from_ms, _UNKNOWN, _DELIVERED)
            codes = np.where(cancelled, _CANCELLED, np.where(pending, _DONE, past))
            outcomes += [_OUTCOMES[code] for code in codes.tolist()]
        return outcomes

    def _state(self, due_ms: Int64s, seq: Int64s, cancelled_before: Mask) -> tuple[Mask, Mask]:
        """Return which of the messages are cancelled, and which are pending."""
        cancelled = cancelled_before | self.wheel.tombstones.mask(due_ms, seq)
        # Nothing at or above `fired` was ever taken. Below it, these are pending: late arrivals; the current occurrence
        # of a series; and, soon after a recovery, rows that the loader has not reached, unless they were found fired.
        fired = self.wheel.fired
        pending = at_or_after(due_ms, seq, fired)
        for row in np.flatnonzero(~(pending | cancelled)).tolist():
            pending[row] = self._is_late(int(due_ms[row]), int(seq[row]))
        return cancelled, pending & ~cancelled

    def _is_late(self, due_ms: int, seq: int) -> bool:
        if seq in self.wheel.advancing:
            return seq not in self.wheel.leaving
        if seq in self.new or self.wheel.has_late(due_ms, seq):
            return True
        if seq >= SEQ_MIN and self.loader.is_late(due_ms, seq):
            return True
        if self.loader.is_unreadable(seq):
            return True
        return Key(due_ms, seq) >= self.wheel.safe and not self.loader.excludes(seq)

    def hand_on(self, seqs: Sequence[int]) -> None:
        """Take occurrences of series for delivery.

        From here on they are delivered, for what is decided behind this in the same commit, too: the ready log has
        them only when the commit is durable, and a cancellation in between would be said to be done in vain.
        """
        self.leaving.update(seqs)
        with self.wheel.lock:
            self.wheel.leaving.update(seqs)

    def cancellations(self, due_ms: Int64s, seq: Int64s, topics: pa.Array) -> pa.RecordBatch:
        """Return the rows that cancel these messages, to be written in this commit."""
        targets = pa.RecordBatch.from_arrays(
            [pa.array(seq), pa.array(due_ms), topics], names=["seq", "due_ms", "topic"]
        )
        return cancellations(targets, self.now_ms)

    def register(self, rows: int) -> bool:
        """Register the names of this commit, whose ``rows`` are durable; return whether that was possible.

        False: some rows are not messages, or have names that are not known here. Then nothing was registered, and the
        caller must register each row.
        """
        if rows != self.known_rows:
            return False
        self.registry.register(self.names, self.ids)
        return True

    def on_durable(self) -> None:
        """Note that all of the commit is durable, and registered."""
        with self.wheel.lock:
            self.wheel.tombstones.confirm(self.wheel.loaded)

    def on_refused(self) -> None:
        """Nothing of it came to pass."""
        with self.wheel.lock:
            self.wheel.leaving -= self.leaving  # they are taken again with the next try
            for rows in self.wheel.tombstones.revoke():
                self.wheel.add(Run.of(rows, stored=False))
            self.wheel.lock.notify_all()


class Decisions:
    """Begins the write batches of the intake's writer, and predicts decisions about single messages.

    ``retention_ms``: time for which the outcomes of messages that were due are known.
    """

    def __init__(self, wheel: Wheel, loader: Loader, registry: Registry, clock: Clock, retention_ms: int) -> None:
        self._wheel = wheel
        self._loader = loader
        self._registry = registry
        self._clock = clock
        self._retention_ms = retention_ms

    def begin_batch(self, next_seq: int) -> WriteBatch:
        """Begin the decisions of one commit, for the intake's writer; its first row gets ``next_seq``."""
        now_ms = self._clock.now_ms()
        known_from_ms = max(self._registry.known_from_ms, now_ms - self._retention_ms)
        return WriteBatch(self._wheel, self._loader, self._registry, now_ms, next_seq, known_from_ms)

    def outcome_of(self, entry: NameEntry) -> Outcome:
        """Return the outcome that cancelling a message would have now: "done" if it is pending."""
        [outcome] = self.begin_batch(0).outcomes(*places([entry]))
        return outcome

    def state_of(self, entry: NameEntry) -> Outcome:
        """Return the outcome as :meth:`outcome_of`; "done" also if the message is to be delivered again.

        It may have been delivered before a crash.
        """
        [outcome] = self.begin_batch(0).outcomes(*places([entry]), handed_too=True)
        return outcome

    def are_pending(self, entries: Sequence[NameEntry]) -> list[bool]:
        """Return which messages are pending; they may have been delivered before a crash."""
        return list(self.begin_batch(0).pending(*places(entries), handed_too=True).tolist())


def _seen_before(values: Int64s) -> Mask:
    again = np.ones(len(values), np.bool_)
    again[np.unique(values, return_index=True)[1]] = False
    return again


def places(entries: Sequence[NameEntry]) -> tuple[Int64s, Int64s]:
    """Due times and seqs of entries."""
    return np.array([e.due_ms for e in entries], np.int64), np.array([e.seq for e in entries], np.int64)
