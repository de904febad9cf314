"""A cut: the place of every pending message at one moment, in exactly one of wheel, intake and store.

A message moves: the loader brings it into the wheel, the dispatcher takes it out, and the pipeline's commit moves it
from the intake to the store. A cut is a place in the order of due times (:attr:`Cut.safe`) and three things that do not
change any more: the wheel's pieces, of which the rows below it count; a snapshot of the store, of which those at or
above it count; and ``committed_seq``, from which on the intake counts instead. Rows that fire after the cut was taken
are still seen, as they were then.

A bulk job brings messages below that place, too. Those that the loader has not brought yet count from the store
(:attr:`Cut.unbrought`): the store has all of them once the job is counted.

Only segments of the intake could go away under a cut: those that the next snapshot has completely, and those whose rows
have all fired. The first are deleted only after the loader has taken up that snapshot. So a cut that notes the intake's
first seq before it takes the loader's snapshot is whole as long as that seq stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tarry.base.types import Int64s, Key, Mask, at_or_after, before
from tarry.broker.store_view import StoreFollower
from tarry.intake import Intake
from tarry.message.bulk import among
from tarry.names import Registry
from tarry.store import Snapshot
from tarry.wheel import Loader, Wheel
from tarry.wheel.run import Run

CUTS = 3
"""Tries before segments are kept for a query: queries should not delay their deletion for long."""

FIRST, LAST = Key(-(1 << 63), 0), Key((1 << 63) - 1, 0)
"""Places before and behind all messages."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Places:
    """Parts that may have a pending message, and the registry, which says whether it is pending still."""

    intake: Intake
    wheel: Wheel
    loader: Loader
    store: StoreFollower
    registry: Registry


@dataclass(frozen=True, slots=True)
class JobRows:
    """Messages of bulk jobs that are in the store alone.

    Those of the jobs ``numbers`` with ``low <= (due_ms, seq) < high``; ``snapshot`` has the files that may have them.
    """

    snapshot: Snapshot
    numbers: tuple[int, ...]
    low: Key
    high: Key

    def mask(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Return which of these rows are among them."""
        mask: Mask = among(seq, self.numbers)
        return mask & at_or_after(due_ms, seq, self.low) & before(due_ms, seq, self.high)


@dataclass(frozen=True, slots=True)
class Cut:
    """All pending messages at one moment.

    ``seq_max``: messages accepted from this seq on are not included. ``unbrought``: messages of bulk jobs that are in
    none of the three places otherwise. ``dead``: seqs of rows that are there and not
    pending: cancelled while the wheel had them or just now, or found delivered by recovery; none of them is due after
    ``doubtful_until_ms``.
    """

    intake: Intake
    registry: Registry
    safe: Key
    pieces: list[Run]
    snapshot: Snapshot
    seq_max: int
    first_seq: int
    dead: Int64s
    doubtful_until_ms: int
    fired: Key
    """Above all that was taken to be delivered."""
    unbrought: tuple[JobRows, ...]

    @classmethod
    def of(cls, places: Places) -> Cut:
        """Take a cut of the present state.

        Raises:
            CorruptError: something is missing from the wheel, because it cannot be read.
            UnavailableError: a bulk job was just committed, and the store cannot be reached any more.
        """
        wheel, intake, loader = places.wheel, places.intake, places.loader
        # In this order: see above. The loader forgets what had fired once `safe` is beyond it.
        first_seq, fired = intake.first_seq, loader.excluded
        with wheel.lock:
            loader.check_readable()
            # With the lock, so that it has the jobs that are still to be brought.
            snapshot, unbrought, untaken = places.store.snapshot, loader.unbrought, tuple(loader.untaken)
            # Rows cancelled later than this may be seen; those cancelled before are here, or in the registry already.
            dead = np.concatenate([fired, wheel.tombstones.seqs()]) if wheel.tombstones else fired
            doubtful_until_ms = max(loader.excluded_until_ms, wheel.tombstones.latest_ms)
            cut = cls(
                *(intake, places.registry, wheel.safe, wheel.runs(), snapshot, intake.published_seq, first_seq),
                *(dead, doubtful_until_ms, wheel.fired, ()),
            )
        if not unbrought and not untaken:
            return cut
        rows = [JobRows(snapshot.of_jobs(each.numbers), *each) for each in unbrought]
        # After a crash, the loader's snapshot may have one that the log does not name yet.
        new = tuple(each for each in untaken if not len(snapshot.of_jobs([each]).files))
        if new:
            rows.append(JobRows(places.store.newest().of_jobs(new), new, FIRST, LAST))
        return replace(cut, unbrought=tuple(rows))

    @property
    def is_whole(self) -> bool:
        """True if everything read since could be read: no segment of the intake was deleted."""
        return self.intake.first_seq == self.first_seq

    def alive_in_wheel(self, due_ms: Int64s, seq: Int64s) -> npt.NDArray[np.bool_]:
        """Return which of these rows of the wheel are pending."""
        alive = np.isin(seq, self.dead, invert=True) if len(self.dead) else np.ones(len(seq), np.bool_)
        return alive & ~self.registry.cancelled_jobs.mask(due_ms, seq)

    def alive(self, due_ms: Int64s, seq: Int64s) -> npt.NDArray[np.bool_]:
        """Return which of these rows of the intake or the store are pending."""
        return self.alive_in_wheel(due_ms, seq) & ~self.registry.cancelled_mask(due_ms, seq)

    def alive_of(self, rows: JobRows, due_ms: Int64s, seq: Int64s) -> Mask:
        """Return which of these rows are among ``rows``, and pending."""
        mask = rows.mask(due_ms, seq)
        mask[mask] &= self.alive(due_ms[mask], seq[mask])
        return mask

    def dead_between(self, after: tuple[int, int], until_ms: int, rows_max: int) -> tuple[Int64s, Int64s]:
        """Return due times and seqs of cancelled messages from ``after`` on and before ``until_ms``.

        They are those that intake and store have; the first ``rows_max``.
        """
        return self.registry.cancelled_between(after, until_ms, rows_max)


def look_at(places: Places, look: Callable[[Cut], T]) -> T:
    """Return the result of ``look`` for a cut that stayed whole meanwhile.

    Raises:
        CorruptError: a file of the intake or the store is damaged, so that something would be missing.
    """
    for _ in range(CUTS):
        cut = Cut.of(places)
        try:
            result = look(cut)
        except FileNotFoundError:
            if cut.is_whole:
                raise
            continue
        if cut.is_whole:
            return result
    with places.intake.kept():
        return look(Cut.of(places))
