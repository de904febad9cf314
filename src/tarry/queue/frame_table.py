"""The frame table of a segment of the ready log: its frames, in file order.

For a sealed segment, the table is a file beside it (``docs/formats.md``), which is rebuilt if it is missing or damaged.
For the segment being written, it is kept in memory.

The file is an Arrow file and a checksum of all its bytes. A seal, in the Arrow file's metadata, names its log.
Files of older versions have the seal alone: it is of the frames, so nothing wrong is read, but damage to what Arrow
does not read is not noticed.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tarry.base.descriptors import when_free
from tarry.base.errors import CorruptError
from tarry.base.types import Int64s
from tarry.log import frame
from tarry.log.files import TRY_AGAIN
from tarry.log.segment import Located, SegmentReader

log = logging.getLogger(__name__)

SUFFIX = ".idx"
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("rows", pa.int64()),
        ("position", pa.int64()),
        ("due_min_ms", pa.int64()),
        ("due_max_ms", pa.int64()),
        ("stored_rows", pa.int64()),
    ]
)
_SEAL = b"tarry"
_END = b"TARRYEND"
_CRC = struct.Struct("<I")


class FrameEntry(NamedTuple):
    """One frame: ``rows`` rows of a topic, from ``offset`` on, at a ``position`` in the file.

    ``stored_rows`` of them had been read from the store.
    """

    topic: str
    offset: int
    rows: int
    position: int
    due_min_ms: int
    due_max_ms: int
    stored_rows: int


def due_max_ms(frames: Sequence[FrameEntry]) -> int:
    """Return the latest due time in the frames; 0 if there are none."""
    return max((entry.due_max_ms for entry in frames), default=0)


def frames_of_topic(frames: Sequence[FrameEntry], topic: str) -> tuple[Int64s, Int64s]:
    """Return the first offset and the position of each frame of a topic, in file order.

    File order is also the order of offsets.
    """
    entries = [entry for entry in frames if entry.topic == topic]
    offsets = np.array([entry.offset for entry in entries], np.int64)
    return offsets, np.array([entry.position for entry in entries], np.int64)


def store_frames(log_path: Path, frames: Sequence[FrameEntry]) -> None:
    """Write the whole table of the segment at ``log_path``.

    Raises:
        OSError: it was not written.
    """
    columns = list(zip(*frames, strict=True)) if frames else [()] * len(SCHEMA)
    # The file is not fsynced, so after a power failure it may hold anything. The seal detects that.
    schema = SCHEMA.with_metadata({_SEAL: _seal(log_path, frames)})
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    path = log_path.with_suffix(SUFFIX)
    temporary = path.with_name(path.name + ".new")
    try:
        with when_free(lambda: pa.OSFile(str(temporary), "wb")) as file:
            file.write(_with_checksum(_arrow_file(table)))
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)


def load_frames(log_path: Path) -> list[FrameEntry]:
    """Return the table of the sealed segment at ``log_path``.

    If the stored table is not valid, rebuild it from the segment, and store it.

    Raises:
        FileNotFoundError: the segment was deleted.
        CorruptError: the segment is damaged.
    """
    if (stored := read_frames(log_path)) is not None:
        return stored
    path = log_path.with_suffix(SUFFIX)
    log.warning("%s: the frame table is missing or damaged; making it again", path)
    frames = list(scan_frames(log_path))
    try:
        store_frames(log_path, frames)
    except OSError as error:
        if error.errno not in TRY_AGAIN:
            raise
        log.warning("%s: not written now: %s", path, error)
    return frames


def read_frames(log_path: Path) -> list[FrameEntry] | None:
    """Return the stored table of the sealed segment at ``log_path``; None if it is missing or damaged.

    Raises:
        FileNotFoundError: the segment was deleted.
    """
    try:
        with when_free(lambda: pa.OSFile(str(log_path.with_suffix(SUFFIX)))) as file:
            content = file.read()
        table = pa.ipc.open_file(pa.BufferReader(_without_checksum(content))).read_all()
        table.validate(full=True)  # damaged string offsets would read memory outside of the file
        if not table.schema.equals(SCHEMA) or any(column.null_count for column in table.columns):
            return None
        columns = [table[name].to_pylist() for name in SCHEMA.names]
        frames = [FrameEntry(*row) for row in zip(*columns, strict=True)]
        if (table.schema.metadata or {}).get(_SEAL) == _seal(log_path, frames):
            return frames
    except (OSError, pa.ArrowException, KeyError, ValueError):
        log_path.stat()  # raises if the log itself was deleted: then there is no table to rebuild
    return None


def scan_frames(log_path: Path) -> Iterator[FrameEntry]:
    """Yield the frames of a whole segment, reading nothing but their headers and topics.

    Raises:
        CorruptError: there is no valid header at some point before the end. A torn tail must have been cut off before.
    """
    with SegmentReader(log_path) as reader:
        end = frame.FILE_HEADER_BYTES
        for at in reader.headers():
            h = at.header
            topic = _topic_of(reader, at)
            yield FrameEntry(topic, h.base, h.rows, at.position, h.due_min_ms, h.due_max_ms, h.stored_rows)
            end = at.end
        if end != reader.size:
            raise CorruptError(f"{log_path} at offset {end}: no valid frame header")


def _topic_of(reader: SegmentReader, at: Located) -> str:
    return reader.bytes_at(at.position + frame.HEADER_BYTES, at.header.topic_bytes).decode()


def _arrow_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _with_checksum(content: bytes) -> bytes:
    return content + _CRC.pack(zlib.crc32(content)) + _END


def _without_checksum(content: bytes) -> bytes:
    """Return the Arrow file; one of an older version has no checksum.

    Raises:
        ValueError: the checksum does not hold.
    """
    if not content.endswith(_END):
        return content  # of an older version; or damaged here, and then it does not end as an Arrow file does
    table, crc = content[: -_CRC.size - len(_END)], content[-_CRC.size - len(_END) : -len(_END)]
    if crc != _CRC.pack(zlib.crc32(table)):
        raise ValueError("the checksum does not hold")
    return table


def _seal(log_path: Path, frames: Sequence[FrameEntry]) -> bytes:
    """Return the size of the log, and a checksum of the topics (a line each) and the numbers (row by row)."""
    topics = "\n".join(entry.topic for entry in frames).encode()
    numbers = np.array([entry[1:] for entry in frames], "<i8").tobytes()
    return f"{log_path.stat().st_size} {zlib.crc32(numbers, zlib.crc32(topics))}".encode()
