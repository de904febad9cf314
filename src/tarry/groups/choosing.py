"""What becomes of messages when their turn has come, before a consumer gets them; each only where it is asked for.

A group passes over what is for another group or does not match its filter, drops or buries what is too late or has no
try left, and holds back what the order says must wait.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tarry.api.filter import parse_filter
from tarry.api.groups import GroupSettings
from tarry.base.message import ORDER_KEY, SCHEMA
from tarry.base.properties import has_none
from tarry.base.reserved import ONLY, texts_of, values_of
from tarry.base.types import Int32s, Int64s, Mask
from tarry.groups import dead
from tarry.groups.lateness import EXPIRE_COLUMN, overdue
from tarry.groups.order import Order
from tarry.groups.settling import Settling
from tarry.groups.states import Event, State, States, move, move_all
from tarry.groups.waiting import Rows
from tarry.queue.journal import Entry

DUE, TRIES, _PROPERTIES = (SCHEMA.get_field_index(name) for name in ("due_ms", "tries", "properties"))


class Choosing(Settling):
    """The choice between the queue and the consumers of a group."""

    def configure(self, settings: GroupSettings) -> None:
        """Other settings, from now on, or other ones of its topic: what consumers hold is not touched."""
        with self.lock:
            former = self._order
            self._apply(settings)
            if self.ordered and former is None:
                self._order = Order()
                self._look_again()  # whose keys are on their way is not known
            elif former is not None and not self.ordered:
                self._order = None
                self._let_go(former.all_held())
        self._wake_up()

    def _apply(self, settings: GroupSettings) -> None:
        super()._apply(settings)
        wanted = parse_filter(settings.filter)
        self._filter = None if wanted.matches_all else wanted
        self._choosy = self._filter is not None or self.ordered

    def _defer(self, rows: Rows, due: Int64s) -> None:
        """The clock was set back since these were dispatched. Never early; and what is due behind them need not wait
        for them.
        """
        for moment in np.unique(due).tolist():
            self._waiting.push_back(moment, rows.pick(due == moment))

    def _own_tries(self, column: pa.Array) -> Int32s | None:
        """Each message's own limit of tries, 0 where it has none; None where none of them has one."""
        if column.null_count == len(column) or not self._mortal:
            return None
        tries: Int32s = column.fill_null(0).to_numpy()
        return tries

    def _choose_new(self, batch: pa.RecordBatch, base: int, room: int, now: int) -> tuple[pa.RecordBatch, Int64s]:
        """Of rows that nobody looked at, those to hand out, up to ``room``. The cursor is behind the last one of which
        it is known what becomes of it.
        """
        offsets = np.arange(base, base + batch.num_rows, dtype=np.int64)
        unwanted = self._unwanted(batch)  # first: it may raise
        drop, bury = self._overdue(batch, now)
        fresh = self._fresh(batch, offsets)
        gone, go = fresh & (unwanted | drop), fresh & ~(unwanted | drop)
        due = batch.column("due_ms").to_numpy()
        out = go & ~bury & (due <= now)
        if self._order is None:
            blocked, counted = np.zeros(len(offsets), np.bool_), np.flatnonzero(out)
            end = len(offsets) if len(counted) <= room else int(counted[room - 1]) + 1
        else:
            blocked, end = self._hold_back(batch, offsets, go, out, room)
        self.cursor = base + end
        here = np.arange(len(offsets)) < end
        self._drop(offsets[gone & here & unwanted], State.READY, Event.FILTER)
        self._drop(offsets[gone & here & ~unwanted], State.READY, Event.DROP)
        go &= here & ~blocked
        bury &= go
        if bury.any():
            move(State.READY, Event.EXPIRE_MESSAGE)
            self._lay_out(offsets[bury], np.ones(int(bury.sum()), np.int32), dead.EXPIRED)
        early = go & ~bury & (due > now)
        self._defer(firsts(offsets[early]), due[early])
        out &= go
        return batch.filter(pa.array(out)), offsets[out]

    def _fresh(self, batch: pa.RecordBatch, offsets: Int64s) -> Mask:
        """Which rows are neither settled nor on their way; the keys of those that are on their way are noted."""
        if offsets[0] >= self._passing_end:
            return np.ones(len(offsets), np.bool_)
        settled, passing = self._settled.mask(offsets), self._passing.mask(offsets)
        self._note(batch, offsets, passing & ~settled)
        fresh: Mask = ~(settled | passing)
        return fresh

    def _note(self, batch: pa.RecordBatch, offsets: Int64s, which: Mask) -> None:
        """These are on their way, maybe since before the order was looked at."""
        if self._order is not None and which.any():
            keys = texts_of(batch.column(_PROPERTIES), ORDER_KEY)
            for row in np.flatnonzero(which).tolist():
                if (key := keys[row]) is not None:
                    self._order.note(int(offsets[row]), key)

    def _hold_back(self, batch: pa.RecordBatch, offsets: Int64s, go: Mask, out: Mask, room: int) -> tuple[Mask, int]:
        """Which of the rows that may ``go`` must wait for others of their key, up to where ``room`` of those that are
        to be handed out may.
        """
        assert self._order is not None
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

    def _choose_again(self, batch: pa.RecordBatch, rows: Rows, unwanted: Mask, now: int) -> Mask:
        """Of rows whose moment has come, those to hand out; what becomes of the others is done."""
        due = batch.column("due_ms").to_numpy()
        drop, bury = self._overdue(batch, now)
        spent = self._spent(rows.attempts, self._own_tries(batch.column(TRIES)))
        unwanted = unwanted & (rows.attempts == 1) & ~spent  # what was handed out once is the group's
        drop, bury = drop & ~(spent | unwanted), bury & ~(spent | unwanted)
        out: Mask = ~(spent | unwanted | drop | bury)
        early = out & (due > now)
        self._defer(rows.pick(early), due[early])
        out &= ~early
        entries: list[Entry] = []
        for which, event, cause in ((spent, Event.EXHAUST, dead.TRIES), (bury, Event.EXPIRE_MESSAGE, dead.EXPIRED)):
            if which.any():
                move_all(rows.states[which], event)
                entries += self._lay_out(rows.offsets[which], rows.attempts[which], cause)
        if entries:
            self._journal.write(entries, self._ticket())
        self._drop(rows.offsets[unwanted], rows.states[unwanted], Event.FILTER)
        self._drop(rows.offsets[drop], rows.states[drop], Event.DROP)
        return out

    def wants(self, batch: pa.RecordBatch) -> Mask:
        """Which of these rows of its topic are for this group, and match its filter.

        Raises:
            InvalidArgumentError: the filter is a condition that takes too long.
        """
        with self.lock:
            return ~self._unwanted(batch)

    def _unwanted(self, batch: pa.RecordBatch) -> Mask:
        """Which rows are for another group, or do not match the filter."""
        unwanted = np.zeros(batch.num_rows, np.bool_)
        for_one = values_of(batch.column(_PROPERTIES), ONLY)
        if for_one is not None:
            unwanted[for_one[0]] = [group != self.name for group in for_one[1].to_pylist()]
        return unwanted if self._filter is None else unwanted | ~np.asarray(self._filter.mask(batch))

    def _overdue(self, batch: pa.RecordBatch, now: int) -> tuple[Mask, Mask]:
        found = overdue(batch, now, self.topic.settings) if self._mortal else None
        return found or (np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_))

    def _drop(self, offsets: Int64s, states: State | States, event: Event) -> None:
        """These are settled without a consumer."""
        if len(offsets):
            move(states, event) if isinstance(states, State) else move_all(states, event)
            self._journal.write(self._settle(offsets), self._ticket())


def is_plain(columns: list[pa.Array], rows: int) -> bool:
    """Whether nothing in these rows can ask for more than to be handed out."""
    return bool(columns[EXPIRE_COLUMN].null_count == rows) and has_none(columns[_PROPERTIES])


def firsts(offsets: Int64s) -> Rows:
    """Messages before their first try."""
    return Rows(offsets, np.ones(len(offsets), np.int32), np.full(len(offsets), int(State.READY), np.int8))
