"""Finds files from before the table had all of its columns, so that a rewrite gives them all columns.

Only a command asks for it (``tarry compact --older``): the upkeep rewrites each file sooner or later, and Tarry itself
does without these columns. Queries gain by it.
"""

from __future__ import annotations

from collections.abc import Collection

from tarry.base.errors import CorruptError
from tarry.store.choice import Chosen, portions
from tarry.store.columns import STORED
from tarry.store.parquet import column_names
from tarry.store.place import Place
from tarry.store.snapshot import Snapshot


def choose_older(snapshot: Snapshot, without: Collection[str] = ()) -> list[Chosen]:
    """Return all files that lack a column, but for those of the paths ``without``.

    Reads the footer of every file. A file that is missing or whose footer is damaged is chosen, by itself: its rewrite
    fails and reports that, as for any other file.
    """
    place = Place.of(snapshot.root)
    chosen: list[Chosen] = []
    for files, cancellations in ((snapshot.files, False), (snapshot.cancellations, True)):
        lacks = {i: _lacks(place, path) for i, path in enumerate(files.path) if path not in without}
        unread = [[i] for i, lack in lacks.items() if lack is None]
        older = portions(files, [i for i, lack in lacks.items() if lack])
        chosen += [("older", rows, cancellations) for rows in (*older, *unread)]
    return chosen


def _lacks(place: Place, path: str) -> bool | None:
    """Return whether a file lacks a column; None if its footer cannot be read."""
    try:
        return not column_names(place, path).issuperset(STORED.names)
    except CorruptError:
        return None
