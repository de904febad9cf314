"""Finds rows that a message left in intake and store besides itself, without an index of messages.

They are its cancellation, and any row by its number. A search of the store ends after a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Key
from tarry.broker.store_view import StoreFollower
from tarry.intake import Intake
from tarry.intake.index import Window
from tarry.message.schema import Kind
from tarry.names import NameEntry
from tarry.store import Snapshot
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place

CANCELS_MAX = 4096
"""Rows of the intake with the message's due time that are looked at for its cancellation."""
_COLUMNS = ["seq", "kind", "body", "born_ms"]


def find_cancellation(intake: Intake, store: StoreFollower, entry: NameEntry, look_s: float) -> tuple[int, int] | None:
    """Return when a message was cancelled, and the seq of the row that did it.

    That row has the due time of its target. Returns None if there is no such row, or it was not found in time.
    """
    body = entry.seq.to_bytes(8, "little", signed=True)
    window = Window(Key(entry.due_ms, entry.seq), Key(entry.due_ms + 1, 0), entry.seq + 1, intake.published_seq)
    with intake.kept():
        _, seqs, _ = intake.select(window, CANCELS_MAX)
        cancellation = _cancellation_of(intake.read_columns(seqs[:CANCELS_MAX], _COLUMNS), body)
    # Take the snapshot after the intake was read: it has the rows that left the intake meanwhile.
    return cancellation or _find_stored_cancellation(store.snapshot, entry.due_ms, body, look_s)


def _find_stored_cancellation(snapshot: Snapshot, due_ms: int, body: bytes, look_s: float) -> tuple[int, int] | None:
    deadline_s, place = time.monotonic() + look_s, Place.of(snapshot.root)
    for path in reversed(snapshot.cancelled):
        for group in groups(place, path):
            if group.due_min_ms <= due_ms <= group.due_max_ms:
                cancellation = _cancellation_of(read_group(place, path, group.number, _COLUMNS), body)
                if cancellation is not None:
                    return cancellation
        if time.monotonic() >= deadline_s:
            return None
    return None


def _cancellation_of(rows: pa.RecordBatch, body: bytes) -> tuple[int, int] | None:
    """(when, seq) of the first cancellation among ``rows`` that names the target ``body``."""
    mask = pc.and_(pc.equal(rows.column("kind"), int(Kind.CANCEL)), pc.equal(rows.column("body"), body))
    hits = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    if not len(hits):
        return None
    first = int(hits[0])
    return rows.column("born_ms")[first].as_py(), rows.column("seq")[first].as_py()


def find_row(
    intake: Intake, store: StoreFollower, seq: int, columns: Sequence[str], look_s: float
) -> pa.RecordBatch | None:
    """Return a row by its number, as a batch of one row; None if it was not found in time.

    The batch is empty if the intake should have the row and does not.
    """
    with intake.kept():
        if intake.first_seq <= seq < intake.published_seq:
            return intake.read_columns(np.array([seq], np.int64), columns)
    snapshot = store.snapshot  # after the intake was looked at, as above
    deadline_s, place, files = time.monotonic() + look_s, Place.of(snapshot.root), snapshot.files
    # Few files span the number, but perhaps many of their row groups do.
    for file in np.flatnonzero((files.seq_min <= seq) & (files.seq_max >= seq)).tolist():
        for group in groups(place, files.path[file]):
            if group.seq_min <= seq <= group.seq_max:
                rows = read_group(place, files.path[file], group.number, columns)
                at = np.flatnonzero(rows.column("seq").to_numpy() == seq).tolist()
                if at or time.monotonic() >= deadline_s:
                    return rows.slice(at[0], 1) if at else None
    return None
