"""Rebuilding the registry from the store and the intake, after it was lost.

Every pending message, and every cancellation of one, is in one of them. The past is not: for a message that is no
longer pending, it is unknown from then on whether it had been delivered or cancelled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa

from tarry.intake import Intake
from tarry.message.schema import SCHEMA
from tarry.names.registry import Registry
from tarry.store import Snapshot
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place

log = logging.getLogger(__name__)

COLUMNS = ("seq", "topic", "due_ms", "id", "key", "body", "born_ms", "repeat", "kind")
_WITHOUT_BODY = tuple(name for name in COLUMNS if name != "body")
REPORT_S = 5.0
"""Seconds between log lines about progress."""


def rebuild(
    registry: Registry, intake: Intake, store: Snapshot, end_seq: int, *, known_from_ms: int, writes: int = 0
) -> None:
    """Fill ``registry`` with what is known of the messages below ``end_seq``.

    This reads a few columns of all of the store. Nothing is served meanwhile: without the cancellations, pending
    messages would be wrong in every list and count.

    Raises:
        CorruptError: the store or the intake is damaged.
    """
    files = len(store.files.path) + len(store.cancelled)
    log.warning("making the registry again from %d files of the store, and the intake; nothing is served before", files)
    registry.begin(known_from_ms=known_from_ms, writes=writes)
    began_s = reported_s = time.monotonic()
    rows = 0
    for number, batch in _batches(intake, store, end_seq):
        registry.apply(batch, in_order=False)
        rows += batch.num_rows
        if time.monotonic() - reported_s >= REPORT_S:
            reported_s = time.monotonic()
            log.warning("making the registry again: %d of %d files of the store, %d rows", number, files, rows)
    registry.complete()
    log.warning("the registry was made again from %d rows in %.1f s", rows, time.monotonic() - began_s)


def _batches(intake: Intake, store: Snapshot, end_seq: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield all rows, each batch with the number of the store's files read before it."""
    place = Place.of(store.root)
    paths = [*((path, _WITHOUT_BODY) for path in store.files.path), *((path, COLUMNS) for path in store.cancelled)]
    for number, (path, columns) in enumerate(paths):
        for group in groups(place, path):
            yield number, _with_all_columns(read_group(place, path, group.number, columns))
    if intake.first_seq < end_seq:
        for batch in intake.read(intake.first_seq, end_seq):
            yield len(paths), batch


def _with_all_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with all columns of the schema; those that were not read are null."""
    names = set(batch.schema.names)
    columns = [batch.column(f.name) if f.name in names else pa.nulls(batch.num_rows, f.type) for f in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
