"""A backup of a serving broker, and a data directory of it: what is in it, and what is refused."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of
from tests.contract.conftest import Served
from tests.snippets import snippets

import tarry.backup.held_copy as held_copy
import tarry.backup.making as making
from tarry.backup.files import files_below
from tarry.backup.making import make_backup
from tarry.backup.manifest import BackupManifest, FileMark
from tarry.backup.restoring import restore
from tarry.backup.store_files import data_files
from tarry.base.clock import TestClock
from tarry.base.errors import (
    CorruptError,
    DiskFullError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    OverloadedError,
)
from tarry.broker.backups import DIRECTORY
from tarry.broker.jobs import FILE as JOBS_FILE
from tarry.cli.main import run
from tarry.log.file_engine import BACKUP_FILE
from tarry.log.frame import FILE_HEADER_BYTES
from tarry.repeat import Repeat
from tarry.store.place import Place
from tarry.testing import TestBroker, open_broker

T0 = 1_795_264_000_000
SETTINGS: dict[str, Any] = {"segment_bytes_max": 4096, "lease_ms": 600_000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    """A broker with something of everything: acknowledged, given back, cancelled, pending, a bulk job, settings."""
    with open_broker(tmp_path / "data", clock=TestClock(T0), **SETTINGS) as found:
        for first in range(0, 60, 10):
            schedule(found, range(first, first + 10))
        found.schedule("beat", b"tick", delay="10s", repeat=Repeat.every("10s"))
        load(found, 40)
        found.set_group("orders", "billing", tries=3)
        found.set_group("orders", "other")  # it keeps what the first one is done with
        found.advance("20s")
        acknowledge(found, 7)
        found.advance("10s")
        assert found.cancel_keys("orders", ["k50", "k51"]) == ["done", "done"]
        yield found


def schedule(broker: TestBroker, numbers: Iterable[int]) -> None:
    """One batch of orders, each due a second after the one before."""
    broker.schedule_batch(
        pa.record_batch(
            {
                "topic": ["orders" for _ in numbers],
                "body": [b"%02d" % i + b"x" * 200 for i in numbers],
                "delay_ms": pa.array([1000 * (1 + i) for i in numbers], pa.int64()),
                "key": [f"k{i}" for i in numbers],
            }
        )
    )


def load(broker: TestBroker, due_s: int) -> None:
    """Commit a bulk job of one message."""
    jobs = broker.components.bulk
    attempt = jobs.begin(f"job due at {due_s}")
    rows = pa.record_batch({"topic": ["orders"], "due_ms": [T0 + 1000 * due_s], "body": [b"bulk"]})
    jobs.commit(attempt.number, *jobs.stage(attempt.number, [rows]))


def acknowledge(broker: TestBroker, messages: int) -> None:
    """Acknowledge the next messages of the group."""
    taken = broker.receive("orders", "billing", max_messages=messages)
    broker.ack("orders", "billing", taken["lease"].to_numpy(), taken["offset"].to_numpy())


def bodies(batch: pa.RecordBatch | pa.Table) -> list[str]:
    """The first letters of each body."""
    return [body[:4].decode().rstrip("x") for body in batch["body"].to_pylist()]


def pending(broker: TestBroker) -> list[tuple[str, int]]:
    return [(row["topic"], row["due_ms"]) for row in broker.list_pending(limit=1000).rows.to_pylist()]


def reopened(data: Path, now_ms: int) -> Any:
    return open_broker(data, clock=TestClock(now_ms), **SETTINGS)


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_a_restored_broker_goes_on_where_the_backup_was_made(broker: TestBroker, tmp_path: Path) -> None:
    before, info = pending(broker), broker.group_info("orders", "billing")
    manifest = make_backup(broker, tmp_path / "backup")
    assert manifest.at_ms == broker.clock.now_ms()
    made = content(tmp_path / "backup")
    # More traffic, which is not in it.
    broker.schedule("orders", b"later", delay=5)
    acknowledge(broker, 10)
    broker.cancel_keys("orders", ["k55"])
    load(broker, 41)
    broker.advance("20s")
    assert content(tmp_path / "backup") == made

    assert restore(tmp_path / "backup", tmp_path / "new").changes == []
    assert content(tmp_path / "backup") == made
    with reopened(tmp_path / "new", manifest.at_ms) as again:
        assert pending(again) == before
        assert again.group_info("orders", "billing") == info
        expected = [f"{i:02}" for i in range(7, 30)]
        assert bodies(again.receive("orders", "billing", max_messages=100)) == expected
        again.advance("40s")
        expected = [f"{i:02}" for i in range(30, 60) if i not in (50, 51)]
        rest = bodies(again.receive("orders", "billing", max_messages=100))
        assert sorted(rest) == sorted([*expected, "bulk"])
        assert again.cancel_keys("orders", ["k3", "k50"]) == ["delivered", "cancelled"]
        assert len(again.receive("beat", "g", max_messages=10)) == 7


def test_a_segment_that_has_just_been_begun_is_in_it(tmp_path: Path) -> None:
    """The checkpoint names it, and it has nothing yet."""
    with open_broker(tmp_path / "data", clock=TestClock(T0), **SETTINGS) as broker:
        while not is_empty_segment(max((tmp_path / "data" / "intake").glob("*.log"))):
            broker.schedule("orders", b"x" * 900, delay="1h")
        before = pending(broker)
        make_backup(broker, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    with reopened(tmp_path / "new", T0) as again:
        assert pending(again) == before
        again.schedule("orders", b"on", delay="2h")
        assert len(pending(again)) == len(before) + 1


def is_empty_segment(path: Path) -> bool:
    return path.stem != "0" * 20 and path.stat().st_size <= FILE_HEADER_BYTES


def test_what_had_been_handed_out_cannot_be_cancelled_afterwards(broker: TestBroker, tmp_path: Path) -> None:
    broker.receive("orders", "billing", max_messages=5)  # of k7 to k11, and no acknowledgement
    make_backup(broker, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    with reopened(tmp_path / "new", T0) as again:  # a clock that was set back
        assert again.cancel_keys("orders", ["k8", "k29"]) == ["delivered", "delivered"]
        assert again.cancel_keys("orders", ["k40"]) == ["done"]


def test_acknowledgements_since_an_instant_do_not_count(broker: TestBroker, tmp_path: Path) -> None:
    acknowledge(broker, 13)  # up to the one due at 20 s
    make_backup(broker, tmp_path / "backup")
    made = restore(tmp_path / "backup", tmp_path / "new", acknowledged_until_ms=T0 + 11_000)
    assert [(each.topic, each.group, each.messages, each.first_ms) for each in made.changes] == [
        ("orders", "billing", 10, T0 + 11_000)
    ]
    with reopened(tmp_path / "new", T0 + 30_000) as again:
        assert bodies(again.receive("orders", "billing", max_messages=100)) == [f"{i:02}" for i in range(10, 30)]
        assert len(again.receive("orders", "other", max_messages=100)) == 30
    with pytest.raises(NotFoundError, match="'billing' of 'orders'"):
        restore(tmp_path / "backup", tmp_path / "no", acknowledged_until_ms=T0, groups=[("orders", "nobody")])
    assert [*(tmp_path / "no").iterdir()] == [tmp_path / "no" / "lock"]


def test_gaps_and_retries_stay_as_they_were(tmp_path: Path) -> None:
    with open_broker(tmp_path / "data", clock=TestClock(T0), **SETTINGS) as broker:
        for i in range(10):
            broker.schedule("orders", f"{i:02}", delay=1 + i)
        broker.advance("10s")
        taken = broker.receive("orders", "billing", max_messages=10)
        leases, offsets = taken["lease"].to_numpy(), taken["offset"].to_numpy()
        broker.ack("orders", "billing", leases[[0, 2, 3, 6, 7]], offsets[[0, 2, 3, 6, 7]])
        broker.nack("orders", "billing", leases[[4, 8]], offsets[[4, 8]], 60_000)
        make_backup(broker, tmp_path / "backup")
    made = restore(tmp_path / "backup", tmp_path / "new", acknowledged_until_ms=T0 + 7000)
    assert [each.messages for each in made.changes] == [2]
    with reopened(tmp_path / "new", T0 + 10_000) as again:
        assert bodies(again.receive("orders", "billing", max_messages=100)) == ["01", "05", "06", "07", "09"]
        again.advance("60s")
        rest = again.receive("orders", "billing", max_messages=100)
        assert bodies(rest) == ["04", "08"]
        assert rest["attempt"].to_pylist() == [2, 2]


def test_all_files_of_a_data_directory_are_in_it(broker: TestBroker, tmp_path: Path) -> None:
    broker.set_push("s", topic="beat", url="https://example.com/")
    broker.create_token("a")
    make_backup(broker, tmp_path / "backup")
    there, made = set(content(tmp_path / "data")), set(content(tmp_path / "backup"))
    ours = {name for name in there if not name.startswith("registry/")}
    assert ours - made == {"reserve"} & ours
    assert {name for name in made - there if not name.startswith("registry/")} == {"backup.json"}
    assert JOBS_FILE in made
    linked = {
        name
        for name in made & there
        if (tmp_path / "data" / name).stat().st_ino == (tmp_path / "backup" / name).stat().st_ino
    }
    assert {name for name in there if name.endswith(".parquet")} <= linked
    last = {max(name for name in made if name.startswith(log) and name.endswith(".log")) for log in LOGS}
    assert not linked & ({"handed", JOBS_FILE} | last), "what is written in place"
    assert not (tmp_path / "data" / DIRECTORY).exists()


LOGS = ("intake/", "ready/", "acks/")


def test_what_is_there_is_not_overwritten(broker: TestBroker, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(InvalidArgumentError, match="has file, which is no backup"):
        make_backup(broker, tmp_path / "other")
    make_backup(broker, tmp_path / "backup")
    with pytest.raises(InvalidArgumentError, match="a whole backup already"):
        make_backup(broker, tmp_path / "backup")
    with pytest.raises(InvalidArgumentError, match="has file; allowed"):
        restore(tmp_path / "backup", tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]
    with pytest.raises(LockedError, match="stays as it is"):
        reopened(tmp_path / "backup", T0).__enter__()


@pytest.mark.parametrize("inner", ["data/backup", f"data/{DIRECTORY}/a/b", "data/store/x", "backup/new", "link/x"])
def test_no_backup_is_within_what_a_broker_or_a_backup_has(broker: TestBroker, tmp_path: Path, inner: str) -> None:
    """A start deletes what was held for a backup, and who deletes an old directory means what is its own."""
    (tmp_path / "link").symlink_to(tmp_path / "data" / "intake")
    make_backup(broker, tmp_path / "backup")
    made, there = content(tmp_path / "backup"), content(tmp_path / "data").keys()
    with pytest.raises(InvalidArgumentError, match=r"is in .*, which has the files of a broker or of a backup"):
        make_backup(broker, tmp_path / inner)
    with pytest.raises(InvalidArgumentError, match=r"is in .*, which has the files of a broker or of a backup"):
        restore(tmp_path / "backup", tmp_path / inner)
    assert not (tmp_path / inner).exists()
    assert (content(tmp_path / "backup"), content(tmp_path / "data").keys()) == (made, there)


class KilledError(BaseException):
    """The process ends here."""


def test_an_interrupted_backup_is_refused_and_begun_anew(
    broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(making, "check_copy", killed)
        make_backup(broker, tmp_path / "backup")
    with pytest.raises(CorruptError, match="no whole backup: it was interrupted"):
        restore(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(LockedError, match="interrupted"):
        reopened(tmp_path / "backup", T0).__enter__()
    code, text = error_of(capsys, "verify", str(tmp_path / "backup"))
    assert (code, "no whole backup: it was interrupted" in text) == (4, True)
    make_backup(broker, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")


def test_a_backup_is_compared_with_its_manifest(broker: TestBroker, tmp_path: Path, capsys: Captured) -> None:
    """Also where a file is sound by itself, and another one than it was."""
    backup = tmp_path / "moved"
    make_backup(broker, tmp_path / "backup")
    shutil.copytree(tmp_path / "backup", backup)  # no links to the broker's
    files = len(BackupManifest.read(backup).files)
    assert f"backup.json: {files} files, sound" in out_of(capsys, "verify", str(backup))
    acks = max(backup.glob("acks/*.log"))
    size = acks.stat().st_size
    with acks.open("ab") as file:
        file.write(b"torn")
    options = next(backup.glob("registry/OPTIONS*"))
    options.unlink()
    code, lines = run(["verify", "--json", str(backup)]), capsys.readouterr().out.splitlines()
    told = [each for each in map(json.loads, lines) if each.get("kind") == "backup.json"]
    assert code == 4
    assert {each["path"]: each["reason"] for each in told} == {
        str(acks): f"it has {size + 4} bytes, not {size}",
        str(options): "it is missing; the backup had it",
    }


@pytest.mark.parametrize("pattern", ["intake/*.log", "store/shard=0/*/*.parquet", "handed", "registry/*.sst"])
def test_a_damaged_backup_is_refused(broker: TestBroker, tmp_path: Path, pattern: str) -> None:
    make_backup(broker, tmp_path / "backup")
    path = next((tmp_path / "backup").glob(pattern))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.unlink()  # it may be the broker's, too
    path.write_bytes(damaged)
    with pytest.raises(CorruptError, match=f"{path} is damaged"):
        restore(tmp_path / "backup", tmp_path / "new")
    path.unlink()
    with pytest.raises(CorruptError, match=f"{path} is missing"):
        restore(tmp_path / "backup", tmp_path / "new")
    assert [*(tmp_path / "new").iterdir()] == [tmp_path / "new" / "lock"]


def test_damage_of_the_broker_makes_no_backup(broker: TestBroker, tmp_path: Path) -> None:
    path = min((tmp_path / "data" / "intake").glob("*.log"))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptError, match=r"1 damaged: .*intake"):
        make_backup(broker, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_an_interrupted_restore_is_not_served(
    broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def killed(*_: object) -> None:
        raise KilledError

    make_backup(broker, tmp_path / "backup")
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr("tarry.backup.restoring.check_copy", killed)
        restore(tmp_path / "backup", tmp_path / "new")
    with pytest.raises(LockedError, match="not restored to the end"):
        reopened(tmp_path / "new", T0).__enter__()
    code, text = error_of(capsys, "verify", str(tmp_path / "new"))
    assert (code, "not restored to the end" in text) == (4, True)
    restore(tmp_path / "backup", tmp_path / "new")
    with reopened(tmp_path / "new", T0 + 30_000) as again:
        assert pending(again) == pending(broker)


def test_a_full_disk_is_one_clear_line(broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "there")

    with monkeypatch.context() as patch, pytest.raises(DiskFullError, match=r"backup is full .* not concerned"):
        patch.setattr(held_copy, "copy_file", full)
        make_backup(broker, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    assert not (tmp_path / "data" / DIRECTORY).exists()
    make_backup(broker, tmp_path / "backup")


def test_one_backup_at_a_time_and_a_hold_that_nobody_extends_ends(broker: TestBroker, tmp_path: Path) -> None:
    held = broker.begin_backup()
    with pytest.raises(OverloadedError, match="another backup"):
        make_backup(broker, tmp_path / "backup", patience_s=0)
    broker.extend_backup(held.backup)
    broker.components.backups.held_s = 0.0
    broker.extend_backup(held.backup)
    broker.components.backups.look()
    assert not Path(held.directory).exists()
    for ask in (broker.extend_backup, broker.end_backup):
        with pytest.raises(NotFoundError, match="is not held"):
            ask(held.backup)
    broker.components.backups.held_s = 30.0
    make_backup(broker, tmp_path / "backup")


def test_a_start_ends_the_hold_of_a_former_life(broker: TestBroker, tmp_path: Path) -> None:
    held = broker.begin_backup()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")  # as a kill leaves it
    assert (tmp_path / "copy" / DIRECTORY / held.backup).exists()
    with reopened(tmp_path / "copy", T0 + 30_000) as again:
        assert not (tmp_path / "copy" / DIRECTORY).exists()
        assert pending(again) == pending(broker)


def test_the_commands_say_what_they_did(broker: TestBroker, tmp_path: Path, capsys: Captured) -> None:
    acknowledge(broker, 3)
    manifest = make_backup(broker, tmp_path / "backup")
    backup, new = str(tmp_path / "backup"), tmp_path / "new"
    instant = ("--acknowledged-until", str(T0 + 9000))
    [told] = data_of(capsys, "restore", backup, "--data", str(new), *instant, "--group", "orders/billing")
    assert told["files"] == len(BackupManifest.read(tmp_path / "backup").files)
    assert (told["at_ms"], told["bytes"]) == (manifest.at_ms, manifest.bytes)
    assert told["groups"] == [{"topic": "orders", "group": "billing", "messages": 2, "first_ms": T0 + 9000}]
    assert "2 acknowledgements do not count" in out_of(capsys, "restore", backup, "--data", f"{new}2", *instant)
    assert out_of(capsys, "verify", str(new)).endswith("nothing damaged\n")
    assert out_of(capsys, "verify", backup).endswith("nothing damaged\n")
    assert error_of(capsys, "restore", backup, "--data", str(new))[0] == 2
    assert error_of(capsys, "restore", str(new), "--data", f"{new}3")[0] == 1
    assert error_of(capsys, "restore", backup, "--data", f"{new}3", "--group", "a/b")[0] == 2
    code, text = error_of(capsys, "backup", "hdfs://bucket/monday")
    assert (code, "is 'hdfs://bucket/monday'; allowed: a path, file:///…, s3://" in text) == (2, True)


def test_directories_of_copies_are_for_owner_and_group_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Served(tmp_path / "data")
    load(place.broker, 40)
    monkeypatch.setenv("TARRY_ENDPOINT", place.address)
    before = os.umask(0)
    try:
        assert run(["backup", str(tmp_path / "backup")]) == 0
        assert run(["restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new")]) == 0
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    place.stop()
    made = [path for name in ("backup", "new") for path in (tmp_path / name).rglob("*") if path.is_dir()]
    assert "shard=0" in {path.name for path in made}
    assert {oct(path.stat().st_mode & 0o777) for path in made} == {"0o750"}


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = Served(tmp_path / "data")
    place.stop()
    place.start()  # it goes on with an audit log that was begun
    monkeypatch.setenv("TARRY_ENDPOINT", place.address)
    place.broker.schedule("orders", b"due")
    place.broker.set_group("orders", "billing")
    shown = [words for each in snippets("sh") if each.page == "docs/backup.md" for words in each.commands("tarry")]
    assert [words[0] for words in shown] == [
        *("backup", "restore", "serve", "backup", "restore", "backup", "restore", "restore")
    ]
    for number, words in enumerate(shown):
        # A second restore of the page is of another day.
        # Object storage is asked in test_backup_objects.py; here a directory stands for it.
        local = [each.replace("s3://bucket/backups", f"{tmp_path}/objects") for each in words]
        here = [each.replace("/backups", str(tmp_path)).replace("data2", f"data2-{number}") for each in local]
        if words[0] != "serve":
            assert run(here) == 0, words
    place.stop()
    with open_broker(tmp_path / "data2-1", clock=TestClock(place.broker.clock.now_ms())) as again:
        assert bodies(again.receive("orders", "billing")) == ["due"]


def test_a_store_in_object_storage_is_copied_by_the_restore(s3_uri: str, tmp_path: Path, capsys: Captured) -> None:
    with open_broker(tmp_path / "data", clock=TestClock(T0), store=s3_uri, **SETTINGS) as broker:
        load(broker, 40)
        before = pending(broker)
        manifest = make_backup(broker, tmp_path / "backup")
        assert manifest.store == s3_uri
        assert not (tmp_path / "backup" / "store").exists()
        told = out_of(capsys, "verify", str(tmp_path / "backup"))
        assert f"it is without the store {s3_uri}, of which version {manifest.store_version} is needed" in told
        assert told.endswith("nothing damaged\n")
        load(broker, 50)
    restore(tmp_path / "backup", tmp_path / "new")
    with reopened(tmp_path / "new", T0) as again:
        assert pending(again) == before
        again.advance("60s")
        assert bodies(again.receive("orders", "g")) == ["bulk"]
    place = Place.of(s3_uri)
    place.remove(data_files(place, manifest.store_version))
    with pytest.raises(NotFoundError, match=r"version .* cannot be copied: .* kept for store_retention_ms"):
        restore(tmp_path / "backup", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("left", ["nothing", "a part"])
def test_a_hold_that_ends_before_its_files_are_listed_makes_no_backup(
    broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """As where the command stands still for longer than the broker waits: what is left is no copy of the broker."""
    ended = False

    def listed(root: Path) -> Iterable[str]:
        nonlocal ended
        if DIRECTORY in root.parts and not ended:
            ended = True
            names = files_below(root) if left == "a part" else []
            broker.end_backup(root.name)
            return [name for name in names if name.startswith("intake/")]
        return files_below(root)

    monkeypatch.setattr(held_copy, "files_below", listed)
    with pytest.raises(NotFoundError, match=r"holds the files of backup \w+ no longer"):
        make_backup(broker, tmp_path / "backup")
    assert ended
    assert not (tmp_path / "backup").exists()


def test_a_backup_that_becomes_whole_while_another_one_begins_there_stays(
    broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has looked at the directory, then stood still until the first one was done."""
    real = fcntl.flock

    def first_one_ends(*_: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        make_backup(broker, tmp_path / "backup")

    monkeypatch.setattr(fcntl, "flock", first_one_ends)
    with pytest.raises((InvalidArgumentError, LockedError), match=r"has a whole backup already|another backup"):
        make_backup(broker, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "store/../../outside", "."])
def test_a_backup_with_names_outside_of_it_is_refused(broker: TestBroker, tmp_path: Path, name: str) -> None:
    """It may come from elsewhere, and is restored as root."""
    manifest = make_backup(broker, tmp_path / "backup")
    (tmp_path / "outside").write_text("x")
    files = {**manifest.files, name: FileMark(1, zlib.crc32(b"x"))}
    (tmp_path / "backup" / BACKUP_FILE).unlink()
    replace(manifest, files=files).write(tmp_path / "backup")
    with pytest.raises(CorruptError, match=f"backup.json is damaged: it names the file '{name}'"):
        restore(tmp_path / "backup", tmp_path / "below" / "new")
    assert not (tmp_path / "below").exists()
