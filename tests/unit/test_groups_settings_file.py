"""The file of settings: changes that come together are one write, and each costs its own entry."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from tests.faults import FaultyFiles
from tests.waiting import wait_until

from tarry.api.groups import GroupSettings, TopicSettings
from tarry.base.errors import DiskFullError
from tarry.groups.settings_file import FILE, SettingsFile
from tarry.log.json_file import read_json

WAIT_S = 60


class HeldFiles(FaultyFiles):
    """A disk whose first write waits for ``go``; ``fails``: the writes behind it find no room."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.begun, self.go = threading.Event(), threading.Event()
        self.writes = 0

    def replace(self, path: Path, content: bytes) -> None:
        self.writes += 1
        if self.writes == 1:
            self.begun.set()
            assert self.go.wait(WAIT_S)
        elif self.fails:
            raise OSError(errno.ENOSPC, "No space left on device (injected)")
        super().replace(path, content)


def change_together(files: HeldFiles, settings: SettingsFile, count: int) -> list[BaseException]:
    """Set group 0, and while that is written all others; return what they were refused for."""
    refused: list[BaseException] = []

    def change(number: int) -> None:
        try:
            settings.set_group("a", f"g{number}", GroupSettings(tries=number + 1))
        except DiskFullError as error:
            refused.append(error)

    threads = [threading.Thread(target=change, args=(number,), daemon=True) for number in range(count)]
    threads[0].start()
    assert files.begun.wait(WAIT_S)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: len(settings._wanted) == count - 1)  # noqa: SLF001 - all of them wait
    files.go.set()
    for thread in threads:
        thread.join(WAIT_S)
    return refused


def test_changes_that_wait_for_one_another_are_one_write(tmp_path: Path) -> None:
    files = HeldFiles()
    settings = SettingsFile(files, tmp_path)
    assert change_together(files, settings, 30) == []
    assert files.writes == 2
    again = SettingsFile(FaultyFiles(), tmp_path)
    assert [again.group("a", f"g{number}").tries for number in range(30)] == list(range(1, 31))


def test_a_write_that_fails_changes_nothing_for_all_of_them(tmp_path: Path) -> None:
    files = HeldFiles(fails=True)
    settings = SettingsFile(files, tmp_path)
    assert len(change_together(files, settings, 10)) == 9
    for each in settings, SettingsFile(FaultyFiles(), tmp_path):
        assert [each.group("a", f"g{number}").tries for number in range(10)] == [1] + 9 * [GroupSettings().tries]


def test_the_text_of_all_entries_is_one_json(tmp_path: Path) -> None:
    """Also where names have anything in them, and after a restart."""
    files = FaultyFiles()
    settings = SettingsFile(files, tmp_path)
    assert not (tmp_path / FILE).exists()
    for number, name in enumerate(('"', "\\", "é", "\u2028", "b")):
        settings.set_group(name, name, GroupSettings(tries=2, filter="A || B", paused=True))
        settings.set_topic(name, TopicSettings(late="dead", lateness_ms_max=5))
        settings = SettingsFile(files, tmp_path)
        fields = read_json(tmp_path / FILE, [1])
        assert fields is not None and len(fields["groups"]) == len(fields["topics"]) == number + 1
    before = (tmp_path / FILE).stat().st_ino
    settings.set_topic("b", TopicSettings(late="dead", lateness_ms_max=5))
    settings.set_group("b", "other", None)
    assert (tmp_path / FILE).stat().st_ino == before, "nothing was changed, so nothing was written"
    settings.set_group("b", "b", None)
    settings.set_topic("b", TopicSettings())
    fields = read_json(tmp_path / FILE, [1])
    assert fields is not None and "b" not in fields["topics"] and len(fields["groups"]) == 4


def test_what_cannot_be_written_at_all_is_an_error_of_its_caller(tmp_path: Path) -> None:
    files = FaultyFiles()
    settings = SettingsFile(files, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        settings.set_group("a", "g", GroupSettings(tries=2))
    assert settings.group("a", "g") == GroupSettings()
