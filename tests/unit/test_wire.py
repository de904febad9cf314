"""The Flight wire: round trips, and bytes that mean nothing."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.api import wire
from tarry.api.operations.delivery import Ack, Subscribe
from tarry.api.parsing import parse
from tarry.api.wire import AnswerKind
from tarry.base.errors import InvalidArgumentError, InvalidMessageError, TarryError, UnavailableError
from tarry.message import handle
from tarry.message.accepted import PLACED, Accepted
from tarry.message.receipt import OUTCOMES

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
arrays = st.lists(int64s, max_size=50).map(lambda values: np.array(values, np.int64))


@given(int64s, st.binary(min_size=8, max_size=8), arrays, st.booleans())
def test_accepted(first_seq: int, token: bytes, due: np.ndarray, has_due: bool) -> None:
    raw = wire.encode_accepted(first_seq, len(due), token, due if has_due else None)
    answer = wire.decode_answer(raw)
    assert isinstance(answer, wire.AcceptedAnswer)
    assert (answer.first_seq, answer.rows, answer.token) == (first_seq, len(due), token)
    assert (answer.due_ms is not None) == has_due
    if answer.due_ms is not None:
        np.testing.assert_array_equal(answer.due_ms, due)


def test_the_layout_of_accepted_is_as_documented() -> None:
    raw = wire.encode_accepted(1, 2, b"12345678", np.array([3, 4], np.int64))
    expected = "0001000000000000000200000031323334353637380103000000000000000400000000000000"
    assert raw.hex() == expected


@st.composite
def entries(draw: st.DrawFn) -> tuple[int, int, int, int, bytes, int]:
    first = draw(st.integers(0, (1 << 62)))
    rows = draw(st.integers(1, (1 << 32) - 1))
    seq = first + draw(st.integers(0, rows - 1))
    return seq, draw(int64s), first, rows, draw(st.binary(min_size=8, max_size=8)), draw(st.integers(0, 3))


def placed_of(found: list[tuple[int, int, int, int, bytes, int]]) -> np.ndarray:
    return np.array(found, PLACED)


@given(st.lists(entries(), max_size=20))
def test_placed(found: list[tuple[int, int, int, int, bytes, int]]) -> None:
    answer = wire.decode_answer(wire.encode_placed(placed_of(found)))
    assert isinstance(answer, wire.PlacedAnswer)
    assert answer.rows == len(found)
    assert answer.placed.tolist() == found
    accepted = Accepted(0, answer.placed["due_ms"].astype(np.int64), b"", answer.placed, 7)
    assert (accepted.count, accepted.row, accepted.seqs.tolist()) == (len(found), 7, [entry[0] for entry in found])
    for text, receipt, entry in zip(accepted.handles(), accepted.receipts([None] * len(found)), found, strict=True):
        decoded = handle.decode(text)
        assert (decoded.seq, decoded.due_ms, decoded.first_seq, decoded.rows, decoded.token) == entry[:5]
        assert (receipt.handle, receipt.outcome, receipt.due_ms) == (text, OUTCOMES[entry[5]], entry[1])
    assert accepted.outcomes == [OUTCOMES[entry[5]] for entry in found]


def test_the_layout_of_placed_is_as_documented() -> None:
    raw = wire.encode_placed(placed_of([(3, 5, 2, 9, b"12345678", 1)]))
    expected = "030100000003000000000000000500000000000000020000000000000009000000313233343536373801"
    assert raw.hex() == expected


@pytest.mark.parametrize(
    "entry",
    [
        (3, 5, 4, 9, b"12345678", 0),  # its message is before its batch
        (3, 5, 0, 3, b"12345678", 0),  # or behind
        (-(1 << 63), 0, (1 << 63) - 1, 9, b"12345678", 0),
        ((1 << 63) - 1, 0, -(1 << 63), (1 << 32) - 1, b"12345678", 0),
        (3, 5, 3, 9, b"12345678", 6),  # no such outcome
    ],
)
def test_places_of_which_no_handle_can_be_made(entry: tuple[int, int, int, int, bytes, int]) -> None:
    good = (3, 5, 2, 9, b"12345678", 1)
    with pytest.raises(InvalidArgumentError, match="not an answer to a batch"):
        wire.decode_answer(wire.encode_placed(placed_of([good, entry])))


def test_a_placed_answer_that_was_cut() -> None:
    raw = wire.encode_placed(placed_of([(3, 5, 2, 9, b"12345678", 1)]))
    for end in (*range(1, len(raw)), len(raw) + 1):
        with pytest.raises(InvalidArgumentError):
            wire.decode_answer((raw + b"x")[:end])


def test_refused_and_goodbye() -> None:
    refused = wire.decode_answer(wire.encode_refused(InvalidMessageError("no body", row=17)))
    assert isinstance(refused, InvalidMessageError)
    assert (str(refused), refused.row) == ("row 17: no body", 17)
    goodbye = wire.decode_answer(wire.encode_refused(UnavailableError("stopping"), AnswerKind.GOODBYE))
    assert isinstance(goodbye, wire.Goodbye)
    assert isinstance(goodbye.error, UnavailableError)


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    try:
        wire.decode_answer(raw)
    except InvalidArgumentError:
        pass
    assert isinstance(wire.decode_error(raw), TarryError)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ({}, "topic is missing"),
        ({"topic": "t"}, "group is missing"),
        ({"topic": 5, "group": "g"}, "topic is 5"),
        ({"topic": "t", "group": "g", "prefetch": "9"}, "prefetch is '9'"),
        ({"topic": "t", "group": "g", "prefetch": 1.5}, "prefetch is 1.5"),
        ({"topic": "t", "group": "g", "prefetch": True}, "prefetch is True"),
        ({"topic": "t", "group": "g", "prefetch": -1}, "prefetch is -1"),
        ({"topic": "t", "group": "g", "lease_ms": 1 << 80}, "lease_ms is"),
        ({"topic": "t", "group": "g", "prefetsch": 1}, "prefetsch is not a field; allowed: topic, group"),
        ([], "allowed: a JSON object"),
        (None, "allowed: a JSON object"),
    ],
)
def test_bad_commands_name_the_field(command: object, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        parse(Subscribe, json.dumps(command).encode())


def test_settling_needs_as_many_leases_as_offsets() -> None:
    with pytest.raises(InvalidArgumentError, match="2 leases and 1 offsets"):
        parse(Ack, b'{"topic":"t","group":"g","leases":[1,2],"offsets":[3]}')
