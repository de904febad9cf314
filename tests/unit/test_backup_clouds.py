"""Backups at Azure Blob Storage and Google Cloud Storage, at servers that speak as they do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli_tools import Captured, error_of, out_of
from tests.engines import azurite, fake_gcs
from tests.unit.test_backup import KilledError, acknowledge, broker, pending, reopened

from tarry.backup import bucket as bucket_module
from tarry.backup import uploading
from tarry.backup.bucket import PART_BYTES, Bucket
from tarry.backup.restoring import restore
from tarry.backup.uploading import upload_backup
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.broker.backups import DIRECTORY
from tarry.log.file_engine import BACKUP_FILE
from tarry.testing import TestBroker

__all__ = ["broker"]
AT_AZURE = f"@{azurite.ACCOUNT}.dfs.core.windows.net"


class CloudServer(NamedTuple):
    """One that serves: how its URIs begin and go on, its variables, and what is wrong with a key or a place."""

    start: str
    end: str
    environment: dict[str, str]
    wrong: tuple[str, str, str]
    """A variable of credentials, a wrong value, and what is said then."""
    missing: str


@pytest.fixture(scope="module", params=["azure", "google"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "azure":
        wrong = ("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=", f"do not fit the account '{azurite.ACCOUNT}'")
        with azurite.served(directory) as environment:
            yield CloudServer(
                f"abfss://{azurite.CONTAINER}",
                AT_AZURE,
                environment,
                wrong,
                f"no container '{azurite.CONTAINER}-other'",
            )
    else:
        wrong = ("GOOGLE_BEARER_TOKEN", "wrong", f"for the bucket '{fake_gcs.BUCKET}' are not known")
        with fake_gcs.served(directory) as environment:
            yield CloudServer(f"gs://{fake_gcs.BUCKET}", "", environment, wrong, f"no bucket '{fake_gcs.BUCKET}-other'")


@pytest.fixture
def uri(server: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "AZURITE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"{server.start}{server.end}/{tmp_path.name}/monday"


def test_a_broker_restored_of_a_cloud_goes_on_where_the_backup_was_made(
    broker: TestBroker, uri: str, tmp_path: Path, capsys: Captured
) -> None:
    before, info = pending(broker), broker.group_info("orders", "billing")
    manifest = upload_backup(broker, uri)
    assert not (tmp_path / "data" / DIRECTORY).exists()
    acknowledge(broker, 10)
    broker.advance("20s")
    there = Bucket(uri)
    assert there.sizes(str(manifest.objects)) == {name: mark.size for name, mark in manifest.files.items()}
    assert set(there.names().objects) == {BACKUP_FILE}
    assert restore(uri, tmp_path / "new").changes == []
    assert (tmp_path / "new" / "secret.key").stat().st_mode & 0o777 == 0o600
    with reopened(tmp_path / "new", manifest.at_ms) as again:
        assert pending(again) == before
        assert again.group_info("orders", "billing") == info
    files = len(manifest.files)
    assert out_of(capsys, "verify", uri).endswith(f"{files} files, {manifest.bytes} bytes, nothing damaged\n")


def test_nothing_that_is_there_is_overwritten(broker: TestBroker, uri: str) -> None:
    upload_backup(broker, uri)
    made = Bucket(uri).sizes("")
    with pytest.raises(InvalidArgumentError, match="has a whole backup already"):
        upload_backup(broker, uri)
    with pytest.raises(InvalidArgumentError, match="has monday/, which is no backup"):
        upload_backup(broker, uri.removesuffix("/monday"))
    with pytest.raises(InvalidArgumentError, match=rf"is below '.*/monday' of its bucket.* it has {BACKUP_FILE}"):
        upload_backup(broker, f"{uri}/a/b")
    assert Bucket(uri).sizes("") == made


def test_of_two_at_one_place_one_succeeds(
    broker: TestBroker, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, made = uploading.check_there, []

    def overtaken(*args: object) -> None:
        monkeypatch.setattr(uploading, "check_there", check)
        made.append(upload_backup(broker, uri))

    monkeypatch.setattr(uploading, "check_there", overtaken)
    with pytest.raises(InvalidArgumentError, match="has a whole backup already"):
        upload_backup(broker, uri)
    assert {name.partition("/")[0] for name in Bucket(uri).sizes("")} == {BACKUP_FILE, made[0].objects}
    restore(uri, tmp_path / "new")


def test_an_interrupted_one_is_refused_and_the_next_one_takes_its_place(
    broker: TestBroker, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(uploading, "_have_it_count", killed)
        upload_backup(broker, uri)
    with pytest.raises(CorruptError, match="no whole backup: it was interrupted"):
        restore(uri, tmp_path / "new")
    assert error_of(capsys, "verify", uri)[0] == 4
    manifest = upload_backup(broker, uri)
    assert {name.partition("/")[0] for name in Bucket(uri).sizes("")} == {BACKUP_FILE, manifest.objects}
    restore(uri, tmp_path / "new")


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
    bucket.write("empty", iter(()), 0)
    assert bucket.sizes("") == {"large": size, "empty": 0}
    assert [len(each) for each in bucket.read("large", size)] == [PART_BYTES, 3]


def test_what_is_not_there_is_deleted_too_and_the_others_with_it(uri: str) -> None:
    bucket = Bucket(uri)
    for name in ("a", "b", "c=1 %20é"):
        bucket.write(name, iter([b"x"]), 1)
    bucket.delete(["nothing", "a", "nothing-else", "c=1 %20é"])
    assert bucket.sizes("") == {"b": 1}
    assert bucket.get("a") is None


def test_refusals_are_exit_code_2(
    server: CloudServer, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(bucket_module, "RETRIES", {"max_retries": 0})
    data = str(tmp_path / "new")
    with pytest.raises(NotFoundError, match="is no backup"):
        restore(uri, Path(data))
    code, text = error_of(capsys, "restore", f"{server.start}-other{server.end}/monday", "--data", data)
    assert (code, server.missing in text, "\n" in text) == (2, True, False)
    variable, value, says = server.wrong
    monkeypatch.setenv(variable, value)
    code, text = error_of(capsys, "restore", uri, "--data", data)
    assert (code, says in text, "\n" in text) == (2, True, False)
    monkeypatch.delenv(variable)
    monkeypatch.delenv(next(name for name in server.environment if name.endswith("ALLOW_HTTP")))
    code, text = error_of(capsys, "restore", uri, "--data", data)
    assert (code, "without TLS" in text) == (2, True)


def test_the_emulator_that_the_environment_names_needs_no_key(
    server: CloudServer, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = server.environment.get("AZURE_STORAGE_ENDPOINT")
    if endpoint is None:
        pytest.skip("Google Cloud Storage has no such variable")
    for name in server.environment:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", endpoint.removesuffix(f"/{azurite.ACCOUNT}"))
    bucket = Bucket(f"az://{azurite.CONTAINER}/{uri.split('/')[-2]}")
    assert bucket.create("a", b"x")
    assert bucket.get("a") == b"x"


def test_a_missing_right_is_named(
    server: CloudServer, broker: TestBroker, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "AZURE_STORAGE_ENDPOINT" not in server.environment:
        pytest.skip("fake-gcs-server knows no rights")
    upload_backup(broker, uri)
    made = Bucket(uri).sizes("")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", azurite.token_to_read())
    restore(uri, tmp_path / "new")
    says = rf"may not put .* in the container '{azurite.CONTAINER}' of the account .*; allowed: the role"
    with pytest.raises(InvalidArgumentError, match=says):
        upload_backup(broker, f"{uri}-other")
    with pytest.raises(InvalidArgumentError, match=r"may not delete .*; allowed: the role"):
        Bucket(uri).delete([BACKUP_FILE])
    assert Bucket(uri).sizes("") == made
