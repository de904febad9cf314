"""Identity of the table at a place.

A path names another directory on another machine, a relative one in another working directory. The id in the table's
log is the same wherever the table is seen from.
"""

from __future__ import annotations

import socket

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.store.place import Place


def table_id_at(place: Place) -> str | None:
    """Return the id of the table at a place, as this machine sees it; None if it sees none."""
    try:
        return str(DeltaTable(place.uri).metadata().id)
    except (DeltaError, OSError):
        return None


def check_same_table(uri: str, table_id: str) -> None:
    """Refuse a task that would write into another directory of the same path.

    On object storage nothing is checked: a URI is the same place everywhere.

    Raises:
        InvalidArgumentError: it is another table; names the place, this machine, and both. UnavailableError: there is
        none, which a directory that is away for a while looks like, too.
    """
    place = Place.of(uri)
    if place.local is None or (found := table_id_at(place)) == table_id:
        return
    error = UnavailableError if found is None else InvalidArgumentError
    raise error(
        f"the store is the table {table_id} at {uri}, but there {socket.gethostname()} sees "
        f"{'no table' if found is None else f'the table {found}'}; allowed: a directory that all machines of the "
        "cluster share, or object storage"
    )
