"""Messages in RocketMQ's storage format, and batches of a producer."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.fronts.rocketmq.classic.batches import BatchEntry, decode_batch, encode_batch
from tarry.fronts.rocketmq.classic.codes import RequestRefused
from tarry.fronts.rocketmq.classic.message_bytes import (
    PROPERTIES_BYTES_MAX,
    StoredMessage,
    address_bytes,
    decode_properties,
    encode_message,
    encode_properties,
    offset_id,
    physical_offset,
    queue_offset,
)
from tests.rocketmq_classic.remoting import messages_of

HOST = address_bytes("127.0.0.1:10911")
INT = st.integers(-(1 << 31), (1 << 31) - 1)
PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
PROPERTIES = st.dictionaries(PLAIN, PLAIN, max_size=4)
TOPIC = st.text("abc%-_/", min_size=1, max_size=127)
OFFSET = st.integers(0, (1 << 40) - 1)
EXACT_IN_JAVASCRIPT = (1 << 53) - 1


@given(
    TOPIC, OFFSET, st.binary(max_size=50), PROPERTIES, INT, st.sampled_from(["1.2.3.4:5", "[::1]:5", "", "x"]),
    st.integers(1, 1 << 32),
)  # fmt: skip
def test_a_message_is_read_as_it_was_written(
    topic: str, offset: int, body: bytes, properties: dict[str, str], flag: int, host: str, behind: int
) -> None:
    message = StoredMessage(topic, offset, body, properties, flag, 8, 11, host, 12, 3, 2)
    [read] = messages_of(encode_message(message, HOST))
    assert (read["topic"], read["offset"], read["body"], read["flag"]) == (topic, offset, body, flag)
    assert (read["properties"], read["born_ms"], read["stored_ms"], read["times"]) == (properties, 11, 12, 3)
    assert read["queue"] == 2
    assert queue_offset(topic, read["physical"], (0, offset + behind)) == offset
    assert 0 <= read["physical"] <= EXACT_IN_JAVASCRIPT


def test_a_message_is_byte_exact() -> None:
    message = StoredMessage("T", 5, b"hi", {"a": "b"}, 1, 0, 2, "10.0.0.1:80", 3, 4)
    rest = (
        b"\x0a\0\0\x01" + struct.pack(">i", 80) + struct.pack(">q", 3) + b"\x7f\0\0\x01" + struct.pack(">i", 10911)
        + struct.pack(">iqi", 4, 0, 2) + b"hi" + b"\x01T" + b"\0\x04" + b"a\x01b\x02"
    )  # fmt: skip
    physical = (zlib.crc32(b"T") & 0x1FFFFF) << 32 | 5
    front = struct.pack(
        ">iIiiiqqiq", 48 + len(rest), 0xDAA320A7, zlib.crc32(b"hi") & 0x7FFFFFFF, 0, 1, 5, physical, 0, 2
    )
    assert encode_message(message, HOST) == front + rest


def test_a_long_topic_has_the_newer_magic() -> None:
    content = encode_message(StoredMessage("t" * 200, 0, b"x", {}), HOST)
    assert struct.unpack_from(">I", content, 4) == (0xDAA320A7 + 4,)
    assert b"\0\xc8" + b"t" * 200 in content


@given(PROPERTIES)
def test_properties_come_back(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties).decode()) == properties


def test_properties_that_the_format_cannot_hold_are_left_out() -> None:
    assert encode_properties({"a\x01": "b", "c": "d\x02", "e": "f"}) == b"e\x01f\x02"
    much = {str(i): "v" * 1000 for i in range(40)}
    assert PROPERTIES_BYTES_MAX - 1100 < len(encode_properties(much)) <= PROPERTIES_BYTES_MAX


def test_an_offset_of_another_topic_is_told_apart() -> None:
    assert queue_offset("other", physical_offset("topic", 7), (0, 9)) is None
    assert queue_offset("topic", -1, (0, 9)) is None


def test_an_offset_that_the_queue_has_not_reached_or_holds_no_more_is_none() -> None:
    physical = physical_offset("topic", 7)
    found = [queue_offset("topic", physical, ends) for ends in ((0, 7), (0, 8), (7, 8), (8, 9))]
    assert found == [None, 7, 7, None]


def test_an_offset_id_is_address_and_place() -> None:
    assert offset_id(HOST, 258) == "7F00000100002A9F0000000000000102"


@given(st.lists(st.builds(BatchEntry, st.binary(max_size=20), PROPERTIES, INT), min_size=1, max_size=5))
def test_a_batch_comes_back(entries: list[BatchEntry]) -> None:
    assert decode_batch(encode_batch(entries)) == entries


@given(st.lists(st.builds(BatchEntry, st.binary(max_size=20), PROPERTIES, INT), min_size=1, max_size=3), st.data())
def test_a_damaged_batch_is_read_or_refused(entries: list[BatchEntry], data: st.DataObject) -> None:
    content = bytearray(encode_batch(entries))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(content), bytes(content[: data.draw(st.integers(0, len(content) - 1))])):
        try:
            decode_batch(damaged)
        except RequestRefused:
            pass


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(RequestRefused):
        decode_batch(b"")
