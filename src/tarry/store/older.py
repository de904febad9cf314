"""Files of before the table had all of its columns: which there are, so that a rewriting gives queries all of them.

Asked for by a command alone (``tarry compact --older``): the upkeep rewrites each file sooner or later, and Tarry
itself does without these columns.
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
    """All files that lack a column, but for those of the paths ``without``; empty where none does. Reads the footer of
    every file. One that is missing or whose footer is damaged is chosen, by itself: whoever rewrites it meets that, and
    says so, as of any other.
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
    """Whether a file lacks a column; None where its footer cannot be read."""
    try:
        return not column_names(place, path).issuperset(STORED.names)
    except CorruptError:
        return None
