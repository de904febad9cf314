"""A start on a disk without a free byte: consumers are served, and what cannot do without room is named."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.base.errors import DiskFullError, FatalError
from tarry.intake import sealed_index
from tarry.testing import TestClock, open_broker
from tests.crash.tools import SMALL
from tests.disks import mounted, resize

SETTINGS = {**SMALL, "segment_bytes_max": 4096}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB, where we may mount one."""
    with mounted(tmp_path / "small", "8m") as directory:
        yield directory


def fill(directory: Path) -> None:
    """Take every byte that is left."""
    with (directory / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def start(data: Path, clock: TestClock) -> None:
    with open_broker(data, clock=clock, **SETTINGS):
        pass


def scheduled(data: Path, clock: TestClock, *, with_keys: bool = False) -> list[bytes]:
    """Schedule some segments of messages, due in a second, and leave no due index of them; their bodies."""
    bodies = [f"{number:0700}".encode() for number in range(20)]
    with open_broker(data, clock=clock, **SETTINGS) as broker:
        for number, body in enumerate(bodies):
            broker.schedule("a", body, delay=1, key=f"k{number}" if with_keys else None)
        broker.step()
    indexes = list((data / "intake").glob("*.idx"))
    assert len(indexes) > 1
    for path in indexes:
        path.unlink()
    return bodies


def test_an_index_that_cannot_be_written_is_in_memory_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TestClock()
    bodies = scheduled(tmp_path, clock)
    write = sealed_index.write_index

    def full(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(sealed_index, "write_index", full)
    with open_broker(tmp_path, clock=clock, **SETTINGS) as broker:
        assert not list((tmp_path / "intake").glob("*.idx"))
        with pytest.raises(OSError, match="No space"):
            broker.components.intake.seal()
        monkeypatch.setattr(sealed_index, "write_index", write)
        while broker.components.intake.seal():
            pass
        assert list((tmp_path / "intake").glob("*.idx"))
        clock.advance_ms(1000)
        broker.step()
        assert broker.receive("a", "g", max_messages=100)["body"].to_pylist() == bodies


def test_consumers_are_served_by_a_broker_that_starts_without_a_free_byte(small_disk: Path) -> None:
    clock, data = TestClock(), small_disk / "data"
    bodies = scheduled(data, clock)
    fill(small_disk)
    with open_broker(data, clock=clock, **SETTINGS) as broker:
        clock.advance_ms(1000)
        broker.components.loader.step()
        broker.components.dispatcher.step()
        assert broker.receive("a", "g", max_messages=100)["body"].to_pylist() == bodies
        with pytest.raises(DiskFullError):
            broker.schedule("a", b"no room")
        assert broker.status()["state"] == "serving"
        assert not list(data.rglob("*.new")), "what could not be written does not take the room that there is"
    resize(small_disk, "16m")
    with open_broker(data, clock=clock, **SETTINGS) as broker:
        broker.step()
        assert broker.receive("a", "g", max_messages=100)["body"].to_pylist() == bodies, "nothing was acknowledged"


def test_a_first_start_without_a_free_byte_names_what_it_could_not_write(small_disk: Path) -> None:
    fill(small_disk)
    with (
        pytest.raises(DiskFullError, match=str(small_disk / "data")),
        open_broker(small_disk / "data", clock=TestClock(), **SETTINGS),
    ):
        pass


def test_names_that_cannot_be_opened_without_a_free_byte_are_named(small_disk: Path) -> None:
    clock, data = TestClock(), small_disk / "data"
    bodies = scheduled(data, clock, with_keys=True)
    fill(small_disk)
    with (
        pytest.raises(DiskFullError, match=f"{data / 'registry'} cannot be written.*make some room"),
        open_broker(data, clock=clock, **SETTINGS),
    ):
        pass
    resize(small_disk, "32m")
    clock.advance_ms(1000)
    with open_broker(data, clock=clock, **SETTINGS) as broker:
        broker.step()
        assert broker.receive("a", "g", max_messages=100)["body"].to_pylist() == bodies


def test_names_are_opened_by_the_room_that_was_kept_for_that(tmp_path: Path) -> None:
    clock, settings = TestClock(), {**SETTINGS, "disk_free_bytes_min": 4 << 20}
    with mounted(tmp_path / "larger", "24m") as disk:
        data, reserve = disk / "data", disk / "data" / "reserve"
        with open_broker(data, clock=clock, **settings) as broker:
            broker.schedule("a", b"without a name", delay=1)
            broker.step()
            assert not reserve.exists(), "nothing is kept for names that there are not"
            for number in range(3):
                broker.schedule("a", b"%d" % number, delay=2, key=f"k{number}")
            broker.step()
            assert reserve.stat().st_blocks * 512 >= 4 << 20
        fill(disk)
        for round_ in range(2):
            with open_broker(data, clock=clock, **settings) as broker:
                assert not reserve.exists()
                assert broker.cancel_key("a", f"k{round_}") == "done"
                with pytest.raises(DiskFullError):
                    broker.schedule("a", b"no room")
                broker.step()
                assert not reserve.exists(), "there is no room for it"
        (disk / "ballast").unlink()
        with open_broker(data, clock=clock, **settings) as broker:
            clock.advance_ms(2000)
            broker.step()
            assert broker.receive("a", "g", max_messages=100)["body"].to_pylist() == [b"without a name", b"2"]
            assert reserve.stat().st_size == 4 << 20


def test_a_reserve_that_a_crash_left_too_small_is_made_again(tmp_path: Path) -> None:
    settings = {**SETTINGS, "disk_free_bytes_min": 1 << 20}
    (tmp_path / "reserve").write_bytes(b"x")
    with open_broker(tmp_path, clock=TestClock(), **settings) as broker:
        broker.schedule("a", b"", delay=1, key="k")
        broker.step()
        assert (tmp_path / "reserve").stat().st_size == 1 << 20


def test_a_read_only_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("tarry.log.file_engine.LockFile", read_only)
    with (
        pytest.raises(FatalError, match=r"lock cannot be written: Read-only file system"),
        open_broker(tmp_path, clock=TestClock()),
    ):
        pass
