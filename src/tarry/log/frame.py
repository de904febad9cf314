"""One frame, as bytes: pure encode and decode, no files. Layout in ``docs/formats.md``."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from tarry.base.errors import CorruptError
from tarry.log.format_version import is_newer, newer_format

MAGIC = 0x4D524654
HEADER = struct.Struct("<IIIIIHHqqqqq")
HEADER_BYTES = HEADER.size
FILE_HEADER = struct.Struct("<8sIIqII")
FILE_HEADER_BYTES = FILE_HEADER.size
FILE_MAGIC = b"TARRYLOG"
VERSION = 1
BODY_BYTES_MAX = 1 << 30

_TAIL = struct.Struct("<IIIHHqqqqq")
assert HEADER_BYTES == 64
assert FILE_HEADER_BYTES == 32


class LogKind(IntEnum):
    """Log to which a file belongs."""

    INTAKE = 1
    READY = 2
    ACKS = 3
    AUDIT = 4
    FILES = 5
    """Small files, which are no log of segments: in rounds alone (``docs/formats-log-store.md``)."""


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The fields of a frame's header; what they mean is in ``docs/formats.md``."""

    body_bytes: int
    body_crc: int
    rows: int
    topic_bytes: int
    kind: int
    base: int
    due_min_ms: int
    due_max_ms: int
    stored_rows: int
    durable_to: int

    @property
    def frame_bytes(self) -> int:
        """The whole frame with header and padding."""
        return HEADER_BYTES + padded(self.body_bytes)


def padded(size: int) -> int:
    """``size`` rounded up to a multiple of 8."""
    return (size + 7) & ~7


class Serialized(NamedTuple):
    """Rows that are in Arrow's form already."""

    content: bytes
    num_rows: int


def encode(
    batch: pa.RecordBatch | Serialized,
    *,
    base: int,
    durable_to: int,
    topic: str = "",
    kind: int = 0,
    due_min_ms: int = 0,
    due_max_ms: int = 0,
    stored_rows: int = 0,
) -> list[bytes | memoryview]:
    """Return the buffers of one frame, for a gathered write; the columns are copied at most once."""
    content = batch.content if isinstance(batch, Serialized) else memoryview(batch.serialize())
    name = topic.encode()
    prelude = name + bytes(padded(len(name)) - len(name))
    crc = zlib.crc32(content, zlib.crc32(prelude))
    size = len(prelude) + len(content)
    tail = _TAIL.pack(size, crc, batch.num_rows, len(name), kind, base, due_min_ms, due_max_ms, stored_rows, durable_to)
    head = struct.pack("<II", MAGIC, zlib.crc32(tail)) + tail
    return [head + prelude, content, bytes(padded(size) - size)]


def decode_header(data: bytes | memoryview, offset: int = 0) -> FrameHeader | None:
    """Return the header at ``offset``, or None if there is no valid one."""
    if len(data) - offset < HEADER_BYTES:
        return None
    magic, crc, *fields = HEADER.unpack_from(data, offset)
    if magic != MAGIC or crc != zlib.crc32(data[offset + 8 : offset + HEADER_BYTES]):
        return None
    header = FrameHeader(*fields)
    return header if header.body_bytes <= BODY_BYTES_MAX else None


def body_is_valid(header: FrameHeader, body: bytes | memoryview) -> bool:
    """Return whether ``body`` has the length and the checksum that ``header`` names."""
    return len(body) == header.body_bytes and zlib.crc32(body) == header.body_crc


def decode_body(
    header: FrameHeader, body: bytes | memoryview | pa.Buffer, schema: pa.Schema
) -> tuple[str, pa.RecordBatch]:
    """Topic and record batch of a body that was found valid; the batch shares the body's memory.

    Raises:
        CorruptError: when a body with the right checksum holds no such batch (written by another version, or by a
        defect).
    """
    buffer = body if isinstance(body, pa.Buffer) else pa.py_buffer(body)
    skip = padded(header.topic_bytes)
    try:
        topic = buffer.slice(0, header.topic_bytes).to_pybytes().decode() if header.topic_bytes else ""
        return topic, pa.ipc.read_record_batch(buffer.slice(skip, header.body_bytes - skip), schema)
    except (pa.ArrowException, OSError, IndexError, UnicodeDecodeError) as error:
        raise CorruptError(
            f"a frame at base {header.base} holds no record batch of the expected schema: {error}"
        ) from error


def encode_file_header(log_kind: LogKind, base: int) -> bytes:
    """Return the first 32 bytes of a segment file."""
    head = struct.pack("<8sIIqI", FILE_MAGIC, VERSION, log_kind, base, 0)
    return head + struct.pack("<I", zlib.crc32(head))


def file_version(data: bytes) -> int | None:
    """Return the format of a segment file by its first bytes; None: they are no sound header."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, version, *_, crc = FILE_HEADER.unpack_from(data)
    return int(version) if magic == FILE_MAGIC and crc == zlib.crc32(data[: FILE_HEADER_BYTES - 4]) else None


def decode_file_header(data: bytes) -> tuple[LogKind, int] | None:
    """Return the log and the base of a segment file, or None if the header is invalid.

    Raises:
        CorruptError: for a header of a version or a log that this program does not know.
    """
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, version, log_kind, base, _, crc = FILE_HEADER.unpack_from(data)
    if magic != FILE_MAGIC or crc != zlib.crc32(data[: FILE_HEADER_BYTES - 4]):
        return None
    if is_newer(version, (VERSION,)):
        raise CorruptError(newer_format("the log", version, (VERSION,)))
    if version != VERSION:
        raise CorruptError(f"log file of format version {version}; this program reads version {VERSION}")
    if log_kind not in tuple(LogKind):
        raise CorruptError(
            f"log file of kind {log_kind}; this program knows {', '.join(f'{r} {r.name.lower()}' for r in LogKind)}"
        )
    return LogKind(log_kind), base
