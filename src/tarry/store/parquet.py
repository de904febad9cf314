"""Reading the store's Parquet files: row groups and their bounds, with checksums verified.

A file is open only while one row group is read. A window that overlaps a thousand files thus holds no handles, and
nothing is left open when a reader is abandoned. Footers are kept (``footers.py``), because a herd reads one file group
by group. Files are read with plain reads (``memory_map=False``: mapped pages would count as the
broker's RSS) and without ``pre_buffer`` (which would read ahead a whole file's columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tarry.base.arrow_memory import when_memory
from tarry.base.descriptors import when_free
from tarry.base.errors import CorruptError
from tarry.message.schema import SCHEMA
from tarry.store import due_counts
from tarry.store.due_counts import DueCounts
from tarry.store.footers import FOOTERS
from tarry.store.place import Place

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group and its bounds; None or the widest possible where a foreign writer left them out."""

    number: int
    rows: int
    due_min_ms: int
    due_max_ms: int
    seq_min: int
    seq_max: int
    topic_min: str | None
    topic_max: str | None


def groups(place: Place, relative: str) -> list[RowGroup]:
    """Return the row groups of a file.

    Raises:
        CorruptError: the file is missing or its footer is damaged.
    """
    with _opened(place, relative) as file:
        return groups_in(file.metadata)


def due_counts_of(place: Place, relative: str) -> DueCounts | None:
    """Return a file's counts of messages by due time; None if it has none.

    Raises:
        CorruptError: the file is missing or its footer is damaged.
    """
    path = place.path(relative)
    raw = FOOTERS.counts.get(path)
    if raw is None:
        with _opened(place, relative) as file:
            footer = file.metadata
        raw = (footer.metadata or {}).get(due_counts.KEY, b"")
        counts = DueCounts.of_bytes(raw) if raw else None
        if counts is None or counts.rows != footer.num_rows:  # another writer took it over with other rows
            raw, counts = b"", None
        FOOTERS.counts.put(path, raw)
        return counts
    return DueCounts.of_bytes(raw) if raw else None


def groups_in(footer: Any) -> list[RowGroup]:
    """Return the row groups that a footer (a ``pyarrow.parquet.FileMetaData``) lists."""
    at = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    listed = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        due = _bounds(group, at["due_ms"]) or (_LOWEST, _HIGHEST)
        seq = _bounds(group, at["seq"]) or (_LOWEST, _HIGHEST)
        topic = _bounds(group, at["topic"]) or (None, None)
        listed.append(RowGroup(number, int(group.num_rows), *due, *seq, *topic))
    return listed


def read_group(place: Place, relative: str, number: int, columns: Sequence[str] = SCHEMA.names) -> pa.RecordBatch:
    """Return the rows of one row group, in the types of :data:`tarry.message.schema.SCHEMA`.

    Raises:
        CorruptError: the file is missing, or a page does not match its checksum.
    """
    wanted = pa.schema([SCHEMA.field(name) for name in columns])
    with _opened(place, relative) as file:
        table = when_memory(partial(file.read_row_group, number, columns=list(columns), use_threads=False))
        table = table.select(list(columns))
        if table.schema != wanted:
            table = table.cast(wanted)
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=wanted)


def check_group(place: Place, relative: str, number: int) -> None:
    """Read every page of one row group, also of columns that are not Tarry's.

    Raises:
        CorruptError: the file is missing, or a page does not match its checksum.
    """
    with _opened(place, relative) as file:
        when_memory(partial(file.read_row_group, number, use_threads=False))


def column_names(place: Place, relative: str) -> set[str]:
    """Return the columns that a file has.

    Raises:
        CorruptError: the file is missing or its footer is damaged.
    """
    with _opened(place, relative) as file:
        return set(file.schema_arrow.names)


def _bounds(group: Any, column: int) -> tuple[Any, Any] | None:
    statistics = group.column(column).statistics
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None


@contextmanager
def _opened(place: Place, relative: str) -> Iterator[Any]:
    path = place.path(relative)
    try:
        with when_free(
            lambda: pq.ParquetFile(
                path,
                metadata=FOOTERS.get(place, path),
                filesystem=place.filesystem,
                memory_map=False,
                pre_buffer=False,
                page_checksum_verification=True,
            )
        ) as file:
            FOOTERS.put(path, file.metadata)
            yield file
    except FileNotFoundError as error:
        raise CorruptError(f"{path} is missing, though the store's log names it") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # a changed header asks for what nobody has written
        raise CorruptError(f"{path} is damaged: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise  # the disk's own trouble (too many open files, an I/O error), which says nothing about the content
        raise CorruptError(f"{path} is damaged: {error}") from error
