"""A data directory that its broker may not use: the start is refused, names the path, and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.rights import held_by_modes

from tarry.api.outcome import Outcome
from tarry.base.placement import AnyCore
from tarry.errors import InvalidArgumentError
from tarry.log.files import OsFiles
from tarry.names.database import Database
from tarry.testing import open_broker


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A directory that has been used; only the registry knows that a message under a key was cancelled."""
    with open_broker(tmp_path / "data") as broker:
        broker.schedule("orders", "x", delay="1h", key="order-7")
        assert broker.cancel_key("orders", "order-7") == Outcome.DONE
    return tmp_path / "data"


def _content(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("", 0o550),
        ("intake", 0o000),
        ("ready", 0o550),
        ("registry", 0o000),
        ("registry/CURRENT", 0o000),
        ("checkpoint.json", 0o000),
        ("store/_delta_log", 0o000),
    ],
)
def test_what_may_not_be_used_is_named_and_left_as_it_is(used: Path, name: str, mode: int) -> None:
    before = _content(used)
    path = used / name
    usual = path.stat().st_mode & 0o777
    path.chmod(mode)
    with held_by_modes(), pytest.raises(PermissionError) as refused, open_broker(used):
        pass
    assert refused.value.filename == str(path)
    told = str(refused.value.strerror)
    assert told.startswith("Permission denied; it belongs to user ")
    assert f"with mode {mode:04o}" in told
    assert f"({os.geteuid()}); allowed: " in told
    path.chmod(usual)
    # An open broker holds the lock by its number; all else is as it was.
    assert {key: each for key, each in _content(used).items() if not key.endswith("lock")} == {
        key: each for key, each in before.items() if not key.endswith("lock")
    }
    with open_broker(used) as broker:
        assert broker.cancel_key("orders", "order-7") == Outcome.CANCELLED


def test_a_directory_that_may_not_be_made_has_its_parent_named(tmp_path: Path) -> None:
    parent = tmp_path / "closed"
    parent.mkdir(mode=0o500)
    owned = f"{parent} belongs to .* mode 0500"
    with held_by_modes(), pytest.raises(PermissionError, match=owned) as refused, open_broker(parent / "data"):
        pass
    assert refused.value.filename == str(parent / "data")


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    for path in (place, place / "data"):
        told = r"file.* is, or is in, a file; allowed: a directory"
        with pytest.raises(InvalidArgumentError, match=told), open_broker(path):
            pass


def test_a_database_that_may_not_be_read_is_not_taken_for_damaged(tmp_path: Path) -> None:
    directory = tmp_path / "registry"
    db = Database(OsFiles(), directory, AnyCore())
    db.begin(0)
    db.complete()
    db.close()
    before = _content(directory)
    (directory / "CURRENT").chmod(0)
    db = Database(OsFiles(), directory, AnyCore())
    with held_by_modes(), pytest.raises(PermissionError, match=r"CURRENT: Permission denied; .* allowed: "):
        db.recover(0)
    (directory / "CURRENT").chmod(0o640)
    assert {name for name in before if not name.endswith("LOG")} <= _content(directory).keys()
    db.close()
    db = Database(OsFiles(), directory, AnyCore())
    assert db.recover(0)
    db.close()
