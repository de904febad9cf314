"""The store on S3-compatible storage: a real server of that protocol, with conditional writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from tarry.base.errors import UnavailableError
from tarry.store import StaleCommitError, Store, read_window, remove_orphans, remove_replaced, rewrite, stage
from tarry.store.upkeep import expired, plan

from ..spark.forwarder import Forwarder
from .test_store_fence import NEW, OLD, before_a_version_is_written, claimed, refused
from .test_store_table import NOW_MS, before_the_next_commit, rows, seqs, staged


def test_open_commit_replay_and_read(s3_uri: str) -> None:
    store = Store.open(s3_uri)
    assert store.commit(staged(store, 0, 20), 0, 20).committed_seq == 20
    version = store.commit(staged(store, 20, 30), 20, 30).version
    assert store.commit(staged(store, 20, 30), 20, 30).version == version
    assert seqs(Store.open(s3_uri)) == list(range(30))
    with pytest.raises(StaleCommitError):
        store.commit(staged(store, 40, 50), 40, 50)
    window = read_window(store.snapshot(), (NOW_MS + 5 * 60_000, 0), NOW_MS + 9 * 60_000, batch_rows=2)
    assert [s for batch in window for s in batch["seq"].to_pylist()] == [5, 6, 7, 8]


@pytest.mark.parametrize("scheme", ["s3a", "s3n"])
def test_hadoop_names_of_s3_are_the_same_place(s3_uri: str, scheme: str) -> None:
    store, same = Store.open(s3_uri), Store.open(f"{scheme}{s3_uri.removeprefix('s3')}/", create=False)
    assert (same.root, same.table_id) == (s3_uri, store.table_id)
    same.commit(staged(same, 0, 20), 0, 20)
    assert seqs(store) == list(range(20))


def test_a_job_makes_no_table(s3_uri: str) -> None:
    Store.open(s3_uri)
    with pytest.raises(UnavailableError, match="there is no store at"):
        Store.open(f"{s3_uri}-other", create=False)


def test_of_two_drivers_one_commits(s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = Store.open(s3_uri), Store.open(s3_uri)
    mine, theirs = staged(store, 0, 10), staged(other, 0, 8)
    before_the_next_commit(monkeypatch, lambda: store.commit(mine, 0, 10))
    assert other.commit(theirs, 0, 8).committed_seq == 10
    assert seqs(store) == list(range(10))


def test_a_staged_file_that_is_missing_is_not_named(s3_uri: str) -> None:
    store = Store.open(s3_uri)
    files = staged(store, 0, 10)
    fs.FileSystem.from_uri(s3_uri)[0].delete_file(f"{s3_uri.removeprefix('s3://')}/{files[0].path}")
    with pytest.raises(StaleCommitError, match="missing"):
        store.commit(files, 0, 10)


@pytest.mark.rest
def test_upkeep(s3_uri: str) -> None:
    store = Store.open(s3_uri)
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
    assert remove_replaced(s3_uri, older_than_hours=1) == []
    assert len(remove_replaced(s3_uri, older_than_hours=0)) >= len(before.files) - len(after.files)
    assert seqs(Store.open(s3_uri)) == list(range(60))
    orphans = staged(store, 60, 70)
    assert sorted(remove_orphans(s3_uri, older_than_hours=0)) == sorted(f.path for f in orphans)
    store.replace(expired(after, int(np.iinfo(np.int64).max)), [])
    assert seqs(store) == []
    assert store.snapshot().committed_seq == 60


def test_two_rewritings_of_the_same_files_do_not_both_succeed(s3_uri: str) -> None:
    store, other = Store.open(s3_uri), Store.open(s3_uri)
    store.commit(staged(store, 0, 10), 0, 10)
    path = store.snapshot().files.path
    other.snapshot()
    store.replace(path, [])
    with pytest.raises(StaleCommitError, match="not in the store"):
        other.replace(path, [])


def test_checkpoints_and_their_clean_up(s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.store.publisher.CHECKPOINT_COMMITS", 4)
    store = Store.open(s3_uri)
    for start in range(9):
        store.commit(staged(store, start, start + 1), start, start + 1)
    store.keep_for(48)
    files, base = fs.FileSystem.from_uri(f"{s3_uri}/_delta_log")
    names = [info.base_name for info in files.get_file_info(fs.FileSelector(base))]
    assert sum(".checkpoint" in name for name in names) == 2
    assert seqs(Store.open(s3_uri)) == list(range(9))


def test_an_owner_that_was_taken_over_commits_nothing(s3_uri: str) -> None:
    """Between its look and its commit, and from then on; one at a time, for here a look and a write are two steps."""
    old = claimed(s3_uri, OLD)
    files = staged(old, 0, 10)
    with before_a_version_is_written(lambda: claimed(s3_uri, NEW)) as calls:
        refused(s3_uri, lambda: old.commit(files, 0, 10))
    assert calls == ["create_write_transaction"]
    refused(s3_uri, lambda: old.keep_for(50))
    refused(s3_uri, lambda: Store.open(s3_uri, create=False, epoch=OLD))
    Store.open(s3_uri, create=False, epoch=NEW).commit(files, 0, 10)
    assert seqs(Store.open(s3_uri)) == list(range(10))


OLD_OWNER = f"""
import sys
from tarry.base.errors import OwnershipLostError
from tarry.store import Store
from tests.unit.test_store_table import staged
store = Store.open(sys.argv[1], create=False, epoch={OLD})
files = staged(store, 0, 10)
try:
    store.commit(files, 0, 10)
except OwnershipLostError as error:
    print(error)
"""


def test_an_entry_that_is_on_the_wire_during_the_claim_is_refused(s3_uri: str, s3_endpoint: str) -> None:
    """All looks of the old owner are behind it, and its PUT arrives when the new one has that version."""
    claimed(s3_uri, OLD)
    held: list[bytes] = []

    def claim_before(piece: bytes) -> None:
        request = piece.partition(b"\r\n")[0]
        if request.startswith(b"PUT ") and f"_delta_log/{1:020}.json".encode() in request and not held:
            held.append(request)
            claimed(s3_uri, NEW)

    # A process of its own: delta-rs may keep the interpreter's lock while it waits.
    with Forwarder("127.0.0.1", claim_before) as way:
        way.forward_to(s3_endpoint.removeprefix("http://"))
        path = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": path, "AWS_ENDPOINT_URL": f"http://{way.address}"}
        old = [sys.executable, "-c", OLD_OWNER, s3_uri]
        done = subprocess.run(old, env=environment, capture_output=True, text=True, timeout=60)
    assert len(held) == 1, done.stderr
    assert f"is epoch {NEW}'s, not epoch {OLD}'s" in done.stdout, done.stderr
    assert len(Store.open(s3_uri).snapshot().files) == 0
    claimed(s3_uri, NEW).keep_for(50)
