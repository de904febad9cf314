"""Arrow's reader of streams, fed message by message."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base import arrow_feed
from tarry.base.arrow_feed import BatchReader
from tarry.base.arrow_messages import BATCH, PREFIX, look_at
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError

Pieces = tuple[memoryview, memoryview]


def pieces(batches: list[pa.RecordBatch], **options: object) -> Iterator[Pieces]:
    """The headers and bodies of a stream of these batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    for message in reader:
        yield memoryview(message.metadata), memoryview(message.body or b"")


def batch(*texts: str) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(texts).dictionary_encode(), "b": pa.array(range(len(texts)))})


def read(found: list[Pieces]) -> list[pa.RecordBatch]:
    reader = BatchReader()
    return [read for header, body in found if (read := reader.read(header, body)) is not None]


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_batches_with_dictionaries_that_are_replaced(codec: str | None) -> None:
    batches = [batch("x", "y", "x"), batch("x", "y"), batch("z")]
    assert read(list(pieces(batches, compression=codec))) == batches


def test_dictionaries_that_grow() -> None:
    assert read(list(pieces([batch("x"), batch("x", "y")], emit_dictionary_deltas=True))) == [
        batch("x"),
        batch("x", "y"),
    ]


def test_a_body_that_is_longer_than_its_header_says() -> None:
    plain = pa.record_batch({"a": [1, 2]})
    found = [(header, memoryview(bytes(body) + b"more")) for header, body in pieces([plain, plain])]
    assert read(found) == [plain, plain]


def test_what_is_out_of_its_place_is_refused() -> None:
    schema, *rest = pieces([pa.record_batch({"a": [1]})])
    for found in (rest, [schema, schema]):
        with pytest.raises(InvalidArgumentError, match="out of its place"):
            read(found)
    reader = BatchReader()
    assert reader.names is None
    reader.read(*schema)
    assert reader.names == ["a"]


def test_dictionaries_without_a_batch_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, dictionary, _ = pieces([batch("x" * 1000)])
    monkeypatch.setattr(arrow_feed, "WAITING_BYTES_MAX", 10_000)
    with pytest.raises(MessageTooLargeError, match="allowed: 10000 before a batch"):
        read([schema, *[dictionary] * 20])


def test_what_takes_time_is_not_quick() -> None:
    small = pa.record_batch({"a": ["x" * 100]})
    large = pa.record_batch({"a": ["x" * 100_000]})
    for codec, found, is_quick in ((None, small, True), (None, large, False), ("zstd", large, False)):
        schema, message = pieces([found], compression=codec)
        reader = BatchReader()
        reader.read(*schema)
        assert look_at(message[0]) == (BATCH, codec is not None)
        assert reader.is_quick(*message) is is_quick


_, GOOD = pieces([pa.record_batch({"a": ["x", "y"], "b": [1, 2]})])


@given(st.integers(0, len(GOOD[0]) - 1), st.integers(0, 255), st.integers(0, 64))
def test_damaged_messages_are_read_or_refused(place: int, byte: int, length: int) -> None:
    schema, _ = pieces([pa.record_batch({"a": ["x", "y"], "b": [1, 2]})])
    header = bytearray(GOOD[0])
    header[place] = byte
    try:
        found = read([schema, (memoryview(bytes(header)), GOOD[1][:length])])
        for each in found:
            each.validate(full=True)
    except (InvalidArgumentError, MessageTooLargeError, pa.ArrowException):
        pass
    assert PREFIX.size == 8
