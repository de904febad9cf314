"""Handles: a round trip, damage noticed, forgery noticed."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import InvalidArgumentError
from tarry.message import handle

SECRET = bytes(range(32))

seqs = st.integers(0, (1 << 63) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, int, int]:
    """(first_seq, rows, row)"""
    rows = draw(st.integers(1, (1 << 32) - 1))
    row = draw(st.integers(0, rows - 1))
    return draw(st.integers(0, (1 << 63) - 1 - row)), rows, row


@given(batches(), int64s)
def test_round_trip(batch: tuple[int, int, int], due_ms: int) -> None:
    first, rows, row = batch
    token = handle.sign(SECRET, first, rows)
    text = handle.encode(first + row, due_ms, first, rows, token)
    found = handle.decode(text)
    assert found == handle.Handle(first + row, due_ms, first, rows, token)
    assert handle.verify(found, SECRET)
    assert len(text) == 50
    assert set(text) <= set(string.ascii_letters + string.digits + "-_")


@given(batches(), int64s, st.data())
def test_any_other_text_is_refused(batch: tuple[int, int, int], due_ms: int, data: st.DataObject) -> None:
    first, rows, row = batch
    text = handle.encode(first + row, due_ms, first, rows, handle.sign(SECRET, first, rows))
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from([c for c in string.ascii_letters + string.digits + "-_=!é" if c != text[place]]))
    with pytest.raises(InvalidArgumentError):
        handle.decode(text[:place] + other + text[place + 1 :])


@given(st.text())
def test_text_that_is_no_handle(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="handle"):
        handle.decode(text)


@pytest.mark.parametrize("value", [None, 17, b"AQ"])
def test_what_is_no_text(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        handle.decode(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [1, 2, 25, 49])
def test_cut_and_padded(cut: int) -> None:
    text = handle.encode(7, 1, 5, 10, handle.sign(SECRET, 5, 10))
    for wrong in (text[:-cut], text + "A" * cut, text + "==", " " + text, text + "\n"):
        with pytest.raises(InvalidArgumentError):
            handle.decode(wrong)


def test_a_forged_handle_is_well_formed_but_does_not_verify() -> None:
    token = handle.sign(SECRET, 5, 10)
    for first, rows, key in ((6, 10, SECRET), (5, 11, SECRET), (5, 10, bytes(32))):
        assert not handle.verify(handle.decode(handle.encode(first, 1, first, rows, token)), key)
    assert not handle.verify(handle.decode(handle.encode(5, 1, 5, 10, bytes(8))), SECRET)


def test_a_row_outside_its_batch_and_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="row 10 of 10"):
        handle.decode(handle.encode(15, 1, 5, 10, bytes(8)))
    monkeypatch.setattr(handle, "VERSION", 2)
    other = handle.encode(5, 1, 5, 10, bytes(8))
    monkeypatch.undo()
    with pytest.raises(InvalidArgumentError, match="version 2; allowed: 1"):
        handle.decode(other)
