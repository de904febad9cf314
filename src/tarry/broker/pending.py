"""When does the next message of each topic fall due? Looked up when asked; nothing is kept for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tarry.intake.index import Key, Window

if TYPE_CHECKING:
    from tarry.broker.recovery import Rooms

BUDGET_S = 2.0
ROWS = 8192


def next_due_by_topic(rooms: Rooms, topics: set[str]) -> dict[str, int]:
    """The earliest pending due time of each of ``topics``; one that is not found within a time budget is left out."""
    end = time.monotonic() + BUDGET_S
    with rooms.wheel.lock:
        loaded, pieces = rooms.wheel.safe, rooms.wheel.pieces()
    found: dict[str, int] = {}
    for piece in pieces:
        _note(piece.batch, found)
    found = {t: d for t, d in found.items() if t in topics}
    missing = topics - found.keys()
    if not missing:
        return found
    view = rooms.loader.view
    later = view.next_due(loaded.due_ms, missing)
    _from_intake(rooms, loaded, view.committed_seq, missing, later, end)
    return {**later, **found}


def _from_intake(rooms: Rooms, after: Key, seq_min: int, missing: set[str], found: dict[str, int], end: float) -> None:
    """Read the intake in due order until every topic was seen, or the rest is later than what the store has of it."""
    still = set(missing)
    while still and time.monotonic() < end:
        window = Window(after, Key(np.iinfo(np.int64).max, 0), seq_min, rooms.intake.published_seq)
        due, seq, complete = rooms.intake.select(window, ROWS)
        if not len(seq):
            return
        batch = rooms.intake.read_rows(seq[:ROWS])
        assert batch is not None
        here: dict[str, int] = {}
        _note(batch, here)
        last = min(len(seq), ROWS) - 1
        for topic in still & here.keys():
            found[topic] = min(found.get(topic, here[topic]), here[topic])
        still = {t for t in still - here.keys() if found.get(t, 1 << 62) > int(due[last])}
        after = Key(int(due[last]), int(seq[last]) + 1)
        if complete and last == len(seq) - 1:
            return


def _note(batch: pa.RecordBatch, found: dict[str, int]) -> None:
    lowest = pa.Table.from_batches([batch.select(["topic", "due_ms"])]).group_by("topic").aggregate([("due_ms", "min")])
    for topic, due in zip(lowest["topic"].to_pylist(), lowest["due_ms_min"].to_pylist(), strict=True):
        found[topic] = min(found.get(topic, due), due)
