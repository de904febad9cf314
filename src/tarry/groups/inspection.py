"""Questions about a group's state: how much is where, and where one message is. Called with the group's lock held."""

from __future__ import annotations

from typing import Any

import numpy as np

from tarry.base.types import Int64s
from tarry.groups.group_state import GroupState

_WINDOW_ROWS = 65_536


def unsettled(state: GroupState) -> int:
    """How many ready messages are not settled."""
    floor = max(state.floor, state.topic.first)  # below is what retention deleted
    return state.unsettled_between(floor, state.topic.end)


def counts(state: GroupState, now_ms: int) -> dict[str, int]:
    """See :meth:`tarry.groups.group.Group.counts`."""
    if state.topic.first > state.floor:
        state.forget(state.topic.first)  # it may have been in memory for longer than its segment
    _, waiting = state.upcoming.count(now_ms)
    lag, leased, burying, blocked = unsettled(state), state.leases.rows, state.copies.rows, state.order.held
    return {
        "ready": max(0, lag - leased - waiting - blocked - burying),
        "leased": leased,
        "waiting": waiting,
        "blocked": blocked,
        "burying": burying,
        "lag": lag,
        "lost": state.lost,
    }


def unsettled_offsets(state: GroupState, first: int, end: int, limit: int | None) -> Int64s:
    """See :meth:`tarry.groups.group.Group.unsettled_offsets`."""
    at, end = max(first, state.floor, state.topic.first), min(end, state.topic.end)
    parts, count = [np.empty(0, np.int64)], 0
    while at < end and (limit is None or count < limit):
        window = np.arange(at, min(end, at + _WINDOW_ROWS), dtype=np.int64)
        parts.append(window[~state.settled_mask(window)])
        count += len(parts[-1])
        at += len(window)
    return np.concatenate(parts)[:limit]


def state_of(state: GroupState, offset: int) -> dict[str, Any]:
    """See :meth:`tarry.groups.group.Group.state_of`."""
    one = np.array([offset], np.int64)
    if offset < state.floor or bool(state.settled_mask(one)[0]):
        return {"state": "settled"}
    for lease in state.leases:
        at = np.flatnonzero(lease.offsets[lease.held] == offset)
        if len(at):
            attempt = int(lease.attempts[lease.held][at[0]])
            return {"state": "leased", "attempt": attempt, "until_ms": lease.deadline_ms}
    for batch in state.copies:
        if offset in batch.offsets:
            return {"state": "burying", "cause": batch.cause}
    for at_ms, offsets, attempts in state.upcoming:
        at = np.flatnonzero(offsets == offset)
        if len(at):
            return {"state": "waiting", "attempt": int(attempts[at[0]]), "again_ms": at_ms}
    passed = offset < state.cursor and not bool(state.passing_mask(one)[0])
    return {"state": "blocked" if passed and state.order.active else "ready"}
