"""One frame as bytes: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.frame import LogKind
from tarry.message.admission import MessageLimits, admit
from tarry.message.message import Message
from tarry.message.schema import SCHEMA, rows_to_batch

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.none() | st.text(max_size=20)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "seq": INT64,
            "topic": st.sampled_from(["a", "orders/eu", "ü"]),
            "due_ms": INT64,
            "id": TEXT,
            "key": TEXT,
            "tag": TEXT,
            "properties": st.none() | st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3),
            "body": st.binary(max_size=200),
            "born_ms": INT64,
            "expire_ms": st.none() | INT64,
            "tries": st.none() | st.integers(0, 100),
            "repeat": TEXT,
            "kind": st.integers(0, 1),
        }
    ),
    min_size=0,
    max_size=8,
)


def whole(rows: list[dict[str, object]], **fields: object) -> bytes:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    return b"".join(bytes(b) for b in frame.encode(batch, **{"base": 0, "durable_to": 0, **fields}))  # type: ignore[arg-type]


def read(data: bytes) -> tuple[str, pa.RecordBatch] | None:
    """As a reader does: None where anything is not valid."""
    header = frame.decode_header(data)
    if header is None or header.frame_bytes > len(data):
        return None
    body = data[frame.HEADER_BYTES : frame.HEADER_BYTES + header.body_bytes]
    return frame.decode_body(header, body, SCHEMA) if frame.body_is_valid(header, body) else None


@given(ROWS, st.sampled_from(["", "orders", "ü" * 100]), INT64, INT64, st.integers(0, 1 << 62))
def test_round_trip(rows: list[dict[str, object]], topic: str, base: int, due: int, durable_to: int) -> None:
    data = whole(rows, base=base, durable_to=durable_to, topic=topic, kind=2, due_min_ms=due, due_max_ms=-1)
    header = frame.decode_header(data)
    assert header is not None
    assert (header.base, header.durable_to, header.kind, header.rows) == (base, durable_to, 2, len(rows))
    assert (header.due_min_ms, header.due_max_ms, header.stored_rows) == (due, -1, 0)
    assert header.frame_bytes == len(data)
    assert len(data) % 8 == 0
    found = read(data)
    assert found is not None
    assert found[0] == topic
    assert found[1].equals(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


SAMPLE = whole([{**dict.fromkeys(SCHEMA.names), "seq": 7, "topic": "a", "due_ms": 5, "body": b"hello", "kind": 0}])


@given(st.integers(0, len(SAMPLE) - 1), st.integers(1, 255))
def test_a_changed_byte_is_never_accepted(at: int, mask: int) -> None:
    changed = bytearray(SAMPLE)
    changed[at] ^= mask
    found = read(bytes(changed))
    header = frame.decode_header(SAMPLE)
    assert header is not None
    if at < frame.HEADER_BYTES + header.body_bytes:
        assert found is None
    else:
        assert found == read(SAMPLE), "padding carries nothing"


@given(st.binary(max_size=300))
def test_noise_is_not_a_frame(noise: bytes) -> None:
    assert read(noise) is None
    assert frame.decode_file_header(noise) is None


@given(st.integers(0, len(SAMPLE) - 1))
def test_a_cut_frame_is_not_a_frame(size: int) -> None:
    assert read(SAMPLE[:size]) is None


def test_a_body_length_beyond_the_limit_is_refused() -> None:
    fields = (frame.BODY_BYTES_MAX + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    tail = frame.struct.pack("<IIIHHqqqqq", *fields)
    head = frame.struct.pack("<II", frame.MAGIC, frame.zlib.crc32(tail))
    assert frame.decode_header(head + tail) is None


@pytest.mark.parametrize("kind", list(LogKind))
def test_file_header(kind: LogKind) -> None:
    data = frame.encode_file_header(kind, 42)
    assert len(data) == frame.FILE_HEADER_BYTES
    assert frame.decode_file_header(data) == (kind, 42)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        assert frame.decode_file_header(bytes(changed)) is None


@pytest.mark.parametrize(("version", "kind", "says"), [(2, 1, "version 2"), (1, 9, "kind 9")])
def test_a_sound_header_that_we_do_not_know_is_refused(version: int, kind: int, says: str) -> None:
    head = frame.struct.pack("<8sIIqI", frame.FILE_MAGIC, version, kind, 0, 0)
    data = head + frame.struct.pack("<I", frame.zlib.crc32(head))
    with pytest.raises(CorruptError, match=says):
        frame.decode_file_header(data)


def test_a_sound_body_that_is_no_batch_is_refused() -> None:
    body = b"not arrow at all" * 4
    header = frame.FrameHeader(len(body), frame.zlib.crc32(body), 1, 0, 0, 17, 0, 0, 0, 0)
    with pytest.raises(CorruptError, match="base 17"):
        frame.decode_body(header, body, SCHEMA)
    name = frame.FrameHeader(8, 0, 0, 2, 0, 17, 0, 0, 0, 0)
    with pytest.raises(CorruptError, match="base 17"):
        frame.decode_body(name, b"\xff\xfe" + bytes(6), SCHEMA)


def test_a_small_message_is_a_small_frame() -> None:
    # Arrow writes buffers whole that begin at their start, so columns cut from longer ones cost what those have.
    batch = admit(rows_to_batch([Message("orders", b"x" * 10, 1000)]), 0, MessageLimits())
    numbered = pa.RecordBatch.from_arrays([pa.array([0], pa.int64()), *batch.columns], schema=SCHEMA)
    size = sum(len(p) for p in frame.encode(numbered, base=0, durable_to=0))
    assert size < 3000
