"""The Delta table: created, opened, read as snapshots, and committed to exactly once for each range of seqs.

``committed_seq`` is the version of the table's app transaction ``intake-<shard>``: one number that says which part of
the intake is in the store, changed in the same commit as the files themselves. A commit names the range ``[start_seq,
end_seq)`` that its files hold. A replay (the table is there already) changes nothing; any other start is stale; and of
two drivers that race from the same version, the second one's commit conflicts on the app transaction.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tarry.api.jobs import StagedFile
from tarry.base.clock import SystemClock
from tarry.base.errors import CorruptError, InvalidArgumentError, UnavailableError
from tarry.base.message import SCHEMA
from tarry.store.errors import StaleCommitError
from tarry.store.locallog import FILES_KEY, REMOVED_KEY, mend, sync_checkpoint, sync_entries
from tarry.store.place import Place, sync_up
from tarry.store.snapshot import FileColumns, Snapshot

log = logging.getLogger(__name__)

PARTITION_COLUMNS = ["shard", "bucket"]
TABLE_SCHEMA = pa.schema([*SCHEMA, ("shard", pa.int32()), ("bucket", pa.string())])
CHECKPOINT_COMMITS = 50
CONFLICTS_MAX = 20
"""How often a commit is tried that conflicts with others and is not stale."""

_PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.dataSkippingStatsColumns": "due_ms,seq,topic",
}
_HOURS = {"hour": 1, "day": 24, "week": 168}
_LOG_RETENTION, _FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
LOOK_HOURS = 2
"""For so much longer the log speaks of a removed file: until whoever deletes it has looked."""
# Checkpoints and the clean-up of old entries are made here, each durable before the next: see locallog.py.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Store:
    """One shard of a store. Thread-safe; any number of processes may have the same store open."""

    def __init__(self, place: Place, table: DeltaTable, shard: int) -> None:
        self._place = place
        self._table = table
        self._shard = shard
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None
        self._synced_version = max(-1, int(table.version()) - 1)

    @classmethod
    def open(cls, uri: str, *, shard: int = 0) -> Store:
        """Open the store at a path or URI, creating it if it is not there; on a local disk, mend what a power failure
        left.

        Raises:
            InvalidArgumentError: there is a Delta table that is not a Tarry store.
            CorruptError: the table cannot be read.
            UnavailableError: the place cannot be reached or written.
        """
        place = Place.of(uri)
        if place.local is not None:
            mend(place.local)
        try:
            store = cls(place, _open_or_create(place), shard)
        except (DeltaError, OSError) as error:
            raise _wrapped(f"cannot open the store at {place.uri}", error) from error
        store.snapshot()
        return store

    @property
    def root(self) -> str:
        """Where the table is, as :func:`tarry.store.stage` takes it."""
        return self._place.uri

    @property
    def shard(self) -> int:
        """Which part of the store this is."""
        return self._shard

    def snapshot(self) -> Snapshot:
        """The newest version, made durable before it is returned. Cheap when nothing has changed.

        Raises:
            UnavailableError: the place cannot be reached.
        """
        with self._lock:
            try:
                self._update()
            except (DeltaError, OSError) as error:
                raise _wrapped(f"cannot read the log of the store at {self.root}", error) from error
            version = int(self._table.version())
            if self._snapshot is None or self._snapshot.version != version:
                # Seen is not durable: the driver that wrote it may not have synced it yet, or may have died before.
                if self._place.local is not None:
                    sync_entries(self._place.local, self._synced_version + 1, version)
                self._synced_version = version
                actions = pa.table(self._table.get_add_actions(flatten=True))
                files = FileColumns.of_actions(actions, self._shard)
                self._snapshot = Snapshot(self.root, version, self._committed_seq(), *files)
            return self._snapshot

    def commit(self, files: Sequence[StagedFile], start_seq: int, end_seq: int) -> Snapshot:
        """Publish ``files`` as the messages of ``[start_seq, end_seq)``, in one durable commit; ``files`` may be empty.

        When the table has ``end_seq`` already, nothing is written: it is a replay, and ``files`` are orphans.

        Raises:
            InvalidArgumentError: the range is not one, or a file is of another shard. StaleCommitError: the table is at
            another seq than ``start_seq``, another driver won the race, or a file has gone. UnavailableError: the log
            cannot be written. Whether the commit took place shows at the next :meth:`snapshot`.
        """
        if end_seq < start_seq or start_seq < 0:
            raise InvalidArgumentError(f"the range to commit is [{start_seq}, {end_seq}); allowed: 0 <= start <= end")
        if any(file.shard != self._shard for file in files):
            raise InvalidArgumentError(f"a file of another shard; allowed: {self._shard}")
        with self._lock:
            told = {"tarry.start_seq": str(start_seq), "tarry.end_seq": str(end_seq)}

            def judge(now: Snapshot) -> bool:
                if now.committed_seq < end_seq:
                    self._check_start(now, start_seq, end_seq)
                    self._check_present(files)
                return now.committed_seq < end_seq

            return self._publish(
                f"the commit of [{start_seq}, {end_seq})",
                judge,
                lambda: self._write(files, Transaction(self._app_id, end_seq), told),
            )

    def bulk_number(self) -> int | None:
        """The attempt of a bulk job that was committed last; None before the first."""
        with self._lock:
            self.snapshot()
            return self._bulk_number()

    def commit_bulk(self, files: Sequence[StagedFile], number: int) -> Snapshot:
        """Publish ``files`` as all messages of an attempt of a bulk job, in one durable commit. One at a time: only the
        last one is recognised as a replay, which changes nothing.

        Raises:
            InvalidArgumentError: a file is of another shard. StaleCommitError: a file has gone. UnavailableError: the
            log cannot be written; :meth:`bulk_number` tells whether the commit took place.
        """
        if any(file.shard != self._shard for file in files):
            raise InvalidArgumentError(f"a file of another shard; allowed: {self._shard}")
        with self._lock:
            told = {"tarry.bulk": str(number)}

            def judge(now: Snapshot) -> bool:
                new = self._bulk_number() != number
                if new:
                    self._check_present(files)
                return new

            return self._publish(
                f"the commit of bulk job {number}",
                judge,
                lambda: self._write(files, Transaction(self._bulk_id, number), told),
            )

    def replace(self, removed: Sequence[str], files: Sequence[StagedFile]) -> Snapshot:
        """Put ``files`` in the place of the files ``removed`` (paths in the table), in one durable commit.

        The rows are the caller's concern; ``committed_seq`` stays. Commits that add files meanwhile do not disturb.

        Raises:
            InvalidArgumentError: a file is of another shard. StaleCommitError: a file to remove is not in the table, as
            somebody else has removed it, or a file to add has gone; nothing was committed, ``files`` are orphans.
            UnavailableError: the log cannot be written.
        """
        if any(file.shard != self._shard for file in files):
            raise InvalidArgumentError(f"a file of another shard; allowed: {self._shard}")
        with self._lock:

            def judge(now: Snapshot) -> bool:
                missing = set(removed).difference(now.files.path, now.cancelled)
                if missing:
                    raise StaleCommitError(
                        f"{min(missing)} is not in the store {self.root} any more; nothing was committed"
                    )
                self._check_present(files)
                return bool(removed or files)

            return self._publish(
                f"the rewriting of {len(removed)} files", judge, lambda: self._exchange(removed, files)
            )

    def keep_for(self, hours: int) -> None:
        """Have entries of the log, and files that a commit removed, kept at least so long. One commit, if it is new.

        Raises:
            UnavailableError: the log cannot be written.
        """
        wanted = {_LOG_RETENTION: f"interval {hours} hours", _FILE_RETENTION: f"interval {hours + LOOK_HOURS} hours"}
        with self._lock:
            self.snapshot()
            has = self._table.metadata().configuration
            if any(has.get(name) != value for name, value in wanted.items()):
                try:
                    self._table.alter.set_table_properties(wanted)
                except (DeltaError, OSError) as error:
                    raise _wrapped(f"cannot set the retention of the store {self.root}", error) from error
                self.snapshot()

    @property
    def kept_hours(self) -> int:
        """How long files that a commit removed are kept at least; the longest that any reader may take."""
        with self._lock:
            text = self._table.metadata().configuration.get(_LOG_RETENTION, "")
        found = re.fullmatch(r"interval (\d+) (hour|day|week)s?", text)
        return int(found[1]) * _HOURS[found[2]] if found else _HOURS["week"]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _bulk_number(self) -> int | None:
        found = self._table.transaction_version(self._bulk_id)
        return None if found is None else int(found)

    def _update(self) -> None:
        try:
            self._table.update_incremental()
        except DeltaError:
            # The entries after our version may have been cleaned up behind a checkpoint: begin anew.
            self._table = DeltaTable(self.root)

    def _committed_seq(self) -> int:
        return int(self._table.transaction_version(self._app_id) or 0)

    @property
    def _app_id(self) -> str:
        return f"intake-{self._shard}"

    @property
    def _bulk_id(self) -> str:
        return f"bulk-{self._shard}"

    def _check_start(self, snapshot: Snapshot, start_seq: int, end_seq: int) -> None:
        if snapshot.committed_seq != start_seq:
            raise StaleCommitError(
                f"the store is at seq {snapshot.committed_seq}, but the commit of [{start_seq}, {end_seq}) starts "
                "at another: it was planned from another state, or another driver is at work; nothing was committed"
            )

    def _check_present(self, files: Sequence[StagedFile]) -> None:
        # A driver that slept for hours may find its files removed as orphans; a worker on another machine may have
        # written them to its own disk. Naming a file that is not there would lose its messages.
        for file, size in zip(files, self._place.sizes(f.path for f in files), strict=True):
            if size != file.size:
                found = "missing" if size is None else f"{size} bytes long"
                raise StaleCommitError(
                    f"staged file {file.path} under {self.root} is {found}; "
                    f"expected: {file.size} bytes; nothing was committed"
                )

    def _publish(self, what: str, judge: Callable[[Snapshot], bool], write: Callable[[], None]) -> Snapshot:
        """Commit by ``write``, unless ``judge`` says of the newest snapshot that it is done, or raises.

        Delta's conflict detection is coarse: whoever removes files makes every commit fail that began before, also one
        that only adds. So a conflict is judged anew, and tried again where nothing stands against it.
        """
        for attempt in range(CONFLICTS_MAX):
            before = self.snapshot()
            if not judge(before):
                return before
            try:
                write()
            except CommitFailedError as error:
                if attempt == CONFLICTS_MAX - 1:
                    raise UnavailableError(f"{what} to {self.root} failed: {error}") from error
                continue
            except (DeltaError, OSError) as error:
                raise _wrapped(f"{what} to {self.root} failed", error) from error
            break
        snapshot = self.snapshot()
        if snapshot.version // CHECKPOINT_COMMITS > before.version // CHECKPOINT_COMMITS:
            self._checkpoint(snapshot.version)
        return snapshot

    def _exchange(self, removed: Sequence[str], files: Sequence[StagedFile]) -> None:
        now_ms = SystemClock().now_ms()  # from then on a reader of an older version has the retention's time
        entries = pa.table(self._table.get_add_actions(flatten=True)).select(
            ["path", "size_bytes", "partition.shard", "partition.bucket"]
        )
        gone = entries.filter(pc.is_in(entries["path"], value_set=pa.array(list(removed), pa.string())))
        removals = [
            RemoveAction(path, True, now_ms, size, {"shard": str(shard), "bucket": bucket})
            for path, size, shard, bucket in zip(*(column.to_pylist() for column in gone.columns), strict=True)
        ]
        self._table.create_write_transaction(
            [*(_add_action(file, now_ms) for file in files), *removals],
            "append",
            Schema.from_arrow(TABLE_SCHEMA),
            PARTITION_COLUMNS,
            commit_properties=CommitProperties(
                custom_metadata={FILES_KEY: str(len(files)), REMOVED_KEY: str(len(removals))}
            ),
            post_commithook_properties=_NO_HOOKS,
        )

    def _write(self, files: Sequence[StagedFile], transaction: Transaction, told: dict[str, str]) -> None:
        now_ms = SystemClock().now_ms()  # only told to other readers of the log; nothing here depends on it
        self._table.create_write_transaction(
            [_add_action(file, now_ms) for file in files],
            "append",
            Schema.from_arrow(TABLE_SCHEMA),
            PARTITION_COLUMNS,
            commit_properties=CommitProperties(
                custom_metadata={FILES_KEY: str(len(files)), **told},
                app_transactions=[transaction],
            ),
            post_commithook_properties=_NO_HOOKS,
        )

    def _checkpoint(self, version: int) -> None:
        try:
            self._table.create_checkpoint()
            if self._place.local is not None:
                sync_checkpoint(self._place.local, version)
            self._table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            # The commit itself is durable; without a checkpoint, opening only takes longer.
            log.warning("no checkpoint of the store at version %d: %s", version, error)


def _open_or_create(place: Place) -> DeltaTable:
    try:
        table = DeltaTable(place.uri)
    except TableNotFoundError:
        table = _create(place)
    columns = {field.name for field in table.schema().fields}
    if table.metadata().partition_columns != PARTITION_COLUMNS or not columns.issuperset(TABLE_SCHEMA.names):
        raise InvalidArgumentError(
            f"the Delta table at {place.uri} is not a Tarry store: its columns are {sorted(columns)}, "
            f"partitioned by {table.metadata().partition_columns}"
        )
    return table


def _create(place: Place) -> DeltaTable:
    if place.local is not None:
        place.local.mkdir(parents=True, exist_ok=True)
    try:
        # Broker and pipeline may both be the first: "error" makes one of them lose, and open what the other made.
        table = DeltaTable.create(
            place.uri,
            schema=Schema.from_arrow(TABLE_SCHEMA),
            mode="error",
            partition_by=PARTITION_COLUMNS,
            configuration=_PROPERTIES,
        )
    except (DeltaError, OSError):
        table = DeltaTable(place.uri)
    if place.local is not None:
        sync_entries(place.local, 0, 0)
        sync_up(place.local, place.local.parent)
    return table


def _add_action(file: StagedFile, now_ms: int) -> AddAction:
    low = {"due_ms": file.due_min_ms, "seq": file.seq_min, "topic": file.topic_min}
    high = {"due_ms": file.due_max_ms, "seq": file.seq_max, "topic": file.topic_max}
    statistics = {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    partition = {"shard": str(file.shard), "bucket": file.bucket}
    return AddAction(file.path, file.size, partition, now_ms, True, json.dumps(statistics))


def _wrapped(what: str, error: Exception) -> CorruptError | UnavailableError:
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    kind = CorruptError if isinstance(error, DeltaError) and "Kernel error" in first_line else UnavailableError
    return kind(f"{what}: {first_line}")
