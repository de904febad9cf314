"""The store of a relay: the table of a broker's store, with app transactions that say how far Kafka was read.

| app transaction | version |
|---|---|
| ``relay-SHARD-offset/TOPIC/PARTITION`` | the offset that is next: everything below is in the table or was handed on |
| ``relay-SHARD-number/TOPIC/PARTITION`` | the partition's number, which is in the seqs of its records |
| ``relay-SHARD-numbers`` | the first number that is free |

They change in the same commit as the files. A commit takes place only where every partition is at the offset at which
the batch began; where all are at its end, it is a replay, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from tarry.base.clock import SystemClock
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.relay.files import Reached
from tarry.relay.positions import At, Partition
from tarry.store import Snapshot, StagedFile, StaleCommitError, Store
from tarry.store.locallog import FILES_KEY
from tarry.store.place import Place
from tarry.store.table import _NO_HOOKS, CHECKPOINT_COMMITS, PARTITION_COLUMNS, TABLE_SCHEMA, _add_action, _wrapped

CONFLICTS_MAX = 5
BEHIND_MS_MAX = 6 * 3_600_000
"""While delivery is further behind, the log is not cleaned up."""


class RelayStore(Store):
    """One relay's shard of a store. Thread-safe."""

    delivered = Reached(0, 0)
    """Up to where all shards have delivered, by their markers, as far as the driver knows."""

    @classmethod
    def open_relay(cls, uri: str, *, shard: int = 0) -> RelayStore:
        """Open or create the store, mending what a power failure left. For the driver alone.

        Raises:
            InvalidArgumentError: the shard is a broker's. Else as :meth:`tarry.store.Store.open`.
        """
        store = cls.open(uri, shard=shard)
        assert isinstance(store, RelayStore)
        if store.version_of(f"intake-{shard}") is not None:
            raise InvalidArgumentError(
                f"shard {shard} of the store at {store.root} is a broker's; allowed: a store, or --store-shard, of the "
                "relay's own"
            )
        return store

    @classmethod
    def look(cls, uri: str, *, shard: int = 0) -> RelayStore:
        """Open a store that is there, without mending: beside a driver that may be writing at this moment.

        Raises:
            UnavailableError: it cannot be read.
        """
        place = Place.of(uri)
        try:
            return cls(place, DeltaTable(place.uri), shard)
        except (DeltaError, OSError) as error:
            raise _wrapped(f"cannot open the store at {place.uri}", error) from error

    def version_of(self, app_id: str) -> int | None:
        """The version of an app transaction in the newest version of the table; None where there is none."""
        with self._lock:
            self.snapshot()
            told = self._table.transaction_version(app_id)
            return None if told is None else int(told)

    def known(self, partitions: Iterable[Partition]) -> tuple[int, dict[Partition, At]]:
        """The first free number, and where those of ``partitions`` are that were ever read."""
        with self._lock:
            self.snapshot()
            return self._numbers(), {p: at for p in partitions if (at := self._at(p)) is not None}

    def commit_records(
        self,
        files: Sequence[StagedFile],
        moved: Mapping[Partition, tuple[int | None, At]],
        next_number: int,
    ) -> Snapshot:
        """Publish a batch: ``moved`` says where each partition was and where it is then.

        Raises:
            StaleCommitError: the table is at neither; nothing was committed. UnavailableError: the log cannot be
            written. Whether the commit took place shows at the next call.
        """
        with self._lock:
            for attempt in range(CONFLICTS_MAX):
                before = self.snapshot()
                if not moved or self._is_done(moved):
                    return before
                self._check_begin(moved, next_number)
                self._check_present(files)
                try:
                    self._write_records(files, moved, next_number)
                    break
                except CommitFailedError as error:
                    # Another driver, which shows above; or somebody has rewritten files, and nothing stands against it.
                    if attempt == CONFLICTS_MAX - 1:
                        raise UnavailableError(f"the commit to {self.root} failed: {error}") from error
                except (DeltaError, OSError) as error:
                    raise _wrapped(f"the commit to {self.root} failed", error) from error
            snapshot = self.snapshot()
            if snapshot.version // CHECKPOINT_COMMITS > before.version // CHECKPOINT_COMMITS:
                self._checkpoint(snapshot.version)
            return snapshot

    def _checkpoint(self, version: int) -> None:
        # It takes away versions that are a day old. Delivery begins at the one that it has reached, which may be such
        # a one after a long pause, until its first batch is done.
        if SystemClock().now_ms() - self.delivered.t < BEHIND_MS_MAX:
            super()._checkpoint(version)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _name(self, what: str, partition: Partition) -> str:
        return f"relay-{self.shard}-{what}/{partition[0]}/{partition[1]}"

    def _numbers(self) -> int:
        return int(self._table.transaction_version(f"relay-{self.shard}-numbers") or 0)

    def _at(self, partition: Partition) -> At | None:
        number = self._table.transaction_version(self._name("number", partition))
        offset = self._table.transaction_version(self._name("offset", partition))
        return None if number is None or offset is None else At(int(number), int(offset))

    def _is_done(self, moved: Mapping[Partition, tuple[int | None, At]]) -> bool:
        return all(self._at(partition) == to for partition, (_, to) in moved.items())

    def _check_begin(self, moved: Mapping[Partition, tuple[int | None, At]], next_number: int) -> None:
        for partition, (begin, to) in moved.items():
            at = self._at(partition)
            here = begin == (None if at is None else at.offset)
            new = self._numbers() <= to.number < next_number
            if not here or not (new or (at is not None and to.number == at.number)):
                raise StaleCommitError(
                    f"the store has {partition[0]}/{partition[1]} at {at}, but the batch goes from {begin} to {to}: it "
                    "was planned from another state, or another relay is at work; nothing was committed"
                )

    def _write_records(
        self, files: Sequence[StagedFile], moved: Mapping[Partition, tuple[int | None, At]], next_number: int
    ) -> None:
        now_ms = SystemClock().now_ms()
        told = [Transaction(self._name("offset", p), to.offset) for p, (_, to) in moved.items()]
        first = self._numbers()
        new = [Transaction(self._name("number", p), to.number) for p, (_, to) in moved.items() if to.number >= first]
        if new:
            # Two drivers that take up different partitions at once would give both the same number.
            told += [*new, Transaction(f"relay-{self.shard}-numbers", next_number)]
        self._table.create_write_transaction(
            [_add_action(file, now_ms) for file in files],
            "append",
            Schema.from_arrow(TABLE_SCHEMA),
            PARTITION_COLUMNS,
            commit_properties=CommitProperties(custom_metadata={FILES_KEY: str(len(files))}, app_transactions=told),
            post_commithook_properties=_NO_HOOKS,
        )
