"""Selection of messages that are next: hand out, pass over, drop, make a dead letter, or hold back.

A group passes over messages for another group or that do not match its filter. It drops, or makes dead letters of,
messages that are too late or have no try left. It holds back messages that must wait by the order. Each applies only if
it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.api.accounts import HeldBack, QuotaAccount
from tarry.api.groups import TopicSettings
from tarry.base.delay import INT64_MAX
from tarry.base.types import Int64s, Mask, extremes
from tarry.groups import dead_letter_rows
from tarry.groups.filtering import Filtering
from tarry.groups.group_state import GroupState
from tarry.groups.policy import Policy
from tarry.groups.services import GroupServices
from tarry.groups.states import State, StateEvent, move, move_all
from tarry.groups.upcoming import UpcomingRows
from tarry.message.columns import without_nulls
from tarry.message.options import LATE, LATE_WAYS, ORDER_KEY
from tarry.message.properties import has_none
from tarry.message.reserved import texts_of, values_of
from tarry.message.schema import SCHEMA
from tarry.queue.entries import JournalEntry

DUE, TRIES, _PROPERTIES, _EXPIRE = (SCHEMA.get_field_index(n) for n in ("due_ms", "tries", "properties", "expire_ms"))
_DROP, _DEAD = LATE_WAYS.index("drop"), LATE_WAYS.index("dead")


@dataclass(eq=False)
class Selection:
    """The choice between a group's queue and its consumers. With the group's lock held."""

    _state: GroupState
    _policy: Policy
    _filtering: Filtering
    _services: GroupServices

    def choose_for(self, asker: QuotaAccount | None) -> None:
        """Choose for a consumer with this account from now on: it pays for the CPU time of a condition."""
        self._filtering.asker = asker

    def held_back(self, account: QuotaAccount) -> HeldBack | None:
        """See :meth:`tarry.api.accounts.QuotaAccount.held_back`. Lock-free."""
        return account.held_back(filters=self._filtering.has_condition)

    def defer(self, rows: UpcomingRows, due: Int64s) -> None:
        """Hold these rows back until they are due (each at its ``due``).

        The clock was set back since they were dispatched. Messages behind them in the queue need not wait.
        """
        for moment in np.unique(due).tolist():
            self._state.upcoming.push_back(moment, rows.pick(due == moment))

    def worth_reading(self, rows_max: int) -> int:
        """Return how many rows from the cursor on are worth reading; 0: that is not known yet.

        None of these was looked at. Rows that are known to match nothing are passed over without reading them.

        Raises:
            FilterPausedError: as :meth:`choose_new`. CorruptError: a file of the queue is damaged.
        """
        state, topic = self._state, self._state.topic
        while True:
            first, end = max(state.cursor, topic.first), topic.end
            if first >= end:
                return rows_max  # which finds none
            offsets = np.arange(first, min(end, first + rows_max), dtype=np.int64)
            known, may_match = self._filtering.look(offsets)
            if may_match or not known or first > state.cursor or first < state.passing_end:
                return known
            state.cursor = first + known
            state.drop(offsets[:known], State.READY, StateEvent.FILTER)

    def look(self, offsets: Int64s) -> int:
        """Return of how many of these rows, from the first on, the filter's result is known, or quickly found.

        See :meth:`tarry.groups.filtering.Filtering.look`.
        """
        return self._filtering.look(offsets)[0]

    def choose_new(self, batch: pa.RecordBatch, base: int, room: int, now: int) -> tuple[pa.RecordBatch, Int64s] | None:
        """Choose rows from offset ``base`` on to hand out, up to ``room``; return them and their offsets.

        Nobody has looked at these rows before. The cursor moves behind the last row that is decided. Returns None if
        the first one cannot be decided yet.

        Raises:
            FilterPausedError: the filter is a condition that takes too long; nothing was passed over.
        """
        offsets = np.arange(base, base + batch.num_rows, dtype=np.int64)
        unwanted = self.unwanted(batch, offsets)  # first: it may raise
        if not len(unwanted):
            return None
        batch, offsets = batch.slice(0, len(unwanted)), offsets[: len(unwanted)]
        drop, dead = self._overdue(batch, now)
        fresh = self._fresh(batch, offsets)
        settled, go = fresh & (unwanted | drop), fresh & ~(unwanted | drop)
        due = batch.column("due_ms").to_numpy()
        out = go & ~dead & (due <= now)
        if not self._state.order.active:
            blocked, counted = np.zeros(len(offsets), np.bool_), np.flatnonzero(out)
            end = len(offsets) if len(counted) <= room else int(counted[room - 1]) + 1
        else:
            blocked, end = self._hold_back(batch, offsets, go, out, room)
        self._state.cursor = base + end
        here = np.arange(len(offsets)) < end
        self._state.drop(offsets[settled & here & unwanted], State.READY, StateEvent.FILTER)
        self._state.drop(offsets[settled & here & ~unwanted], State.READY, StateEvent.DROP)
        go &= here & ~blocked
        dead &= go
        if dead.any():
            move(State.READY, StateEvent.EXPIRE_MESSAGE)
            attempts = np.ones(int(dead.sum()), np.int32)
            self._state.make_dead_letters(offsets[dead], attempts, dead_letter_rows.EXPIRED)
        early = go & ~dead & (due > now)
        self.defer(first_tries(offsets[early]), due[early])
        out &= go
        return batch.filter(pa.array(out)), offsets[out]

    def choose_again(self, batch: pa.RecordBatch, rows: UpcomingRows, unwanted: Mask, now: int) -> Mask:
        """Choose which of the rows whose moment has come to hand out; the others are dropped or deferred.

        ``batch`` has their messages. ``unwanted`` as :meth:`unwanted` gives it.
        """
        due = batch.column("due_ms").to_numpy()
        drop, dead = self._overdue(batch, now)
        exhausted = self._policy.exhausted(rows.attempts, self._policy.own_tries(batch.column(TRIES)))
        unwanted = unwanted & (rows.attempts == 1) & ~exhausted  # the group keeps messages that were handed out once
        drop, dead = drop & ~(exhausted | unwanted), dead & ~(exhausted | unwanted)
        out: Mask = ~(exhausted | unwanted | drop | dead)
        early = out & (due > now)
        self.defer(rows.pick(early), due[early])
        out &= ~early
        entries = self._dead(rows.pick(exhausted), StateEvent.EXHAUST, dead_letter_rows.TRIES)
        entries += self._dead(rows.pick(dead), StateEvent.EXPIRE_MESSAGE, dead_letter_rows.EXPIRED)
        if entries:
            self._services.journal.write(entries, self._services.ticket())
        self._state.drop(rows.offsets[unwanted], rows.states[unwanted], StateEvent.FILTER)
        self._state.drop(rows.offsets[drop], rows.states[drop], StateEvent.DROP)
        return out

    def unwanted(self, batch: pa.RecordBatch, offsets: Int64s) -> Mask:
        """Return which rows are for another group, or do not match the filter: of as many as are known.

        See :meth:`tarry.groups.filtering.Filtering.unwanted`.
        """
        return self._filtering.unwanted(batch, offsets)

    def _dead(self, rows: UpcomingRows, event: StateEvent, cause: str) -> list[JournalEntry]:
        if not len(rows.offsets):
            return []
        move_all(rows.states, event)
        return self._state.make_dead_letters(rows.offsets, rows.attempts, cause)

    def _overdue(self, batch: pa.RecordBatch, now: int) -> tuple[Mask, Mask]:
        """Return which rows are to be dropped for being late, and which become dead letters."""
        masks = _late_rows(batch, now, self._policy.topic_settings) if self._policy.makes_dead_letters else None
        return masks or (np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_))

    def _fresh(self, batch: pa.RecordBatch, offsets: Int64s) -> Mask:
        """Return which rows are neither settled nor on their way; note the keys of those on their way."""
        if offsets[0] >= self._state.passing_end:
            return np.ones(len(offsets), np.bool_)
        settled, passing = self._state.settled_mask(offsets), self._state.passing_mask(offsets)
        self._note(batch, offsets, passing & ~settled)
        fresh: Mask = ~(settled | passing)
        return fresh

    def _note(self, batch: pa.RecordBatch, offsets: Int64s, which: Mask) -> None:
        """Have the order know of these rows, which are on their way, maybe since before the group was ordered."""
        if self._state.order.active and which.any():
            keys = texts_of(batch.column(_PROPERTIES), ORDER_KEY)
            for row in np.flatnonzero(which).tolist():
                if (key := keys[row]) is not None:
                    self._state.order.note(int(offsets[row]), key)

    def _hold_back(self, batch: pa.RecordBatch, offsets: Int64s, go: Mask, out: Mask, room: int) -> tuple[Mask, int]:
        """Return which rows that may ``go`` must wait for others of their key, and how many it examined.

        Examining ends when ``room`` rows that are to be handed out were found.
        """
        keys = texts_of(batch.column(_PROPERTIES), ORDER_KEY)
        blocked = np.zeros(len(offsets), np.bool_)
        for row in np.flatnonzero(go).tolist():
            if self._state.order.full:
                return blocked, row
            key = keys[row]
            if key is not None and not self._state.order.enter(int(offsets[row]), key):
                blocked[row] = True
            elif out[row]:
                room -= 1
                if not room:
                    return blocked, row + 1
        if blocked.any():
            move(State.READY, StateEvent.BLOCK)
        return blocked, len(offsets)


def is_plain(batch: pa.RecordBatch, now_ms: int) -> bool:
    """Return whether these rows need no choice.

    That is so if none has expired, and none has properties of Tarry's own, which may ask for something.
    """
    return not _has_expired(batch.column(_EXPIRE), now_ms) and has_none(batch.column(_PROPERTIES))


def _has_expired(expire_ms: pa.Array, now_ms: int) -> bool:
    if expire_ms.null_count == len(expire_ms):
        return False
    first_ms = pc.min(expire_ms).as_py() if expire_ms.null_count else extremes(expire_ms.to_numpy())[0]
    return bool(first_ms <= now_ms)


def first_tries(offsets: Int64s) -> UpcomingRows:
    """Return these offsets as rows whose first try is to come."""
    return UpcomingRows(offsets, np.ones(len(offsets), np.int32), np.full(len(offsets), int(State.READY), np.int8))


def _late_rows(batch: pa.RecordBatch, now_ms: int, settings: TopicSettings | None) -> tuple[Mask, Mask] | None:
    """Return which rows are to be dropped, and which go to the dead letters; None for none.

    A message's own expiry counts before the topic's, and so does its own choice of what becomes of it.
    """
    limit = -1 if settings is None else settings.lateness_ms_max
    own = batch.column(_EXPIRE)
    if own.null_count == batch.num_rows and limit < 0:
        return None
    expire = without_nulls(own, INT64_MAX)
    if limit >= 0:
        # Beyond the limit: a message that is late by just that much is delivered.
        by_topic = batch.column("due_ms").to_numpy() + (limit + 1)
        expire = np.where(own.is_null().to_numpy(zero_copy_only=False), by_topic, expire)
    late = expire <= now_ms
    if not late.any():
        return None
    default = settings.late if settings is not None and settings.late else "drop"
    ways = np.full(batch.num_rows, LATE_WAYS.index(default), np.int8)
    own_ways = values_of(batch.column("properties"), LATE)
    if own_ways is not None:
        rows, texts = own_ways
        ways[rows] = [LATE_WAYS.index(t if t in LATE_WAYS else default) for t in texts.to_pylist()]
    return late & (ways == _DROP), late & (ways == _DEAD)
