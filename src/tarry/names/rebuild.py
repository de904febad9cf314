"""Making the registry again from the store and the intake, after it was lost.

Every pending message and every cancellation of one is in either. What is past is not: whether a message that is no
longer pending had been delivered or cancelled is unknown from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from tarry.base.message import SCHEMA
from tarry.intake import Intake
from tarry.names.registry import Registry
from tarry.store import Snapshot
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place

log = logging.getLogger(__name__)

COLUMNS = ("seq", "topic", "due_ms", "id", "key", "body", "born_ms", "repeat", "kind")
_WITHOUT_BODY = tuple(name for name in COLUMNS if name != "body")


def rebuild(registry: Registry, intake: Intake, store: Snapshot, end_seq: int, *, known_from_ms: int) -> None:
    """Fill ``registry`` with what is known of the messages below ``end_seq``. Reads a few columns of all of the store.

    Raises:
        CorruptError: the store or the intake is damaged.
    """
    log.warning("making the registry again from %d files of the store and the intake", len(store.files.path))
    registry.begin(known_from_ms=known_from_ms)
    for batch in _stored(store):
        registry.apply(batch, in_order=False)
    if intake.first_seq < end_seq:
        for batch in intake.read(intake.first_seq, end_seq):
            registry.apply(batch, in_order=False)
    registry.complete()


def _stored(store: Snapshot) -> Iterator[pa.RecordBatch]:
    place = Place.of(store.root)
    for paths, columns in ((store.files.path, _WITHOUT_BODY), (store.cancelled, COLUMNS)):
        for path in paths:
            for group in groups(place, path):
                yield _whole(read_group(place, path, group.number, columns))


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """All columns of the schema; those that were not read are null."""
    names = set(batch.schema.names)
    columns = [batch.column(f.name) if f.name in names else pa.nulls(batch.num_rows, f.type) for f in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
