"""Search for an order of calls in which each answer is right: messages as registers that are pending, then end.

A message is pending from its sending on, until it is cancelled, moved or replaced, or until the broker takes it for
delivery, which is no call of anybody: it lies before the first delivery, and not before the due time, but for a claim,
at which what is due within a bound may count as taken. Of a key, one message at most is pending; a newer one replaces
it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.takeover.events import UNKNOWN, Cancel, Claim, Delivery, Move, Placing, Send

TRIES_MAX = 10_000
"""A search gives up after so many steps, which take a second; few need a hundred."""


class Status(Enum):
    PENDING = "pending"
    CANCELLED = "cancelled"
    TAKEN = "delivered"


class State(NamedTuple):
    """All placings of one key, or of one message without a key; hashable."""

    placings: frozenset[tuple[Placing, Status]] = frozenset()
    newest: Placing | None = None
    """The one that was placed last."""

    def of(self, placing: Placing | None) -> Status | None:
        return next((status for each, status in self.placings if each == placing), None)

    def having(self, placing: Placing, status: Status) -> State:
        others = frozenset(each for each in self.placings if each[0] != placing)
        return self._replace(placings=others | {(placing, status)})

    def placed(self, placing: Placing) -> State:
        return self.having(placing, Status.PENDING)._replace(newest=placing)

    @property
    def is_pending(self) -> bool:
        return any(status is Status.PENDING for _, status in self.placings)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a search, which happens at one instant from ``begin_ms`` to ``end_ms``."""

    begin_ms: float
    end_ms: float
    next: Callable[[State], State | None]
    """The state after it; None: it cannot happen in this one."""
    is_optional: bool = False


def send_step(send: Send) -> Step:
    def step(state: State) -> State | None:
        newest, status = state.newest, state.of(state.newest)
        if state.of(send.placing) is not None:
            answer, after = {"duplicate"}, state
        elif status is not None and status is not Status.CANCELLED and send.answer in ("kept", "key_exists"):
            answer, after = ({"kept"} if send.on_key == "keep" else {"key_exists"}), state
        elif send.key is None or newest is None or status is not Status.PENDING:
            answer, after = {"scheduled"}, state.placed(send.placing)
        elif send.on_key != "replace":
            answer, after = set(), state  # an answer that is not known changes nothing then
        else:
            answer, after = {"replaced"}, state.having(newest, Status.CANCELLED).placed(send.placing)
        return after if send.answer in answer | {UNKNOWN} else None

    return _step(send, step)


def cancel_step(cancel: Cancel) -> Step:
    """Return the step of a cancellation or a move."""

    def step(state: State) -> State | None:
        target = state.newest if cancel.target is None else cancel.target
        status = state.of(target)
        if target is None or status is None:
            answers = {"unknown"} if cancel.key is not None else set()
        elif status is Status.PENDING:
            if cancel.answer not in ("done", UNKNOWN):
                return None
            after = state.having(target, Status.CANCELLED)
            return after.placed((target[0], cancel.due_ms)) if isinstance(cancel, Move) else after
        elif cancel.target is None:
            # A key is free when its message has ended, and may be forgotten then.
            answers = {"unknown"} | {each.value for _, each in state.placings if each is not Status.PENDING}
        else:
            answers = {status.value}
        return state if cancel.answer in answers | {UNKNOWN} else None

    return _step(cancel, step)


class Bounds(NamedTuple):
    """When the broker may take a message for delivery."""

    claims: Sequence[Claim] = ()
    ahead_ms: float = 0.0
    """At a claim, it may take what is due within so much."""
    skew_ms: float = 0.0
    """By so much its clock may be wrong."""

    def begin_ms(self, due_ms: int) -> float:
        """Return the earliest time to take what is due then."""
        reach_ms = self.ahead_ms + self.skew_ms
        early = [each.begin_ms for each in self.claims if each.begin_ms < due_ms <= each.end_ms + reach_ms]
        return min([due_ms - self.skew_ms, *early])


def take_step(placing: Placing, before_ms: float, bounds: Bounds, *, optional: bool = False) -> Step:
    """Return the step in which the broker takes a placing for delivery; ``before_ms``: its first delivery."""

    def step(state: State) -> State | None:
        return state.having(placing, Status.TAKEN) if state.of(placing) is Status.PENDING else None

    return Step(min(bounds.begin_ms(placing[1]), before_ms), before_ms, step, optional)


def _step(call: Send | Cancel, step: Callable[[State], State | None]) -> Step:
    if call.answer == UNKNOWN:
        return Step(call.begin_ms, math.inf, step, is_optional=True)
    return Step(call.begin_ms, call.end_ms, step)


def steps_of(calls: Iterable[Send | Cancel], deliveries: Iterable[Delivery], bounds: Bounds) -> list[Step]:
    """Return the steps of one key, or of one message without a key."""
    first: dict[Placing, float] = {}
    for delivery in deliveries:
        first[delivery.placing] = min(delivery.at_ms, first.get(delivery.placing, math.inf))
    steps = [send_step(call) if isinstance(call, Send) else cancel_step(call) for call in calls]
    return steps + [take_step(placing, at_ms, bounds) for placing, at_ms in first.items()]


class UndecidedError(Exception):
    """The search is too long: too many calls in doubt are about one key."""


def is_linearizable(steps: Sequence[Step], *, ends: bool, tries_max: int = TRIES_MAX) -> bool:
    """Return whether there is an order in which all steps happen that are not optional.

    ``ends``: nothing is pending at the end. Raises UndecidedError after ``tries_max`` steps.
    """
    needed = sum(1 << number for number, step in enumerate(steps) if not step.is_optional)
    seen: dict[tuple[int, State], list[int]] = defaultdict(list)
    stack = [((1 << len(steps)) - 1, State())]
    tries = 0
    while stack:
        left, state = stack.pop()
        # Whoever came to the same with more optional steps left can do whatever can be done from here.
        before = seen[left & needed, state]
        if any(left & ~other == 0 for other in before):
            continue
        before.append(left)
        if (tries := tries + 1) > tries_max:
            raise UndecidedError
        waiting = [number for number in range(len(steps)) if left >> number & 1]
        end_ms = min((steps[number].end_ms for number in waiting if not steps[number].is_optional), default=math.inf)
        if not left & needed and not (ends and state.is_pending):
            return True
        possible = [number for number in waiting if steps[number].begin_ms <= end_ms]
        for number in sorted(possible, key=lambda number: not steps[number].is_optional):  # the last is tried first
            after = steps[number].next(state)
            if after is not None and not (steps[number].is_optional and after == state):
                stack.append((left & ~(1 << number), after))
    return False
