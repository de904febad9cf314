"""Hands out each ready message of a group to one of its consumers: what has waited for its moment first, then what is
new in the queue.
"""

from __future__ import annotations

import time
from enum import Enum

import numpy as np
import pyarrow as pa

from tarry.api.views import DELIVERY
from tarry.base.types import Int32s, Int64s
from tarry.groups.copier import DeadLetterCopier
from tarry.groups.group_state import GroupState
from tarry.groups.lease_manager import LeaseManager
from tarry.groups.leases import Holder
from tarry.groups.news import News
from tarry.groups.policy import Policy
from tarry.groups.selection import DUE, TRIES, Selection, first_tries, is_plain
from tarry.groups.services import Services
from tarry.groups.states import State, States

CHOICE_ROWS = 1024
"""Rows that a group looks at at once when it may not want most of them."""
CHOICE_ROWS_MAX = 8192
"""And at most: others wait meanwhile."""
SCAN_ROWS = 65_536
"""Rows that a group passes over before others get its lock."""
LOOK_AGAIN_MS = 50


class _Why(Enum):
    """Why there is nothing for a consumer."""

    EMPTY = 0
    PAUSED = 1
    FULL = 2
    """It has no room, or the group has none, or the journal."""
    UNFINISHED = 3
    """Others should have the lock before more is looked at."""


class Delivery:
    """Any thread. Consumers that wait do so without the group's lock: see :class:`tarry.groups.news.News`."""

    def __init__(
        self,
        state: GroupState,
        policy: Policy,
        selection: Selection,
        lease_manager: LeaseManager,
        copier: DeadLetterCopier,
        news: News,
        services: Services,
    ) -> None:
        self._state = state
        self._topic = state.topic
        self._leases = state.leases
        self._upcoming = state.upcoming
        self._copies = state.copies
        self._order = state.order
        self._policy = policy
        self._selection = selection
        self._lease_manager = lease_manager
        self._copier = copier
        self._news = news
        self._clock = services.clock
        self._journal = services.journal
        self._on_handout = services.on_handout

    def fetch(self, holder: Holder, rows_max: int, wait_s: float | None) -> pa.RecordBatch | None:
        """Lease up to ``rows_max`` messages to ``holder``, waiting up to ``wait_s`` seconds for the first (None: for
        ever).

        Raises:
            InvalidArgumentError: the group's filter is a condition that takes too long; nothing was passed over.
        """
        end = None if wait_s is None else time.monotonic() + wait_s
        while True:
            seen = self._news.count
            with self._state.lock:
                # Under the lock: what is leased to a consumer after it was closed would come back only with its lease.
                if self._state.closed or holder.closed:
                    return None
                batch, why = self._lease(holder, rows_max)
                left = None if end is None else end - time.monotonic()
                over = left is not None and left <= 0
                left = None if batch is not None or over else self._until_next(left, why)
            if self._copies:
                self._copier.run()
            if batch is not None:
                return batch
            if why is _Why.UNFINISHED:
                continue
            if over:
                return None
            self._news.wait(seen, left)

    def poll(self, holder: Holder, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        """See :meth:`tarry.api.consuming.Subscription.poll`.

        Raises:
            InvalidArgumentError: as :meth:`fetch`.
        """
        with self._state.lock:
            if self._state.closed or holder.closed:
                return None, None
            batch, why = self._lease(holder, rows_max)
            again = None if batch is not None else 0.0 if why is _Why.UNFINISHED else self._until_next(None, why)
        if self._copies:
            self._copier.run()
        return batch, again

    def _lease(self, holder: Holder, rows_max: int) -> tuple[pa.RecordBatch | None, _Why]:
        """What there is for ``holder``; or None, and why."""
        settings = self._policy.settings
        room = min(rows_max, holder.prefetch - holder.held)
        if settings.paused:
            return None, _Why.PAUSED
        if room <= 0 or self._journal.is_full:
            # What is handed out may come back by itself, and the journal must be told of that.
            return None, _Why.FULL
        now = self._clock.now_ms()
        self._lease_manager.expire(now)
        if settings.inflight_max:
            room = min(room, settings.inflight_max - self._leases.rows)
            if room <= 0:
                return None, _Why.FULL
        while True:
            batch = self._lease_upcoming(holder, room, now)
            if batch is not None:
                return batch, _Why.EMPTY
            batch, why = self._lease_new(holder, room, now)
            # What was passed over may have let something go.
            if batch is not None or why is _Why.UNFINISHED or not self._upcoming.due(now):
                return batch, why

    def _lease_new(self, holder: Holder, room: int, now: int) -> tuple[pa.RecordBatch | None, _Why]:
        state = self._state
        # After a recovery the cursor begins at the floor of then, which may have risen past it since.
        start = state.cursor = max(state.cursor, state.floor)
        selective = self._policy.is_selective
        rows_max = max(min(room, CHOICE_ROWS_MAX), CHOICE_ROWS) if selective else room
        while not self._order.full:
            if state.cursor - start >= SCAN_ROWS:
                return None, _Why.UNFINISHED
            found = self._topic.read(state.cursor, rows_max)
            if found is None:
                break
            base, batch = found
            if base > state.cursor:
                state.forget(base)  # retention deleted what lay between
            columns = batch.columns
            if selective or not is_plain(columns, batch.num_rows):
                batch, offsets = self._selection.choose_new(batch, base, room, now)
                columns = batch.columns
            else:
                columns, offsets = self._choose_plain(batch, columns, base, now)
            if len(offsets):
                attempts = np.ones(len(offsets), np.int32)
                return self._hand_out(holder, columns, offsets, attempts, State.READY, now), _Why.EMPTY
        return None, _Why.EMPTY

    def _choose_plain(
        self, batch: pa.RecordBatch, columns: list[pa.Array], base: int, now: int
    ) -> tuple[list[pa.Array], Int64s]:
        """Of rows from offset ``base`` on that all are wanted, those to hand out (``columns`` and offsets)."""
        offsets = np.arange(base, base + batch.num_rows, dtype=np.int64)
        self._state.cursor = base + batch.num_rows
        due = columns[DUE].to_numpy()
        keep = due <= now
        if base < self._state.passing_end:
            fresh = ~(self._state.settled_mask(offsets) | self._state.passing_mask(offsets))
            self._selection.defer(first_tries(offsets[fresh & ~keep]), due[fresh & ~keep])
            keep &= fresh
        elif not keep.all():
            self._selection.defer(first_tries(offsets[~keep]), due[~keep])
        if keep.all():
            return columns, offsets
        return batch.filter(pa.array(keep)).columns, offsets[keep]

    def _lease_upcoming(self, holder: Holder, room: int, now: int) -> pa.RecordBatch | None:
        while (rows := self._upcoming.take(now, room)) is not None:
            try:
                looked, kept_offsets, batch = self._topic.read_rows(rows.offsets)
                unwanted = None if batch is None else self._selection.unwanted(batch)
            except BaseException:
                self._upcoming.push_back(now, rows)
                raise
            if looked < len(rows.offsets):
                self._upcoming.push_back(now, rows.pick(np.arange(looked, len(rows.offsets))))
                rows = rows.pick(np.arange(looked))
            kept = np.isin(rows.offsets, kept_offsets)
            if not kept.all():
                self._state.lose(rows.offsets[~kept])  # retention deleted them: nothing is left to deliver
                rows = rows.pick(kept)
            if batch is None or unwanted is None:
                continue
            out = self._selection.choose_again(batch, rows, unwanted, now)
            if not out.any():
                continue
            if not out.all():
                batch, rows = batch.filter(pa.array(out)), rows.pick(out)
            return self._hand_out(holder, batch.columns, rows.offsets, rows.attempts, rows.states, now)
        return None

    def _hand_out(
        self,
        holder: Holder,
        columns: list[pa.Array],
        offsets: Int64s,
        attempts: Int32s,
        states: State | States,
        now: int,
    ) -> pa.RecordBatch:
        tries = self._policy.own_tries(columns[TRIES])
        number = self._leases.open(holder, offsets, states, attempts, tries, now + holder.lease_ms)
        since = holder.on_handout(now)
        due = columns[DUE].to_numpy()
        self._on_handout(due, now, self._topic.name, since if attempts[0] == 1 else None)
        # With its type given, pa.array() does not look for what pandas might have to say: a fifth of the time.
        leases = pa.array(np.full(len(offsets), number, np.int64), pa.int64())
        columns = [*columns, pa.array(offsets, pa.int64()), leases, pa.array(attempts, pa.int32())]
        return pa.RecordBatch.from_arrays(columns, schema=DELIVERY)

    def _until_next(self, left: float | None, why: _Why) -> float | None:
        """How long a waiting consumer may sleep before something of its group comes due."""
        if why is _Why.PAUSED:
            return left
        moments = [] if why is _Why.FULL else [self._upcoming.next_ms, self._leases.next_deadline_ms]
        moments.append(self._copies.next_ms)
        if why is _Why.FULL or self._state.cursor < self._topic.end:
            # There is no room, and an ack will wake us; or rows came after we looked, and a notification will.
            moments.append(self._clock.now_ms() + LOOK_AGAIN_MS)
        waits = [max(self._clock.seconds_until(moment), 0.0005) for moment in moments if moment is not None]
        if left is not None:
            waits.append(left)
        return min(waits, default=None)
