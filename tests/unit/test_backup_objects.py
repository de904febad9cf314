"""Backups in object storage, at versitygw: what is there, what is refused, and what one that was interrupted leaves."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of
from tests.contract.conftest import Served
from tests.engines.versitygw import BUCKET, served
from tests.s3 import set_environment
from tests.unit.test_backup import KilledError, acknowledge, broker, content, pending, reopened

from tarry.api.backups import HeldFiles
from tarry.backup import uploading
from tarry.backup.bucket import PART_BYTES, Bucket
from tarry.backup.restoring import restore
from tarry.backup.uploading import linked, upload_backup
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError, UnavailableError
from tarry.broker.backups import DIRECTORY
from tarry.cli.main import run
from tarry.log.file_engine import BACKUP_FILE
from tarry.testing import TestBroker

__all__ = ["broker"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    directory = tmp_path_factory.mktemp("versitygw")
    with served(directory) as endpoint:
        yield endpoint, directory / BUCKET


@pytest.fixture
def uri(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    set_environment(monkeypatch, server[0], "A", "S")
    return f"s3://{BUCKET}/{tmp_path.name}/monday"


@pytest.fixture
def place(server: tuple[str, Path], tmp_path: Path) -> Path:
    """The directory in which the server has the objects below :func:`uri`."""
    return server[1] / tmp_path.name / "monday"


def test_a_broker_restored_of_a_bucket_goes_on_where_the_backup_was_made(
    broker: TestBroker, uri: str, place: Path, tmp_path: Path, capsys: Captured
) -> None:
    broker.set_push("s", topic="beat", url="https://example.com/")
    before, info = pending(broker), broker.group_info("orders", "billing")
    manifest = upload_backup(broker, uri)
    assert not (tmp_path / "data" / DIRECTORY).exists()
    acknowledge(broker, 10)
    broker.advance("20s")
    assert {path.name for path in place.iterdir()} == {BACKUP_FILE, manifest.objects}
    assert content(place / str(manifest.objects)).keys() == manifest.files.keys()
    assert restore(uri, tmp_path / "new").changes == []
    for name in ("secret.key", "push.json"):
        assert (tmp_path / "new" / name).stat().st_mode & 0o777 == 0o600
    with reopened(tmp_path / "new", manifest.at_ms) as again:
        assert pending(again) == before
        assert again.group_info("orders", "billing") == info
    files = len(manifest.files)
    assert out_of(capsys, "verify", uri).endswith(f"{files} files, {manifest.bytes} bytes, nothing damaged\n")
    # What other programs fetch is a backup in a directory; the modes, which they do not know, are of the manifest.
    shutil.copytree(place / str(manifest.objects), tmp_path / "fetched")
    shutil.copy(place / BACKUP_FILE, tmp_path / "fetched")
    restore(tmp_path / "fetched", tmp_path / "new2")
    assert (tmp_path / "new2" / "secret.key").stat().st_mode & 0o777 == 0o600


def test_nothing_that_is_there_is_overwritten(broker: TestBroker, uri: str, place: Path) -> None:
    upload_backup(broker, uri)
    made = content(place)
    with pytest.raises(InvalidArgumentError, match="has a whole backup already"):
        upload_backup(broker, uri)
    with pytest.raises(InvalidArgumentError, match="has monday/, which is no backup"):
        upload_backup(broker, uri.removesuffix("/monday"))
    with pytest.raises(InvalidArgumentError, match=rf"is below '.*/monday' of its bucket.* it has {BACKUP_FILE}"):
        upload_backup(broker, f"{uri}/a/b")
    Bucket(f"{uri}-store").create("_delta_log/0.json", b"{}")
    with pytest.raises(InvalidArgumentError, match="it has _delta_log"):
        upload_backup(broker, f"{uri}-store/shard=0")
    assert content(place) == made


def test_an_interrupted_one_is_refused_and_the_next_one_takes_its_place(
    broker: TestBroker, uri: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(uploading, "_have_it_count", killed)
        upload_backup(broker, uri)
    [left] = [path.name for path in place.iterdir()]
    with pytest.raises(CorruptError, match="no whole backup: it was interrupted"):
        restore(uri, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    code, text = error_of(capsys, "verify", uri)
    assert (code, "no whole backup: it was interrupted" in text) == (4, True)
    manifest = upload_backup(broker, uri)
    assert manifest.objects != left
    assert {path.name for path in place.iterdir() if content(path) or path.is_file()} == {
        BACKUP_FILE,
        manifest.objects,
    }
    restore(uri, tmp_path / "new")


def test_of_two_at_one_place_one_succeeds(
    broker: TestBroker, uri: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one deletes its own files, and only these."""
    check, made = uploading.check_there, []

    def overtaken(*args: object) -> None:
        monkeypatch.setattr(uploading, "check_there", check)
        made.append(upload_backup(broker, uri))

    monkeypatch.setattr(uploading, "check_there", overtaken)
    with pytest.raises(InvalidArgumentError, match="has a whole backup already"):
        upload_backup(broker, uri)
    assert json.loads((place / BACKUP_FILE).read_bytes())["objects"] == made[0].objects
    restore(uri, tmp_path / "new")


def test_a_manifest_whose_answer_was_lost_is_known_again(
    broker: TestBroker, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Bucket.create

    def repeated(bucket: Bucket, name: str, body: bytes) -> bool:
        return create(bucket, name, body) and create(bucket, name, body)

    monkeypatch.setattr(Bucket, "create", repeated)
    upload_backup(broker, uri)
    restore(uri, tmp_path / "new")


@pytest.mark.parametrize("harm", ["changed", "shorter", "missing"])
def test_a_damaged_object_is_found(broker: TestBroker, uri: str, tmp_path: Path, capsys: Captured, harm: str) -> None:
    manifest = upload_backup(broker, uri)
    name, mark = next((name, mark) for name, mark in manifest.files.items() if name.startswith("intake/"))
    bucket, key = Bucket(uri), f"{manifest.objects}/{name}"
    body = b"".join(bucket.read(key, mark.size))
    bucket.delete([key])
    if harm != "missing":
        harmed = body[:-1] if harm == "shorter" else bytes([body[0] ^ 1]) + body[1:]
        bucket.write(key, iter([harmed]), len(harmed))
    expected = {
        "changed": "its checksum is another",
        "shorter": f"it has {mark.size - 1} bytes, not {mark.size}",
        "missing": "it is missing; the backup had it",
    }[harm]
    assert run(["verify", "--json", uri]) == 4
    [told] = [each for each in map(json.loads, capsys.readouterr().out.splitlines()) if each["what"] == "damage"]
    assert (told["path"], told["reason"]) == (f"{uri}/{key}", expected)
    with pytest.raises(CorruptError, match=f"{uri}/{key} is (damaged|missing)"):
        restore(uri, tmp_path / "new")
    assert [*(tmp_path / "new").iterdir()] == [tmp_path / "new" / "lock"]


def test_a_hold_that_ends_while_files_are_sent_leaves_nothing(
    broker: TestBroker, uri: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was killed and started again, or this process stood still."""
    check = uploading.check_copy

    def ended(root: Path, pace: object) -> None:
        check(root, pace)  # type: ignore[arg-type]
        with suppress(NotFoundError):
            broker.end_backup(root.name.removesuffix("-linked"))

    monkeypatch.setattr(uploading, "check_copy", ended)
    with pytest.raises(NotFoundError, match=r"holds the files of backup .* no longer"):
        upload_backup(broker, uri)
    assert not place.exists() or not content(place)


def test_what_cannot_be_asked_is_told_in_a_sentence(
    broker: TestBroker, uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match=f"{uri} is no backup"):
        restore(uri, tmp_path / "new")
    with pytest.raises(InvalidArgumentError, match="there is no bucket 'other'"):
        upload_backup(broker, "s3://other/monday")
    with pytest.raises(InvalidArgumentError, match=r"'s3://'; allowed: s3://BUCKET/PREFIX"):
        upload_backup(broker, "s3://")
    with pytest.raises(InvalidArgumentError, match=r"'ftp://a/b'; allowed: a path, .*s3://bucket"):
        restore("ftp://a/b", tmp_path / "new")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(InvalidArgumentError, match="the secret does not fit the access key A"):
        upload_backup(broker, uri)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(InvalidArgumentError, match="without TLS"):
        restore(uri, tmp_path / "new")
    assert not (tmp_path / "data" / DIRECTORY).exists()


def test_large_objects_go_in_parts_and_are_there_whole_or_not_at_all(uri: str) -> None:
    bucket, size = Bucket(uri), PART_BYTES + 3

    def chunks(ends: bool) -> Iterator[bytes]:
        yield b"a" * PART_BYTES
        if ends:
            raise CorruptError("the file has changed")
        yield b"end"

    with pytest.raises(CorruptError, match="the file has changed"):
        bucket.write("large", chunks(True), size)
    assert bucket.sizes("") == {}
    bucket.write("large", chunks(False), size)
    assert bucket.sizes("") == {"large": size}
    assert [len(each) for each in bucket.read("large", size)] == [PART_BYTES, 3]
    bucket.write("empty", iter(()), 0)
    assert [*bucket.read("empty", 0)] == []


def test_an_object_that_is_not_there_after_all_is_no_backup(
    broker: TestBroker, uri: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Bucket.write

    def forgetful(bucket: Bucket, name: str, chunks: Iterator[bytes], size: int) -> None:
        if not name.endswith("broker.id"):
            write(bucket, name, chunks, size)

    monkeypatch.setattr(Bucket, "write", forgetful)
    with pytest.raises(UnavailableError, match=r"1 of \d+ objects, broker.id among them \(missing, not 33 bytes\)"):
        upload_backup(broker, uri)
    assert not place.exists() or not content(place)


def test_the_command_tells_the_broker(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    served_here = Served(tmp_path / "data")
    monkeypatch.setenv("TARRY_ENDPOINT", served_here.address)
    try:
        [told] = data_of(capsys, "backup", uri)
        assert (told["directory"], told["files"] > 5) == (uri, True)
        assert served_here.broker.status()["backup"] == {
            "at_ms": told["at_ms"], "place": uri, "bytes": told["bytes"]
        }  # fmt: skip
    finally:
        served_here.stop()
    assert error_of(capsys, "verify", uri, "--store", "x")[0] == 2
    [told] = data_of(capsys, "restore", uri, "--data", str(tmp_path / "new"))
    assert told["groups"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone works as somebody else")
def test_as_root_links_are_made_as_the_brokers_user() -> None:
    """Else the broker could not remove them, and they would hold its files for ever."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # others get to it
        own, place = (os.geteuid(), os.getegid()), Path(name)
        (place / "hold").mkdir()
        for path in (place, place / "hold"):
            os.chown(path, 65534, 65534)
        held = HeldFiles("hold", str(place / "hold"), {}, name, "", 0, 0, 1000)
        with linked(held) as root:
            (root / "a").mkdir()
            assert {(root / "a").stat().st_uid, root.stat().st_uid} == {65534}
        assert (os.geteuid(), os.getegid()) == own
