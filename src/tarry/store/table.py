"""The store for a broker's parts: read as snapshots, committed to exactly once for each range of seqs.

``committed_seq`` is the version of the table's app transaction ``intake-<shard>``: one number that says which part of
the intake is in the store, changed in the same commit as the files themselves. A commit names the range ``[start_seq,
end_seq)`` that its files hold. A replay (the table is there already) changes nothing; any other start is stale; and of
two drivers that race from the same version, the second one's commit conflicts on the app transaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tarry.api.jobs import StagedFile
from tarry.base.clock import Clock
from tarry.base.errors import InvalidArgumentError, StaleCommitError
from tarry.store.actions import Commit
from tarry.store.creation import FILE_RETENTION, LOG_RETENTION
from tarry.store.owner import Owner, bulk_id, intake_id
from tarry.store.publisher import Publisher
from tarry.store.snapshot import Snapshot
from tarry.store.warm import WarmTable

LOOK_HOURS = 2
"""Additional hours for which the log names a removed file: until the part that deletes it has looked."""
_HOURS = {"hour": 1, "day": 24, "week": 168}


class Store:
    """One shard of a store. Thread-safe; any number of processes may have the same store open."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.root, self.shard, self.table_id = publisher.root, publisher.shard, publisher.table_id
        self.epoch = publisher.epoch
        """The epoch under which is committed (:mod:`tarry.store.fence`); None: nothing is fenced."""

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        shard: int = 0,
        create: bool = True,
        clock: Clock | None = None,
        version_min: int = -1,
        owner: Owner | None = None,
        epoch: int | None = None,
        warm: WarmTable | None = None,
    ) -> Store:
        """Open the store at a path or URI, creating it if it is not there.

        On a local disk, this repairs the damage of a power failure. ``create`` is for the table's owner, a broker: a
        job that made one would work on another table than its broker's. ``owner``: the broker that owns the shard from
        now on. ``epoch``: its number among the owners of a log that can be taken over, or that of the broker whose
        driver this is; each commit then raises OwnershipLostError once another epoch owns the shard. ``warm``: what was
        read of it before, by one with an ``owner``.

        Raises:
            LockedError: the shard is another broker's, or a relay's.
            OwnershipLostError: a later epoch has claimed it; a driver's broker does not own it.
            InvalidArgumentError: there is a Delta table that is not a Tarry store, or the place can be none.
            CorruptError: the table cannot be read, or has not ``version_min``, which was acted on; nothing was changed.
            UnavailableError: the place cannot be reached or written, or has no table and ``create`` is false.
        """
        store = cls(
            Publisher(
                uri,
                shard=shard,
                create=create,
                clock=clock,
                version_min=version_min,
                owner=owner,
                epoch=epoch,
                warm=warm,
            )
        )
        store.read_snapshot()
        return store

    def snapshot(self) -> Snapshot:
        """Return the newest version, made durable before. Cheap when nothing has changed.

        Raises:
            UnavailableError: the place cannot be reached.
        """
        return self._publisher.snapshot()

    def read_snapshot(self) -> Snapshot:
        """Return the version that was read last, as by opening, made durable before."""
        return self._publisher.read_snapshot()

    def check_version(self, version_min: int) -> None:
        """Check that a version that was acted on is there. Raises CorruptError."""
        self._publisher.check_version(version_min)

    def check_epoch(self) -> None:
        """Look whether the shard is still this epoch's; without an epoch, nothing is looked at.

        Raises:
            OwnershipLostError: it is another one's. UnavailableError: the place cannot be reached.
        """
        self._publisher.check_epoch()

    def commit(self, files: Sequence[StagedFile], start_seq: int, end_seq: int) -> Snapshot:
        """Publish ``files`` as the messages of ``[start_seq, end_seq)``, in one durable commit.

        ``files`` may be empty. If the table has ``end_seq`` already, nothing is written: it is a replay, and ``files``
        are orphans.

        Raises:
            InvalidArgumentError: the range is not one, or a file is of another shard. StaleCommitError: the table is at
            another seq than ``start_seq``, another driver won the race, or a file has gone. UnavailableError: the log
            cannot be written. Whether the commit took place shows at the next :meth:`snapshot`.
        """
        if end_seq < start_seq or start_seq < 0:
            raise InvalidArgumentError(f"the range to commit is [{start_seq}, {end_seq}); allowed: 0 <= start <= end")
        self._check_shard(files)
        info = {"tarry.start_seq": str(start_seq), "tarry.end_seq": str(end_seq)}
        commit = Commit("schedule", files, versions={intake_id(self.shard): end_seq}, info=info)

        def judge(now: Snapshot) -> Commit | None:
            if now.committed_seq >= end_seq:
                return None
            if now.committed_seq != start_seq:
                raise StaleCommitError(
                    f"the store is at seq {now.committed_seq}, but the commit of [{start_seq}, {end_seq}) starts "
                    "at another: it was planned from another state, or another driver is at work; nothing was committed"
                )
            return commit

        return self._publisher.publish(f"the commit of [{start_seq}, {end_seq})", judge)

    def bulk_number(self) -> int | None:
        """Return the last committed attempt of a bulk job; None before the first."""
        [number] = self._publisher.versions_of(bulk_id(self.shard))
        return number

    def read_bulk_number(self) -> int | None:
        """Return the same of the version that was read last, as by opening."""
        return self._publisher.version_of(bulk_id(self.shard))

    def commit_bulk(self, files: Sequence[StagedFile], number: int) -> Snapshot:
        """Publish ``files`` as all messages of an attempt of a bulk job, in one durable commit.

        One at a time: only the last one is recognised as a replay, which changes nothing.

        Raises:
            InvalidArgumentError: a file is of another shard. StaleCommitError: a file has gone. UnavailableError: the
            log cannot be written; :meth:`bulk_number` tells whether the commit took place.
        """
        self._check_shard(files)
        commit = Commit("bulk load", files, versions={bulk_id(self.shard): number}, info={"tarry.bulk": str(number)})

        def judge(_: Snapshot) -> Commit | None:
            return commit if self._publisher.version_of(bulk_id(self.shard)) != number else None

        return self._publisher.publish(f"the commit of bulk job {number}", judge)

    def replace(self, removed: Sequence[str], files: Sequence[StagedFile]) -> Snapshot:
        """Put ``files`` in the place of the files ``removed`` (paths in the table), in one durable commit.

        The rows are the caller's concern; ``committed_seq`` stays. Commits that add files meanwhile do not disturb.

        Raises:
            InvalidArgumentError: a file is of another shard. StaleCommitError: a file to remove is not in the table, as
            somebody else has removed it, or a file to add has gone; nothing was committed, ``files`` are orphans.
            UnavailableError: the log cannot be written.
        """
        self._check_shard(files)

        def judge(now: Snapshot) -> Commit | None:
            missing = set(removed).difference(now.files.path, now.cancelled)
            if missing:
                raise StaleCommitError(
                    f"{min(missing)} is not in the store {self.root} any more; nothing was committed"
                )
            operation = "compact" if files else "expire"
            return Commit(operation, files, removed) if removed or files else None

        return self._publisher.publish(f"the rewriting of {len(removed)} files", judge)

    def keep_for(self, hours: int) -> None:
        """Keep entries of the log, and files that a commit removed, for at least ``hours``.

        One commit, if it is new.

        Raises:
            UnavailableError: the log cannot be written.
        """
        self._publisher.configure(
            {LOG_RETENTION: f"interval {hours} hours", FILE_RETENTION: f"interval {hours + LOOK_HOURS} hours"}
        )

    @property
    def kept_hours(self) -> int:
        """Hours for which files that a commit removed are kept at least; the longest that any reader may take."""
        text = self._publisher.configuration().get(LOG_RETENTION, "")
        interval = re.fullmatch(r"interval (\d+) (hour|day|week)s?", text)
        return int(interval[1]) * _HOURS[interval[2]] if interval else _HOURS["week"]

    def _check_shard(self, files: Sequence[StagedFile]) -> None:
        if any(file.shard != self.shard for file in files):
            raise InvalidArgumentError(f"a file of another shard; allowed: {self.shard}")
