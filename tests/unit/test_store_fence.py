"""The fence of a shard: once a later epoch has claimed it, an earlier one commits nothing, in whatever order."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableAlterer

import tarry.store.publisher as store_publisher
from tarry.api.jobs import StagedFile
from tarry.base.clock import TestClock
from tarry.base.errors import LockedError, OwnershipLostError, UnavailableError
from tarry.store import Commit, Owner, Publisher, StaleCommitError, Store, orphans
from tarry.store.fence import CLAIMED_BY_KEY, EPOCH_KEY, epoch_id
from tarry.store.locallog import entries_in, entry_path, is_complete

from .test_store_older import BEFORE
from .test_store_table import seqs, staged

OLD, NEW = 5, 6
US = Owner("0" * 32, "here", "/data")
WRITES = (
    (DeltaTable, "create_write_transaction"),
    (TableAlterer, "set_table_properties"),
    (TableAlterer, "add_columns"),
)
"""The calls of delta-rs that write a version on top of one."""


def claimed(uri: str, epoch: int | None) -> Store:
    return Store.open(uri, owner=US, epoch=epoch)


def owner_of(uri: str) -> int | None:
    return DeltaTable(uri).transaction_version(epoch_id(0))


@dataclass(frozen=True)
class Case:
    """What a kind of commit needs: a store with ten messages and the next ten staged."""

    publisher: Publisher
    store: Store
    files: list[StagedFile]

    @classmethod
    def of(cls, uri: str, epoch: int | None) -> Case:
        store = claimed(uri, epoch)
        if store.snapshot().committed_seq == 0:
            store.commit(staged(store, 0, 10), 0, 10)
        return cls(store._publisher, store, staged(store, 10, 20))  # noqa: SLF001 - what the store commits by

    @property
    def present(self) -> list[str]:
        return self.store.snapshot().files.path


Act = Callable[[Case], object]
COMMITS: dict[str, Act] = {
    "schedule": lambda case: case.store.commit(case.files, 10, 20),
    "nothing to schedule": lambda case: case.store.commit([], 10, 20),
    "bulk": lambda case: case.store.commit_bulk(case.files, 1),
    "compact": lambda case: case.store.replace(case.present, case.files),
    "expire": lambda case: case.store.replace(case.present, []),
    "retention": lambda case: case.store.keep_for(77),
    "properties": lambda case: case.publisher.configure({"tarry.test": "1"}),
}


@contextmanager
def before_a_version_is_written(meanwhile: Callable[[], object]) -> Iterator[list[str]]:
    """Have something done when the next commit was judged and its number looked at, and delta-rs is to write it.

    Yields the calls of delta-rs from then on, but for those of ``meanwhile``.
    """
    calls: list[str] = []
    is_meanwhile = False
    with pytest.MonkeyPatch.context() as patch:
        for cls, name in WRITES:
            original = getattr(cls, name)

            def late(self: Any, *args: Any, name: str = name, original: Any = original, **kwargs: Any) -> Any:
                nonlocal is_meanwhile
                if not is_meanwhile:
                    calls.append(name)
                if len(calls) == 1 and not is_meanwhile:
                    is_meanwhile = True
                    meanwhile()
                    is_meanwhile = False
                return original(self, *args, **kwargs)

            patch.setattr(cls, name, late)
        yield calls


def refused(uri: str, act: Callable[[], object]) -> None:
    """``act`` is refused, and the table is as the new owner has left it."""
    with pytest.raises(OwnershipLostError, match=f"is epoch {NEW}'s, not epoch {OLD}'s"):
        act()
    assert owner_of(uri) == NEW
    [last] = DeltaTable(uri).history(1)
    assert last[EPOCH_KEY] == str(NEW), "a version of the old owner is on top"


# -- in all orders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COMMITS)
def test_the_newest_epoch_commits(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "store")
    case = Case.of(uri, OLD)
    before = DeltaTable(uri).version()
    COMMITS[kind](case)
    table = DeltaTable(uri)
    assert table.version() == before + 1
    assert table.history(1)[0][EPOCH_KEY] == str(OLD)
    assert table.transaction_version(epoch_id(0)) == OLD


@pytest.mark.parametrize("kind", COMMITS)
def test_one_that_has_read_before_the_claim_is_refused(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "store")
    old = Case.of(uri, OLD)
    claimed(uri, NEW)
    refused(uri, lambda: COMMITS[kind](old))


@pytest.mark.parametrize("kind", COMMITS)
def test_one_that_reads_after_the_claim_is_refused(tmp_path: Path, kind: str) -> None:
    """The app transaction alone would let it through: there is no commit in between for delta-rs to compare with."""
    uri = str(tmp_path / "store")
    old = Case.of(uri, OLD)
    claimed(uri, NEW)
    old.publisher._table = DeltaTable(uri)  # noqa: SLF001 - as if it had opened it just now
    refused(uri, lambda: COMMITS[kind](old))


@pytest.mark.parametrize("kind", COMMITS)
def test_one_that_was_paused_between_look_and_commit_is_refused(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "store")
    old = Case.of(uri, OLD)
    with before_a_version_is_written(lambda: claimed(uri, NEW)) as held:
        refused(uri, lambda: COMMITS[kind](old))
    assert held, "the commit was never to be written"


def test_what_is_written_without_a_look_is_on_top_of_what_was_read_last_or_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    old = Case.of(uri, OLD)
    commit = Commit("test", old.files)
    claimed(uri, NEW)
    with pytest.raises(CommitFailedError):
        old.publisher.write(commit)
    old.store.snapshot()
    refused(uri, lambda: old.publisher.write(commit))


def test_columns_of_an_older_table_are_added_by_the_newest_owner_alone(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    DeltaTable.create(uri, schema=Schema.from_arrow(BEFORE), partition_by=["shard", "bucket"])
    claims = 0

    def claim_behind_the_first() -> None:
        nonlocal claims
        claims += 1
        Publisher(uri, shard=0, create=False, owner=US, epoch=NEW)

    add = TableAlterer.add_columns

    def late(*args: Any, **kwargs: Any) -> Any:
        if not claims:
            claim_behind_the_first()
        return add(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableAlterer, "add_columns", late)
        refused(uri, lambda: claimed(uri, OLD))
    assert claims == 1
    assert "due" not in {each.name for each in DeltaTable(uri).schema().fields}
    claimed(uri, NEW)
    assert "due" in {each.name for each in DeltaTable(uri).schema().fields}


def test_what_another_shard_commits_in_between_is_no_reason(tmp_path: Path) -> None:
    """Fenced, delta-rs tries nothing again: each commit of anybody is a conflict, and is looked at."""
    uri = str(tmp_path / "store")
    case = Case.of(uri, OLD)
    other = Store.open(uri, shard=1, owner=Owner("1" * 32, "there", "/data"), epoch=3)
    theirs = staged(other, 0, 5)
    for number, (kind, call) in enumerate(
        {"schedule": "create_write_transaction", "retention": "set_table_properties"}.items()
    ):
        with before_a_version_is_written(lambda: other.commit_bulk(theirs, number)) as held:  # noqa: B023 - called here
            COMMITS[kind](case)
        assert held == [call] * 2, "delta-rs put it on top of a version that nobody has looked at"
    assert seqs(case.store) == list(range(20))
    assert case.store.kept_hours == 77
    table = DeltaTable(uri)
    assert [table.transaction_version(epoch_id(shard)) for shard in (0, 1)] == [OLD, 3]


def test_after_a_commit_it_is_told_that_the_store_was_taken_over_and_the_commit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "store")
    old = Case.of(uri, OLD)
    write = Publisher.write

    def claimed_behind(publisher: Publisher, commit: Commit) -> None:
        write(publisher, commit)
        monkeypatch.setattr(Publisher, "write", write)
        claimed(uri, NEW)

    monkeypatch.setattr(Publisher, "write", claimed_behind)
    refused(uri, lambda: COMMITS["schedule"](old))
    assert seqs(Store.open(uri)) == list(range(20))


def test_an_entry_under_a_name_that_was_cleaned_up_is_not_told_as_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner stands still for days right before it writes its entry: then the name is free again."""
    uri = str(tmp_path / "store")
    monkeypatch.setattr(store_publisher, "CHECKPOINT_COMMITS", 4)
    old = Case.of(uri, OLD)
    write = Publisher.write

    def late(publisher: Publisher, commit: Commit) -> None:
        monkeypatch.setattr(Publisher, "write", write)
        copy = tmp_path / "copy"
        shutil.copytree(uri, copy)
        twin = Publisher(str(copy), shard=0, create=False, epoch=OLD)
        write(twin, commit)
        version = twin.snapshot().version
        new = claimed(uri, NEW)
        for start in range(10, 20):
            new.commit(staged(new, start, start + 1), start, start + 1)
        for entry in entries_in(Path(uri)):  # as the clean-up of entries a day old does behind a checkpoint
            if int(entry.stem) < 8:
                entry.unlink()
        shutil.copy(entry_path(copy, version), entry_path(Path(uri), version))

    monkeypatch.setattr(Publisher, "write", late)
    refused(uri, lambda: old.store.commit(old.files, 10, 20))
    assert seqs(Store.open(uri)) == list(range(20))
    assert not {each.path for each in old.files} & set(Store.open(uri).snapshot().files.path)


def test_the_number_outlives_checkpoints_and_the_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_publisher, "CHECKPOINT_COMMITS", 4)
    uri = str(tmp_path / "store")
    old, new = claimed(uri, OLD), claimed(uri, NEW)
    for start in range(9):
        new.commit(staged(new, start, start + 1), start, start + 1)
    for entry in entries_in(Path(uri))[:-2]:
        entry.unlink()
    assert owner_of(uri) == NEW
    refused(uri, lambda: old.keep_for(50))


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_new_table_has_the_epoch_in_its_first_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    claimed(uri, OLD)
    assert DeltaTable(uri, version=0).transaction_version(epoch_id(0)) == OLD
    assert DeltaTable(uri).version() == 0, "a claim once more, of what is there"


def test_a_claim_is_one_commit_with_the_owner(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    claimed(uri, None)
    before = DeltaTable(uri).version()
    claimed(uri, OLD)
    claimed(uri, OLD)  # the same epoch again: nothing is new
    moved = Store.open(uri, owner=Owner(US.id, "elsewhere", "/other"), epoch=NEW)
    table = DeltaTable(uri)
    assert table.version() == before + 2
    assert json.loads(table.history(1)[0][CLAIMED_BY_KEY])["host"] == "elsewhere"
    assert json.loads(table.metadata().configuration["tarry.owner.0"]) == {"id": US.id, "host": "here", "data": "/data"}
    assert (moved.epoch, owner_of(uri)) == (NEW, NEW)


def test_an_earlier_epoch_does_not_open_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    claimed(uri, NEW)
    before = DeltaTable(uri).version()
    refused(uri, lambda: claimed(uri, OLD))
    refused(uri, lambda: Store.open(uri, create=False, epoch=OLD))
    assert DeltaTable(uri).version() == before


def test_a_driver_of_an_epoch_that_has_not_claimed_is_refused(tmp_path: Path) -> None:
    """It would be of another store, or of one restored from a copy."""
    uri = str(tmp_path / "store")
    claimed(uri, None)
    with pytest.raises(OwnershipLostError, match=f"has no epoch, not epoch {OLD}'s"):
        Store.open(uri, create=False, epoch=OLD)
    claimed(uri, OLD)
    with pytest.raises(OwnershipLostError, match=f"is epoch {OLD}'s, not epoch {NEW}'s"):
        Store.open(uri, create=False, epoch=NEW)


def test_a_higher_epoch_of_another_broker_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    claimed(uri, OLD)
    with pytest.raises(LockedError):
        Store.open(uri, owner=Owner("1" * 32, "there", "/data"), epoch=NEW)
    assert owner_of(uri) == OLD


@pytest.mark.parametrize("first", [OLD, NEW])
def test_of_two_claims_at_once_the_later_epoch_has_the_store(tmp_path: Path, first: int) -> None:
    """One is held between its look and its commit, until the other has claimed."""
    uri, second = str(tmp_path / "store"), OLD + NEW - first
    old = claimed(uri, OLD - 1)
    with before_a_version_is_written(lambda: claimed(uri, first)) as held:
        if second == NEW:
            claimed(uri, second)
        else:
            refused(uri, lambda: claimed(uri, second))
    assert held == ["create_write_transaction"] * (2 if second == NEW else 1)
    assert owner_of(uri) == NEW
    with pytest.raises(OwnershipLostError):
        old.keep_for(50)


@pytest.mark.parametrize("first", [OLD, NEW])
def test_of_two_that_make_the_table_at_once_the_later_epoch_has_it(
    tmp_path: Path, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, second, create = str(tmp_path / "store"), OLD + NEW - first, DeltaTable.create

    def late(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(DeltaTable, "create", create)
        claimed(uri, first)
        return create(*args, **kwargs)

    monkeypatch.setattr(DeltaTable, "create", late)
    if second == NEW:
        claimed(uri, second)
    else:
        refused(uri, lambda: claimed(uri, second))
    assert owner_of(uri) == NEW


def test_of_many_that_claim_and_commit_at_once_the_last_one_alone_goes_on(tmp_path: Path) -> None:
    live_at_once(str(tmp_path / "store"))


def live_at_once(uri: str) -> None:
    """Four owners claim and commit in threads; also for a store elsewhere (``tests/engines``)."""
    claimed(uri, 1)
    start, lost = threading.Barrier(4), list[int]()

    def live(epoch: int) -> None:
        start.wait()
        try:
            store = claimed(uri, epoch)
            while store.snapshot().committed_seq < 40:
                at = store.snapshot().committed_seq
                try:
                    store.commit(staged(store, at, at + 5), at, at + 5)
                except StaleCommitError:
                    continue  # an earlier owner committed, right before it lost the store
        except OwnershipLostError:
            lost.append(epoch)

    threads = [threading.Thread(target=live, args=(epoch,)) for epoch in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lost) == [2, 3, 4]
    table = DeltaTable(uri)
    epochs = [int(entry.get(EPOCH_KEY, 1)) for entry in reversed(table.history())]
    assert epochs == sorted(epochs), "an earlier epoch has committed on top of a later one"
    assert seqs(Store.open(uri)) == list(range(40))


def test_a_claim_whose_answer_was_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of object storage puts an entry again after a 5xx, and is told that it exists: it is its own."""
    uri = str(tmp_path / "store")
    claimed(uri, OLD)
    write, asked = DeltaTable.create_write_transaction, list[int]()

    def answered_late(self: DeltaTable, *args: Any, **kwargs: Any) -> None:
        asked.append(1)
        write(self, *args, **kwargs)
        raise CommitFailedError("Failed to commit transaction: 0")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", answered_late)
    assert claimed(uri, NEW).epoch == NEW
    assert asked == [1]


def test_a_claim_that_cannot_be_written_is_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "store")
    claimed(uri, OLD)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", full)
    with pytest.raises(UnavailableError, match="No space left"):
        claimed(uri, NEW)
    assert owner_of(uri) == OLD


def test_a_claim_that_lost_its_end_in_a_power_failure_did_not_happen(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    claimed(uri, OLD)
    claimed(uri, NEW)
    entry = entries_in(Path(uri))[-1]
    lines = entry.read_bytes().splitlines(keepends=True)
    assert is_complete(entry)
    entry.write_bytes(b"".join(lines[:-1]))
    assert not is_complete(entry)


def test_each_number_is_read_once_and_not_again_behind_ones_own_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs reads the log for each: on object storage, a round trip."""
    read, asked = DeltaTable.transaction_version, list[str]()

    def counted(table: DeltaTable, app_id: str) -> int | None:
        asked.append(app_id)
        return read(table, app_id)

    uri = str(tmp_path / "store")
    case = Case.of(uri, OLD)
    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    new = claimed(uri, NEW)
    assert sorted(asked) == ["intake-0", "owner-0"], "of the version below the claim"
    asked.clear()
    new.commit(case.files, 10, 20)
    new.keep_for(99)
    assert new.snapshot().committed_seq == 20
    assert not asked
    claimed(uri, NEW + 1)
    asked.clear()
    with pytest.raises(OwnershipLostError):
        new.keep_for(100)
    assert "owner-0" in asked, "of a version that another has made"


# -- files, and what is not fenced -------------------------------------------------------------------------------------


def test_files_that_somebody_may_take_for_orphans_are_not_committed(tmp_path: Path) -> None:
    """Who listed them as orphans, and stood still, deletes them later, whatever the log says by then."""
    store = claimed(str(tmp_path / "store"), OLD)
    files = staged(store, 0, 10)
    aged = time.time() - 23.5 * 3600
    os.utime(Path(store.root, files[0].path), (aged, aged))
    with pytest.raises(StaleCommitError, match="may be removed as orphans"):
        store.commit(files, 0, 10)
    assert store.snapshot().committed_seq == 0
    Store.open(store.root).commit(files, 0, 10)  # not fenced: as long as they are there
    assert seqs(store) == list(range(10))


def test_a_search_for_orphans_that_stood_still_spares_what_was_committed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old owner's: it reads the table, stands still for two days, and lists files, by then older than a day."""
    uri = str(tmp_path / "store")
    old = Case.of(uri, OLD)
    orphan = staged(old.store, 90, 95)
    now_s = time.time()
    vacuum = DeltaTable.vacuum

    def age(files: list[StagedFile], hours: float) -> None:
        for file in files:
            os.utime(Path(uri, file.path), (now_s - hours * 3600,) * 2)

    def late(table: DeltaTable, *args: Any, **kwargs: Any) -> list[str]:
        new = claimed(uri, NEW)
        new.commit(old.files, 10, 20)
        age(old.files, 47)
        age(orphan, 73)
        return vacuum(table, *args, **kwargs)

    monkeypatch.setattr(DeltaTable, "vacuum", late)
    monkeypatch.setattr(orphans, "SystemClock", lambda: TestClock(int((now_s - 48 * 3600) * 1000)))
    assert orphans.remove_orphans(uri) == [file.path for file in orphan]
    assert seqs(Store.open(uri)) == list(range(20))


def test_without_an_epoch_entries_are_as_they_were(tmp_path: Path) -> None:
    """Golden: keys and values of before there were epochs, but for names of files, times and ids."""
    uri = str(tmp_path / "store")
    case = Case.of(uri, None)
    case.store.commit(case.files, 10, 20)
    case.store.commit_bulk(staged(case.store, 50, 60), 1)
    case.store.replace(case.present[:1], [])
    case.store.keep_for(77)
    Store.open(uri, owner=Owner(US.id, "elsewhere", "/data"))
    entries = [[json.loads(line) for line in entry.read_text().splitlines()] for entry in entries_in(Path(uri))]
    infos = [
        {key: value for key, value in actions[0]["commitInfo"].items() if key.startswith("tarry")}
        for actions in entries
    ]
    kinds = [[*(key for action in actions[1:] for key in action)] for actions in entries]
    adds = [["add"] * len(files) for files in (case.files, case.files, case.files)]
    assert kinds == [
        ["protocol", "metaData"],
        [*adds[0], "txn"],
        [*adds[1], "txn"],
        [*adds[2], "txn"],
        ["remove"],
        ["metaData"],
        ["metaData"],
    ]
    assert infos == [
        {},
        {"tarry.files": str(len(adds[0])), "tarry.start_seq": "0", "tarry.end_seq": "10"},
        {"tarry.files": str(len(adds[1])), "tarry.start_seq": "10", "tarry.end_seq": "20"},
        {"tarry.files": str(len(adds[2])), "tarry.bulk": "1"},
        {"tarry.files": "0", "tarry.removed": "1"},
        {"tarry.files": "0", "tarry.removed": "0"},
        {"tarry.files": "0", "tarry.removed": "0"},
    ]
    transactions = [action["txn"] for actions in entries for action in actions if "txn" in action]
    assert [(each["appId"], each["version"]) for each in transactions] == [
        ("intake-0", 10),
        ("intake-0", 20),
        ("bulk-0", 1),
    ]
