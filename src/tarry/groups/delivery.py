"""Hands out each ready message of a group to one of its consumers.

Messages that have waited for their moment come first, then the new ones in the queue.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from tarry.api.accounts import charge_handed
from tarry.api.quotas import DELAY_S_MAX
from tarry.api.row_schemas import DELIVERY
from tarry.base.types import Int32s, Int64s, extremes
from tarry.groups.copier import DeadLetterCopier
from tarry.groups.group_state import GroupState
from tarry.groups.lease_manager import LeaseManager
from tarry.groups.leases import Holder
from tarry.groups.policy import Policy
from tarry.groups.selection import DUE, TRIES, Selection, first_tries, is_plain
from tarry.groups.services import GroupServices
from tarry.groups.states import State, States
from tarry.groups.upcoming import UpcomingRows
from tarry.groups.wakeups import Wakeups
from tarry.message.schema import SCHEMA, accepted_ms, concat
from tarry.queue.topic import READ_BYTES

CHOICE_ROWS = 1024
"""Rows that a group looks at at once when it may not want most of them."""
ENOUGH_BYTES = READ_BYTES * 7 // 8
"""Another read is not worth its cost when so many bytes have been read."""
SCAN_ROWS = 65_536
"""Rows that a group passes over before others get its lock."""
BODY = SCHEMA.get_field_index("body")
LOOK_AGAIN_MS = 50
RATE_MS_MIN = 10
"""Shortest wait for a rate: below it, several messages go together, by what the bucket saves up."""
FILTERING_S = 1.0
"""Longest wait, in seconds, for filtering, of a caller that does not wait for messages.

The end of the filtering is announced.
"""
_ADDED_AT = range(len(SCHEMA), len(DELIVERY))
_ADDED = [DELIVERY.field(at) for at in _ADDED_AT]
"""Columns of a delivery besides the message: offset, lease, attempt."""


class _Why(Enum):
    """Reasons why there is nothing for a consumer."""

    EMPTY = 0
    PAUSED = 1
    FULL = 2
    """The consumer has no room, or the group has none, or the journal."""
    FILTERING = 4
    """A thread must filter the messages first; its end is announced."""
    UNFINISHED = 3
    """Others should have the lock before more is looked at."""
    SILENT = 5
    """The consumer has not been heard of since its leases ended."""
    HELD_BACK = 6
    """A quota of the consumer's identity is used up."""
    RATE = 8
    """As many messages as the group or its topic allows in a second have been handed out."""
    UNLEASED = 7
    """The broker may not hand out: it is not certain that it still owns the logs."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Messages that were read together and are to be handed out.

    They are rows of SCHEMA, and arrays with an entry for each row, by ascending offset. ``states``: the state of all,
    or of each.
    """

    batch: pa.RecordBatch
    offsets: Int64s
    attempts: Int32s
    states: State | States

    @property
    def is_new(self) -> bool:
        """True if all of them come out of the queue for the first time."""
        return self.states is State.READY


@dataclass(eq=False)
class GroupDelivery:
    """Hand-out of a group's messages. Any thread.

    Consumers that wait do so without the group's lock: see :class:`tarry.groups.wakeups.Wakeups`.
    """

    _state: GroupState
    _policy: Policy
    _selection: Selection
    _lease_manager: LeaseManager
    _copier: DeadLetterCopier
    _news: Wakeups
    _services: GroupServices

    def fetch(self, holder: Holder, rows_max: int, wait_s: float | None) -> pa.RecordBatch | None:
        """Lease up to ``rows_max`` messages to ``holder``.

        Waits up to ``wait_s`` seconds for the first (None: for ever).

        Raises:
            FilterPausedError: the group's filter is a condition that takes too long; nothing was passed over.
            QuotaExceededError: it does not wait as long as a quota of its identity is used up.
        """
        end = None if wait_s is None else time.monotonic() + wait_s
        delay_end = time.monotonic() + DELAY_S_MAX
        while True:
            seen = self._news.count
            with self._state.lock:
                # Under the lock: messages leased to a closed consumer would come back only when their lease ends.
                if self._state.closed or holder.closed:
                    return None
                batch, why = self._lease(holder, rows_max)
                left = None if end is None else end - time.monotonic()
                over = left is not None and left <= 0
                left = None if batch is not None or over else self._until_next(left, why, holder)
            if self._state.copies:
                self._copier.run()
            if batch is not None:
                return batch
            if why is _Why.UNFINISHED:
                continue
            if why is _Why.HELD_BACK and wait_s == 0:
                self._delay(holder, seen, delay_end - time.monotonic())
                continue
            if why is _Why.SILENT or (over and why is not _Why.FILTERING):
                return None
            self._news.wait(seen, FILTERING_S if over else left)

    def _delay(self, holder: Holder, seen: int, left_s: float) -> None:
        """Have a consumer that does not wait be delayed for its quota, up to ``left_s`` seconds, then refused.

        It would take an empty answer for the end of what there is.
        """
        held = holder.held_back
        if held is None or holder.account is None:
            return
        if left_s <= 0:
            raise holder.account.refusal(held)
        self._news.wait(seen, min(held.wait_s, left_s))

    def poll(self, holder: Holder, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        """See :meth:`tarry.api.consuming.Subscription.poll`.

        Raises:
            FilterPausedError: as :meth:`fetch`.
        """
        with self._state.lock:
            if self._state.closed or holder.closed:
                holder.held_back, holder.filters_first = None, False
                return None, None
            batch, why = self._lease(holder, rows_max)
            again = None if batch is not None else self._until_next(None, why, holder)
        if self._state.copies:
            self._copier.run()
        return batch, again

    def _lease(self, holder: Holder, rows_max: int) -> tuple[pa.RecordBatch | None, _Why]:
        """Lease messages to ``holder``, and return them; or None, and the reason."""
        holder.held_back, holder.filters_first = None, False
        settings = self._policy.settings
        if settings.paused:
            holder.was_full = True  # messages that fall due meanwhile do not wait for the broker
            return None, _Why.PAUSED
        if (may_hand_out := self._services.may_hand_out) is not None and not may_hand_out():
            holder.was_full = True  # messages that fall due meanwhile do not wait for the broker
            return None, _Why.UNLEASED
        if self._services.journal.is_full:
            # Messages may come back by themselves after the hand-out, and the journal must then have room for that.
            return None, _Why.FULL
        now = self._services.clock.now_ms()
        # Before the look at its room: a group's only consumer, with all that it may hold, would else never see the end
        # of its leases.
        self._lease_manager.expire(now)
        if holder.silent:
            holder.was_full = True  # messages that fall due meanwhile do not wait for the broker
            return None, _Why.SILENT
        if self._state.grace is not None and self._state.waits_for_grace(now):
            holder.was_full = True  # messages that fall due meanwhile do not wait for the broker
            return None, _Why.EMPTY
        room = min(rows_max, holder.prefetch - holder.held)
        if room <= 0:
            return None, _Why.FULL
        if settings.inflight_max:
            room = min(room, settings.inflight_max - self._state.leases.rows)
            if room <= 0:
                return None, _Why.FULL
        if (rate := self._policy.rate) is not None:
            allowed = rate.available(now / 1000)
            if allowed is not None:
                room = min(room, allowed)
            if room <= 0:
                holder.was_full = True  # what waits for the rate is late for that
                return None, _Why.RATE
        account = holder.account
        self._selection.choose_for(account)
        if account is not None and account.limits_consuming:
            holder.held_back = self._selection.held_back(account)
            if holder.held_back is not None:
                holder.was_full = True  # messages that fall due meanwhile do not wait for the broker
                return None, _Why.HELD_BACK
            room = account.receivable(room)
        chosen: list[_Chosen] = []
        try:
            why = self._choose(chosen, room, now)
        except Exception:
            # Rows read before a damaged frame, or before a filter that takes too long, are on their way already. The
            # next consumer gets the error first.
            if not chosen:
                raise
        if chosen:
            return self._hand_out(holder, chosen, now), _Why.EMPTY
        holder.filters_first = why is _Why.FILTERING
        return None, why

    def _choose(self, chosen: list[_Chosen], room: int, now: int) -> _Why:
        """Add to ``chosen`` up to ``room`` messages, or so many bytes, of as many frames as needed.

        Returns the reason why there are no more.
        """
        scan_end = max(self._state.cursor, self._state.floor) + SCAN_ROWS
        size = 0
        while True:
            # First: passing over messages may have released others.
            part, why = self._choose_upcoming(room, READ_BYTES - size, now)
            if part is None and why is not _Why.FILTERING:
                part, why = self._choose_new(room, READ_BYTES - size, now, scan_end, is_first=not chosen)
            if part is not None:
                chosen.append(part)
                room -= len(part.offsets)
            is_more = self._state.upcoming.due(now) or (part is not None and self._state.cursor < self._state.topic.end)
            if why in (_Why.UNFINISHED, _Why.FILTERING) or not room or not is_more:
                return why
            # Not asked before: it costs more than the rest, and most find the end of the queue.
            size += part.batch.nbytes if part is not None else 0
            if size >= ENOUGH_BYTES:
                return why

    def _choose_new(
        self, room: int, bytes_max: int, now: int, scan_end: int, *, is_first: bool
    ) -> tuple[_Chosen | None, _Why]:
        state = self._state
        # After a recovery the cursor begins at the floor of then, which may have risen past it since.
        state.cursor = max(state.cursor, state.floor)
        selective = self._policy.is_selective
        rows_max = max(min(room, self._policy.choice_rows_max), CHOICE_ROWS) if selective else room
        while not self._state.order.full:
            if state.cursor >= scan_end:
                return None, _Why.UNFINISHED
            rows = self._selection.worth_reading(rows_max) if selective else rows_max
            if not rows:
                return None, _Why.FILTERING
            unread = self._state.topic.read(state.cursor, rows, bytes_max)
            if unread is None:
                break
            base, batch = unread
            if base > state.cursor:  # retention deleted the rows between
                if not is_first:
                    return None, _Why.UNFINISHED  # chosen rows that are not leased yet would be counted as lost
                state.forget(base)
            if selective or not is_plain(batch, now):
                found = self._selection.choose_new(batch, base, room, now)
                if found is None:
                    return None, _Why.FILTERING
                batch, offsets = found
            else:
                batch, offsets = self._choose_plain(batch, base, now)
            if len(offsets):
                return _Chosen(batch, offsets, np.ones(len(offsets), np.int32), State.READY), _Why.EMPTY
        return None, _Why.EMPTY

    def _choose_plain(self, batch: pa.RecordBatch, base: int, now: int) -> tuple[pa.RecordBatch, Int64s]:
        """Choose, of wanted rows from offset ``base`` on, those to hand out; return them and their offsets."""
        offsets = np.arange(base, base + batch.num_rows, dtype=np.int64)
        self._state.cursor = base + batch.num_rows
        due = batch.column(DUE).to_numpy()
        if base >= self._state.passing_end and extremes(due)[1] <= now:
            return batch, offsets  # as nearly always
        keep = due <= now
        if base < self._state.passing_end:
            fresh = ~(self._state.settled_mask(offsets) | self._state.passing_mask(offsets))
            self._selection.defer(first_tries(offsets[fresh & ~keep]), due[fresh & ~keep])
            keep &= fresh
        elif not keep.all():
            self._selection.defer(first_tries(offsets[~keep]), due[~keep])
        if keep.all():
            return batch, offsets
        return batch.filter(pa.array(keep)), offsets[keep]

    def _choose_upcoming(self, room: int, bytes_max: int, now: int) -> tuple[_Chosen | None, _Why]:
        while (rows := self._state.upcoming.take(now, room)) is not None:
            rows = self._without_settled(rows)
            if not len(rows.offsets):
                continue
            try:
                if not (known := self._selection.look(rows.offsets)):
                    # These come first the next time, or the filter's results for them might be forgotten by then.
                    self._state.upcoming.push_back(0, rows)
                    return None, _Why.FILTERING
                if known < len(rows.offsets):
                    self._state.upcoming.push_back(0, rows.pick(np.arange(known, len(rows.offsets))))
                    rows = rows.pick(np.arange(known))
                looked, kept_offsets, batch = self._state.topic.read_rows(rows.offsets, bytes_max)
                unwanted = None if batch is None else self._selection.unwanted(batch, kept_offsets)
            except BaseException:
                self._state.upcoming.push_back(now, rows)
                raise
            if batch is not None and unwanted is not None and len(unwanted) < batch.num_rows:
                self._state.upcoming.push_back(0, rows)
                return None, _Why.FILTERING
            if looked < len(rows.offsets):
                self._state.upcoming.push_back(now, rows.pick(np.arange(looked, len(rows.offsets))))
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
            return _Chosen(batch, rows.offsets, rows.attempts, rows.states), _Why.EMPTY
        return None, _Why.EMPTY

    def _without_settled(self, rows: UpcomingRows) -> UpcomingRows:
        # One that waited may have been discarded meanwhile.
        settled = self._state.settled_mask(rows.offsets) | (rows.offsets < self._state.floor)
        if not settled.any():
            return rows
        if self._state.order.active:
            self._state.unblock(self._state.order.leave(rows.offsets[settled].tolist()))
        return rows.pick(~settled)

    def _hand_out(self, holder: Holder, chosen: list[_Chosen], now: int) -> pa.RecordBatch:
        """Lease all of ``chosen`` as one batch, under one lease, and return it."""
        together = chosen[0] if len(chosen) == 1 else _joined(chosen)
        offsets, attempts = together.offsets, together.attempts
        tries = self._policy.own_tries(together.batch.column(TRIES))
        on_end = None
        if (traces := self._services.traces) is not None:
            topic, group = self._state.topic.name, self._state.name
            on_end = traces.handed_out(topic, group, together.batch, offsets, attempts, together.states, now)
        number = self._state.leases.open(
            holder, offsets, together.states, attempts, tries, now + holder.lease_ms, on_end
        )
        since = holder.on_handout(now)
        self._state.handed_out += len(offsets)
        for part in chosen:
            due = part.batch.column(DUE).to_numpy()
            from_ms = np.maximum(due, accepted_ms(part.batch))
            if not part.is_new or part.offsets[0] < self._state.again_below:
                # Retries, messages given back unseen, messages that waited for the former one of their key, and those
                # that a seek brings again are late for that reason.
                is_first = (part.attempts == 1) & (np.asarray(part.states) == State.READY)
                from_ms = from_ms[is_first & (part.offsets >= self._state.again_below)]
            self._services.on_handout(due, from_ms, now, self._state.topic.name, since)
        # Column by column: to make a batch of all of them would look at each of the message's own first. With its type
        # given, pa.array() does not look for what pandas might have to say.
        batch = together.batch
        leases = np.full(len(offsets), number, np.int64)
        for at, field, values in zip(_ADDED_AT, _ADDED, (offsets, leases, attempts), strict=True):
            batch = batch.add_column(at, field, pa.array(values, field.type))
        if self._policy.rate is not None:
            self._policy.rate.take(batch.num_rows)
        charge_handed(holder.account, batch.num_rows, batch.column(BODY).nbytes)
        return batch

    def _until_next(self, left: float | None, why: _Why, holder: Holder) -> float | None:
        """Return how long a waiting consumer may sleep before something of its group comes due."""
        if why is _Why.UNFINISHED:
            return 0.0
        if why is _Why.PAUSED:
            return left
        if holder.held_back is not None:
            again_s = min(holder.held_back.wait_s, DELAY_S_MAX)  # quotas may be raised meanwhile
            return again_s if left is None else min(again_s, left)
        # What is being looked at is announced, and nothing is handed out before.
        moments = [self._state.copies.next_ms]
        if why is _Why.RATE and self._policy.rate is not None:
            wait_ms = math.ceil(self._policy.rate.wait_s() * 1000)
            moments.append(self._services.clock.now_ms() + max(wait_ms, RATE_MS_MIN))
        elif why not in (_Why.FULL, _Why.FILTERING, _Why.UNLEASED):
            moments += [self._state.upcoming.next_ms, self._state.leases.next_deadline_ms]
        is_more = why not in (_Why.FILTERING, _Why.RATE) and self._state.cursor < self._state.topic.end
        if is_more or why in (_Why.FULL, _Why.UNLEASED):
            # There is no room, and an ack will wake us; or rows came after we looked, and a notification will. Of a
            # lease nobody tells.
            moments.append(self._services.clock.now_ms() + LOOK_AGAIN_MS)
        if self._state.grace is not None:
            moments.append(self._state.grace.until_ms)
        waits = [max(self._services.clock.seconds_until(moment), 0.0005) for moment in moments if moment is not None]
        if left is not None:
            waits.append(left)
        return min(waits, default=None)


def _joined(parts: list[_Chosen]) -> _Chosen:
    """Join the parts, by ascending offset: repeated messages may lie before or behind new ones."""
    batch = concat(part.batch for part in parts)
    offsets = np.concatenate([part.offsets for part in parts])
    order = np.argsort(offsets)
    if (np.diff(order) != 1).any():
        batch = batch.take(pa.array(order, pa.int64()))
    attempts = np.concatenate([part.attempts for part in parts])
    states = np.concatenate([np.broadcast_to(np.asarray(p.states, np.int8), len(p.offsets)) for p in parts])
    return _Chosen(batch, offsets[order], attempts[order], states[order])
