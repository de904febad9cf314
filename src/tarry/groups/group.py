"""A consumer group of a topic, and one of its consumers, as consumers see them; with message states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.accounts import HeldBack, QuotaAccount
from tarry.api.consuming import ConsumerGroup, OnResult
from tarry.api.group_info import ConsumerInfo
from tarry.api.groups import GroupSettings
from tarry.api.settings import Start
from tarry.base.clock import Clock
from tarry.base.errors import ClosedError, CorruptError
from tarry.base.types import Int64s, Mask
from tarry.groups.delivery import GroupDelivery
from tarry.groups.filtering import Filtering
from tarry.groups.group_state import GroupState
from tarry.groups.lease_manager import LeaseManager
from tarry.groups.leases import Holder
from tarry.groups.policy import Policy
from tarry.groups.wakeups import Wakeups

ROWS_MAX = 8192
_WINDOW_ROWS = 65_536


@dataclass(slots=True, eq=False)
class GroupSubscription:
    """Implements :class:`tarry.api.consuming.Subscription`."""

    group: ConsumerGroup
    _holder: Holder
    _delivery: GroupDelivery
    _lease_manager: LeaseManager
    _prefetch: int

    @property
    def lease_ms(self) -> int:
        return self._holder.lease_ms

    @property
    def held(self) -> int:
        return self._holder.held

    @property
    def closed(self) -> bool:
        return self._holder.closed

    @property
    def silent(self) -> bool:
        return self._holder.silent

    @property
    def account(self) -> QuotaAccount | None:
        return self._holder.account

    @property
    def held_back(self) -> HeldBack | None:
        return self._holder.held_back

    @property
    def filters_first(self) -> bool:
        return self._holder.filters_first

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        return self._delivery.poll(self._holder, rows_max)

    def withdraw(self) -> None:
        pass

    def fetch(self, rows_max: int = ROWS_MAX, wait_s: float | None = None) -> pa.RecordBatch | None:
        return self._delivery.fetch(self._holder, rows_max, wait_s)

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        self._begin_settling()
        return self._lease_manager.ack(leases, offsets, on_result)

    def nack(
        self,
        leases: Int64s,
        offsets: Int64s,
        delay_ms: int | None = None,
        on_result: OnResult | None = None,
        reason: str | None = None,
    ) -> int:
        self._begin_settling()
        return self._lease_manager.nack(leases, offsets, delay_ms, on_result, reason)

    def give_back(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        self._begin_settling()
        return self._lease_manager.give_back(leases, offsets, on_result)

    def resize(self, window: int) -> None:
        self._lease_manager.resize(self._holder, min(window, self._prefetch))

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        self._begin_settling()
        return self._lease_manager.extend(leases, offsets, lease_ms)

    def renew(self, held_ms_max: int) -> int:
        return self._lease_manager.renew(self._holder, held_ms_max)

    def close(self) -> None:
        self._lease_manager.release(self._holder)

    def _begin_settling(self) -> None:
        self._lease_manager.hear(self._holder)
        if self.group.closed:
            if self.group.deleted:
                raise ClosedError(f"group {self.group.name!r} of topic {self.group.topic_name!r} was deleted")
            raise ClosedError("the broker is closed")


class Group:
    """Implements :class:`tarry.api.consuming.ConsumerGroup` over its parts. Any thread."""

    def __init__(
        self,
        state: GroupState,
        policy: Policy,
        news: Wakeups,
        filtering: Filtering,
        lease_manager: LeaseManager,
        delivery: GroupDelivery,
        clock: Clock,
        may_hand_out: Callable[[], bool] | None = None,
    ) -> None:
        self.name = state.name
        self.topic_name = state.topic.name
        self.listen = news.listen
        self.ack = lease_manager.ack
        self.ack_each = lease_manager.ack_each
        self.nack = lease_manager.nack
        self.reject = lease_manager.reject
        self.give_back = lease_manager.give_back
        self.extend = lease_manager.extend
        self.change_lease = lease_manager.change_lease
        self._state = state
        self._policy = policy
        self._filtering = filtering
        self._lease_manager = lease_manager
        self._delivery = delivery
        self._clock = clock
        self._may_hand_out = may_hand_out

    # -- for consumers: see tarry.api.consuming ----------------------------------------------------------------------

    @property
    def settings(self) -> GroupSettings:
        return self._policy.settings

    @property
    def ordered(self) -> bool:
        return self._policy.ordered

    @property
    def deleted(self) -> bool:
        return self._state.deleted

    @property
    def closed(self) -> bool:
        return self._state.closed

    @property
    def gathers(self) -> bool:
        return False

    @property
    def waits_for_acks(self) -> bool:
        return self._lease_manager.waits_for_acks

    @property
    def may_send(self) -> bool:
        return self._may_hand_out is None or self._may_hand_out()

    @property
    def queue_ends(self) -> tuple[int, int]:
        topic = self._state.topic
        return topic.first, topic.end

    def subscribe(self, *, prefetch: int, lease_ms: int, account: QuotaAccount | None = None) -> GroupSubscription:
        now_ms = self._clock.now_ms()
        holder = Holder(prefetch, lease_ms, since_ms=now_ms, account=account)
        with self._state.lock:
            self._state.present.add(holder, now_ms)
        return GroupSubscription(self, holder, self._delivery, self._lease_manager, prefetch)

    def wants(self, batch: pa.RecordBatch, account: QuotaAccount | None = None) -> Mask:
        return self._filtering.wants(batch, account)

    @property
    def is_filtering(self) -> bool:
        return self._filtering.is_evaluating

    @property
    def filter_paused(self) -> str:
        """The reason why its filter is paused, and nothing is handed out; empty: it is not."""
        return self._filtering.paused

    # -- where its messages are --------------------------------------------------------------------------------------

    @property
    def start(self) -> Start:
        """Start of the group when it was made."""
        return self._state.start

    @property
    def floor(self) -> int:
        """Offset below which all messages are settled."""
        return self._state.floor

    @property
    def unsettled(self) -> int:
        """Number of ready messages that are not settled."""
        with self._state.lock:
            return self._unsettled()

    def consumers(self, limit: int) -> list[ConsumerInfo]:
        """Return up to ``limit`` consumers, and what each holds; those that hold most first."""
        with self._state.lock:
            return self._state.present.infos(self._state.leases, limit)

    @property
    def moved(self) -> tuple[int, int]:
        """Numbers of messages handed out, and acknowledged, since the process began.

        What readers that keep their own offsets have passed counts as both.
        """
        return self._state.handed_out, self._state.acknowledged

    def _unsettled(self) -> int:
        state = self._state
        floor = max(state.floor, state.topic.first)  # retention deleted the rows below
        return state.unsettled_between(floor, state.topic.end)

    def unsettled_offsets(
        self, first: int, end: int, limit: int | None = None, *, waiting_only: bool = False
    ) -> Int64s:
        """Return the unsettled offsets from ``first`` to before ``end``, ascending; up to ``limit`` of them.

        ``waiting_only``: only those that could be handed out now.
        """
        state = self._state
        with state.lock:
            busy = _busy_offsets(state, self._clock.now_ms()) if waiting_only else None
            at, end = max(first, state.floor, state.topic.first), min(end, state.topic.end)
            parts, count = [np.empty(0, np.int64)], 0
            while at < end and (limit is None or count < limit):
                window = np.arange(at, min(end, at + _WINDOW_ROWS), dtype=np.int64)
                free = ~state.settled_mask(window)
                parts.append(window[free if busy is None else free & ~np.isin(window, busy)])
                count += len(parts[-1])
                at += len(window)
            return np.concatenate(parts)[:limit]

    def oldest_due_ms(self) -> int | None:
        """Return the due time of the first unsettled message in the queue (it may be read from disk).

        Returns None if there is none, or it lies in a damaged frame.
        """
        try:
            first = self._state.topic.read(self._state.floor, 1)
        except CorruptError:
            return None  # figures of all groups must not fail for it; consumers get the error
        return None if first is None else int(first[1].column("due_ms")[0].as_py())

    def counts(self) -> dict[str, int]:
        """Return the numbers of ready, leased, waiting, blocked, burying and lost messages.

        waiting: for their next try; blocked: by the order; burying: being copied to the dead letters; lost: deleted by
        retention before they were settled. All but lost are unsettled; their sum is the lag.
        """
        state = self._state
        with state.lock:
            if state.topic.first > state.floor:
                state.forget(state.topic.first)  # it may have been in memory for longer than its segment
            counts = {
                "leased": state.leases.rows,
                "waiting": state.upcoming.waiting(self._clock.now_ms()),
                "blocked": state.order.held,
                "burying": state.copies.rows,
            }
            lag = self._unsettled()
            return {"ready": max(0, lag - sum(counts.values())), **counts, "lag": lag, "lost": state.lost}

    def state_of(self, offset: int) -> dict[str, Any]:
        """Return the message's state in the group, as plain data.

        ``state`` is one of

        - ``settled``: acknowledged, dropped, in the dead letters, passed by in a seek, or ready before the group began
        - ``leased``: with a consumer, as try ``attempt``, until ``until_ms``
        - ``waiting``: to be handed out at ``again_ms`` (0: at once), as try ``attempt``
        - ``burying``: on its way to the dead letters, for ``cause``
        - ``blocked``: behind another message of its ordering key
        - ``ready``: not handed out

        and, where the last try failed for a reason that is known, ``reason``.
        """
        with self._state.lock:
            state, reason = _state_of(self._state, offset), self._state.reasons.get(offset)
        return state if reason is None else {**state, "reason": reason}


def _busy_offsets(state: GroupState, now_ms: int) -> Int64s:
    """Return the offsets with consumers, on their way to the dead letters, or waiting for their moment."""
    parts = [lease.offsets[lease.held] for lease in state.leases]
    parts += [batch.offsets for batch in state.copies]
    parts += [offsets for at_ms, offsets, _ in state.upcoming if at_ms > now_ms]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _state_of(state: GroupState, offset: int) -> dict[str, Any]:
    one = np.array([offset], np.int64)
    if offset < state.floor or bool(state.settled_mask(one)[0]):
        return {"state": "settled"}
    for lease in state.leases:
        if (at := lease.place(offset)) is not None:
            return {"state": "leased", "attempt": int(lease.attempts[at]), "until_ms": lease.deadline_ms}
    for batch in state.copies:
        if offset in batch.offsets:
            return {"state": "burying", "cause": batch.cause}
    for at_ms, offsets, attempts in state.upcoming:
        places = np.flatnonzero(offsets == offset)
        if len(places):
            return {"state": "waiting", "attempt": int(attempts[places[0]]), "again_ms": at_ms}
    passed = offset < state.cursor and not bool(state.passing_mask(one)[0])
    return {"state": "blocked" if passed and state.order.active else "ready"}
