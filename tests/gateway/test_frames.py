"""Frames of a gateway's connections: whatever they are cut into, they come out whole; what is none is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import InvalidArgumentError
from tarry.link.frames import (
    FrameKind,
    LinkFrameReader,
    SettleFrame,
    SettleOp,
    decode_mask,
    encode_mask,
    frame,
)

frames = st.lists(st.tuples(st.sampled_from(FrameKind), st.integers(0, 2**32 - 1), st.binary(max_size=40)), max_size=8)


@given(frames, st.lists(st.integers(0, 400), max_size=8))
def test_frames_come_out_as_they_went_in(sent: list[tuple[FrameKind, int, bytes]], cuts: list[int]) -> None:
    data = b"".join(b"".join(frame(*one)) for one in sent)
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = LinkFrameReader()
    parts = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    assert [(k, n, bytes(p)) for part in parts for k, n, p in reader.feed(part)] == sent


def test_a_frame_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="allowed: 8"):
        list(LinkFrameReader(8).feed(b"".join(frame(FrameKind.HELLO, 0, b"123456789"))))


@given(
    st.sampled_from(SettleOp),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(0, 2**63 - 1), max_size=5),
    st.text(),
)
def test_settlements_come_out_as_they_went_in(op: SettleOp, argument: int, numbers: list[int], reason: str) -> None:
    leases, offsets = np.array(numbers, np.int64), np.array(numbers[::-1], np.int64)
    settle = SettleFrame.decode(memoryview(SettleFrame(op, 7, argument, leases, offsets, reason or None).encode()))
    assert (settle.op, settle.group, settle.argument, settle.reason or "") == (op, 7, argument, reason)
    assert (settle.leases.tolist(), settle.offsets.tolist()) == (leases.tolist(), offsets.tolist())


@pytest.mark.parametrize("raw", [b"", b"\1" * 12, b"\1" * 20, b"\0" * 13, b"\7" * 13])
def test_what_is_no_settlement_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="not a settlement"):
        SettleFrame.decode(memoryview(raw))


@given(st.lists(st.booleans(), max_size=9))
def test_masks_come_out_as_they_went_in(mask: list[bool]) -> None:
    assert decode_mask(memoryview(encode_mask(np.array(mask, np.bool_)))).tolist() == mask
