"""A store of before the table had columns for queries: it is read as it is, and a command gives it the columns."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema

from tarry.message.schema import SCHEMA
from tarry.spark.pipeline.upkeep import StoreRewriter, UpkeepSettings
from tarry.store import Store, read_window, rewrite, stage
from tarry.store.columns import FOR_QUERIES, STORED, TABLE, instant_text, stored
from tarry.store.footers import FOOTERS
from tarry.store.layout import DAY_MS, HOUR_MS
from tarry.store.parquet import column_names
from tarry.store.place import Place
from tarry.store.rewrite import rewrite_sound
from tarry.store.upkeep import plan

from .test_store_upkeep import NOW_MS, gone, messages

BEFORE = pa.schema([field for field in TABLE if field.name not in FOR_QUERIES.names])
DUE = NOW_MS + HOUR_MS + np.arange(500, dtype=np.int64) * 40 * DAY_MS // 500


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table without the columns, with messages in three files or more, two of them cancelled."""
    root = str(tmp_path / "store")
    DeltaTable.create(root, schema=Schema.from_arrow(BEFORE), partition_by=["shard", "bucket"])

    class OlderWriter:
        """A file without the columns for queries, and without counts."""

        def __init__(self, *, cancelled: bool) -> None:
            self.content = pa.BufferOutputStream()
            statistics = ["due_ms", "seq", "topic"]
            self.writer = pq.ParquetWriter(self.content, SCHEMA, write_statistics=statistics, write_page_checksum=True)

        def write_group(self, rows: pa.RecordBatch) -> None:
            self.writer.write_batch(rows)

        def finish(self) -> pa.Buffer:
            self.writer.close()
            return self.content.getvalue()

    with monkeypatch.context() as patch:
        module = sys.modules["tarry.store.stage"]  # the package's own name is its function
        patch.setattr(module, "FileWriter", OlderWriter)
        store = Store.open(root, create=False)
        for start in (0, 250):
            rows = messages(DUE[start : start + 250], range(start, start + 250))
            store.commit(stage(rows, root, "intake-x", NOW_MS), start, start + 250)
        store.commit(stage(gone(DUE[[7, 300]], [7, 300], 500), root, "intake-x", NOW_MS), 500, 502)
    assert {each.name for each in DeltaTable(root).schema().fields} == set(BEFORE.names)
    return root


def query(root: str, sql: str) -> list[dict[str, object]]:
    found = QueryBuilder().register("store", DeltaTable(root)).execute(sql)
    return pa.table(found.read_all()).to_pylist()


def seqs(store: Store) -> list[int]:
    read = read_window(store.snapshot(), (0, 0), 2**62, batch_rows=1000)
    return sorted(seq for batch in read for seq in batch["seq"].to_pylist())


def test_an_older_store_is_read_as_it_is(older: str) -> None:
    version = DeltaTable(older).version()
    store = Store.open(older, create=False)  # as a job does: the columns are the broker's to add
    assert seqs(store) == list(range(500))
    assert DeltaTable(older).version() == version


def test_who_owns_the_table_adds_the_columns_once(older: str) -> None:
    store = Store.open(older)
    fields = {each.name: each.type for each in DeltaTable(older).schema().fields}
    assert (fields["due"].type, fields["target_seq"].type) == ("timestamp", "long")
    assert seqs(store) == list(range(500))
    assert query(older, "SELECT count(*) AS rows, count(due) AS instants FROM store") == [{"rows": 502, "instants": 0}]
    version = store.snapshot().version
    assert Store.open(older).snapshot().version == version
    store.commit(stage(messages([NOW_MS + DAY_MS], [502]), older, "intake-x", NOW_MS), 502, 503)
    [row] = query(older, "SELECT due, due_ms, target_seq FROM store WHERE seq = 502")
    assert (row["due"].timestamp() * 1000, row["target_seq"]) == (row["due_ms"], None)  # type: ignore[attr-defined]


def test_all_files_of_an_older_store_are_rewritten_on_request(older: str) -> None:
    store = Store.open(older)
    assert plan(store.snapshot(), NOW_MS, floor_ms=0) == []
    works = plan(store.snapshot(), NOW_MS, floor_ms=0, older=True)
    assert {work.reason for work in works} == {"older"}
    for work in works:
        done = rewrite(work)
        store.replace(done.removed, done.files)
    assert plan(store.snapshot(), NOW_MS, floor_ms=0, older=True) == []
    assert seqs(store) == [seq for seq in range(500) if seq not in (7, 300)]
    # A second round: the messages that they cancel are gone, so these go as well.
    assert query(older, "SELECT count(*) AS rows FROM store WHERE due IS NULL") == [{"rows": 0}]
    assert query(older, "SELECT seq, target_seq FROM store WHERE kind = 1 ORDER BY seq") == [
        {"seq": 500, "target_seq": 7},
        {"seq": 501, "target_seq": 300},
    ]


def test_due_times_that_are_no_instants_are_null() -> None:
    due = [-(2**63), -1, 0, 1, 2**63 // 1000, 2**63 - 1]
    rows = messages(due, range(6)).combine_chunks().to_batches()[0]
    batch = stored(rows, cancelled=False)
    assert batch.schema == STORED
    instants = batch.column("due").cast(pa.int64()).to_pylist()
    assert instants == [None, -1000, 0, 1000, 2**63 // 1000 * 1000, None]
    assert batch.column("target_seq").null_count == 6


def test_statistics_say_instants_where_they_can() -> None:
    assert instant_text(1_795_264_000_007) == "2026-11-21T12:26:40.007Z"
    assert instant_text(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert instant_text(253_402_300_800_000) is None
    assert instant_text(-1) is None


@pytest.mark.parametrize("how", ["cut", "missing"])
def test_a_damaged_file_is_passed_over_and_named(older: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    store = Store.open(older)
    name = max(store.snapshot().files.path)
    damaged = Path(older) / name
    sound = damaged.read_bytes()
    FOOTERS.clear()
    damaged.write_bytes(sound[:-9]) if how == "cut" else damaged.unlink()
    rewriter = StoreRewriter(store, UpkeepSettings(), lambda works: [rewrite_sound(work) for work in works])

    def until_done() -> None:
        published, known = 1, -1
        while published or len(rewriter.damage) > known:  # as the command does
            known = len(rewriter.damage)
            rewriter.begin_round(store.snapshot())
            published = rewriter.publish(plan(store.snapshot(), NOW_MS, floor_ms=0, older=True, memory=rewriter.memory))

    until_done()
    assert [path for path in store.snapshot().files.path if path == name or not has_all(older, path)] == [name]
    assert all(name in error for error in rewriter.damage)
    assert sum(name in record.getMessage() for record in caplog.records) == len(rewriter.damage) == 1
    damaged.write_bytes(sound)
    until_done()
    assert all(has_all(older, path) for path in store.snapshot().files.path)
    assert seqs(store) == [seq for seq in range(500) if seq not in (7, 300)]


def has_all(root: str, path: str) -> bool:
    return set(STORED.names) <= column_names(Place.of(root), path)
