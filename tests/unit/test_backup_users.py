"""A backup by another user than the broker's: one line says whose the files are, and who reads them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli_tools import Captured
from tests.rights import held_by_modes

import tarry.cli.backup as cli
from tarry.api.backups import HeldFiles
from tarry.backup.held_copy import held_files
from tarry.backup.making import make_backup
from tarry.base.errors import UnavailableError
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.testing import TestBroker, open_broker


class ClosedFiles:
    """A broker whose files are another user's as soon as it holds them."""

    def __init__(self, broker: TestBroker, closed: str) -> None:
        self._broker, self._closed = broker, closed

    def __enter__(self) -> ClosedFiles:
        return self

    def __exit__(self, *ending: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def begin_backup(self) -> HeldFiles:
        held = self._broker.begin_backup()
        self._path = Path(held.data) if self._closed == "data" else Path(held.directory)
        self._path.chmod(0o000)
        return held

    def end_backup(self, backup: str) -> None:
        self._path.chmod(0o750)
        self._broker.end_backup(backup)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with open_broker(tmp_path / "data") as broker:
        broker.schedule("orders", "x", delay="1h")
        yield broker


@pytest.mark.parametrize("closed", ["data", "hold"])
@pytest.mark.parametrize("place", ["backup", "s3://bucket/monday"])
def test_the_wrong_user_is_told_in_one_line(
    broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, closed: str, place: str
) -> None:
    monkeypatch.setattr(cli, "connect", lambda endpoint: ClosedFiles(broker, closed))
    monkeypatch.setattr("tarry.backup.uploading._check_free", lambda bucket: None)
    monkeypatch.setattr("tarry.backup.uploading._forget", lambda bucket, directory: None)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with held_by_modes():
        code = run(["backup", place if "://" in place else str(tmp_path / place)])
    told = capsys.readouterr().err
    assert code == ExitCode.FAILED
    assert told.count("\n") == 1
    assert told.startswith(f"tarry: os_error: {tmp_path / 'data'}: Permission denied; it belongs to user ")
    assert f"({(tmp_path / 'data').stat().st_uid})" in told
    assert f"this process is of user {_name()} ({os.geteuid()}); allowed: tarry backup as the user of the " in told
    assert not (tmp_path / "backup").exists()


def test_files_of_another_machine_are_not_taken_for_those_of_another_user(broker: TestBroker, tmp_path: Path) -> None:
    class Elsewhere(ClosedFiles):
        def begin_backup(self) -> HeldFiles:
            held = super().begin_backup()
            return replace(held, directory=str(tmp_path / "no"))

    away: Any = Elsewhere(broker, "hold")
    with pytest.raises(UnavailableError, match="on the broker's machine"), held_files(away, 0):
        pass


def test_a_place_that_may_not_be_written_is_named_with_its_owner(broker: TestBroker, tmp_path: Path) -> None:
    closed = tmp_path / "backups"
    closed.mkdir(mode=0o500)
    with held_by_modes(), pytest.raises(PermissionError, match=f"{closed} belongs to .* mode 0500") as refused:
        make_backup(broker, closed / "monday")
    assert refused.value.filename == str(closed / "monday")


def _name() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
