"""The table of delivery states: written out a second time, complete, and the same by row as by column."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import IllegalTransitionError
from tarry.groups.states import SETTLED, TABLE, State, StateEvent, move, move_all

S, E = State, StateEvent
PAIRS = list(itertools.product(State, StateEvent))
SEEKS = {E.SEEK_BACK, E.SEEK_FORWARD}

# Per event: "from to" by the states' letters, in the order of State.
LETTERS = dict(zip("RLWBYADX", State, strict=True))
EXPECTED = {
    E.LEASE: "RL WL",
    E.ACK: "LA",
    E.NACK: "LW",
    E.EXPIRE: "LW",
    E.RELEASE: "LW",
    E.RETURN: "LW",
    E.EXHAUST: "RY LY WY",
    E.BLOCK: "RB WB",
    E.UNBLOCK: "BR",
    E.FILTER: "RX WX",
    E.EXPIRE_MESSAGE: "RY WY BY",
    E.DROP: "RX WX BX",
    E.BURIED: "YD",
    E.BURY_FAILED: "YW",
    E.SEEK_BACK: "RR LR WR BR AR DR XR",
    E.SEEK_FORWARD: "RX LX WX BX AA DD XX",
}


def expected(state: State, event: StateEvent) -> State | None:
    for word in EXPECTED[event].split():
        if LETTERS[word[0]] is state:
            return LETTERS[word[1]]
    return None


def column(*states: int) -> np.ndarray:
    return np.array(states, np.int8)


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda v: v.name)
def test_every_pair_moves_as_written_or_raises(state: State, event: StateEvent) -> None:
    wanted = expected(state, event)
    if wanted is not None:
        assert TABLE[state, event] is move(state, event) is wanted
        return
    assert (state, event) not in TABLE
    with pytest.raises(IllegalTransitionError) as raised:
        move(state, event)
    named, possible = str(raised.value).split("; allowed: ")
    assert state.name in named and event.name in named
    assert set(possible.split(", ")) == {e.name for e in StateEvent if expected(state, e) is not None}


def test_every_state_is_reached_from_ready_and_every_event_is_of_use() -> None:
    reached, before = {S.READY}, set()
    while reached != before:
        before = set(reached)
        reached |= {to for (state, _), to in TABLE.items() if state in reached}
    assert reached == set(State)
    assert {event for _, event in TABLE} == set(StateEvent)


def test_only_seeks_lead_out_of_what_is_settled() -> None:
    assert {S.ACKED, S.DEAD, S.DROPPED} == SETTLED
    assert {event for state, event in TABLE if state in SETTLED} == SEEKS
    assert all(TABLE[state, E.SEEK_FORWARD] is state for state in SETTLED)


def test_whatever_is_not_settled_can_be_settled_without_a_seek() -> None:
    for state in set(State) - SETTLED:
        reached, before = {state}, set()
        while reached != before:
            before = set(reached)
            reached |= {to for (at, event), to in TABLE.items() if at in reached and event not in SEEKS}
        assert reached & SETTLED, state.name


def test_only_a_lease_is_acknowledged_and_only_a_durable_copy_is_dead() -> None:
    assert [pair for pair, to in TABLE.items() if to is S.ACKED and pair[0] is not S.ACKED] == [(S.LEASED, E.ACK)]
    assert [pair for pair, to in TABLE.items() if to is S.DEAD and pair[0] is not S.DEAD] == [(S.BURYING, E.BURIED)]


@given(st.lists(st.sampled_from(State)), st.sampled_from(StateEvent))
def test_columns_move_as_rows_do(states: list[State], event: StateEvent) -> None:
    given_states = column(*states)
    legal = [expected(state, event) is not None for state in states]
    if all(legal):
        moved = move_all(given_states, event)
        assert moved.dtype == np.int8
        assert moved.tolist() == [move(state, event) for state in states]
    else:
        with pytest.raises(IllegalTransitionError) as raised:
            move_all(given_states, event)
        first = legal.index(False)
        with pytest.raises(IllegalTransitionError) as alone:
            move(states[first], event)
        assert str(raised.value) == f"row {first}: {alone.value}"
    assert given_states.tolist() == states  # neither way changes what was given


def test_a_slice_with_gaps_is_a_column_too() -> None:
    states = column(S.LEASED, S.ACKED, S.LEASED, S.DEAD)
    assert move_all(states[::2], E.ACK).tolist() == [S.ACKED, S.ACKED]


def test_no_rows_move_to_no_rows() -> None:
    assert move_all(column(), E.ACK).tolist() == []


@pytest.mark.parametrize("number", [-128, -1, 8, 127])
def test_a_number_that_is_no_state_is_refused(number: int) -> None:
    states = column(S.LEASED, number)
    with pytest.raises(IllegalTransitionError, match=rf"row 1: ACK in state {number}, which is none; .* 0 to 7"):
        move_all(states, E.ACK)
