"""A relay's store that grows by rows of given due times, and is rewritten: for tests of what a delivery reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from tarry.message.schema import Kind
from tarry.store import stage
from tarry.store.columns import PARTITION_COLUMNS, TABLE
from tarry_relay.deliver import DeliverPlan, DeliverWork
from tarry_relay.files import FileTracker, Reached
from tarry_relay.positions import At, SourcePositions, changes, seq_of
from tarry_relay.record import RecordRows
from tarry_relay.settings import RelaySettings
from tarry_relay.table import RelayStore

SHARDS = 2


class Stored:
    """A store that grows by rows of given due times, in two source partitions."""

    def __init__(self, directory: Path) -> None:
        self.uri = str(directory / "store")
        self.store = RelayStore.open_relay(self.uri)
        self.settings = RelaySettings(kafka="k", topics="t", store=self.uri, shards=SHARDS)
        self.at = SourcePositions(0, 2, {("t", 0): At(0, 0), ("t", 1): At(1, 0)})
        self.store.commit_records([], changes(SourcePositions(0, 0, {}), self.at), 2)
        self.due: dict[int, int] = {}

    def add(self, dues: list[int]) -> None:
        rows, places = RecordRows(), dict(self.at.at)
        for i, due_ms in enumerate(dues):
            place = places["t", i % 2]
            seq = seq_of(place.number, place.offset)
            places["t", i % 2] = At(place.number, place.offset + 1)
            self.due[seq] = due_ms
            rows.add(seq=seq, topic="d", due_ms=due_ms, id=f"t/{i % 2}/{place.offset}", key=None, headers=None,
                     body=b"", born_ms=0, kind=Kind.MESSAGE)  # fmt: skip
        end = SourcePositions(0, 2, places)
        files = stage(rows.table(), self.uri, "r", 0)
        self.store.commit_records(files, changes(self.at, end), 2)
        self.at = end

    def rewrite(self, change: bool) -> None:
        """What a compaction does: all files become one, in a commit that says that data changes, or that none does."""
        tracker = FileTracker(self.uri, 0, self.store.snapshot().version)
        plan = DeliverPlan(0, Reached(-1, 0), Reached(2**40, tracker.version), tuple(tracker.files.values()), (), 0)
        work = DeliverWork(self.settings, self.uri)
        batches = [
            batch
            for shard in range(SHARDS)
            for batch in work.rows(DeliverPlan(shard, plan.start, plan.end, plan.files, (), 0), plan.start, plan.end)
        ]
        if not batches:
            return
        adds = []
        for file in stage(pa.Table.from_batches(batches), self.uri, "c", 0):
            stats = (
                f'{{"numRecords":{file.rows},"minValues":{{"due_ms":{file.due_min_ms},"seq":{file.seq_min}}},'
                f'"maxValues":{{"due_ms":{file.due_max_ms},"seq":{file.seq_max}}}}}'
            )
            partition = {"shard": "0", "bucket": file.bucket}
            adds.append(AddAction(file.path, file.size, partition, 0, change, stats))
        DeltaTable(self.uri).create_write_transaction(
            adds, "overwrite", Schema.from_arrow(TABLE), PARTITION_COLUMNS,
            commit_properties=CommitProperties(app_transactions=[Transaction("compact", 1)]),
        )  # fmt: skip
        self.store.snapshot()
