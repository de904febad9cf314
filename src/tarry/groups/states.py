"""The delivery states of a message in a group, and the one table that says how they change.

A group tells what happened to a message as an event; :data:`TABLE` says what state that leads to. What the table does
not have cannot happen: :func:`move` raises, and nothing is changed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tarry.base.errors import IllegalTransitionError

States = npt.NDArray[np.int8]


class State(IntEnum):
    """State of a message on its way through one group; a number fits an int8."""

    READY = 0
    """May be handed out."""
    LEASED = 1
    """A consumer has it."""
    WAITING = 2
    """To be tried again at a moment."""
    BLOCKED = 3
    """Held back behind an earlier message of its ordering key."""
    BURYING = 4
    """Being copied to the dead letters; the copy is not durable yet."""
    ACKED = 5
    """A consumer is done with it."""
    DEAD = 6
    """In the dead letters, durably."""
    DROPPED = 7
    """Settled without a consumer: filtered out, expired, skipped by a seek, or deleted by retention."""


SETTLED = frozenset({State.ACKED, State.DEAD, State.DROPPED})
"""The states that only a seek leads out of."""


class StateEvent(IntEnum):
    """Events of a message in a group."""

    LEASE = 0
    """Handed to a consumer.

    Also from WAITING: the caller knows that its moment has come.
    """
    ACK = 1
    """The consumer is done with it."""
    NACK = 2
    """The consumer gave it back, with tries left."""
    EXPIRE = 3
    """Its lease ran out, with tries left."""
    RELEASE = 4
    """Its consumer is gone, with tries left."""
    EXHAUST = 5
    """The last of its tries failed.

    Also found later, in READY and WAITING: tries were lowered meanwhile, the broker crashed before the copy was
    durable, or copying failed.
    """
    BLOCK = 6
    """An earlier message of its ordering key is not settled."""
    UNBLOCK = 7
    """No earlier one is left, or the group is not ordered any more."""
    FILTER = 8
    """The group's filter does not match it."""
    EXPIRE_MESSAGE = 9
    """Its own expiry has passed, and it goes to the dead letters.

    A message that is leased is the consumer's to settle.
    """
    DROP = 10
    """Its own expiry has passed and it is dropped, or retention has deleted it."""
    BURIED = 11
    """The copy is durable."""
    BURY_FAILED = 12
    """The copy was refused (a full disk): it is tried again later."""
    SEEK_BACK = 13
    """The group starts again at or before it; leases are void."""
    SEEK_FORWARD = 14
    """The group goes on behind it; leases are void."""
    RETURN = 15
    """Its consumer gave it back without having looked at it: no try was made."""


# A seek waits for copies under way (BURYING takes no seek): their result would find another state, or make dead letters
# of messages that are delivered again. A seek is about a range of offsets, so states that are there already are legal
# and stay as they are.
# fmt: off
TABLE: dict[tuple[State, StateEvent], State] = {
    (State.READY,   StateEvent.LEASE):          State.LEASED,
    (State.READY,   StateEvent.EXHAUST):        State.BURYING,
    (State.READY,   StateEvent.BLOCK):          State.BLOCKED,
    (State.READY,   StateEvent.FILTER):         State.DROPPED,
    (State.READY,   StateEvent.EXPIRE_MESSAGE): State.BURYING,
    (State.READY,   StateEvent.DROP):           State.DROPPED,
    (State.READY,   StateEvent.SEEK_BACK):      State.READY,
    (State.READY,   StateEvent.SEEK_FORWARD):   State.DROPPED,

    (State.LEASED,  StateEvent.ACK):            State.ACKED,
    (State.LEASED,  StateEvent.NACK):           State.WAITING,
    (State.LEASED,  StateEvent.EXPIRE):         State.WAITING,
    (State.LEASED,  StateEvent.RELEASE):        State.WAITING,
    (State.LEASED,  StateEvent.RETURN):         State.WAITING,
    (State.LEASED,  StateEvent.EXHAUST):        State.BURYING,
    (State.LEASED,  StateEvent.SEEK_BACK):      State.READY,
    (State.LEASED,  StateEvent.SEEK_FORWARD):   State.DROPPED,

    (State.WAITING, StateEvent.LEASE):          State.LEASED,
    (State.WAITING, StateEvent.EXHAUST):        State.BURYING,
    (State.WAITING, StateEvent.BLOCK):          State.BLOCKED,
    (State.WAITING, StateEvent.FILTER):         State.DROPPED,
    (State.WAITING, StateEvent.EXPIRE_MESSAGE): State.BURYING,
    (State.WAITING, StateEvent.DROP):           State.DROPPED,
    (State.WAITING, StateEvent.SEEK_BACK):      State.READY,
    (State.WAITING, StateEvent.SEEK_FORWARD):   State.DROPPED,

    (State.BLOCKED, StateEvent.UNBLOCK):        State.READY,
    (State.BLOCKED, StateEvent.EXPIRE_MESSAGE): State.BURYING,
    (State.BLOCKED, StateEvent.DROP):           State.DROPPED,
    (State.BLOCKED, StateEvent.SEEK_BACK):      State.READY,
    (State.BLOCKED, StateEvent.SEEK_FORWARD):   State.DROPPED,

    (State.BURYING, StateEvent.BURIED):         State.DEAD,
    (State.BURYING, StateEvent.BURY_FAILED):    State.WAITING,

    (State.ACKED,   StateEvent.SEEK_BACK):      State.READY,
    (State.ACKED,   StateEvent.SEEK_FORWARD):   State.ACKED,

    (State.DEAD,    StateEvent.SEEK_BACK):      State.READY,
    (State.DEAD,    StateEvent.SEEK_FORWARD):   State.DEAD,

    (State.DROPPED, StateEvent.SEEK_BACK):      State.READY,
    (State.DROPPED, StateEvent.SEEK_FORWARD):   State.DROPPED,
}
# fmt: on

_ILLEGAL = -1
# A row an event, a column a byte: a number that is no state is as illegal as a state that the table does not have.
_MOVES: States = np.full((len(StateEvent), 256), _ILLEGAL, np.int8)
for (_state, _event), _next in TABLE.items():
    _MOVES[_event, _state] = _next


def move(state: State, event: StateEvent) -> State:
    """Return the state that ``event`` leads to.

    Raises:
        IllegalTransitionError: the table has no such pair; names state, event, and what is allowed in that state.
    """
    following = TABLE.get((state, event))
    if following is None:
        raise IllegalTransitionError(_refusal(state, event))
    return following


def move_all(states: States, event: StateEvent) -> States:
    """:func:`move` of each of ``states`` (int8), as a new array.

    Raises:
        IllegalTransitionError: names the first for which the table has no such pair. None was moved.
    """
    moved: States = _MOVES[event].take(states.view(np.uint8))
    illegal = moved < 0
    if illegal.any():
        row = int(illegal.argmax())
        raise IllegalTransitionError(f"row {row}: {_refusal(int(states[row]), event)}")
    return moved


def _refusal(state: int, event: StateEvent) -> str:
    if state not in set(State):
        return f"{StateEvent(event).name} in state {state}, which is none; states are 0 to {max(State)}"
    events = ", ".join(e.name for s, e in TABLE if s == state)
    return f"{StateEvent(event).name} is illegal in state {State(state).name}; allowed: {events}"
