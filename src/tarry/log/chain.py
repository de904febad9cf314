"""Chained lines: JSON objects in frames, each with its number and the hash of the line before it.

A line that was changed, taken out or put in breaks the chain behind it. Format: ``docs/formats.md``, the audit log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.segment import Located, SegmentReader

HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The place of the next line: its number, and the hash of the line before it."""

    number: int
    hash: str

    def line(self, fields: Mapping[str, Any]) -> bytes:
        """Return the line that goes here."""
        line = {"n": self.number, "previous": self.hash, **fields}
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()

    def after(self, line: bytes) -> ChainEnd:
        """Return the place behind a line that is here."""
        return ChainEnd(self.number + 1, hash_of(line))


CHAIN_START = ChainEnd(1, "0" * 2 * HASH_BYTES)


@dataclass(frozen=True, slots=True)
class ChainedLine:
    """A line that was read: its frame, its bytes, and its fields."""

    at: Located
    content: bytes
    fields: Mapping[str, Any]

    @property
    def place(self) -> ChainEnd:
        """Its own place, as it says it."""
        return ChainEnd(self.fields["n"], self.fields["previous"])

    @property
    def end(self) -> ChainEnd:
        """The place of the line behind it."""
        return self.place.after(self.content)


def hash_of(line: bytes) -> str:
    """Return the hash of a line, in hexadecimal."""
    return blake2b(line, digest_size=HASH_BYTES).hexdigest()


def frame_of(line: bytes, number: int, at_ms: int, durable_to: int) -> list[bytes | memoryview]:
    """Return the buffers of a line's frame."""
    content = frame.Serialized(line, 1)
    return frame.encode(content, base=number, durable_to=durable_to, due_min_ms=at_ms, due_max_ms=at_ms)


def lines_of(reader: SegmentReader) -> Iterator[ChainedLine]:
    """Yield the lines of a file, up to the first frame that is not valid.

    Raises:
        CorruptError: a frame that is valid holds no line.
    """
    for at in reader.headers():
        if not reader.valid_body(at):
            return
        yield line_at(reader, at)


def line_at(reader: SegmentReader, at: Located) -> ChainedLine:
    """Return the line in a frame whose checksum holds.

    Raises:
        CorruptError: it is none.
    """
    content = reader.bytes_at(at.position + frame.HEADER_BYTES, at.header.body_bytes)
    try:
        fields = json.loads(content)
        is_line = isinstance(fields["n"], int) and isinstance(fields["previous"], str)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{reader.path} at offset {at.position}: no line of the log: {error}") from error
    if not is_line:
        raise CorruptError(f"{reader.path} at offset {at.position}: no line of the log")
    return ChainedLine(at, content, fields)
