"""The free disk that a log may take: asked for seldom while there is plenty, and each time when there is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.log.files import OsFiles
from tarry.queue import room
from tarry.queue.room import ASK_BYTES, PLENTY_BYTES, DiskRoom


class Counted(OsFiles):
    """A disk that says what it is told to, and counts how often."""

    free, asked = 4 * PLENTY_BYTES, 0

    def free_bytes(self, path: Path) -> int:
        self.asked += 1
        return self.free


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Counted:
    monkeypatch.setattr(room, "ASK_S", 3600.0)
    return Counted()


def test_while_there_is_plenty_it_is_asked_after_some_mebibytes(files: Counted, tmp_path: Path) -> None:
    left = DiskRoom(files, tmp_path, 100)
    assert left.left() == 4 * PLENTY_BYTES - 100
    for _ in range(4):
        left.take(ASK_BYTES // 4)
        last = left.left()
    assert (files.asked, last) == (2, 4 * PLENTY_BYTES - 100)


def test_it_is_asked_when_the_answer_is_old(files: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = DiskRoom(files, tmp_path, 0)
    left.left()
    files.free = 5
    monkeypatch.setattr(room, "ASK_S", 0.0)
    assert left.left() == 5


def test_with_little_left_it_is_asked_for_each_write(files: Counted, tmp_path: Path) -> None:
    files.free = PLENTY_BYTES
    left = DiskRoom(files, tmp_path, 1)
    for n in range(5):
        files.free -= n
        assert left.left() == files.free - 1
    assert files.asked == 5


def test_what_was_taken_counts_at_once(files: Counted, tmp_path: Path) -> None:
    files.free = PLENTY_BYTES + 10
    left = DiskRoom(files, tmp_path, 0)
    left.left()
    left.take(11)
    files.free = 7
    assert left.left() == 7


def test_after_a_write_that_failed_it_is_asked(files: Counted, tmp_path: Path) -> None:
    left = DiskRoom(files, tmp_path, 0)
    left.left()
    left.forget()
    files.free = 3
    assert left.left() == 3
