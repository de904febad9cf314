"""A consumer group of a topic: hands each ready message to one of its consumers until one settles it."""

from __future__ import annotations

import time
from enum import Enum

import numpy as np
import pyarrow as pa

from tarry.api.groups import GroupSettings
from tarry.api.views import DELIVERY
from tarry.base.types import Int32s, Int64s
from tarry.groups.choosing import DUE, TRIES, Choosing, firsts, is_plain
from tarry.groups.ledger import Services
from tarry.groups.states import State, States
from tarry.groups.subscription import Subscription
from tarry.queue.topic import Topic

CHOICE_ROWS = 1024
"""Rows that a group looks at at once when it may not want most of them."""
CHOICE_ROWS_MAX = 8192
"""And at most: others wait meanwhile."""
SCAN_ROWS = 65_536
"""Rows that a group passes over before others get its lock."""


class _Why(Enum):
    """Why there is nothing for a consumer."""

    EMPTY = 0
    PAUSED = 1
    FULL = 2
    """It has no room, or the group has none."""
    UNFINISHED = 3
    """Others should have the lock before more is looked at."""


class Group(Choosing):
    """All state is guarded by ``lock``.

    Consumers wait on another condition, so that the dispatcher, which wakes them, never waits for one of them that is
    being served.
    """

    def __init__(self, topic: Topic, name: str, services: Services, settings: GroupSettings, floor: int = 0) -> None:
        super().__init__(topic, name, services, settings, floor)
        self._on_handout = services.on_handout

    # -- handing out -------------------------------------------------------------------------------------------------

    def fetch(self, holder: Subscription, rows_max: int, wait_s: float | None) -> pa.RecordBatch | None:
        """Lease up to ``rows_max`` messages to ``holder``, waiting up to ``wait_s`` seconds for the first (None: for
        ever).

        Raises:
            InvalidArgumentError: the group's filter is a condition that takes too long; nothing was passed over.
        """
        end = None if wait_s is None else time.monotonic() + wait_s
        while True:
            seen = self._news
            with self.lock:
                # Under the lock: what is leased to a consumer after it was closed would come back only with its lease.
                if self.closed or holder.closed:
                    return None
                batch, why = self._lease(holder, rows_max)
                left = None if end is None else end - time.monotonic()
                over = left is not None and left <= 0
                left = None if batch is not None or over else self._until_next(left, why)
            if self._graves:
                self.bury()
            if batch is not None:
                return batch
            if why is _Why.UNFINISHED:
                continue
            if over:
                return None
            with self._wake:
                if self._news == seen:
                    self._clock.wait(self._wake, left)

    def poll(self, holder: Subscription, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        """What :meth:`fetch` would give now, without waiting; where that is nothing, in how many seconds to look again
        (None: when a listener is told), see :meth:`listen`.

        Raises:
            InvalidArgumentError: as :meth:`fetch`.
        """
        with self.lock:
            if self.closed or holder.closed:
                return None, None
            batch, why = self._lease(holder, rows_max)
            again = None if batch is not None else 0.0 if why is _Why.UNFINISHED else self._until_next(None, why)
        if self._graves:
            self.bury()
        return batch, again

    def _lease(self, holder: Subscription, rows_max: int) -> tuple[pa.RecordBatch | None, _Why]:
        """What there is for ``holder``; or None, and why."""
        room = min(rows_max, holder.prefetch - holder.held)
        if self.settings.paused:
            return None, _Why.PAUSED
        if room <= 0:
            return None, _Why.FULL
        now = self._clock.now_ms()
        self._expire(now)
        if self.settings.inflight_max:
            room = min(room, self.settings.inflight_max - self._leases.rows)
            if room <= 0:
                return None, _Why.FULL
        while True:
            batch = self._lease_waiting(holder, room, now)
            if batch is not None:
                return batch, _Why.EMPTY
            batch, why = self._lease_new(holder, room, now)
            # What was passed over may have let something go.
            if batch is not None or why is _Why.UNFINISHED or not self._waiting.due(now):
                return batch, why

    def _lease_new(self, holder: Subscription, room: int, now: int) -> tuple[pa.RecordBatch | None, _Why]:
        # After a recovery the cursor begins at the floor of then, which may have risen past it since.
        self.cursor = max(self.cursor, self.floor)
        choosy = self._choosy or (self.topic.settings is not None and self.topic.settings.lateness_ms_max >= 0)
        rows_max = max(min(room, CHOICE_ROWS_MAX), CHOICE_ROWS) if choosy else room
        start = self.cursor
        while self._order is None or not self._order.full:
            if self.cursor - start >= SCAN_ROWS:
                return None, _Why.UNFINISHED
            found = self.topic.read(self.cursor, rows_max)
            if found is None:
                break
            base, batch = found
            if base > self.cursor:
                self._forget(base)  # retention deleted what lay between
            columns = batch.columns
            if choosy or not is_plain(columns, batch.num_rows):
                batch, offsets = self._choose_new(batch, base, room, now)
                if not len(offsets):
                    continue
                columns = batch.columns
            else:
                offsets = np.arange(base, base + batch.num_rows, dtype=np.int64)
                self.cursor = base + batch.num_rows
                due = columns[DUE].to_numpy()
                keep = due <= now
                if base < self._passing_end:
                    new = ~(self._settled.mask(offsets) | self._passing.mask(offsets))
                    self._defer(firsts(offsets[new & ~keep]), due[new & ~keep])
                    keep &= new
                elif not keep.all():
                    self._defer(firsts(offsets[~keep]), due[~keep])
                if not keep.any():
                    continue
                if not keep.all():
                    columns, offsets = batch.filter(pa.array(keep)).columns, offsets[keep]
            attempts = np.ones(len(offsets), np.int32)
            return self._hand_out(holder, columns, offsets, attempts, State.READY, now), _Why.EMPTY
        return None, _Why.EMPTY

    def _lease_waiting(self, holder: Subscription, room: int, now: int) -> pa.RecordBatch | None:
        while (rows := self._waiting.take(now, room)) is not None:
            try:
                looked, found, batch = self.topic.read_rows(rows.offsets)
                unwanted = None if batch is None else self._unwanted(batch)
            except BaseException:
                self._waiting.push_back(now, rows)
                raise
            if looked < len(rows.offsets):
                self._waiting.push_back(now, rows.pick(np.arange(looked, len(rows.offsets))))
                rows = rows.pick(np.arange(looked))
            there = np.isin(rows.offsets, found)
            if not there.all():
                self._lose(rows.offsets[~there])  # retention deleted them: nothing is left to deliver
                rows = rows.pick(there)
            if batch is None or unwanted is None:
                continue
            out = self._choose_again(batch, rows, unwanted, now)
            if not out.any():
                continue
            if not out.all():
                batch, rows = batch.filter(pa.array(out)), rows.pick(out)
            return self._hand_out(holder, batch.columns, rows.offsets, rows.attempts, rows.states, now)
        return None

    def _hand_out(
        self,
        holder: Subscription,
        columns: list[pa.Array],
        offsets: Int64s,
        attempts: Int32s,
        states: State | States,
        now: int,
    ) -> pa.RecordBatch:
        tries = self._own_tries(columns[TRIES])
        number = self._leases.open(holder, offsets, states, attempts, tries, now + holder.lease_ms)
        since = holder.handed(now)
        due = columns[DUE].to_numpy()
        self._on_handout(due, now, self.topic.name, since if attempts[0] == 1 else None)
        # With its type given, pa.array() does not look for what pandas might have to say: a fifth of the time.
        leases = pa.array(np.full(len(offsets), number, np.int64), pa.int64())
        columns = [*columns, pa.array(offsets, pa.int64()), leases, pa.array(attempts, pa.int32())]
        return pa.RecordBatch.from_arrays(columns, schema=DELIVERY)

    def _until_next(self, left: float | None, why: _Why) -> float | None:
        """How long a waiting consumer may sleep before something of its group comes due."""
        if why is _Why.PAUSED:
            return left
        moments = [] if why is _Why.FULL else [self._waiting.next_ms, self._leases.next_deadline_ms]
        moments.append(self._graves.next_ms)
        if why is _Why.FULL or self.cursor < self.topic.end:
            # There is no room, and an ack will wake us; or rows came after we looked, and a notification will.
            moments.append(self._clock.now_ms() + 50)
        waits = [max(self._clock.seconds_until(m), 0.0005) for m in moments if m is not None]
        if left is not None:
            waits.append(left)
        return min(waits, default=None)

    def stop(self) -> None:
        """Nothing is handed out any more; who waits is let go."""
        self.closed = True
        self._wake_up()
