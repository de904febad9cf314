"""Finds the message that a handle names by its seq and due time, without an index of messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tarry.base.types import Key
from tarry.broker.store_view import StoreFollower
from tarry.intake import Intake
from tarry.message.bulk import SEQ_MIN, among
from tarry.message.schema import messages_only
from tarry.names import NameEntry
from tarry.store.find import find
from tarry.wheel import Loader, Wheel

PLACE = ("seq", "due_ms", "topic")


class MessageFinder:
    """Finder of messages. Any thread."""

    def __init__(self, intake: Intake, wheel: Wheel, loader: Loader, store: StoreFollower) -> None:
        self._intake = intake
        self._wheel = wheel
        self._loader = loader
        self._store = store

    def find(self, entries: Sequence[NameEntry], columns: Sequence[str] = PLACE) -> dict[int, pa.RecordBatch]:
        """Return the messages, by seq, each as a batch of one row; those that are not found are left out.

        Messages that were delivered may be there or not. A message whose due time is not that of its entry is left out:
        the due time in a handle is not signed, so it may be wrong.

        Raises:
            CorruptError: a file is damaged.
        """
        due_ms = {e.seq: e.due_ms for e in entries}
        rows: dict[int, pa.RecordBatch] = {}
        for batch in self._read(due_ms, columns):
            moments = batch.column("due_ms").to_pylist()
            for row, seq in enumerate(batch.column("seq").to_pylist()):
                if due_ms.get(seq) == moments[row]:
                    rows[seq] = batch.slice(row, 1)
        return rows

    def _read(self, due_ms: dict[int, int], columns: Sequence[str]) -> list[pa.RecordBatch]:
        batches = []
        # Keep segments: rows of a deleted one are in the store or delivered, but other requested rows are neither.
        with self._intake.kept():
            first, end = self._intake.first_seq, self._intake.published_seq
            fresh = np.array([s for s in due_ms if first <= s < end], np.int64)
            rows = self._intake.read_rows(fresh) if len(fresh) else None
            batches += [] if rows is None else [messages_only(rows).select(list(columns))]
        old = sorted(due_ms.keys() - set(fresh.tolist()))
        with self._wheel.lock:
            passed = min(self._wheel.fired, self._wheel.safe)
        # Rows below it need no reading: delivered messages cannot be cancelled, and their topic is of no interest.
        # But late messages of a bulk job are below it, and pending.
        stored = np.array([s for s in old if Key(due_ms[s], s) >= passed or s >= SEQ_MIN], np.int64)
        moments = np.array([due_ms[s] for s in stored.tolist()], np.int64)
        # The newest snapshot that the loader has; what it does not have yet, the intake has, or it is of a new job.
        new_job = among(stored, self._loader.untaken).any()
        snapshot = self._store.newest() if new_job else self._store.snapshot
        batches += list(find(snapshot, moments, stored, columns)) if len(stored) else []
        return batches


def column(rows: dict[int, pa.RecordBatch], seq: int, name: str) -> object:
    """Return a value of one of the rows; None if it is not there."""
    row = rows.get(seq)
    return None if row is None else row.column(name)[0].as_py()
