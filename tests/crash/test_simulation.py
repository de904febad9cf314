"""Some lives of the simulation, whose seeds stay the same: `make simulate` has thousands."""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.log.segment import list_segments
from tests.crash.power import PAGE_BYTES, PowerDisk
from tests.crash.simulation import simulate
from tests.crash.tools import World
from tests.faults import FaultyFiles

LIVES = [
    pytest.param([1], 8, id="short"),
    pytest.param([2, 3, 4], 12, id="long", marks=pytest.mark.rest),
]


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """What is logged with a traceback keeps the files open that its frames have."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("seeds", "crashes"), LIVES)
def test_lives_of_many_crashes(seeds: list[int], crashes: int, fast_path: Path) -> None:
    done: Counter[str] = Counter()
    for seed in seeds:
        done.update(simulate(seed, fast_path / str(seed), crashes))
    assert done["intake segments deleted"], "too short to see the pipeline at work"


def test_what_a_power_failure_leaves(fast_path: Path) -> None:
    """Synced bytes and names stay; of others, every outcome comes up."""
    outcomes = set()
    for seed in range(60):
        root = fast_path / str(seed)
        disk = PowerDisk(root / "data", root / "spare")
        with disk.attached():
            file = disk.open_append(root / "data" / "log")
            file.write([b"a" * 1000])
            file.sync()
            file.write([b"b" * 3 * PAGE_BYTES])
            file.close()
            disk.replace(root / "data" / "small", b"former")
            (root / "data" / "small").unlink()
            (root / "data" / "new").write_bytes(b"not synced")
        disk.lose_unsynced(random.Random(seed))
        left = (root / "data" / "log").read_bytes()
        assert left[:1000] == b"a" * 1000
        rest = left[1000:]
        torn = b"\0" in rest and b"b" in rest
        outcomes.add("torn" if torn else "all" if len(rest) == 3 * PAGE_BYTES and rest[0] else "less")
        new, small = root / "data" / "new", root / "data" / "small"
        outcomes.add(f"new {new.read_bytes() if new.exists() else None!r}")
        outcomes.add(f"small {small.read_bytes() if small.exists() else None!r}")
    assert outcomes >= {"torn", "all", "less", "new None", "new b'not synced'", "small None", "small b'former'"}


class MergingDatabase:
    """Deletes a file in the middle of a copy, as RocksDB does, and writes one at its end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.copies = 0
        directory.mkdir(parents=True)
        for name in ("1.sst", "2.sst", "3.log"):
            (directory / name).write_bytes(name.encode())

    def copytree(self, source: Path, target: Path) -> None:
        self.copies += 1
        target.mkdir()
        for path in sorted(source.iterdir()):
            if self.copies == 1:
                (source / "2.sst").unlink(missing_ok=True)
            (target / path.name).write_bytes(path.read_bytes())
        if self.copies == 2:
            (source / "4.sst").write_bytes(b"merged")

    def close(self) -> None:
        (self._directory / "3.log").write_bytes(b"more")


def test_a_killed_database_is_copied_as_it_was_at_one_moment(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = fast_path / "data" / "registry"
    database = MergingDatabase(directory)
    disk = PowerDisk(fast_path / "data", fast_path / "spare")
    disk.adopt(database, directory)
    monkeypatch.setattr(shutil, "copytree", database.copytree)
    disk.close_all()
    assert database.copies == 3
    left = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert left == {"1.sst": b"1.sst", "3.log": b"3.log", "4.sst": b"merged"}


def test_a_crash_that_keeps_the_second_of_two_deletions_without_the_first(fast_path: Path) -> None:
    world = World(fast_path / "data", files=FaultyFiles())
    world.open()
    for _ in range(8):
        world.schedule("a", [600_000] * 5, body=1000)
    world.b.step()
    before = list_segments(world.directory / "intake")
    saved = shutil.copytree(world.directory / "intake", fast_path / "saved")
    world.pipeline_commits()
    for _ in range(2):
        world.b.checkpoint()
        world.b.step()
    left = list_segments(world.directory / "intake")
    assert len(before) - len(left) >= 3
    world.crashed(None)
    for base in before[: len(before) - len(left)][::2]:
        for path in saved.glob(f"{base:020d}.*"):
            shutil.copy(path, world.directory / "intake")
    world.open()
    world.b.step()
    assert list_segments(world.directory / "intake") == left
    world.drain()
    world.b.close()
