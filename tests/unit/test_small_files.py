"""A small file that is gone is told by the broker that misses it, and by the next ones until it is there again."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli_tools import Captured, out_of

from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError
from tarry.broker import small_files
from tarry.broker.directory import Checkpoint
from tarry.broker.small_files import SmallFiles
from tarry.log.files import OsFiles
from tarry.log.json_file import write_json
from tarry.testing import TestBroker, open_broker

CLOCK = TestClock()


def anew(broker: TestBroker, name: str) -> None:
    """The change of somebody who makes it again."""
    WRITERS[name](broker)


WRITERS: dict[str, Callable[[TestBroker], object]] = {
    "policies.json": lambda b: b.set_group("a", "g", tries=7),
    "push.json": lambda b: b.set_push("s", topic="p", url="https://example.com/", group="pushed"),
    "tokens.json": lambda b: b.create_token("everything"),
    "rocketmq/classic-positions.json": lambda b: b.front_state("positions").write({"groups": [], "resets": {}}),
    "rocketmq/classic-request-modes.json": lambda b: b.front_state("request-modes").write({"modes": []}),
    "rocketmq/classic-dead-queues.json": lambda b: b.front_state("dead-queues").write({"groups": []}),
}
MADE_AGAIN = ("secret.key", "handed")
ALL = (*WRITERS, *MADE_AGAIN)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that has stopped, with each small file."""
    data = tmp_path_factory.mktemp("whole") / "data"
    with open_broker(data, clock=CLOCK) as broker:
        for name in WRITERS:
            anew(broker, name)
        broker.schedule("a", b"x")
        broker.step()
    return data


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "data")


def places(broker: TestBroker) -> list[str]:
    return list(broker.status()["damage"]["places"])


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_checkpoint_lists_those_that_have_been_there(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Checkpoint.read(data).small_files == tuple(sorted(ALL))
    with open_broker(data, clock=CLOCK) as broker:
        assert places(broker) == []
    assert errors(caplog) == []


@pytest.mark.parametrize("name", WRITERS)
def test_a_lost_file_is_told_until_it_is_there_again(
    data: Path, name: str, caplog: pytest.LogCaptureFixture, capsys: Captured
) -> None:
    (data / name).unlink()
    for _ in range(2):  # it stays listed: each start tells it
        caplog.clear()
        with open_broker(data, clock=CLOCK) as broker:
            broker.schedule("a", b"x")
            broker.step()
            broker.checkpoint()
            [place] = places(broker)
            assert place.startswith(f"{data / name}: missing. ")
            assert "To go on: stop the broker, and restore the file" in place
            assert errors(caplog) == [f"lost: {place}"]
        text = out_of(capsys, "verify", str(data), code=4)
        assert f"damage: {place}" in text
    with open_broker(data, clock=CLOCK) as broker:
        anew(broker, name)
        assert len(places(broker)) == 1, "until the end: the broker may have written it by itself"
    assert "nothing damaged" in out_of(capsys, "verify", str(data))
    caplog.clear()
    with open_broker(data, clock=CLOCK) as broker:
        assert (places(broker), errors(caplog)) == ([], [])


@pytest.mark.parametrize("name", MADE_AGAIN)
def test_one_that_the_start_makes_again_is_told_until_the_end(
    data: Path, name: str, caplog: pytest.LogCaptureFixture, capsys: Captured
) -> None:
    (data / name).unlink()
    assert f"damage: {data / name}: missing. " in out_of(capsys, "verify", str(data), code=4)
    with open_broker(data, clock=CLOCK) as broker:
        broker.checkpoint()
        [place] = places(broker)
        assert place.startswith(f"{data / name}: missing. ")
        assert errors(caplog) == [f"lost: {place}"]
    assert "nothing damaged" in out_of(capsys, "verify", str(data))
    with open_broker(data, clock=CLOCK) as broker:
        assert places(broker) == []


def test_one_that_is_removed_under_a_running_broker(data: Path) -> None:
    with open_broker(data, clock=CLOCK) as broker:
        (data / "push.json").unlink()
        [place] = places(broker)
        assert place.startswith(f"{data / 'push.json'}: missing. ")
        broker.pause_push("s")
        assert places(broker) == []


def test_a_damaged_file_of_a_fronts_state_is_told(data: Path) -> None:
    """The front begins anew, so nothing else would say it."""
    (data / "rocketmq/classic-positions.json").write_bytes(b"\0" * 40)
    with open_broker(data, clock=CLOCK) as broker:
        with pytest.raises(CorruptError):
            broker.front_state("positions").read()
        [place] = places(broker)
        assert place.startswith(f"{data / 'rocketmq/classic-positions.json'} is damaged")
        broker.front_state("positions").write({"groups": [], "resets": {}})


def test_a_checkpoint_of_version_5_says_nothing_of_them(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = data / "checkpoint.json"
    fields = json.loads(path.read_text())
    del fields["crc"], fields["version"], fields["small_files"]
    write_json(OsFiles(), path, 5, fields)
    (data / "push.json").unlink()
    with open_broker(data, clock=CLOCK) as broker:
        assert (places(broker), errors(caplog)) == ([], [])
        broker.checkpoint()
    assert set(Checkpoint.read(data).small_files) == set(ALL) - {"push.json"}


def test_a_crash_before_the_checkpoint_is_no_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_broker(tmp_path / "data", clock=CLOCK) as broker:
        broker.checkpoint()
        broker.create_token("everything")
        killed = shutil.copytree(tmp_path / "data", tmp_path / "killed")
        before = shutil.copytree(killed, tmp_path / "before")
    (before / "tokens.json").unlink()  # as if the crash had come before it
    for data in (killed, before):
        with open_broker(data, clock=CLOCK) as broker:
            assert (places(broker), errors(caplog)) == ([], [])


def test_a_file_is_listed_once_its_name_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure may take back a name that was seen, while a checkpoint that was written after it stays."""
    synced: list[Path] = []
    monkeypatch.setattr(small_files, "sync_directory", synced.append)
    known = SmallFiles(tmp_path, ["policies.json"])
    assert (known.names(), synced) == (("policies.json",), [])
    (tmp_path / "rocketmq").mkdir()
    (tmp_path / "rocketmq" / "classic-positions.json").touch()
    (tmp_path / "tokens.json.new").touch()
    assert known.names() == ("policies.json", "rocketmq/classic-positions.json")
    assert synced == [tmp_path / "rocketmq"]
    (tmp_path / "tokens.json").touch()
    assert known.names() == ("policies.json", "rocketmq/classic-positions.json", "tokens.json")
    assert known.names()
    assert synced == [tmp_path / "rocketmq", tmp_path]

    def fails(path: Path) -> None:
        raise OSError

    monkeypatch.setattr(small_files, "sync_directory", fails)
    (tmp_path / "push.json").touch()
    for _ in range(2):
        with pytest.raises(OSError):
            known.names()


def test_names_of_a_later_release_are_kept_and_passed_over(tmp_path: Path) -> None:
    known = SmallFiles(tmp_path, ["later.json", "push.json"])
    assert len(known.lost) == 1
    assert known.names() == ("later.json", "push.json")
