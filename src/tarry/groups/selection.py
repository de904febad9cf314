"""What becomes of messages when their turn has come, before a consumer gets them; each only where it is asked for.

A group passes over what is for another group or does not match its filter, drops or makes a dead letter of what is too
late or has no try left, and holds back what the order says must wait.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tarry.base.message import ORDER_KEY, SCHEMA
from tarry.base.properties import has_none
from tarry.base.reserved import ONLY, texts_of, values_of
from tarry.base.types import Int64s, Mask
from tarry.groups import dead_letter_rows
from tarry.groups.group_state import GroupState
from tarry.groups.lateness import EXPIRE_COLUMN, overdue
from tarry.groups.policy import Policy
from tarry.groups.services import Services
from tarry.groups.states import Event, State, move, move_all
from tarry.groups.upcoming import Rows
from tarry.queue.entries import Entry

DUE, TRIES, _PROPERTIES = (SCHEMA.get_field_index(name) for name in ("due_ms", "tries", "properties"))


class Selection:
    """The choice between a group's queue and its consumers. With the group's lock held."""

    def __init__(self, state: GroupState, policy: Policy, services: Services) -> None:
        self._state = state
        self._order = state.order
        self._upcoming = state.upcoming
        self._policy = policy
        self._journal = services.journal
        self._ticket = services.ticket

    def defer(self, rows: Rows, due: Int64s) -> None:
        """The clock was set back since these (each due at its ``due``) were dispatched. Never early; and what is due
        behind them need not wait for them.
        """
        for moment in np.unique(due).tolist():
            self._upcoming.push_back(moment, rows.pick(due == moment))

    def choose_new(self, batch: pa.RecordBatch, base: int, room: int, now: int) -> tuple[pa.RecordBatch, Int64s]:
        """Of rows that nobody looked at, from offset ``base`` on, those to hand out, up to ``room``, and their offsets.
        The cursor is behind the last one of which it is known what becomes of it.

        Raises:
            InvalidArgumentError: the filter is a condition that takes too long; nothing was passed over.
        """
        offsets = np.arange(base, base + batch.num_rows, dtype=np.int64)
        unwanted = self.unwanted(batch)  # first: it may raise
        drop, dead = self._overdue(batch, now)
        fresh = self._fresh(batch, offsets)
        settled, go = fresh & (unwanted | drop), fresh & ~(unwanted | drop)
        due = batch.column("due_ms").to_numpy()
        out = go & ~dead & (due <= now)
        if not self._order.active:
            blocked, counted = np.zeros(len(offsets), np.bool_), np.flatnonzero(out)
            end = len(offsets) if len(counted) <= room else int(counted[room - 1]) + 1
        else:
            blocked, end = self._hold_back(batch, offsets, go, out, room)
        self._state.cursor = base + end
        here = np.arange(len(offsets)) < end
        self._state.drop(offsets[settled & here & unwanted], State.READY, Event.FILTER)
        self._state.drop(offsets[settled & here & ~unwanted], State.READY, Event.DROP)
        go &= here & ~blocked
        dead &= go
        if dead.any():
            move(State.READY, Event.EXPIRE_MESSAGE)
            attempts = np.ones(int(dead.sum()), np.int32)
            self._state.make_dead_letters(offsets[dead], attempts, dead_letter_rows.EXPIRED)
        early = go & ~dead & (due > now)
        self.defer(first_tries(offsets[early]), due[early])
        out &= go
        return batch.filter(pa.array(out)), offsets[out]

    def choose_again(self, batch: pa.RecordBatch, rows: Rows, unwanted: Mask, now: int) -> Mask:
        """Of rows whose moment has come (``batch`` has their messages), those to hand out; what becomes of the others
        is done. ``unwanted`` as :meth:`unwanted` gives it.
        """
        due = batch.column("due_ms").to_numpy()
        drop, dead = self._overdue(batch, now)
        exhausted = self._policy.exhausted(rows.attempts, self._policy.own_tries(batch.column(TRIES)))
        unwanted = unwanted & (rows.attempts == 1) & ~exhausted  # what was handed out once is the group's
        drop, dead = drop & ~(exhausted | unwanted), dead & ~(exhausted | unwanted)
        out: Mask = ~(exhausted | unwanted | drop | dead)
        early = out & (due > now)
        self.defer(rows.pick(early), due[early])
        out &= ~early
        entries = self._dead(rows.pick(exhausted), Event.EXHAUST, dead_letter_rows.TRIES)
        entries += self._dead(rows.pick(dead), Event.EXPIRE_MESSAGE, dead_letter_rows.EXPIRED)
        if entries:
            self._journal.write(entries, self._ticket())
        self._state.drop(rows.offsets[unwanted], rows.states[unwanted], Event.FILTER)
        self._state.drop(rows.offsets[drop], rows.states[drop], Event.DROP)
        return out

    def unwanted(self, batch: pa.RecordBatch) -> Mask:
        """Which rows are for another group, or do not match the filter.

        Raises:
            InvalidArgumentError: the filter is a condition that takes too long.
        """
        unwanted = np.zeros(batch.num_rows, np.bool_)
        only = values_of(batch.column(_PROPERTIES), ONLY)
        if only is not None:
            rows, groups = only
            unwanted[rows] = [group != self._state.name for group in groups.to_pylist()]
        wanted = self._policy.filter
        return unwanted if wanted is None else unwanted | ~np.asarray(wanted.mask(batch))

    def _dead(self, rows: Rows, event: Event, cause: str) -> list[Entry]:
        if not len(rows.offsets):
            return []
        move_all(rows.states, event)
        return self._state.make_dead_letters(rows.offsets, rows.attempts, cause)

    def _overdue(self, batch: pa.RecordBatch, now: int) -> tuple[Mask, Mask]:
        """Which rows are to be dropped for being late, and which become dead letters."""
        masks = overdue(batch, now, self._policy.topic_settings) if self._policy.makes_dead_letters else None
        return masks or (np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_))

    def _fresh(self, batch: pa.RecordBatch, offsets: Int64s) -> Mask:
        """Which rows are neither settled nor on their way; the keys of those that are on their way are noted."""
        if offsets[0] >= self._state.passing_end:
            return np.ones(len(offsets), np.bool_)
        settled, passing = self._state.settled_mask(offsets), self._state.passing_mask(offsets)
        self._note(batch, offsets, passing & ~settled)
        fresh: Mask = ~(settled | passing)
        return fresh

    def _note(self, batch: pa.RecordBatch, offsets: Int64s, which: Mask) -> None:
        """These are on their way, maybe since before the order was looked at."""
        if self._order.active and which.any():
            keys = texts_of(batch.column(_PROPERTIES), ORDER_KEY)
            for row in np.flatnonzero(which).tolist():
                if (key := keys[row]) is not None:
                    self._order.note(int(offsets[row]), key)

    def _hold_back(self, batch: pa.RecordBatch, offsets: Int64s, go: Mask, out: Mask, room: int) -> tuple[Mask, int]:
        """Which of the rows that may ``go`` must wait for others of their key, up to where ``room`` of those that are
        to be handed out may; and how many rows that was looked at for.
        """
        keys = texts_of(batch.column(_PROPERTIES), ORDER_KEY)
        blocked = np.zeros(len(offsets), np.bool_)
        for row in np.flatnonzero(go).tolist():
            if self._order.full:
                return blocked, row
            key = keys[row]
            if key is not None and not self._order.enter(int(offsets[row]), key):
                blocked[row] = True
            elif out[row]:
                room -= 1
                if not room:
                    return blocked, row + 1
        if blocked.any():
            move(State.READY, Event.BLOCK)
        return blocked, len(offsets)


def is_plain(columns: list[pa.Array], rows: int) -> bool:
    """Whether nothing in these rows can ask for more than to be handed out."""
    return bool(columns[EXPIRE_COLUMN].null_count == rows) and has_none(columns[_PROPERTIES])


def first_tries(offsets: Int64s) -> Rows:
    """Messages before their first try."""
    return Rows(offsets, np.ones(len(offsets), np.int32), np.full(len(offsets), int(State.READY), np.int8))
