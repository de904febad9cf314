"""The store on S3-compatible storage: a real server of that protocol, with conditional writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from tarry.store import StaleCommitError, Store, read_window, remove_orphans, remove_replaced, rewrite, stage
from tarry.store.upkeep import expired, plan

from .test_store_table import NOW_MS, rows, seqs, staged

pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    # In a process of its own: some calls of delta-rs keep the interpreter's lock while they wait for the server.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not listens(port):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def uri(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """What an operator sets in the environment: docs/operations.md."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    bucket = tmp_path.name.replace("_", "-").lower()
    fs.S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True).create_dir(bucket)
    return f"s3://{bucket}/a/store"


def test_open_commit_replay_and_read(uri: str) -> None:
    store = Store.open(uri)
    assert store.commit(staged(store, 0, 20), 0, 20).committed_seq == 20
    version = store.commit(staged(store, 20, 30), 20, 30).version
    assert store.commit(staged(store, 20, 30), 20, 30).version == version
    assert seqs(Store.open(uri)) == list(range(30))
    with pytest.raises(StaleCommitError):
        store.commit(staged(store, 40, 50), 40, 50)
    window = read_window(store.snapshot(), (NOW_MS + 5 * 60_000, 0), NOW_MS + 9 * 60_000, batch_rows=2)
    assert [s for batch in window for s in batch["seq"].to_pylist()] == [5, 6, 7, 8]


def test_of_two_drivers_one_commits(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = Store.open(uri), Store.open(uri)
    mine, theirs = staged(store, 0, 10), staged(other, 0, 8)
    write = Store._write

    def late(self: Store, *args: object) -> None:
        if self is other:
            store.commit(mine, 0, 10)
        write(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "_write", late)
    assert other.commit(theirs, 0, 8).committed_seq == 10
    assert seqs(store) == list(range(10))


def test_a_staged_file_that_is_missing_is_not_named(uri: str) -> None:
    store = Store.open(uri)
    files = staged(store, 0, 10)
    fs.FileSystem.from_uri(uri)[0].delete_file(f"{uri.removeprefix('s3://')}/{files[0].path}")
    with pytest.raises(StaleCommitError, match="missing"):
        store.commit(files, 0, 10)


def test_upkeep(uri: str) -> None:
    store = Store.open(uri)
    for start in range(0, 60, 10):
        files = stage(rows(start, start + 10, step_ms=1000), store.root, "intake-x", NOW_MS)
        store.commit(files, start, start + 10)
    before = store.snapshot()
    works = plan(before, NOW_MS, floor_ms=NOW_MS)
    assert works
    for work in works:
        result = rewrite(work)
        store.replace(result.removed, result.files)
    after = store.snapshot()
    assert len(after.files) < len(before.files)
    assert seqs(store) == list(range(60))
    # Who has the old version reads on.
    assert sum(b.num_rows for b in read_window(before, (0, 0), 2**62, batch_rows=100)) == 60
    assert remove_replaced(uri, older_than_hours=1) == []
    assert len(remove_replaced(uri, older_than_hours=0)) >= len(before.files) - len(after.files)
    assert seqs(Store.open(uri)) == list(range(60))
    orphans = staged(store, 60, 70)
    assert sorted(remove_orphans(uri, older_than_hours=0)) == sorted(f.path for f in orphans)
    store.replace(expired(after, int(np.iinfo(np.int64).max)), [])
    assert seqs(store) == []
    assert store.snapshot().committed_seq == 60


def test_two_rewritings_of_the_same_files_do_not_both_succeed(uri: str) -> None:
    store, other = Store.open(uri), Store.open(uri)
    store.commit(staged(store, 0, 10), 0, 10)
    path = store.snapshot().files.path
    other.snapshot()
    store.replace(path, [])
    with pytest.raises(StaleCommitError, match="not in the store"):
        other.replace(path, [])


def test_checkpoints_and_their_clean_up(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.store.table.CHECKPOINT_COMMITS", 4)
    store = Store.open(uri)
    for start in range(9):
        store.commit(staged(store, start, start + 1), start, start + 1)
    store.keep_for(48)
    files, base = fs.FileSystem.from_uri(f"{uri}/_delta_log")
    names = [info.base_name for info in files.get_file_info(fs.FileSelector(base))]
    assert sum(".checkpoint" in name for name in names) == 2
    assert seqs(Store.open(uri)) == list(range(9))
