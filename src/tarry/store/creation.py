"""The Delta table of a store, opened, or made where it is not there."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from tarry.base.errors import InvalidArgumentError
from tarry.message.schema import SCHEMA
from tarry.store.columns import PARTITION_COLUMNS, TABLE
from tarry.store.fence import Fence
from tarry.store.locallog import sync_entries
from tarry.store.place import Place, sync_up

CHECKPOINT_COMMITS = 50
LOG_RETENTION, FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
STATISTICS = "delta.dataSkippingStatsColumns"
PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
    LOG_RETENTION: "interval 1 days",
    FILE_RETENTION: "interval 1 days",
    STATISTICS: "due_ms,due,seq,topic",
}
_REQUIRED = {*SCHEMA.names, *PARTITION_COLUMNS}


def open_table(place: Place, *, create: bool, properties: Mapping[str, str], fence: Fence | None) -> DeltaTable:
    """Open the table, creating it if it is not there: with these properties, and with the epoch.

    Raises:
        TableNotFoundError: there is none, without ``create``. DeltaError, OSError: it cannot be read or made.
    """
    try:
        return DeltaTable(place.uri)
    except TableNotFoundError:
        if not create:
            raise
        return _create(place, properties, fence)


def check_columns(table: DeltaTable, place: Place) -> None:
    """Check that a table is a store.

    Raises:
        InvalidArgumentError: it is not.
    """
    columns = {each.name for each in table.schema().fields}
    if table.metadata().partition_columns != PARTITION_COLUMNS or not columns.issuperset(_REQUIRED):
        raise InvalidArgumentError(
            f"the Delta table at {place.uri} is not a Tarry store: its columns are {sorted(columns)}, "
            f"partitioned by {table.metadata().partition_columns}"
        )


def _create(place: Place, properties: Mapping[str, str], fence: Fence | None) -> DeltaTable:
    if place.local is not None:
        place.local.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        # Broker and pipeline may both be the first: "error" makes one of them lose, and open what the other made.
        table = DeltaTable.create(
            place.uri,
            schema=Schema.from_arrow(TABLE),
            mode="error",
            partition_by=PARTITION_COLUMNS,
            configuration={**PROPERTIES, **properties},
            raise_if_key_not_exists=False,  # delta-rs knows Delta's own alone
            # No version of the table is without its epoch, so no earlier owner commits to any.
            commit_properties=None if fence is None else fence.properties({}, {fence.id: fence.epoch}),
        )
    except (DeltaError, OSError) as error:
        try:
            table = DeltaTable(place.uri)
        except TableNotFoundError:
            raise error from None  # nobody else made it: why it cannot be made is the answer
    if place.local is not None:
        sync_entries(place.local, 0, 0)
        sync_up(place.local, place.local.parent)
    return table
