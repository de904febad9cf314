"""Files of before the table had all of its columns: which there are, so that a rewriting gives queries all of them.

Asked for by a command alone (``tarry compact --older``): the upkeep rewrites each file sooner or later, and Tarry
itself does without these columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarry.store.choice import Chosen, portions
from tarry.store.columns import STORED
from tarry.store.parquet import column_names
from tarry.store.place import Place
from tarry.store.snapshot import FileColumns, Snapshot


def choose_older(snapshot: Snapshot) -> list[Chosen]:
    """All files that lack a column; empty where none does. Reads the footer of every file.

    Raises:
        CorruptError: a file is missing or its footer is damaged.
    """
    place = Place.of(snapshot.root)
    return [
        ("older", rows, cancellations)
        for files, cancellations in ((snapshot.files, False), (snapshot.cancellations, True))
        for rows in portions(files, list(_lacking(place, files)))
    ]


def _lacking(place: Place, files: FileColumns) -> Iterator[int]:
    for i, path in enumerate(files.path):
        if not column_names(place, path).issuperset(STORED.names):
            yield i
