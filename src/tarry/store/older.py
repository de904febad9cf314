"""Files of before the table had all of its columns: which there are, and their rewriting, so that queries see none.

Asked for by a command alone (``tarry compact --older``): the upkeep rewrites each file sooner or later, and Tarry
itself does without these columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarry.store.columns import STORED
from tarry.store.parquet import column_names
from tarry.store.place import Place
from tarry.store.rewrite import Work
from tarry.store.run import FILE_BYTES_MAX
from tarry.store.snapshot import FileColumns, Snapshot
from tarry.store.upkeep import Cancelled, as_works, portions


def plan_older(
    snapshot: Snapshot,
    now_ms: int,
    *,
    shard: int = 0,
    floor_ms: int,
    cancelled_jobs: Cancelled = (),
    file_bytes_max: int = FILE_BYTES_MAX,
) -> list[Work]:
    """The rewriting of all files that lack a column; empty where none does. Reads the footer of every file. Arguments
    are those of :func:`tarry.store.upkeep.plan`.

    Raises:
        CorruptError: a file is missing or its footer is damaged.
    """
    place = Place.of(snapshot.root)
    chosen = [
        ("older", rows, cancellations)
        for files, cancellations in ((snapshot.files, False), (snapshot.cancellations, True))
        for rows in portions(files, list(_lacking(place, files)))
    ]
    return as_works(
        chosen,
        snapshot,
        now_ms,
        shard=shard,
        floor_ms=floor_ms,
        cancelled_jobs=cancelled_jobs,
        file_bytes_max=file_bytes_max,
    )


def _lacking(place: Place, files: FileColumns, columns: Sequence[str] = STORED.names) -> Iterator[int]:
    for i, path in enumerate(files.path):
        if not column_names(place, path).issuperset(columns):
            yield i
