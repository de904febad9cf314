"""Frames that were read and are read on: once for many small reads, and not for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.test_queue_log import Box

from tarry.base.lru_cache import LruCache
from tarry.log.segment import SegmentReader


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array(range(count), pa.int64())})


def test_the_oldest_make_room_and_one_is_always_kept() -> None:
    frames: LruCache[tuple[int, int], pa.RecordBatch] = LruCache(rows(100).nbytes, lambda kept: kept.nbytes)
    small, other, large = rows(40), rows(60), rows(1000)
    frames.put((0, 32), small)
    frames.put((0, 900), other)
    assert frames.get((0, 32)) is small, "and is the last one used now"
    frames.put((1, 32), rows(40))
    assert frames.get((0, 900)) is None
    assert frames.get((0, 32)) is small
    frames.put((2, 32), large)
    assert frames.get((2, 32)) is large
    assert frames.get((0, 32)) is frames.get((1, 32)) is None
    frames.drop((2, 32))
    assert frames.get((2, 32)) is None
    frames.drop((2, 32))
    frames.put((0, 32), small)
    frames.put((0, 32), small)
    frames.put((0, 900), other)
    assert frames.get((0, 32)) is small, "what is kept twice counts once"


def test_who_takes_few_rows_at_a_time_reads_a_frame_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = SegmentReader.read

    def counted(reader: SegmentReader, position: int, schema: Any) -> Any:
        read.append(position)
        return plain(reader, position, schema)

    monkeypatch.setattr(SegmentReader, "read", counted)
    box = Box(tmp_path, segment=1 << 20, cache=0)
    for _ in range(3):
        box.append(*["a"] * 500, *["b"] * 100)
        box.log.flush()
    box.check("a", 7)
    assert len(read) == 3, "each of its frames"
    box.check("b", 1000)
    assert len(read) == 6
    box.check("a", 7)
    assert len(read) == 9, "what was read to its end is not kept"
    box.log.close()
