"""Staged files and the merge that reads them back: against sorted lists, herds, damage, bounds on what is held."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import tarry.store.parquet as store_parquet
import tarry.store.window as store_window
from tarry.api.jobs import StagedFile
from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.message.schema import SCHEMA, cancellations, cancelled_seqs
from tarry.store import FileColumns, Snapshot, Store, next_due, read_window, stage
from tarry.store.footers import FOOTERS

store_stage = importlib.import_module("tarry.store.stage")  # the package's attribute of that name is the function
NOW_MS = 1_795_264_000_000
END_MS = 2**62


def rows(due: Sequence[int], seq: Sequence[int], *, topics: Sequence[str] = ("a",), body: bytes = b"body") -> pa.Table:
    """Messages whose every optional column has values and nulls."""
    n = len(due)
    values: dict[str, list[Any]] = {
        "seq": list(seq),
        "topic": [topics[s % len(topics)] for s in seq],
        "due_ms": list(due),
        "id": [f"id-{s}" if s % 2 else None for s in seq],
        "key": [None, "k"] * (n // 2) + [None] * (n % 2),
        "tag": [None] * n,
        "properties": [[("p", str(s))] if s % 3 else None for s in seq],
        "body": [body + str(s).encode() for s in seq],
        "born_ms": [NOW_MS] * n,
        "expire_ms": [None] * n,
        "tries": [3 if s % 2 else None for s in seq],
        "repeat": [None] * n,
        "kind": [0] * n,
    }
    return pa.table(values, schema=SCHEMA)


def snapshot_of(root: Path, staged: Sequence[StagedFile]) -> Snapshot:
    """A snapshot without a Delta log."""
    files = sorted(staged, key=lambda f: (f.due_min_ms, f.seq_min))
    columns = FileColumns(
        path=[f.path for f in files],
        **{
            to: np.array([getattr(f, name) for f in files], np.int64)
            for to, name in [(n, n) for n in ("due_min_ms", "due_max_ms", "seq_min", "seq_max", "rows", "size")]
        },
        topic_min=[f.topic_min for f in files],
        topic_max=[f.topic_max for f in files],
    )
    return Snapshot(str(root), 1, 0, columns)


def keys(batches: Sequence[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(d, s) for b in batches for d, s in zip(b["due_ms"].to_pylist(), b["seq"].to_pylist(), strict=True)]


def read_rows(snapshot: Snapshot) -> pa.Table:
    return pa.Table.from_batches(read_window(snapshot, (0, 0), END_MS, batch_rows=100), SCHEMA)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_stage, "GROUP_ROWS_MAX", 4)
    monkeypatch.setattr(store_stage, "FILE_BYTES_MIN", 1)


def test_rows_come_back_whole(tmp_path: Path) -> None:
    table = rows([NOW_MS + 5000, NOW_MS, NOW_MS + 5000], [7, 8, 9])
    staged = stage(table, str(tmp_path), "intake-x", NOW_MS)
    (batch,) = read_window(snapshot_of(tmp_path, staged), (0, 0), END_MS, batch_rows=100)
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == table.take([1, 0, 2]).to_pylist()


def test_staged_file_describes_itself(tmp_path: Path) -> None:
    (file,) = stage(rows([NOW_MS + 9, NOW_MS], [4, 5], topics=("b", "a")), str(tmp_path), "intake-x", NOW_MS, shard=3)
    assert (file.shard, file.rows, file.due_min_ms, file.due_max_ms) == (3, 2, NOW_MS, NOW_MS + 9)
    assert (file.seq_min, file.seq_max, file.topic_min, file.topic_max) == (4, 5, "a", "b")
    assert file.path.startswith(f"shard=3/bucket={file.bucket}/intake-x-")
    assert (tmp_path / file.path).stat().st_size == file.size


def test_cancellations_are_staged_apart_and_take_their_messages_with_them(tmp_path: Path) -> None:
    messages = rows([NOW_MS] * 3, [0, 1, 2])
    targets = messages.select(["seq", "due_ms", "topic"]).filter(pa.array([False, True, False])).to_batches()[0]
    far = pa.RecordBatch.from_pydict({"seq": [77], "due_ms": [NOW_MS + 1], "topic": ["t"]})
    gone = cancellations(pa.concat_batches([targets, far.cast(targets.schema)]), NOW_MS)
    gone = gone.add_column(0, SCHEMA.field(0), pa.array([3, 4], pa.int64()))
    staged = stage(pa.concat_tables([messages, pa.Table.from_batches([gone])]), str(tmp_path), "x", NOW_MS)
    assert [(f.rows, f.bucket == "cancelled") for f in staged] == [(2, False), (2, True)]
    assert pq.read_table(tmp_path / staged[0].path)["seq"].to_pylist() == [0, 2]
    kept = pq.read_table(tmp_path / staged[1].path, schema=SCHEMA).to_batches()[0]
    assert cancelled_seqs(kept).tolist() == [1, 77]
    assert stage(rows([], []), str(tmp_path), "x", NOW_MS) == []


def test_files_of_cancellations_are_no_files_of_messages(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    targets = rows([NOW_MS + 5], [0]).select(["seq", "due_ms", "topic"]).to_batches()[0]
    gone = cancellations(targets, NOW_MS).add_column(0, SCHEMA.field(0), pa.array([1], pa.int64()))
    staged = stage(pa.Table.from_batches([gone]), str(tmp_path), "x", NOW_MS)
    store.commit(staged, 0, 2)
    snapshot = store.snapshot()
    assert (snapshot.files.path, snapshot.cancelled) == ([], [f.path for f in staged])
    assert list(read_window(snapshot, (0, 0), 2**62, batch_rows=10)) == []


def test_wrong_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="schema"):
        stage(pa.table({"seq": [1]}), str(tmp_path), "x", NOW_MS)


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_groups: None) -> None:
    written: list[Path] = []

    def full(path: Path) -> None:
        written.append(path)
        if len(written) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_stage, "sync_file", full)
    with pytest.raises(OSError, match="No space"):
        stage(rows([NOW_MS, NOW_MS + 7_200_000, NOW_MS + 90_000_000], [0, 1, 2]), str(tmp_path), "x", NOW_MS)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_files_and_directories_are_synced_before_stage_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    (file,) = stage(rows([NOW_MS], [0]), str(tmp_path), "x", NOW_MS)
    path = tmp_path / file.path
    assert {str(p) for p in (path, path.parent, path.parent.parent, tmp_path)} <= synced


many_files = st.lists(
    st.lists(st.integers(0, 12).map(lambda d: NOW_MS + d), min_size=1, max_size=25), min_size=0, max_size=6
)


@settings(max_examples=examples(150), deadline=None)
@given(
    many_files,
    st.integers(0, 13),
    st.integers(0, 60),
    st.integers(0, 14),
    st.sampled_from([1, 2, 7, 1000]),
    st.randoms(),
)
def test_window_equals_a_sorted_list(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[int]],
    after_due: int,
    after_seq: int,
    until: int,
    batch_rows: int,
    random: Any,
) -> None:
    root = tmp_path_factory.mktemp("store")
    seqs = list(range(sum(map(len, files))))
    random.shuffle(seqs)  # files whose seqs interleave, as no batch makes them but a bulk load may
    staged, expected = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_stage, "GROUP_ROWS_MAX", 3)
        for due in files:
            own, seqs = seqs[: len(due)], seqs[len(due) :]
            staged += stage(rows(due, own), str(root), "x", NOW_MS)
            expected += list(zip(due, own, strict=True))
    after, until_ms = (NOW_MS + after_due, after_seq), NOW_MS + until
    batches = list(read_window(snapshot_of(root, staged), after, until_ms, batch_rows=batch_rows))
    assert keys(batches) == sorted(k for k in expected if k >= after and k[0] < until_ms)
    assert all(0 < b.num_rows <= batch_rows for b in batches)
    assert all(b["body"].to_pylist() == [f"body{s}".encode() for s in b["seq"].to_pylist()] for b in batches)


def test_a_herd_is_read_group_by_group_and_resumed_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_groups: None
) -> None:
    staged = [
        f for i in range(5) for f in stage(rows([NOW_MS] * 40, range(i * 40, i * 40 + 40)), str(tmp_path), "x", NOW_MS)
    ]
    snapshot = snapshot_of(tmp_path, staged)
    read: list[int] = []
    real = store_window.read_group
    monkeypatch.setattr(store_window, "read_group", lambda *a: (read.append(a[2]), real(*a))[1])
    got = read_window(snapshot, (NOW_MS, 0), NOW_MS + 1, batch_rows=4)
    first = [next(got), next(got)]
    assert keys(first) == [(NOW_MS, s) for s in range(8)]
    assert len(read) <= 4
    read.clear()
    rest = list(read_window(snapshot, (NOW_MS, 150), NOW_MS + 1, batch_rows=4))
    assert keys(rest) == [(NOW_MS, s) for s in range(150, 200)]
    assert len(read) == 13  # the group that holds 150, and those after it


def test_row_groups_outside_the_window_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_groups: None
) -> None:
    staged = stage(rows([NOW_MS + i for i in range(100)], range(100)), str(tmp_path), "x", NOW_MS)
    read: list[int] = []
    real = store_window.read_group
    monkeypatch.setattr(store_window, "read_group", lambda *a: (read.append(a[2]), real(*a))[1])
    got = list(read_window(snapshot_of(tmp_path, staged), (NOW_MS + 50, 0), NOW_MS + 54, batch_rows=100))
    assert keys(got) == [(NOW_MS + i, i) for i in range(50, 54)]
    assert len(read) == 2


def test_large_bodies_make_small_batches_and_groups(tmp_path: Path) -> None:
    body = b"x" * (3 << 20)
    staged = stage(rows([NOW_MS] * 8, range(8), body=body), str(tmp_path), "x", NOW_MS)
    assert all(pq.read_metadata(tmp_path / f.path).num_row_groups == f.rows for f in staged)
    batches = list(read_window(snapshot_of(tmp_path, staged), (0, 0), END_MS, batch_rows=1000))
    assert max(b.nbytes for b in batches) <= store_window.BATCH_BYTES_MAX + (4 << 20)
    assert keys(batches) == [(NOW_MS, s) for s in range(8)]


def test_nothing_stays_open_when_a_reader_is_abandoned(tmp_path: Path, small_groups: None) -> None:
    staged = [f for i in range(8) for f in stage(rows([NOW_MS + i] * 20, range(20)), str(tmp_path), "x", NOW_MS)]
    got = read_window(snapshot_of(tmp_path, staged), (0, 0), END_MS, batch_rows=5)
    next(got)
    assert not [p for p in Path("/proc/self/fd").iterdir() if p.is_symlink() and ".parquet" in str(p.readlink())]


def test_files_that_a_foreign_writer_left_unsorted_still_come_in_order(tmp_path: Path) -> None:
    table = rows([NOW_MS + (i * 7) % 30 for i in range(30)], range(30))
    (file,) = stage(table, str(tmp_path), "x", NOW_MS)
    file = replace(file, path="shard=0/bucket=all/part-0.parquet")
    (tmp_path / file.path).parent.mkdir()
    pq.write_table(table, tmp_path / file.path, row_group_size=8)
    got = list(read_window(snapshot_of(tmp_path, [file]), (0, 0), END_MS, batch_rows=4))
    assert keys(got) == sorted(zip(table["due_ms"].to_pylist(), table["seq"].to_pylist(), strict=True))


def test_damage_anywhere_is_refused_with_the_file_or_changes_nothing(tmp_path: Path) -> None:
    # Parquet's own checksums cover the pages' contents. Of a page's header, only statistics are free to be anything.
    table = rows([NOW_MS + i for i in range(500)], range(500), body=os.urandom(200))
    (file,) = stage(table, str(tmp_path), "x", NOW_MS)
    path = tmp_path / file.path
    content = path.read_bytes()
    good = read_rows(snapshot_of(tmp_path, [file]))
    refused = 0
    for at in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        FOOTERS.clear()
        try:
            assert read_rows(snapshot_of(tmp_path, [file])).equals(good), f"byte {at}: read, and not what was written"
        except CorruptError as error:
            assert path.name in str(error)
            refused += 1
    assert refused > 0.9 * len(content) / 7


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_truncated_or_missing_file_is_refused_with_its_name(tmp_path: Path, keep: int) -> None:
    (file,) = stage(rows([NOW_MS], [0]), str(tmp_path), "x", NOW_MS)
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptError, match=path.name):
        list(read_window(snapshot_of(tmp_path, [file]), (0, 0), END_MS, batch_rows=100))
    path.unlink()
    with pytest.raises(CorruptError, match=path.name):
        list(read_window(snapshot_of(tmp_path, [file]), (0, 0), END_MS, batch_rows=100))


def test_batch_rows_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="batch_rows is 0"):
        read_window(snapshot_of(tmp_path, []), (0, 0), 1, batch_rows=0)


def test_next_due_of_each_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_groups: None) -> None:
    staged = stage(rows([NOW_MS + i for i in range(60)], range(60), topics=("a", "b", "c")), str(tmp_path), "x", NOW_MS)
    staged += stage(rows([NOW_MS + 90_000_000], [60], topics=("far",)), str(tmp_path), "x", NOW_MS)
    snapshot = snapshot_of(tmp_path, staged)
    read: list[Any] = []
    real = store_parquet.read_group
    monkeypatch.setattr("tarry.store.due.read_group", lambda *a: (read.append(a[2]), real(*a))[1])
    assert next_due(snapshot, NOW_MS + 10, {"a", "b", "c"}) == {"a": NOW_MS + 12, "b": NOW_MS + 10, "c": NOW_MS + 11}
    assert len(read) <= 2
    read.clear()
    # "far" is above every other topic: bounds rule all the other groups out, and "nowhere" is ruled out altogether.
    assert next_due(snapshot, 0, {"far", "nowhere"}) == {"far": NOW_MS + 90_000_000}
    assert len(read) == 1
    assert next_due(snapshot, NOW_MS + 59, {"a", "b"}) == {}
