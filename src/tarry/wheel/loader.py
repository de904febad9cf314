"""Moves ``loaded`` forward: reads the next window of the intake and the store into the wheel.

A message that is accepted while the loader works is seen once. Under the wheel's lock the loader first moves ``loaded``
to the end of the window and notes the intake's next seq. From then on an arrival below ``loaded`` goes to the wheel
directly; messages with a lower seq are read here.

The loader leaves out cancelled messages. Messages cancelled while they are below ``loaded`` are left out by the wheel
itself (``tombstones``). As soon as a cancellation is decided, one of the two knows of it. The store's snapshot and its
``committed_seq`` are fixed during a load; segments and snapshots change only between loads, in this same thread.

Messages in a damaged frame of the intake or a damaged file of the store cannot be loaded. The rest is loaded, so that
it comes in time. But then nothing may say that all messages below some moment have fired, so no checkpoint is taken any
more, and nothing that recovery would need is deleted. Once a file of the intake is whole again, only a restart brings
the missing messages. For a file of the store, the next step does (``holes.py``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from tarry.base.clock import Clock
from tarry.base.errors import CorruptError
from tarry.base.types import Int64s, Key, Mask
from tarry.intake.index import Window
from tarry.intake.intake import Intake
from tarry.message.bulk import among, number_of
from tarry.message.schema import messages_only
from tarry.store.damaged import Damaged, OnDamage
from tarry.wheel.holes import FilesView, Holes
from tarry.wheel.run import Run
from tarry.wheel.wheel import Wheel

log = logging.getLogger(__name__)

LOAD_ROWS = 8192
LOAD_BYTES = 8 << 20
LATE_SHARE = 1.1
"""Factor by which late messages may overfill the wheel, so that they have their turn when it is full."""


CancelledMask = Callable[[Int64s, Int64s], Mask]
"""Returns a mask of the messages, given by due times and seqs, that are cancelled."""


def none_cancelled(due_ms: Int64s, seq: Int64s) -> Mask:
    """Return an empty mask: nothing was ever cancelled."""
    return np.zeros(len(seq), np.bool_)


class StoreView(FilesView, Protocol):
    """A snapshot of the store as the loader needs it; its messages all have ``seq < committed_seq``."""

    @property
    def committed_seq(self) -> int: ...

    @property
    def version(self) -> int: ...

    def read_window(self, after: Key, until_ms: int, batch_rows: int, on_damage: OnDamage) -> Iterator[pa.RecordBatch]:
        """Yield rows with ``(due_ms, seq) >= after`` and ``due_ms < until_ms``, in that order.

        Unreadable parts are reported to ``on_damage`` before any rows that may follow them.
        """
        ...

    def first_due_ms(self, after: Key) -> int | None:
        """Return the lowest due time from ``after`` on among readable rows; None if nothing is left."""
        ...

    def read_jobs(
        self, numbers: Sequence[int], until_ms: int, batch_rows: int, on_damage: OnDamage
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of these bulk jobs with ``due_ms < until_ms``, in the way of :meth:`read_window`."""
        ...


class Unbrought(NamedTuple):
    """Messages of bulk jobs that the wheel has not yet.

    Those of the jobs ``numbers`` with ``low <= (due_ms, seq) < high``.
    """

    numbers: tuple[int, ...]
    low: Key
    high: Key


@dataclass(slots=True)
class _Late:
    """Rows that bulk jobs brought for a window that had been loaded already: in order, up to ``bound``.

    ``position``: the wheel has all of them below it.
    """

    numbers: set[int]
    rows: Iterator[pa.RecordBatch]
    bound: Key
    position: Key


class Loader:
    """Keeps the wheel filled. One thread calls :meth:`step` and :meth:`take_up`.

    That thread alone changes the view of the store, between steps.
    """

    def __init__(
        self,
        wheel: Wheel,
        intake: Intake,
        clock: Clock,
        view: StoreView,
        *,
        horizon_ms: int,
        bytes_max: int,
        cancelled: CancelledMask = none_cancelled,
        on_damage: Callable[[CorruptError], None] = lambda _: None,
    ) -> None:
        self.view = view
        self.stored_rows = 0
        self._wheel = wheel
        self._intake = intake
        self._clock = clock
        self._horizon_ms = horizon_ms
        self._bytes_max = bytes_max
        self._cancelled = cancelled
        self._row_bytes = 4096.0
        self._exclude: Int64s = np.empty(0, np.int64)
        self._exclude_due_ms = np.iinfo(np.int64).min
        self.wake = threading.Event()
        """Set when there may be something to do at once."""
        self.short = False
        """True if the last load stopped for lack of memory. Whoever makes room sets ``wake``."""
        self.untaken: set[int] = set()
        """Bulk jobs that are committed, but not in the view yet. Guarded by the wheel's lock."""
        self._late: list[_Late] = []
        self._on_damage = on_damage
        self._unreadable: Int64s = np.empty(0, np.int64)
        self._damage: CorruptError | None = None
        self._holes = Holes()
        self.still = threading.RLock()
        """Held during a load. Its holder sees a wheel and a view of the store that fit together."""

    def exclude(self, seqs: Int64s, due_max_ms: int) -> None:
        """Leave out the messages with these seqs, up to that due time: recovery found them in the ready log."""
        self._exclude, self._exclude_due_ms = np.sort(seqs), due_max_ms

    @property
    def excluded(self) -> Int64s:
        """Messages that recovery found in the ready log, ascending; none once ``safe`` is beyond them."""
        return self._exclude

    @property
    def excluded_until_ms(self) -> int:
        """The latest due time of excluded messages."""
        return self._exclude_due_ms if len(self._exclude) else int(np.iinfo(np.int64).min)

    def excludes(self, seq: int) -> bool:
        """Return whether recovery found this message in the ready log."""
        at = int(np.searchsorted(self._exclude, seq))
        return at < len(self._exclude) and int(self._exclude[at]) == seq

    @property
    def behind(self) -> bool:
        """True if messages due below ``loaded`` are missing from the wheel.

        They are either still to be brought, because bulk jobs brought them late, or cannot be read. Then no checkpoint
        may say that all messages below some moment have fired.
        """
        return bool(self.untaken or self._late or self.unreadable)

    @property
    def is_bringing(self) -> bool:
        """True while messages that are due below ``loaded``, and can be read, are missing from the wheel."""
        return bool(self.untaken or self._late)

    @property
    def unbrought(self) -> list[Unbrought]:
        """The messages of the view's jobs that are due below ``loaded`` and still to be brought.

        Called with the wheel's lock held: each of them is here or in the wheel then, in one of both.
        """
        return [Unbrought(tuple(x.numbers), x.position, x.bound) for x in self._late if x.position < x.bound]

    @property
    def unreadable(self) -> int:
        """Number of messages due below ``loaded``, not cancelled before, that lie in damaged frames or files."""
        return len(self._unreadable) + self._holes.unreadable

    def is_unreadable(self, seq: int) -> bool:
        """Return whether this message is unreadable: it is pending, but nobody can have it."""
        return bool(len(self._unreadable) and (self._unreadable == seq).any()) or self._holes.has(seq)

    def check_readable(self) -> None:
        """Check that no message below ``loaded`` is unreadable, and so missing from a view of the wheel.

        Raises:
            CorruptError: there are such messages.
        """
        damage = self._damage or self._holes.error
        if damage is not None:
            raise CorruptError(str(damage))

    def is_behind_with(self, number: int) -> bool:
        """Return whether messages of this job are still to be brought: see :attr:`behind`."""
        return number in self.untaken or any(number in late.numbers for late in self._late)

    def is_late(self, due_ms: int, seq: int) -> bool:
        """Return whether a message due below ``loaded`` was brought by a bulk job and is still to come."""
        if self.excludes(seq):
            return False  # after a crash the job's rows are read again, without those that had fired
        number, key = number_of(seq), Key(due_ms, seq)
        return number in self.untaken or any(number in x.numbers and x.position <= key < x.bound for x in self._late)

    def take_up(self, view: StoreView, numbers: Sequence[int] = ()) -> None:
        """Read from this view from now on.

        ``numbers``: the bulk jobs that are in it and were not in the former view. Their rows for the window that is
        loaded come with the next steps.
        """
        with self.still, self._wheel.lock:
            self.view = view
            bound = self._wheel.loaded
            if numbers:
                until = bound.due_ms + (bound.seq > 0)
                late = _Late(set(numbers), iter(()), bound, Key(np.iinfo(np.int64).min, 0))
                on_damage = partial(self._set_aside_late, view, late)
                late.rows = view.read_jobs(numbers, until, self._load_rows(), on_damage)
                self._late.append(late)
                self.untaken.difference_update(numbers)

    def step(self) -> None:
        """Do what is due: shrink a wheel that grew too large, sort near slots, load the next window."""
        now = self._clock.now_ms()
        with self.still:
            self._shrink()
            self._wheel.join_small()
            self._wheel.make_near(now)
            self._load(now)
            self._mend()
            while self._late and self._load_late(self._late[0]):
                self._late.pop(0)

    def _shrink(self) -> None:
        # Arrivals are never refused for lack of room. The far end is given up instead: it is in the intake anyway.
        with self._wheel.lock:
            if self._wheel.bytes > 1.25 * self._bytes_max:
                key = max(self._wheel.key_at_bytes(0.75 * self._bytes_max), self._wheel.fired)
                if key < self._wheel.loaded:
                    self._truncate(key)
                    self.short = True

    def _truncate(self, key: Key) -> None:
        self._wheel.truncate(key)
        self._holes.truncate(key)
        for late in self._late:
            # From there on its rows come with everything else.
            late.bound = min(late.bound, key)

    def _load_late(self, late: _Late) -> bool:
        """Load a bulk job's late rows, as far as there is room; return whether that was all."""
        while late.position < late.bound:
            if self._wheel.bytes > LATE_SHARE * self._bytes_max:
                with self._wheel.lock:
                    self.short = True
                    if late.position < self._wheel.fired:
                        return False  # go on when consumers have taken what is due
                    self._truncate(late.position)
                    return True
            batch = next(late.rows, None)
            if batch is None:
                return True
            run = Run.of(batch, stored=True)
            position = Key(int(run.due_ms[-1]), int(run.seq[-1]) + 1)
            self.stored_rows += self._add(batch.slice(0, run.below(late.bound)), stored=True, of=(late, position))
        return True

    def _load(self, now: int) -> None:
        with self._wheel.lock:
            after = self._wheel.loaded
            target = now + self._horizon_ms
            enough = after.due_ms >= target - self._horizon_ms // 4
            # A wheel that is nearly full waits for room, so that it does not load a few rows at a time.
            if enough or (self.short and self._wheel.bytes > 0.5 * self._bytes_max):
                self.short = not enough
                return
            self.short = False
            self._wheel.loaded = Key(target, 0)
            seq_max = self._intake.published_seq
        reached = self._load_window(after, target, seq_max)
        with self._wheel.lock:
            if reached.due_ms < target:
                self._truncate(reached)
                self.short = True
            self._wheel.safe = reached
            self._wheel.lock.notify_all()
        if reached.due_ms > self._exclude_due_ms and not self._late and not self._holes:
            self._exclude = np.empty(0, np.int64)

    def _load_window(self, after: Key, target: int, seq_max: int) -> Key:
        """Load from ``after`` to ``target``, or until memory is used up.

        Return the key below which everything is loaded.
        """
        position = after
        on_damage = partial(self._set_aside, self.view, after, Key(target, 0), frozenset[int]())
        for batch in self.view.read_window(after, target, LOAD_ROWS, on_damage):
            key = Key(batch.column("due_ms")[-1].as_py(), batch.column("seq")[-1].as_py() + 1)
            # `safe` moves only when both sides are loaded up to there; else a row of the store could be passed over.
            position = self._load_intake(position, key, seq_max, alone=False)
            if position < key:
                # The intake alone filled the wheel. The store's rows below that place must be loaded, too.
                run = Run.of(batch, stored=True)
                self.stored_rows += self._add(batch.slice(0, run.below(position)), stored=True)
                return position
            self.stored_rows += self._add(batch, stored=True)
            self._reached(key)
            if self._full():
                return key
        return self._load_intake(position, Key(target, 0), seq_max, alone=True)

    def _load_intake(self, position: Key, until: Key, seq_max: int, *, alone: bool) -> Key:
        """Load the intake's rows up to ``until``, or until memory is used up, and return the place reached.

        ``alone``: the store has no rows there.
        """
        while position < until:
            window = Window(position, until, self.view.committed_seq, seq_max)
            due, seq, complete = self._intake.select(window, 4 * LOAD_ROWS)
            low = 0
            while low < len(seq):
                part = seq[low : low + self._load_rows()]
                batch = self._intake.read_rows(part, partial(self._pass_over, due[low : low + len(part)], part))
                if batch is not None:
                    self._add(batch, stored=False)
                low += len(part)
                position = Key(int(due[low - 1]), int(part[-1]) + 1)
                if alone:
                    self._reached(position)
                if self._full():
                    return position
            if complete:
                return until
        return position

    def _pass_over(self, due: Int64s, seq: Int64s, error: CorruptError, damaged: Int64s) -> None:
        """Note the seqs in ``damaged``: those of ``seq`` (with due times ``due``) in a damaged frame.

        They are noted before ``safe`` passes them, so that no checkpoint does.
        """
        # Messages that were cancelled, or have fired before, are not missing.
        rows = np.isin(seq, damaged) & ~np.isin(seq, self._exclude) & ~self._cancelled(due, seq)
        if rows.any():
            self._unreadable, self._damage = np.union1d(self._unreadable, seq[rows]), error
        self._on_damage(error)

    def _set_aside(self, view: StoreView, low: Key, high: Key, numbers: frozenset[int], damaged: Damaged) -> None:
        """Note a part of the store, between these places, that cannot be read, as :meth:`_pass_over` does."""
        keys = damaged.keys
        if keys is not None:
            due, seq = keys
            rows = ~np.isin(seq, self._exclude) & ~self._cancelled(due, seq)
            if numbers:
                rows &= among(seq, list(numbers))
            keys = due[rows], seq[rows]
        if keys is None or len(keys[0]):
            self._holes.add(damaged, keys, low, high, numbers, view)
        self._on_damage(damaged.error)

    def _set_aside_late(self, view: StoreView, late: _Late, damaged: Damaged) -> None:
        # Up to its bound at that moment: rows beyond it come with everything else.
        self._set_aside(view, Key(np.iinfo(np.int64).min, 0), late.bound, frozenset(late.numbers), damaged)

    def _mend(self) -> None:
        """Load what could not be read, if the file has changed since and can be read now."""
        for batch in self._holes.mended(self.view) if self._holes else ():
            if batch.num_rows:
                self.stored_rows += self._add(batch, stored=True)
                with self._wheel.lock:
                    self._wheel.lock.notify_all()

    def _load_rows(self) -> int:
        """Return how many rows to read at once.

        Bodies may have any size, and the rows read must be small compared with the wheel.
        """
        return max(1, min(LOAD_ROWS, int(min(LOAD_BYTES, self._bytes_max / 8) / self._row_bytes)))

    def _add(self, batch: pa.RecordBatch, *, stored: bool, of: tuple[_Late, Key] | None = None) -> int:
        """Add rows to the wheel. ``of``: where they are from, and the place behind them."""
        batch = messages_only(batch)
        cancelled = self._cancelled(batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy())
        if cancelled.any():
            batch = batch.filter(pa.array(~cancelled))
        if len(self._exclude):
            keep = ~np.isin(batch.column("seq").to_numpy(), self._exclude)
            if not keep.all():
                batch = batch.filter(pa.array(keep))
        run = Run.of(batch, stored=stored)
        self._row_bytes = max(64.0, (self._row_bytes + 3 * run.row_bytes) / 4 if run.rows else self._row_bytes)
        with self._wheel.lock:
            # At once: a query that looks now finds them in one of the two places, and not in both.
            if of is not None:
                of[0].position = of[1]
            self._wheel.add(run)
        return run.rows

    def next_unloaded_ms(self) -> int | None:
        """Return the lowest due time that is not in the wheel; None if none. Reads a little from disk."""
        after = self._wheel.loaded
        moments = (self.view.first_due_ms(after), self._intake.next_due(after, self.view.committed_seq))
        return min((m for m in moments if m is not None), default=None)

    def _reached(self, key: Key) -> None:
        with self._wheel.lock:
            self._wheel.safe = key
            self._wheel.lock.notify_all()

    def _full(self) -> bool:
        return self._wheel.bytes > self._bytes_max
