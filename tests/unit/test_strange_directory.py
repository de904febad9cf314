"""A data directory that has something else: the start is refused, and puts nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli_tools import Captured, error_of
from tests.rights import held_by_modes

from tarry.base.errors import InvalidArgumentError
from tarry.cli.exits import ExitCode
from tarry.testing import open_broker


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_start_in_a_directory_of_something_else_is_refused(tmp_path: Path, capsys: Captured) -> None:
    for name in ("notes.txt", "photos.zip"):
        (tmp_path / name).touch()
    code, text = error_of(capsys, "serve", "--data", str(tmp_path), "--flight", "127.0.0.1:0", "--pipeline", "off")
    assert code == ExitCode.USAGE
    assert text.splitlines()[-1] == (
        f"invalid_argument: {tmp_path} has notes.txt, photos.zip, and nothing of a broker; allowed: a data directory, "
        "or a directory that is empty or not there"
    )
    assert _names(tmp_path) == ["notes.txt", "photos.zip"]


def test_of_many_files_some_are_named(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}").touch()
    with pytest.raises(InvalidArgumentError, match=r"has 0, 1, 2, 3, 4 and 4 more, and nothing"), open_broker(tmp_path):
        pass


@pytest.mark.parametrize("there", [(), ("lost+found",)])
def test_an_empty_one_and_a_disk_of_its_own_are_taken(there: tuple[str, ...], tmp_path: Path) -> None:
    for name in there:
        (tmp_path / name).mkdir(mode=0o000)  # root's, as a rule
    with held_by_modes(), open_broker(tmp_path) as broker:
        broker.schedule("orders", "x", delay="1h")
    assert set(there) | {"broker.id", "lock"} <= set(_names(tmp_path))
    with open_broker(tmp_path) as broker:
        assert broker.pending()[0].pending == 1


def test_hidden_files_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".gitkeep").touch()
    with open_broker(tmp_path) as broker:
        broker.schedule("orders", "x", delay="1h")
    assert {".gitkeep", "broker.id"} <= set(_names(tmp_path))


def test_one_that_was_used_is_known_beside_files_of_others_and_without_its_lock(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("orders", "x", delay="1h")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "lock").unlink()  # docs/operations-running.md: it may be deleted
    with open_broker(tmp_path) as broker:
        assert broker.pending()[0].pending == 1
