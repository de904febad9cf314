"""A broker's store, opened by another process: never created, and checked to be the broker's table.

A job that made a table where it found none would work on an empty one, and one with another table would commit into
that: both without an error, and without an effect.
"""

from __future__ import annotations

from tarry.base.errors import InvalidArgumentError
from tarry.spark.broker_client import IntakeState
from tarry.store import Store


def open_store(state: IntakeState, uri: str | None = None) -> Store:
    """Open the store that a broker reports, to commit under its epoch.

    ``uri``: its place for this machine, if another.

    Raises:
        OwnershipLostError: a later owner of the broker's log has claimed the store.
        InvalidArgumentError: another table is there. UnavailableError: none is, or the place cannot be reached.
        CorruptError: it cannot be read.
    """
    store = Store.open(uri or state.store_uri, shard=state.shard, create=False, epoch=state.epoch)
    check_table(store.root, store.table_id, state)
    return store


def check_table(uri: str, table_id: str, state: IntakeState) -> None:
    """Refuse a table that is not the broker's.

    Raises:
        InvalidArgumentError: names both.
    """
    if table_id != state.table_id:
        raise InvalidArgumentError(
            f"the store at {uri} is the table {table_id}, but the broker's, at {state.store_uri}, is the table "
            f"{state.table_id}; allowed: the broker's own table, by a path or URI that names it on this machine"
        )
