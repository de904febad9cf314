"""The entries of the groups' journal: existing groups, settled offsets, and offsets to retry.

Format: ``docs/formats.md``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import calcsize, pack_into
from typing import Any, NamedTuple

import pyarrow as pa

from tarry.log.frame import Serialized

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("group", pa.string()),
        ("op", pa.int8()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("attempt", pa.int32()),
        ("at_ms", pa.int64()),
    ]
)


class JournalOp(IntEnum):
    """The kind of a journal entry."""

    GROUP = 0
    ACK = 1
    RETRY = 2
    SEEK = 3
    DELETE = 4


class JournalEntry(NamedTuple):
    """One row of the journal: ``op`` for offsets ``first … last-1``.

    For GROUP, all below ``first`` is settled, ``last`` messages were lost to retention so far, and ``attempt`` is 1
    where the group began at the latest message. For SEEK, all below ``first`` is settled, and nothing from there on.
    """

    topic: str
    group: str
    op: JournalOp
    first: int
    last: int = 0
    attempt: int = 0
    at_ms: int = 0


def to_batch(entries: Sequence[JournalEntry]) -> pa.RecordBatch:
    """Return the entries as rows of :data:`SCHEMA`."""
    columns = list(zip(*entries, strict=True)) if entries else [()] * len(SCHEMA)
    arrays = [_column(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_CODES = {pa.int8(): "b", pa.int32(): "i", pa.int64(): "q"}


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    code = _CODES.get(kind)
    if code is None:
        return pa.array(values, kind)
    # This takes half as long as pa.array() for the handful of entries that most commits have.
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(code, values))])


def serialized_one(entry: JournalEntry) -> Serialized:
    """Return the same bytes as serializing :func:`to_batch` of this one entry, but faster.

    Nearly all commits of a steady stream have a single entry.
    """
    template = _template(entry.topic, entry.group)
    content = bytearray(template.content)
    for code, position, value in zip(_NUMBERS, template.positions, entry[2:], strict=True):
        pack_into(code, content, position, value)
    return Serialized(bytes(content), 1)


_NUMBERS = ("<b", "<q", "<q", "<i", "<q")
"""Formats of the entry's fields after topic and group."""


@dataclass(frozen=True, slots=True)
class _Template:
    """The serialized batch of one entry, and the position of each number in it."""

    content: bytes
    positions: list[int]


@lru_cache(maxsize=1024)
def _template(topic: str, group: str) -> _Template:
    # Find the position of each number by experiment: only its bytes differ when the number changes.
    zeros = [JournalOp.GROUP, 0, 0, 0, 0]
    content = _serialized(topic, group, zeros)
    positions = []
    for at, code in enumerate(_NUMBERS):
        other = _serialized(topic, group, [*zeros[:at], -1, *zeros[at + 1 :]])
        differing = [place for place, (one, two) in enumerate(zip(content, other, strict=True)) if one != two]
        assert differing == list(range(differing[0], differing[0] + calcsize(code)))
        positions.append(differing[0])
    return _Template(content, positions)


def _serialized(topic: str, group: str, numbers: list[Any]) -> bytes:
    columns = [[topic], [group], *([number] for number in numbers)]
    arrays = [_column(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return bytes(memoryview(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA).serialize()))


def from_batch(batch: pa.RecordBatch) -> Iterator[JournalEntry]:
    """Yield the rows of a batch of :data:`SCHEMA` as entries."""
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield JournalEntry(row[0], row[1], JournalOp(row[2]), *row[3:])
