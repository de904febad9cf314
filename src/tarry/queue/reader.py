"""Reads frames of the ready log's segments, with a cache for readers that lag behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tarry.base.errors import CorruptError
from tarry.base.lru_cache import LruCache
from tarry.base.types import Int64s
from tarry.log import frame
from tarry.log.segment import SegmentReader, segment_path
from tarry.message.schema import SCHEMA
from tarry.queue.frame_table import FrameEntry, frames_of_topic, load_frames
from tarry.queue.writer import SegmentsWriter

TABLES_MAX = 64
"""Frame tables (of one topic in one segment) kept for groups that lag behind."""
READ_BYTES_MAX = 32 << 20
"""Bytes of frames kept for groups that lag behind, by segment and position."""


class FramesReader:
    """Reads frames. Any thread.

    ``writer`` knows the frames of the segment being written; the other segments have tables. ``on_damage`` is called
    for each damaged frame or table found, before the error is raised.
    """

    def __init__(self, directory: Path, writer: SegmentsWriter, on_damage: Callable[[CorruptError], None]) -> None:
        self._directory = directory
        self._writer = writer
        self._on_damage = on_damage
        self._tables: LruCache[tuple[int, str], tuple[Int64s, Int64s]] = LruCache(TABLES_MAX, lambda _: 1)
        # A consumer that lags takes a few rows at a time. A frame has thousands, and is checked as a whole when it is
        # read.
        self._read: LruCache[tuple[int, int], pa.RecordBatch] = LruCache(READ_BYTES_MAX, lambda rows: int(rows.nbytes))

    def read_frame(self, topic: str, segment: int, offset: int, rows_max: int) -> tuple[int, pa.RecordBatch]:
        """Return the frame that holds an offset: see :data:`tarry.queue.topic.ReadFrame`.

        ``rows_max`` says how many rows from ``offset`` on are of use. A frame that is not read to its end is cached.
        """
        try:
            return self._read_frame(topic, segment, offset, rows_max)
        except CorruptError as error:
            self._on_damage(error)
            raise

    def _read_frame(self, topic: str, segment: int, offset: int, rows_max: int) -> tuple[int, pa.RecordBatch]:
        offsets, positions = self._frames_of(segment, topic)
        at = int(np.searchsorted(offsets, offset, "right")) - 1
        base, place = int(offsets[at]), (segment, int(positions[at]))
        batch = self._read.get(place)
        if batch is None:
            with SegmentReader(segment_path(self._directory, segment)) as reader:
                _, _, batch = reader.read(place[1], SCHEMA)
            if offset + rows_max < base + batch.num_rows:
                self._read.put(place, batch)
        elif offset + rows_max >= base + batch.num_rows:
            self._read.drop(place)
        return base, batch

    def _frames_of(self, segment: int, topic: str) -> tuple[Int64s, Int64s]:
        frames = self._writer.frames_being_written(segment)
        if frames is not None:
            return frames_of_topic(frames, topic)
        table = self._tables.get((segment, topic))
        if table is None:
            table = frames_of_topic(load_frames(segment_path(self._directory, segment)), topic)
            self._tables.put((segment, topic), table)
        return table

    def frames_in(self, segment: int) -> list[FrameEntry]:
        """Return the frames of a segment, in file order; none if it was deleted meanwhile."""
        frames = self._writer.frames_being_written(segment)
        if frames is not None:
            return frames
        try:
            return load_frames(segment_path(self._directory, segment))
        except FileNotFoundError:
            return []  # deleted meanwhile

    def rows_after(self, segment: int, position: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows from a place in the log on, in the order written."""
        for base in list(self._writer.segments):
            if base < segment:
                continue
            with SegmentReader(segment_path(self._directory, base)) as reader:
                start = max(position, frame.FILE_HEADER_BYTES) if base == segment else frame.FILE_HEADER_BYTES
                for _, _, batch in reader.read_all(SCHEMA, start):
                    yield batch

    def drop_table(self, segment: int, topic: str) -> None:
        """Forget the frame table of a topic in a segment that was deleted."""
        self._tables.drop((segment, topic))
