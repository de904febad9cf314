"""The store of a relay: a broker's table, with app transactions that hold how far Kafka was read.

| app transaction | version | |---|---| | ``relay-SHARD-offset/TOPIC/PARTITION`` | the next offset: everything below is
in the table or was sent on | | ``relay-SHARD-number/TOPIC/PARTITION`` | the partition's number, which is in the seqs of
its records | | ``relay-SHARD-numbers`` | the first number that is free |

They change in the same commit as the files. A commit takes place only if every partition is at the offset at which the
batch began; if all are at its end, it is a replay, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tarry.api.jobs import StagedFile
from tarry.base.clock import SystemClock
from tarry.base.errors import InvalidArgumentError
from tarry.store import Commit, Publisher, Snapshot, StaleCommitError, Store
from tarry.store.owner import intake_id, owner_key, relay_numbers_id
from tarry_relay.files import Reached
from tarry_relay.positions import At, Partition

BEHIND_MS_MAX = 6 * 3_600_000
"""While delivery is further behind than this, the log is not cleaned up."""


class RelayStore:
    """One relay's shard of a store. Thread-safe."""

    def __init__(self, uri: str, shard: int, *, create: bool) -> None:
        self.delivered = Reached(0, 0)
        """Place up to which all shards have delivered, by their markers, as far as the driver knows."""
        self._publisher = Publisher(uri, shard=shard, create=create, mends=create, may_clean_up=self._may_clean_up)
        self.table = Store(self._publisher)
        """The same table in the form of a broker's store, for its upkeep."""

    @classmethod
    def open_relay(cls, uri: str, *, shard: int = 0) -> RelayStore:
        """Open or create the store, and repair it after a power failure. For the driver alone.

        Raises:
            InvalidArgumentError: the shard is a broker's. Else as :meth:`tarry.store.Store.open`.
        """
        store = cls(uri, shard, create=True)
        if store.version_of(intake_id(shard)) is not None or owner_key(shard) in store.properties:
            raise InvalidArgumentError(
                f"shard {shard} of the store at {store.root} is a broker's; allowed: a store, or --store-shard, of the "
                "relay's own"
            )
        return store

    @classmethod
    def look(cls, uri: str, *, shard: int = 0) -> RelayStore:
        """Open an existing store without repairing it, beside a driver that may be writing at this moment.

        Raises:
            UnavailableError: it cannot be read.
        """
        return cls(uri, shard, create=False)

    @property
    def root(self) -> str:
        """Path of the table, as :func:`tarry.store.stage` takes it."""
        return self._publisher.root

    @property
    def table_id(self) -> str:
        """Id of the table, independent of its path."""
        return self._publisher.table_id

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, in the version that was read last."""
        return self._publisher.configuration()

    def snapshot(self) -> Snapshot:
        """Return a snapshot, as :meth:`tarry.store.Store.snapshot`."""
        return self._publisher.snapshot()

    def version_of(self, app_id: str) -> int | None:
        """Return an app transaction's version in the table's newest version; None if there is none."""
        [version] = self._publisher.versions_of(app_id)
        return version

    def positions_of(self, partitions: Iterable[Partition]) -> tuple[int, dict[Partition, At]]:
        """Return the first free number, and the positions of those ``partitions`` that were ever read."""
        asked = list(partitions)
        names = [self._name(what, p) for p in asked for what in ("number", "offset")]
        free, *versions = self._publisher.versions_of(self._numbers, *names)
        read = zip(asked, versions[::2], versions[1::2], strict=True)
        return free or 0, {p: At(n, offset) for p, n, offset in read if n is not None and offset is not None}

    def commit_records(
        self,
        files: Sequence[StagedFile],
        moved: Mapping[Partition, tuple[int | None, At]],
        next_number: int,
    ) -> Snapshot:
        """Publish a batch: ``moved`` holds each partition's position before and after it.

        Raises:
            StaleCommitError: the table is at neither; nothing was committed. UnavailableError: the log cannot be
            written. Whether the commit took place shows at the next call.
        """

        def judge(_: Snapshot) -> Commit | None:
            if all(self._at(partition) == to for partition, (_, to) in moved.items()):
                return None
            self._check_begin(moved, next_number)
            return Commit("schedule", files, versions=self._versions(moved, next_number))

        return self._publisher.publish("the commit", judge)

    # -- inside: of the version that the publisher read last ---------------------------------------------------------

    def _may_clean_up(self) -> bool:
        # It removes versions that are a day old. Delivery begins at the version that it has reached, which may be such
        # a one after a long pause, until its first batch is done.
        return SystemClock().now_ms() - self.delivered.t < BEHIND_MS_MAX

    def _name(self, what: str, partition: Partition) -> str:
        return f"relay-{self._publisher.shard}-{what}/{partition[0]}/{partition[1]}"

    @property
    def _numbers(self) -> str:
        return relay_numbers_id(self._publisher.shard)

    def _free_number(self) -> int:
        return self._publisher.version_of(self._numbers) or 0

    def _at(self, partition: Partition) -> At | None:
        number = self._publisher.version_of(self._name("number", partition))
        offset = self._publisher.version_of(self._name("offset", partition))
        return None if number is None or offset is None else At(number, offset)

    def _check_begin(self, moved: Mapping[Partition, tuple[int | None, At]], next_number: int) -> None:
        for partition, (begin, to) in moved.items():
            at = self._at(partition)
            here = begin == (None if at is None else at.offset)
            new = self._free_number() <= to.number < next_number
            if not here or not (new or (at is not None and to.number == at.number)):
                raise StaleCommitError(
                    f"the store has {partition[0]}/{partition[1]} at {at}, but the batch goes from {begin} to {to}: it "
                    "was planned from another state, or another relay is at work; nothing was committed"
                )

    def _versions(self, moved: Mapping[Partition, tuple[int | None, At]], next_number: int) -> dict[str, int]:
        versions = {self._name("offset", p): to.offset for p, (_, to) in moved.items()}
        first = self._free_number()
        new = {self._name("number", p): to.number for p, (_, to) in moved.items() if to.number >= first}
        if new:
            # Two drivers that add different partitions at once would give both the same number.
            versions |= {**new, self._numbers: next_number}
        return versions
