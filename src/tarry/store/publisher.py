"""The Delta log of a store: its newest version, and commits on top of it.

A version is made durable before it is acted on.

A commit changes files and app transactions together. App transactions are numbers by name, which say what of a source
is in the table. A commit is judged on the newest version, and again if another driver came in between; of two that race
from one version with the same app transaction, the second one's commit conflicts. With an epoch, all commits pass the
fence of the shard (``fence.py``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import RemoveAction

from tarry.api.jobs import StagedFile
from tarry.base.clock import Clock, SystemClock
from tarry.base.errors import CorruptError, UnavailableError
from tarry.log.files import not_now, passing_error
from tarry.store.actions import Commit, add_action, described
from tarry.store.app_versions import AppVersions
from tarry.store.claim_entry import put_claim
from tarry.store.claims import check_present
from tarry.store.columns import FOR_QUERIES, PARTITION_COLUMNS, TABLE
from tarry.store.creation import CHECKPOINT_COMMITS, PROPERTIES, STATISTICS, check_columns, open_table
from tarry.store.fence import CLAIMED_BY_KEY, EPOCH_KEY, Fence, commit_properties
from tarry.store.locallog import FILES_KEY, REMOVED_KEY, mend, remove_lone_records, sync_checkpoint, sync_entries
from tarry.store.orphans import ORPHAN_AGE_HOURS
from tarry.store.owner import Owner, configuration_of, intake_id, owner_key, relay_numbers_id
from tarry.store.place import Place
from tarry.store.snapshot import FileColumns, Snapshot
from tarry.store.unreached import unreached
from tarry.store.warm import WarmTable

log = logging.getLogger(__name__)

COMMITTED_AGE_MS_MAX = (ORPHAN_AGE_HOURS - 1) * 3_600_000
"""Age of the oldest staged file that is committed where commits are fenced.

Clocks of two machines, and of the store's service, may differ by less than the hour that is left.
"""
CONFLICTS_MAX = 20
"""Tries of a commit that conflicts with others and is not stale."""
_USER_METADATA = "userMetadata"
"""A field of Delta's own: Spark's DESCRIBE HISTORY has a column of it."""
# Checkpoints and the clean-up of old entries are made here, each durable before the next: see locallog.py.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class Publisher:
    """The log of one shard of a store. Thread-safe; any number of processes may have the same store open.

    ``may_clean_up`` is asked before a checkpoint is made, which takes away versions that are older than their
    retention.
    """

    def __init__(
        self,
        uri: str,
        *,
        shard: int,
        create: bool = True,
        mends: bool = True,
        clock: Clock | None = None,
        version_min: int = -1,
        may_clean_up: Callable[[], bool] = lambda: True,
        owner: Owner | None = None,
        epoch: int | None = None,
        warm: WarmTable | None = None,
    ) -> None:
        """Open the store at a path or URI.

        With ``create``, create it if it is not there, and add columns that an older one lacks. With ``mends``, on a
        local disk, repair the damage of a power failure; not beside a driver that may be writing at this moment.
        ``owner``: the broker that owns the shard from now on. ``epoch``: its number among the owners of its log; owners
        of lower ones commit nothing from now on. Without an owner: the epoch of the broker whose driver this is. None:
        its log cannot be taken over, and nothing is fenced. ``warm``: what was read of it before, by one with an
        ``owner``.

        Raises:
            LockedError: the shard is another broker's, or a relay's.
            OwnershipLostError: a later epoch has claimed it; a driver's broker has not, or does not own it any more.
            InvalidArgumentError: there is a Delta table that is not a Tarry store, or the place can be none.
            CorruptError: the table cannot be read, or has not ``version_min``, which was acted on; nothing was changed.
            UnavailableError: the place cannot be reached or written, or has no table and ``create`` is false.
            InvalidArgumentError: object storage refuses (a wrong key or bucket), so to ask again is of no use.
        """
        self._place = Place.of(uri)
        self.shard = shard
        """Number of this part of the store."""
        self.root = self._place.uri
        """Path or URI of the table, as :func:`tarry.store.stage` takes it."""
        self._fence = None if epoch is None else Fence(self.root, shard, epoch)
        read_before = None if warm is None else warm.take()
        self._is_warm = read_before is not None
        table, self._app_versions = read_before or (None, AppVersions())
        try:
            # Also by an owner that is none any more: what is torn was acted on by nobody, and an entry or a checkpoint
            # that another one is writing has not its name yet.
            if mends and self._place.local is not None:
                mend(self._place.local, version_min)
            # Not where one was acted on: it is elsewhere, or gone. An empty one in its place would look like damage.
            creates, properties = create and version_min <= 0, owner.property_of(shard) if owner else {}
            self._table = table or open_table(self._place, create=creates, properties=properties, fence=self._fence)
            check_columns(self._table, self._place)
        except TableNotFoundError as error:
            if version_min > 0:
                raise CorruptError(
                    f"there is no store at {self._place.uri}, and version {version_min} of one was acted on; allowed: "
                    "the store that the data directory was used with (--store, setting store), or that one restored"
                ) from error
            raise UnavailableError(f"there is no store at {self._place.uri}, as this machine sees it") from error
        except (DeltaError, OSError) as error:
            if self._place.local is not None and (passing := passing_error(error, self._place.local)) is not None:
                raise not_now(passing, self._place.local, "the store cannot be opened") from error
            if (asked := unreached(self._place, error)) is not None:
                raise asked from error
            raise _wrapped(f"cannot open the store at {self._place.uri}", error) from error
        self.table_id = str(self._table.metadata().id)
        """The table's own id from the Delta log; independent of its path, and constant."""
        self.check_version(version_min)
        self._clock = clock or SystemClock()
        self._may_clean_up = may_clean_up
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None
        self._synced_version = max(-1, int(self._table.version()) - 1)
        if owner is not None:
            self._claim(owner)
        else:
            self._check_fence()
        if create:
            self._add_columns()

    @property
    def epoch(self) -> int | None:
        """The epoch under which is committed; None: nothing is fenced."""
        return None if self._fence is None else self._fence.epoch

    def check_epoch(self) -> None:
        """Look whether the shard is still this epoch's; without an epoch, nothing is looked at.

        Raises:
            OwnershipLostError: it is another one's. UnavailableError: the place cannot be reached.
        """
        if self._fence is not None:
            with self._lock:
                self.snapshot()
                self._check_fence()

    def check_version(self, version_min: int) -> None:
        """Check that a version that was acted on is there. Raises CorruptError."""
        version = int(self._table.version())
        if version < version_min:
            raise CorruptError(
                f"the store at {self.root} is at version {version}, but version {version_min} was acted on: it was "
                "replaced, or restored from an older copy; restore the newer one"
            )

    def snapshot(self) -> Snapshot:
        """Return the newest version, made durable before. Cheap when nothing has changed.

        Raises:
            UnavailableError: the place cannot be reached.
        """
        with self._lock:
            try:
                self._update()
            except (DeltaError, OSError) as error:
                raise _wrapped(f"cannot read the log of the store at {self.root}", error) from error
            return self.read_snapshot()

    def read_snapshot(self) -> Snapshot:
        """Return the version that was read last, made durable before.

        Raises:
            UnavailableError: the place cannot be reached.
        """
        with self._lock:
            version = int(self._table.version())
            if self._snapshot is None or self._snapshot.version != version:
                # Seen is not durable: the driver that wrote it may not have synced it yet, or may have died before.
                if self._place.local is not None:
                    sync_entries(self._place.local, self._synced_version + 1, version)
                self._synced_version = version
                actions = pa.table(self._table.get_add_actions(flatten=True))
                committed_seq = self.version_of(intake_id(self.shard)) or 0
                files = FileColumns.of_actions(actions, self.shard)
                self._snapshot = Snapshot(self.root, version, committed_seq, *files)
            return self._snapshot

    def versions_of(self, *app_ids: str) -> list[int | None]:
        """Return the versions of app transactions in the table's newest version; None for a missing one.

        Raises:
            UnavailableError: the place cannot be reached.
        """
        with self._lock:
            self.snapshot()
            return [self.version_of(app_id) for app_id in app_ids]

    def version_of(self, app_id: str) -> int | None:
        """Return the version of an app transaction in the table as read last; None: it has none.

        Raises:
            UnavailableError: the place cannot be reached.
        """
        try:
            return self._app_versions.of(self._table, app_id)
        except (DeltaError, OSError) as error:
            raise _wrapped(f"cannot read the log of the store at {self.root}", error) from error

    def publish(self, what: str, judge: Callable[[Snapshot], Commit | None]) -> Snapshot:
        """Commit durably what ``judge`` returns for the newest snapshot; return the snapshot with the commit.

        ``judge`` returns None if nothing is left to be done, or raises. ``what`` names the commit in errors.

        A commit that removes files takes place on top of the version that was judged, or not at all. Others fail if
        they conflict by Delta's rules, which are coarse. So after a conflict the newest version is judged again, and
        the commit retried if nothing stands against it.

        Raises:
            InvalidArgumentError: a file is of another shard. StaleCommitError: a file has gone; nothing was committed.
            OwnershipLostError: the shard is another epoch's by now; if it was taken over after the commit, that counts.
            UnavailableError: the log cannot be written. Whether the commit took place shows at the next
            :meth:`snapshot`.
        """
        with self._lock:
            for attempt in range(CONFLICTS_MAX):
                before = self.snapshot()
                self._check_fence()  # before the judge: what it misses may be what a new owner has changed
                commit = judge(before)
                if commit is None:
                    return before
                self._check_present(commit.files)
                try:
                    self.write(commit)
                except CommitFailedError as error:
                    if attempt == CONFLICTS_MAX - 1:
                        raise UnavailableError(f"{what} to {self.root} failed: {error}") from error
                    continue
                except (DeltaError, OSError) as error:
                    raise _wrapped(f"{what} to {self.root} failed", error) from error
                break
            snapshot = self.snapshot()
            # An owner that stood still for days may have written an entry that was cleaned up before: its name was free
            # again, and nobody reads it. Such a commit must not be told as done, and no checkpoint be made of it.
            self._check_fence()
            if snapshot.version // CHECKPOINT_COMMITS > before.version // CHECKPOINT_COMMITS and self._may_clean_up():
                self._checkpoint(snapshot.version)
            return snapshot

    def write(self, commit: Commit, *, claims: bool = False) -> None:
        """Write a commit on top of the version that was read last.

        Its entry is not synced yet; :meth:`publish` is right for nearly all callers. ``claims``: it sets the epoch.

        Raises:
            CommitFailedError: another one came first, which it conflicts with.
            OwnershipLostError: by that version, the shard is another epoch's.
        """
        before = int(self._table.version())
        now_ms = self._clock.now_ms()  # from then on a reader of an older version has the retention's time
        info = {FILES_KEY: str(len(commit.files)), **commit.info}
        removals = self._removals(commit, now_ms)
        if removals or not (commit.versions or claims):
            info[REMOVED_KEY] = str(len(removals))
        info[_USER_METADATA] = described(commit, removals)
        adds = (add_action(file, now_ms, data_change=not removals) for file in commit.files)
        self._table.create_write_transaction(
            [*adds, *removals],
            "append",
            Schema.from_arrow(TABLE),
            PARTITION_COLUMNS,
            # delta-rs takes two commits that remove the same file without a data change for compatible, and any
            # after an OPTIMIZE: both would add its rows. So this one is on top of the version that was judged, or
            # not at all.
            commit_properties=self._properties(info, commit.versions, 0 if removals else None, claims=claims),
            post_commithook_properties=_NO_HOOKS,
        )
        self._note(before, commit.versions, claims=claims)

    def configuration(self) -> dict[str, str]:
        """Return the properties of the table, in the version that was read last."""
        with self._lock:
            return configuration_of(self._table)

    def configure(self, properties: dict[str, str]) -> None:
        """Set properties of the table. One commit, if one of them is new.

        Raises:
            OwnershipLostError: the shard is another epoch's. UnavailableError: the log cannot be written.
        """

        def change() -> None:
            if not properties.items() <= self.configuration().items():
                self._set_properties(properties)
                self.snapshot()

        with self._lock:
            self._on_newest(change)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _check_fence(self) -> None:
        """Judge by the version that was read last."""
        if self._fence is not None:
            self._fence.check(self.version_of(self._fence.id))

    def _check_present(self, files: Sequence[StagedFile]) -> None:
        # Fenced, a file that may be on the list of somebody's search for orphans is not committed: an old owner may
        # have listed it, stood still, and delete it after this look.
        oldest_ms = None if self._fence is None else self._clock.now_ms() - COMMITTED_AGE_MS_MAX
        check_present(self._place, files, oldest_ms)

    def _on_newest(self, change: Callable[[], None]) -> None:
        """Have ``change`` look at the newest version and commit on top of it.

        Fenced, it is called again after each conflict.
        """
        for left in reversed(range(1 if self._fence is None else CONFLICTS_MAX)):
            self.snapshot()
            self._check_fence()
            try:
                change()
            except UnavailableError as error:
                if not (left and isinstance(error.__cause__, CommitFailedError)):
                    raise
            else:
                return

    def _properties(
        self, info: Mapping[str, str], versions: Mapping[str, int], retries_max: int | None, *, claims: bool = False
    ) -> CommitProperties:
        """Return the properties of a commit on top of the version that was read last: all are made with these.

        ``retries_max`` 0: it is the version after that one, or fails. Fenced, each is. ``claims``: it sets the epoch.

        Raises:
            OwnershipLostError: by that version, the shard is another epoch's.
        """
        versions = self._versions(versions, claims=claims)
        if (fence := self._fence) is None:
            return commit_properties(info, versions, retries_max=retries_max)
        (fence.check_claim if claims else fence.check)(self.version_of(fence.id))
        return fence.properties(info, versions)

    def _versions(self, versions: Mapping[str, int], *, claims: bool) -> Mapping[str, int]:
        """Return the app transactions of a commit, with the epoch's if it ``claims``."""
        return versions if self._fence is None or not claims else {**versions, self._fence.id: self._fence.epoch}

    def _note(self, before: int, versions: Mapping[str, int], *, claims: bool) -> None:
        if self._fence is not None:  # else delta-rs may have put it on top of others
            self._app_versions.committed(before, self._versions(versions, claims=claims))

    def _set_properties(
        self, properties: dict[str, str], retries_max: int | None = None, *, claims: bool = False
    ) -> None:
        """``retries_max`` 0: as the version after the one that was read last, or not at all."""
        info, before = {FILES_KEY: "0", REMOVED_KEY: "0"}, int(self._table.version())
        if claims and self._fence is not None:
            del info[REMOVED_KEY]  # so an entry that has lost its app transaction, its last line, is incomplete
        try:
            self._table.alter.set_table_properties(
                properties,
                raise_if_not_exists=False,
                commit_properties=self._properties(info, {}, retries_max, claims=claims),
                post_commithook_properties=_NO_HOOKS,
            )
        except (DeltaError, OSError) as error:
            raise _wrapped(f"cannot set properties of the store {self.root}", error) from error
        self._note(before, {}, claims=claims)

    def _claim(self, owner: Owner) -> None:
        """Record this broker as the owner of the shard in the table, and its epoch, durably.

        Of two brokers that do this at once, one is refused: the commit is the version after the judged one, or it
        fails. Of two epochs of one broker, the lower one is, whichever comes first. So the version that was loaded is
        judged first, be it the newest one or not.
        """
        self.read_snapshot()
        for attempt in range(CONFLICTS_MAX):
            there = self.configuration()
            is_known = owner_key(self.shard) in there
            # A relay does not begin in a shard that is a broker's.
            relay_version = None if is_known else self.version_of(relay_numbers_id(self.shard))
            owner.check(self.root, self.shard, there, relay_version)
            if self._has_claimed(owner, there):
                return
            try:
                if self._is_warm and self._put_claim(owner, is_known=is_known):
                    return
                self._write_claim(owner, is_known=is_known)
            except UnavailableError as error:
                if is_known and self._fence is None:
                    # A broker is known by its id: the place where it ran is in the table for people alone.
                    log.warning("the store does not say yet where its broker is now: %s", error)
                    return
                if attempt == CONFLICTS_MAX - 1 or not isinstance(error.__cause__, CommitFailedError):
                    raise
            self.snapshot()

    def _claim_commit(self, owner: Owner) -> Commit:
        return Commit("claim", info={CLAIMED_BY_KEY: owner.property_of(self.shard)[owner_key(self.shard)]})

    def _write_claim(self, owner: Owner, *, is_known: bool) -> None:
        if self._fence is None or not is_known:
            self._set_properties(owner.property_of(self.shard), retries_max=0, claims=True)
            return
        # The number alone: delta-rs holds the interpreter's lock while it sets properties, and with it the broker's
        # other requests of a takeover.
        try:
            self.write(self._claim_commit(owner), claims=True)
        except (DeltaError, OSError) as error:
            raise _wrapped(f"cannot claim the store {self.root}", error) from error

    def _put_claim(self, owner: Owner, *, is_known: bool) -> bool:
        """Claim a known owner's shard by one request; False: another way is needed.

        What was read stays the version before the claim: it has the same files.
        """
        self._is_warm = False  # once: after a conflict all is read
        if self._fence is None or not is_known or not self.root.startswith("s3://"):
            return False
        before = int(self._table.version())
        self._fence.check_claim(self.version_of(self._fence.id))
        commit = self._claim_commit(owner)
        epoch = {EPOCH_KEY: str(self._fence.epoch)}
        info = {FILES_KEY: "0", **epoch, **commit.info, _USER_METADATA: described(commit, [])}
        now_ms = self._clock.now_ms()
        is_put = put_claim(self.root, before + 1, self._fence.id, self._fence.epoch, info, now_ms)
        if is_put:
            self._note(before, {}, claims=True)
        return is_put

    def _has_claimed(self, owner: Owner, there: Mapping[str, str]) -> bool:
        if self._fence is None:
            return owner.property_of(self.shard).items() <= there.items()
        return owner_key(self.shard) in there and self.version_of(self._fence.id) == self._fence.epoch

    def _add_columns(self) -> None:
        """Add the columns for queries to a table of before there were any: their values are null in its files."""
        if not self._missing_columns():
            return
        added = False

        def change() -> None:  # nothing is written on top of an entry that a power failure may take away
            nonlocal added
            if not (missing := self._missing_columns()):
                return
            info = self._properties({FILES_KEY: "0", REMOVED_KEY: "0"}, {}, retries_max=None)
            try:
                self._table.alter.add_columns(missing, commit_properties=info, post_commithook_properties=_NO_HOOKS)
            except (DeltaError, OSError) as error:
                raise _wrapped(f"cannot add columns to the store {self.root}", error) from error
            added = True

        self._on_newest(change)
        if added:
            self.configure({STATISTICS: PROPERTIES[STATISTICS]})

    def _missing_columns(self) -> list[Field]:
        there = {each.name for each in self._table.schema().fields}
        return [each for each in Schema.from_arrow(FOR_QUERIES).fields if each.name not in there]

    def _update(self) -> None:
        try:
            self._table.update_incremental()
        except DeltaError:
            # The entries after our version may have been cleaned up behind a checkpoint: begin anew.
            self._table = DeltaTable(self.root)

    def _removals(self, commit: Commit, now_ms: int) -> list[RemoveAction]:
        if not commit.removed:
            return []
        entries = pa.table(self._table.get_add_actions(flatten=True)).select(
            ["path", "size_bytes", "partition.shard", "partition.bucket", "num_records"]
        )
        hits = entries.filter(pc.is_in(entries["path"], value_set=pa.array(list(commit.removed), pa.string())))
        # Rows that do not come back are deletions to followers of the table; None: a foreign writer did not count.
        drops_rows = pc.sum(hits["num_records"], skip_nulls=False).as_py() != sum(file.rows for file in commit.files)
        return [
            RemoveAction(path, drops_rows, now_ms, size, {"shard": str(shard), "bucket": bucket})
            for path, size, shard, bucket, _ in zip(*(column.to_pylist() for column in hits.columns), strict=True)
        ]

    def _checkpoint(self, version: int) -> None:
        try:
            self._table.create_checkpoint()
            if self._place.local is not None:
                sync_checkpoint(self._place.local, version)
            self._table.cleanup_metadata()
            if self._place.local is not None:
                remove_lone_records(self._place.local)
        except (DeltaError, OSError) as error:
            # The commit itself is durable; without a checkpoint, opening only takes longer.
            log.warning("no checkpoint of the store at version %d: %s", version, error)


def _wrapped(what: str, error: Exception) -> CorruptError | UnavailableError:
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    kind = CorruptError if isinstance(error, DeltaError) and "Kernel error" in first_line else UnavailableError
    return kind(f"{what}: {first_line}")
