"""When is a topic's next message due? Answered from two columns, in due order, without reading a body."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.store.parquet import Group, groups, read_group
from tarry.store.place import Place
from tarry.store.snapshot import Snapshot


def next_due(snapshot: Snapshot, from_ms: int, topics: set[str]) -> dict[str, int]:
    """The earliest ``due_ms >= from_ms`` of each of ``topics``; a topic with none in the store is left out.

    Reads until all are found, skipping files and row groups whose bounds rule the missing topics out: ask only for
    topics that have something pending, because proving that a topic has nothing reads every row group that might hold
    it.

    Raises:
        CorruptError: a file is missing or damaged.
    """
    files, place = snapshot.files, Place.of(snapshot.root)
    found: dict[str, int] = {}
    waiting: list[tuple[int, int, int, Group | None]] = [
        (max(int(files.due_min_ms[i]), from_ms), int(i), -1, None) for i in np.flatnonzero(files.due_max_ms >= from_ms)
    ]
    heapq.heapify(waiting)
    while waiting:
        bound_ms, file, number, group = heapq.heappop(waiting)
        wanted = {topic for topic in topics if found.get(topic, bound_ms + 1) > bound_ms}
        if not wanted:
            break
        low, high = (
            (files.topic_min[file], files.topic_max[file]) if group is None else (group.topic_min, group.topic_max)
        )
        if low is not None and high is not None and not any(low <= topic <= high for topic in wanted):
            continue
        if group is None:
            for each in groups(place, files.path[file]):
                if each.due_max_ms >= from_ms:
                    heapq.heappush(waiting, (max(each.due_min_ms, from_ms), file, each.number, each))
            continue
        for topic, due_ms in _first_of_each(
            read_group(place, files.path[file], number, ("topic", "due_ms")), from_ms, wanted
        ):
            found[topic] = min(due_ms, found.get(topic, due_ms))
    return found


def _first_of_each(batch: pa.RecordBatch, from_ms: int, topics: set[str]) -> Iterable[tuple[str, int]]:
    hits = pc.and_(
        pc.greater_equal(batch.column(1), from_ms), pc.is_in(batch.column(0), value_set=pa.array(sorted(topics)))
    )
    first = pa.Table.from_batches([batch.filter(hits)]).group_by("topic").aggregate([("due_ms", "min")])
    return zip(first["topic"].to_pylist(), first["due_ms_min"].to_pylist(), strict=True)
