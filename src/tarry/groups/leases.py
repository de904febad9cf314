"""Leases of a group's consumers: one for each batch that was handed out, with one state for each row.

So the cost of a message is a few bytes and a share of some array operations.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tarry.api.accounts import HeldBack, QuotaAccount
from tarry.base.types import Int32s, Int64s, Mask
from tarry.groups.states import State, StateEvent, States, move, move_all

Places: TypeAlias = npt.NDArray[np.intp]
"""Positions of rows in a lease."""
OnLeaseEnd: TypeAlias = Callable[[Int64s, StateEvent], None]
"""Told of the offsets of rows that are leased no more, and the event; with the group's lock held."""

FEW_ROWS = 16
"""Up to here, to look at each row takes less than array operations do."""
_LEASED = int(State.LEASED)
_MOVED = -1
"""State of a row in a lease that is under another lease now. No StateEvent applies to it here."""
_HANDED_OUT = {state: int(move(state, StateEvent.LEASE)) for state in (State.READY, State.WAITING)}


@dataclass(slots=True, eq=False, weakref_slot=True)
class Holder:
    """State of a consumer in its group; guarded by the group's lock."""

    prefetch: int
    """Most unsettled messages that it may hold."""
    lease_ms: int
    since_ms: int
    """Since when it has been waiting, with room for what it waits for."""
    account: QuotaAccount | None = None
    """The use of its identity, held against its quotas; None: it has none."""
    held: int = 0
    """Number of messages that are leased to it and not settled."""
    closed: bool = False
    was_full: bool = False
    answers: bool = False
    """True if the consumer extends its leases itself, and answers when it is asked."""
    silent: bool = False
    """See :attr:`tarry.api.consuming.Subscription.silent`."""
    held_back: HeldBack | None = None
    """See :attr:`tarry.api.consuming.Subscription.held_back`."""
    filters_first: bool = False
    """See :attr:`tarry.api.consuming.Subscription.filters_first`."""

    def on_handout(self, now_ms: int) -> int:
        """Note a hand-out; return since when the consumer had been waiting, with room for more."""
        if self.was_full:
            self.since_ms = now_ms  # it got room at some time since; messages due before may have waited for that
        self.was_full = self.held >= self.prefetch
        return self.since_ms


@dataclass(slots=True)
class Lease:
    """One batch in a consumer's hands.

    The arrays have an entry for each message; offsets ascend.
    """

    number: int
    offsets: Int64s
    states: States
    left: int
    """Number of rows that are still LEASED."""
    attempts: Int32s
    tries: Int32s | None
    """Each message's own limit of tries, 0 if it has none; None if no message has one."""
    deadline_ms: int
    holder: Holder
    since_ms: int
    """Time of the hand-out."""
    on_end: OnLeaseEnd | None = None
    """Told of rows that are leased no more."""

    @property
    def held(self) -> Places:
        """The rows that are leased still."""
        return np.flatnonzero(self.states == _LEASED)

    def place(self, offset: int) -> int | None:
        """Return the place of the row with this offset, if it is still leased."""
        offsets = self.offsets
        at = offset - int(offsets[0])  # nearly all leases have no gaps
        if not 0 <= at < len(offsets) or offsets[at] != offset:
            at = int(np.searchsorted(offsets, offset))
            if at == len(offsets) or offsets[at] != offset:
                return None
        return at if self.states[at] == _LEASED else None


class Leases:
    """The leases of one group; guarded by its lock."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self.rows = 0
        """Number of leased messages."""
        self._numbers = numbers
        self._leases: dict[int, Lease] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._leases.values()))

    def open(
        self,
        holder: Holder,
        offsets: Int64s,
        state: State | States,
        attempts: Int32s,
        tries: Int32s | None,
        deadline_ms: int,
        on_end: OnLeaseEnd | None = None,
    ) -> int:
        """Lease rows that were in ``state`` (all, or each) to ``holder``; the lease's number."""
        rows, number = len(offsets), next(self._numbers)
        states = (
            np.full(rows, _HANDED_OUT[state], np.int8)
            if isinstance(state, State)
            else move_all(state, StateEvent.LEASE)
        )
        since_ms = deadline_ms - holder.lease_ms
        self._leases[number] = Lease(
            number, offsets, states, rows, attempts, tries, deadline_ms, holder, since_ms, on_end
        )
        self._push_deadline(deadline_ms, number)
        holder.held += rows
        self.rows += rows
        return number

    def find(self, leases: Int64s, offsets: Int64s) -> list[tuple[Lease, Places]]:
        """Return, by lease, which of these rows (lease and offset of each) are leased; the others are stale."""
        if len(leases) <= FEW_ROWS:
            return self._find_few(leases, offsets)[1]
        by_lease = []
        one = len(leases) > 0 and bool((leases == leases[0]).all())
        for number in [int(leases[0])] if one else np.unique(leases).tolist():
            lease = self._leases.get(number)
            if lease is None:
                continue
            wanted = np.unique(offsets if one else offsets[leases == number])
            at = np.minimum(np.searchsorted(lease.offsets, wanted), len(lease.offsets) - 1)
            at = at[(lease.offsets[at] == wanted) & (lease.states[at] == _LEASED)]
            if len(at):
                by_lease.append((lease, at))
        return by_lease

    def find_each(self, leases: Int64s, offsets: Int64s) -> tuple[Mask, list[tuple[Lease, Places]]]:
        """Return the rows as :meth:`find`, and a mask of the leased ones; of duplicates, only the first.

        Row by row, since these are a few rows of several leases, for which array operations cost far more.
        """
        held, by_lease = self._find_few(leases, offsets)
        return np.array(held, np.bool_), by_lease

    def _find_few(self, leases: Int64s, offsets: Int64s) -> tuple[list[bool], list[tuple[Lease, Places]]]:
        held = []
        by_lease: dict[int, dict[int, None]] = {}
        for number, offset in zip(leases.tolist(), offsets.tolist(), strict=True):
            lease = self._leases.get(number)
            if lease is None or (at := lease.place(offset)) is None:
                held.append(False)
                continue
            places = by_lease.setdefault(number, {})
            held.append(at not in places)
            places[at] = None
        return held, [(self._leases[number], np.array(sorted(at), np.intp)) for number, at in by_lease.items()]

    def split_off(self, number: int, offset: int, deadline_ms: int) -> int | None:
        """Lease one row of a lease on its own, to the same consumer; return the new number.

        Returns None if the row is not leased under ``number``.
        """
        by_lease = self.find(np.array([number], np.int64), np.array([offset], np.int64))
        if not by_lease:
            return None
        [(lease, at)] = by_lease
        if len(lease.offsets) == 1:
            # A new number all the same: the former lease's holder must not settle by it any more.
            del self._leases[number]
        else:
            lease.states[at] = _MOVED
            lease.left -= 1
            if not lease.left:
                del self._leases[number]
        fresh = next(self._numbers)
        tries = None if lease.tries is None else lease.tries[at]
        states = np.full(1, _LEASED, np.int8)
        self._leases[fresh] = Lease(
            *(fresh, lease.offsets[at], states, 1, lease.attempts[at], tries, deadline_ms, lease.holder),
            *(lease.since_ms, lease.on_end),
        )
        self._push_deadline(deadline_ms, fresh)
        return fresh

    def renew(self, holder: Holder, now_ms: int, oldest_ms: int) -> int:
        """Move the deadlines of a consumer's leases that were handed out after ``oldest_ms``; how many."""
        renewed = [lease for lease in self.of(holder) if lease.since_ms > oldest_ms]
        for lease in renewed:
            lease.deadline_ms = now_ms + holder.lease_ms
            self._push_deadline(lease.deadline_ms, lease.number)
        return len(renewed)

    def end(self, lease: Lease, at: Places, event: StateEvent) -> None:
        """Apply ``event`` to rows of a lease, which are leased no more.

        ``at`` is as :meth:`find` or :attr:`Lease.held` gave it.
        """
        lease.states[at] = int(move(State.LEASED, event))
        lease.left -= len(at)
        lease.holder.held -= len(at)
        self.rows -= len(at)
        if lease.on_end is not None:
            lease.on_end(lease.offsets[at], event)
        if not lease.left:
            del self._leases[lease.number]

    def extend(self, leases: Int64s, offsets: Int64s, deadline_ms: int) -> int:
        """Move the deadline of the whole leases that these rows belong to; how many of the rows are held."""
        held = 0
        for lease, at in self.find(leases, offsets):
            lease.deadline_ms = deadline_ms
            self._push_deadline(deadline_ms, lease.number)
            held += len(at)
        return held

    def expired(self, now_ms: int) -> Iterator[Lease]:
        """Yield expired leases. Each is yielded again until :meth:`end` removes it."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, number = heapq.heappop(self._deadlines)
            lease = self._leases.get(number)
            if lease is not None and lease.deadline_ms <= now_ms:  # else settled, or extended: a later entry counts
                yield lease

    def of(self, holder: Holder) -> list[Lease]:
        """Return the leases of one consumer."""
        return [lease for lease in self._leases.values() if lease.holder is holder]

    def void(self) -> None:
        """Forget all leases: whoever settles by one of them gets a StaleLeaseError."""
        for lease in self._leases.values():
            lease.holder.held -= lease.left
            if lease.on_end is not None:
                lease.on_end(lease.offsets[lease.held], StateEvent.SEEK_BACK)
        self._leases.clear()
        self._deadlines.clear()
        self.rows = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """Earliest time at which a lease may expire."""
        return self._deadlines[0][0] if self._deadlines else None

    def _push_deadline(self, deadline_ms: int, number: int) -> None:
        heapq.heappush(self._deadlines, (deadline_ms, number))
        if len(self._deadlines) > 2 * len(self._leases) + 1024:
            # Most leases are settled long before their deadline: remove their entries.
            self._deadlines = [(lease.deadline_ms, n) for n, lease in self._leases.items()]
            heapq.heapify(self._deadlines)
