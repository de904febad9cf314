"""The table: exactly once by seq range, stale and racing drivers, other readers, and what a power failure leaves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

import tarry.store.publisher as store_publisher
from tarry.api.jobs import StagedFile
from tarry.base.errors import CorruptError, InvalidArgumentError, TarryError, UnavailableError
from tarry.message.schema import SCHEMA
from tarry.store import Commit, Publisher, StaleCommitError, Store, locallog, read_window, remove_orphans, stage
from tarry.store.locallog import record_path

NOW_MS = 1_795_264_000_000


def rows(start: int, stop: int, *, step_ms: int = 60_000) -> pa.Table:
    n = stop - start
    known = {
        "seq": pa.array(range(start, stop), pa.int64()),
        "topic": pa.array(["orders"] * n),
        "due_ms": pa.array([NOW_MS + s * step_ms for s in range(start, stop)], pa.int64()),
        "properties": pa.array([[("k", "v")]] * n, SCHEMA.field("properties").type),
        "body": pa.array([b"%d" % s for s in range(start, stop)]),
        "born_ms": pa.array([NOW_MS] * n, pa.int64()),
        "kind": pa.array([0] * n, pa.int8()),
    }
    return pa.table([known.get(f.name, pa.nulls(n, f.type)) for f in SCHEMA], schema=SCHEMA)


def staged(store: Store, start: int, stop: int) -> list[StagedFile]:
    return stage(rows(start, stop), store.root, f"intake-{start:020d}-{stop:020d}", NOW_MS, shard=store.shard)


def before_the_next_commit(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Have something done when the next commit has been judged and is about to be written."""
    write = Publisher.write

    def late(publisher: Publisher, commit: Commit) -> None:
        monkeypatch.setattr(Publisher, "write", write)
        meanwhile()
        write(publisher, commit)

    monkeypatch.setattr(Publisher, "write", late)


def seqs(store: Store) -> list[int]:
    got = read_window(store.snapshot(), (0, 0), 2**62, batch_rows=1000)
    return sorted(s for batch in got for s in batch["seq"].to_pylist())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "store"))


def test_a_new_store_is_empty(store: Store) -> None:
    snapshot = store.snapshot()
    assert (snapshot.committed_seq, len(snapshot.files), snapshot.root) == (0, 0, store.root)
    assert store.snapshot() is snapshot


def test_commit_and_replay(store: Store) -> None:
    files = staged(store, 0, 10)
    snapshot = store.commit(files, 0, 10)
    assert (snapshot.committed_seq, int(snapshot.files.rows.sum())) == (10, 10)
    assert sorted(snapshot.files.path) == sorted(f.path for f in files)
    again = store.commit(staged(store, 0, 10), 0, 10)
    assert again.version == snapshot.version
    assert seqs(store) == list(range(10))


def test_a_range_of_which_all_has_fired_moves_the_number(store: Store) -> None:
    assert store.commit([], 0, 10).committed_seq == 10
    assert store.commit(staged(store, 10, 12), 10, 12).committed_seq == 12
    assert seqs(store) == [10, 11]


@pytest.mark.parametrize(("start", "stop"), [(5, 15), (11, 20), (0, 11)])
def test_another_start_is_stale(store: Store, start: int, stop: int) -> None:
    store.commit(staged(store, 0, 10), 0, 10)
    with pytest.raises(StaleCommitError, match="is at seq 10"):
        store.commit(staged(store, start, stop), start, stop)
    assert seqs(store) == list(range(10))


def test_a_second_driver_from_the_same_version_conflicts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Store.open(store.root)
    mine, theirs = staged(store, 0, 10), staged(other, 0, 8)
    # The other driver has checked its start; before it writes, this one commits.
    before_the_next_commit(monkeypatch, lambda: store.commit(mine, 0, 10))
    assert other.commit(theirs, 0, 8).committed_seq == 10
    assert seqs(store) == list(range(10))


def test_a_second_driver_that_planned_further_is_stale(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Store.open(store.root)
    mine, theirs = staged(store, 0, 10), staged(other, 0, 12)
    before_the_next_commit(monkeypatch, lambda: store.commit(mine, 0, 10))
    with pytest.raises(StaleCommitError):
        other.commit(theirs, 0, 12)
    assert seqs(other) == list(range(10))


def test_shards_do_not_disturb_each_other(store: Store) -> None:
    other = Store.open(store.root, shard=1)
    other.commit(staged(other, 0, 5), 0, 5)
    store.commit(staged(store, 0, 3), 0, 3)
    assert (seqs(store), seqs(other)) == ([0, 1, 2], [0, 1, 2, 3, 4])
    with pytest.raises(InvalidArgumentError, match="another shard"):
        store.commit(staged(other, 3, 5), 3, 5)


def test_a_missing_staged_file_is_not_named(store: Store) -> None:
    files = staged(store, 0, 10)
    Path(store.root, files[0].path).unlink()
    with pytest.raises(StaleCommitError, match="missing"):
        store.commit(files, 0, 10)
    assert store.snapshot().committed_seq == 0


@pytest.mark.parametrize(("start", "stop"), [(5, 4), (-1, 4)])
def test_a_bad_range_is_refused(store: Store, start: int, stop: int) -> None:
    with pytest.raises(InvalidArgumentError, match="range"):
        store.commit([], start, stop)


def test_other_readers_see_the_same_rows(store: Store) -> None:
    store.commit(staged(store, 0, 500), 0, 500)
    table = DeltaTable(store.root)
    data = table.to_pyarrow_dataset().to_table()
    assert sorted(data["seq"].to_pylist()) == list(range(500))
    assert data.sort_by("seq").select(SCHEMA.names).cast(SCHEMA).to_pylist() == rows(0, 500).to_pylist()
    assert set(data["shard"].to_pylist()) == {0}
    due = NOW_MS + 100 * 60_000
    query = f"select count(*) as n, min(body) as b from t where due_ms >= {due} and shard = 0"
    answer = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
    assert (answer["n"].to_pylist(), answer["b"].to_pylist()) == ([400], [b"100"])
    assert pc.all(pc.is_valid(data["bucket"])).as_py()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "t"), schema=pa.schema([("x", pa.int64())]))
    with pytest.raises(InvalidArgumentError, match="not a Tarry store"):
        Store.open(str(tmp_path / "t"))
    (tmp_path / "file").write_text("")
    with pytest.raises(TarryError):
        Store.open(str(tmp_path / "file" / "t"))


def test_the_log_is_durable_before_a_snapshot_is_given(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        events.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    reader = Store.open(store.root)
    files = staged(store, 0, 10)
    monkeypatch.setattr(os, "fsync", fsync)
    store.commit(files, 0, 10)
    record = ["00000000000000000001.json.crc32.new", "_delta_log"]
    assert events == ["00000000000000000001.json", "_delta_log", *record], "the record says that the entry is durable"
    events.clear()
    reader.snapshot()
    assert events == []
    # A broker that sees the entry before its driver has synced it does so itself.
    Path(log_dir(store) / "00000000000000000001.json.crc32").unlink()
    Store.open(store.root)
    assert events == ["00000000000000000001.json", "_delta_log", *record]


def commit_some(store: Store, commits: int) -> None:
    at = store.snapshot().committed_seq
    for start in range(at, at + commits):
        store.commit(staged(store, start, start + 1), start, start + 1)


def log_dir(store: Store) -> Path:
    return Path(store.root) / "_delta_log"


def test_a_commit_while_another_process_opens_is_no_lost_entry(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening lists entries, and looks which have records; between the two another one's may come, with its record."""
    entries_in = locallog.entries_in

    def then_commit(root: Path) -> list[Path]:
        found = entries_in(root)
        monkeypatch.setattr(locallog, "entries_in", entries_in)
        store.commit(staged(store, 0, 10), 0, 10)
        return found

    monkeypatch.setattr(locallog, "entries_in", then_commit)
    assert Store.open(store.root).snapshot().committed_seq == 10


def torn(content: bytes, how: str) -> bytes:
    match how:
        case "empty":
            return b""
        case "zeros":
            return bytes(len(content))
        case "half a line":
            return content[: len(content) // 2]
        case "another row count":
            return content.replace(b'numRecords\\": 1', b'numRecords\\": 0')
        case "lost adds":
            lines = content.splitlines(keepends=True)
            return b"".join(line for line in lines if not line.startswith(b'{"add"'))
        case _:
            lines = content.splitlines(keepends=True)
            return b"".join(line for line in lines if not line.startswith(b'{"txn"'))


@pytest.mark.parametrize("how", ["empty", "zeros", "half a line", "lost adds", "lost transaction"])
def test_a_torn_newest_entry_did_not_happen(store: Store, how: str) -> None:
    commit_some(store, 3)
    entry = log_dir(store) / f"{3:020d}.json"
    entry.write_bytes(torn(entry.read_bytes(), how))
    record_path(entry).unlink()  # nobody has seen it
    reopened = Store.open(store.root, version_min=2)
    assert reopened.snapshot().committed_seq == 2
    reopened.commit(staged(reopened, 2, 3), 2, 3)
    assert seqs(reopened) == [0, 1, 2]


@pytest.mark.parametrize("told_by", ["record", "broker"])
@pytest.mark.parametrize(
    "how", ["empty", "zeros", "half a line", "lost adds", "lost transaction", "missing", "another row count"]
)
def test_a_damaged_newest_entry_that_was_acted_on_is_refused_and_kept(store: Store, how: str, told_by: str) -> None:
    commit_some(store, 3)
    entry = log_dir(store) / f"{3:020d}.json"
    content = entry.read_bytes()
    if told_by == "broker":
        if how == "another row count":
            return  # of that, the record alone tells
        record_path(entry).unlink()
    if how == "missing":
        entry.unlink()
    else:
        entry.write_bytes(torn(content, how))
    before = {path.name: path.read_bytes() for path in log_dir(store).iterdir()}
    with pytest.raises(CorruptError, match=r"(acted on|its record).*restore"):
        Store.open(store.root, version_min=3 if told_by == "broker" else -1)
    assert {path.name: path.read_bytes() for path in log_dir(store).iterdir()} == before, "nothing was changed"
    entry.write_bytes(content)
    assert seqs(Store.open(store.root, version_min=3)) == [0, 1, 2]


def test_a_damaged_record_does_not_keep_a_store_from_opening(store: Store) -> None:
    commit_some(store, 2)
    record = record_path(log_dir(store) / f"{2:020d}.json")
    record.write_bytes(b"\0" + record.read_bytes()[1:])
    assert seqs(Store.open(store.root)) == [0, 1]


def test_records_go_with_what_they_are_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_publisher, "CHECKPOINT_COMMITS", 4)
    commit_some(store, 5)
    (log_dir(store) / f"{0:020d}.json").unlink()  # as Delta's clean-up does
    commit_some(store, 3)
    records = {path.name.removesuffix(".crc32") for path in log_dir(store).glob("*.crc32")}
    assert records == {path.name for path in log_dir(store).glob("[0-9]*") if path.suffix != ".crc32"}


def test_a_damaged_checkpoint_that_the_log_needs_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_publisher, "CHECKPOINT_COMMITS", 4)
    commit_some(store, 5)
    (log_dir(store) / f"{1:020d}.json").unlink()
    checkpoint = log_dir(store) / f"{4:020d}.checkpoint.parquet"
    checkpoint.write_bytes(torn(checkpoint.read_bytes(), "half a line"))
    with pytest.raises(CorruptError, match=r"checkpoint\.parquet is damaged.*version 1 was cleaned up"):
        Store.open(store.root)
    assert checkpoint.exists()


@pytest.mark.parametrize("how", ["empty", "zeros", "half a line"])
@pytest.mark.parametrize("what", ["checkpoint", "hint", "both"])
def test_a_torn_checkpoint_is_made_anew(store: Store, monkeypatch: pytest.MonkeyPatch, how: str, what: str) -> None:
    monkeypatch.setattr(store_publisher, "CHECKPOINT_COMMITS", 4)
    commit_some(store, 5)
    checkpoint, hint = log_dir(store) / f"{4:020d}.checkpoint.parquet", log_dir(store) / "_last_checkpoint"
    for path in {"checkpoint": [checkpoint], "hint": [hint], "both": [checkpoint, hint]}[what]:
        path.write_bytes(torn(path.read_bytes(), how))
    reopened = Store.open(store.root)
    assert seqs(reopened) == [0, 1, 2, 3, 4]
    commit_some(reopened, 3)
    assert json.loads(hint.read_text())["version"] == 8
    assert seqs(Store.open(store.root)) == list(range(8))


def test_checkpoints_keep_the_number_and_old_versions_can_be_taken_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_publisher, "CHECKPOINT_COMMITS", 4)
    reader = Store.open(store.root)
    commit_some(store, 9)
    for version in range(8):  # what the retention of the log does after a day
        (log_dir(store) / f"{version:020d}.json").unlink()
    assert reader.snapshot().committed_seq == 9
    assert Store.open(store.root).snapshot().committed_seq == 9
    assert seqs(reader) == list(range(9))


def test_a_full_disk_fails_the_commit_and_a_later_one_succeeds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    files = staged(store, 0, 10)
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "write", lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(UnavailableError, match="No space"):
            store.commit(files, 0, 10)
    assert store.commit(files, 0, 10).committed_seq == 10


def age(path: Path, hours: float) -> None:
    then = time.time() - hours * 3600
    os.utime(path, (then, then))


def test_files_that_a_commit_removed_are_kept_for_readers_of_older_versions(store: Store) -> None:
    store.commit(staged(store, 0, 10), 0, 10)
    before = store.snapshot()
    for path in before.files.path:
        age(Path(store.root, path), 25)
    DeltaTable(store.root).delete()
    assert len(store.snapshot().files) == 0
    assert store.snapshot().committed_seq == 10
    assert remove_orphans(store.root) == []
    assert sum(b.num_rows for b in read_window(before, (0, 0), 2**62, batch_rows=100)) == 10


def test_only_old_files_that_nothing_names_are_orphans(store: Store) -> None:
    committed, dead, young = staged(store, 0, 10), staged(store, 10, 20), staged(store, 10, 20)
    store.commit(committed, 0, 10)
    for file in committed + dead:
        age(Path(store.root, file.path), 25)
    version = store.snapshot().version
    assert remove_orphans(store.root) == [f.path for f in dead]
    assert store.snapshot().version == version
    assert [Path(store.root, f.path).exists() for f in dead + young] == [False] * len(dead) + [True] * len(young)
    store.commit(young, 10, 20)
    assert seqs(store) == list(range(20))
