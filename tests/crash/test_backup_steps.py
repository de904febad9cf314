"""A crash at every step of a backup and of a restore: what is left is refused, or whole; the same command again ends.

The steps are the fsyncs of files and directories, before and after each. The backup is on a disk of its own, of which a
power failure takes what was not synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.backup import files as backup_files
from tarry.backup.making import make_backup
from tarry.backup.restoring import restore
from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError, LockedError, NotFoundError
from tarry.log.file_engine import LOCK_FILE
from tarry.testing import TestBroker, open_broker
from tests.crash.power import PowerDisk
from tests.crash.tools import crash_at, steps_of

T0 = 1_795_264_000_000
SETTINGS: dict[str, Any] = {"segment_bytes_max": 4096}
LOSSES = {"nothing": 1, "some": 2, "others": 3}
"""A process that was killed loses nothing that it wrote; else the seed of what a power failure takes."""

PARTS = [
    pytest.param("sample", marks=pytest.mark.rest),
    *(pytest.param(part, marks=pytest.mark.long) for part in ("some", "others")),
]


@pytest.fixture
def broker(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestBroker]:
    """A broker with several segments, a bulk job, acknowledged messages and settings."""
    monkeypatch.setattr(backup_files, "link_or_not", lambda *_: False)  # the backup is on another disk
    with open_broker(fast_path / "data", clock=TestClock(T0), **SETTINGS) as found:
        for number in range(30):
            found.schedule("orders", b"x" * 300, delay=1 + number, key=f"k{number}")
        jobs = found.components.bulk
        attempt = jobs.begin("job")
        rows = pa.record_batch({"topic": ["orders"], "due_ms": [T0 + 3_600_000], "body": [b"bulk"]})
        jobs.commit(attempt.number, *jobs.stage(attempt.number, [rows]))
        found.set_group("orders", "billing", tries=3)
        found.advance("10s")
        taken = found.receive("orders", "billing", max_messages=5)
        found.ack("orders", "billing", taken["lease"].to_numpy(), taken["offset"].to_numpy())
        assert found.cancel_keys("orders", ["k20"]) == ["done"]
        yield found


def state_of(broker: TestBroker) -> list[Any]:
    """What a backup has to keep."""
    pending, cursor = list[Any](), None
    while True:
        page = broker.list_pending(limit=1000, bodies=True, cursor=cursor)  # time may end a page
        pending += page.rows.select(["topic", "due_ms", "seq", "key", "body"]).to_pylist()
        if (cursor := page.cursor) is None:
            return [pending, [(each.topic, each.pending, each.ready) for each in broker.pending()]]


def restored(directory: Path) -> list[Any]:
    with open_broker(directory, clock=TestClock(T0 + 10_000), **SETTINGS) as again:
        return state_of(again)


def crashes(disk: PowerDisk, work: Callable[[], object], step: int, loss: str) -> bool:
    """Do something that crashes at that step, and cut the power; whether it did crash."""
    with disk.attached():
        crashed = crash_at(work, disk, step)
    if loss == "nothing":
        disk.settle()
    else:
        disk.lose_unsynced(random.Random(LOSSES[loss] * 10_000 + step))
    return crashed


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_at_every_step_of_a_backup(broker: TestBroker, fast_path: Path, loss: str, part: str) -> None:
    expected, disk = state_of(broker), PowerDisk(fast_path / "disk", fast_path / "spare")

    def backup(number: int) -> None:
        make_backup(broker, fast_path / "disk" / f"{number}")

    assert not crashes(disk, lambda: backup(0), 1 << 30, loss)
    assert disk.steps > 30
    for step in steps_of(part, range(1, disk.steps + 1), "backup" + loss):
        directory, new = fast_path / "disk" / f"{step}", fast_path / f"new-{step}"
        assert crashes(disk, lambda step=step: backup(step), step, loss)  # type: ignore[misc]
        try:
            restore(directory, new)
        except (CorruptError, NotFoundError):
            backup(step)
            restore(directory, new)
        assert restored(new) == expected, f"crashed at step {step}, {disk.done[-1]}"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_at_every_step_of_a_restore(broker: TestBroker, fast_path: Path, loss: str, part: str) -> None:
    expected, disk = state_of(broker), PowerDisk(fast_path / "disk", fast_path / "spare")
    make_backup(broker, fast_path / "backup")

    def work(number: int) -> None:
        restore(fast_path / "backup", fast_path / "disk" / f"{number}")

    assert not crashes(disk, lambda: work(0), 1 << 30, loss)
    assert restored(fast_path / "disk" / "0") == expected, "a restore that ended is durable"
    for step in steps_of(part, range(1, disk.steps + 1), "restore" + loss):
        new = fast_path / "disk" / f"{step}"
        assert crashes(disk, lambda step=step: work(step), step, loss)  # type: ignore[misc]
        if new.exists() and {path.name for path in new.iterdir()} - {LOCK_FILE}:
            try:
                assert restored(new) == expected, f"crashed at step {step}, {disk.done[-1]}"
                continue
            except LockedError:
                pass  # not restored to the end
        work(step)
        assert restored(new) == expected, f"crashed at step {step}, {disk.done[-1]}"
