"""Protobuf's wire format, against the library of Google."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.protobuf import head, read_fields, varint


@given(st.integers(0, (1 << 64) - 1))
def test_whole_numbers(value: int) -> None:
    packed = wrappers_pb2.UInt64Value(value=value).SerializeToString()
    assert packed == (b"\x08" + varint(value) if value else b"")
    assert list(read_fields(packed)) == ([(1, value)] if value else [])


@given(st.binary(max_size=300), st.integers(1, 1 << 28))
def test_bytes_and_numbers_of_fields(value: bytes, number: int) -> None:
    [(found, read)] = read_fields(head(number, len(value)) + value)
    assert isinstance(read, memoryview)
    assert (found, bytes(read)) == (number, value)


def test_fields_of_a_fixed_size_are_left_out() -> None:
    option = descriptor_pb2.UninterpretedOption(identifier_value="a", double_value=1.5, string_value=b"b")
    found = {number: bytes(value) for number, value in read_fields(option.SerializeToString()) if value}  # type: ignore[arg-type]
    assert found == {3: b"a", 7: b"b"}


@pytest.mark.parametrize(
    "raw", [b"\xff", b"\xff" * 11, b"\x0a\x05abc", b"\x0a", b"\x09abc", b"\x0b", b"\x0a\xff\xff\xff\xff\xff\xff"]
)
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"varint|cut off|wire type"):
        list(read_fields(raw))
