"""Segments of the logs that were exchanged, renamed or taken away: a start refuses them, and ``tarry verify`` tells."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli_tools import Captured, data_of, out_of
from tests.groups import drained

from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import CorruptError
from tarry.broker import Broker
from tarry.log.files import OsFiles
from tarry.log.segment import list_segments, segment_path

BODY = b"x" * 600
MESSAGES = 60


def config_of(data: Path) -> Config:
    return Config(data=data, pipeline="off", segment_bytes_max=4096, retention_ms=1 << 40)


def fill(data: Path, clock: TestClock) -> None:
    """A broker that stopped: half of its messages are due, half are pending."""
    with Broker.open(config_of(data), clock=clock, threads=False) as broker:
        for number in range(MESSAGES):
            broker.schedule("a", BODY, id=f"{number}", delay=20 + number // 4 if number % 2 else 3600)
            if number % 4 == 3:
                broker.step()
        for _ in range(40):
            clock.advance_ms(1_000)
            broker.step()


def open_again(data: Path, clock: TestClock) -> Any:
    return Broker.open(config_of(data), clock=clock, threads=False)


def exchange(first: Path, second: Path) -> None:
    aside = first.with_suffix(".aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def verified(capsys: Captured, data: Path) -> set[str]:
    """Files that ``tarry verify`` has found damaged."""
    *findings, _ = data_of(capsys, "verify", str(data), code=4)
    return {Path(finding["path"]).name for finding in findings if finding["what"] == "damage"}


@pytest.mark.parametrize("log", ["intake", "ready"])
@pytest.mark.parametrize("with_indexes", [False, True], ids=["indexes stay", "with indexes"])
def test_exchanged_segments_are_refused(log: str, with_indexes: bool, tmp_path: Path, capsys: Captured) -> None:
    data, clock = tmp_path / "data", TestClock()
    fill(data, clock)
    first, second = (segment_path(data / log, base) for base in list_segments(data / log)[1:3])
    exchange(first, second)
    if with_indexes:
        exchange(first.with_suffix(".idx"), second.with_suffix(".idx"))
    assert {first.name, second.name} <= verified(capsys, data)
    with pytest.raises(CorruptError, match=f"{first.name} has the content of another segment"):
        open_again(data, clock)


def test_the_first_segment_of_the_ready_log_is_missed(tmp_path: Path, capsys: Captured) -> None:
    data, clock = tmp_path / "data", TestClock()
    fill(data, clock)
    first = segment_path(data / "ready", list_segments(data / "ready")[0])
    first.unlink()
    assert first.name in verified(capsys, data)
    with pytest.raises(CorruptError, match=f"{first.name} is missing: the checkpoint says"):
        open_again(data, clock)


class PowerCut(Exception):  # noqa: N818 - an event, not an error of the program
    pass


class CutBeforeRemoval(OsFiles):
    """The power goes before the first segment of the ready log is removed; a disk may have removed another by then."""

    def remove(self, path: Path) -> None:
        if path.parent.name == "ready":
            raise PowerCut(path)
        super().remove(path)


@pytest.mark.parametrize("kept", ["all", "one before a gap"])
def test_a_deletion_that_a_power_cut_met_is_no_damage(kept: str, tmp_path: Path, capsys: Captured) -> None:
    data, clock = tmp_path / "data", TestClock()
    fill(data, clock)
    files = list_segments(data / "ready")
    assert len(files) > 3
    broker = Broker.open(config_of(data), clock=clock, threads=False, files=CutBeforeRemoval())
    with contextlib.suppress(PowerCut):
        assert len(drained(broker)) == MESSAGES // 2
        for _ in range(3):
            clock.advance_ms(1_000)
            broker.step()
    said = json.loads((data / "checkpoint.json").read_text())["ready_first"]
    assert said == files[-1], "all but the one that is written was to be deleted, and none is yet"
    assert list_segments(data / "ready") == files
    with contextlib.suppress(PowerCut):
        broker.close()
    if kept == "one before a gap":
        for base in files[1:-1]:
            segment_path(data / "ready", base).unlink()
    assert "nothing damaged" in out_of(capsys, "verify", str(data))
    with open_again(data, clock) as broker:
        assert drained(broker) == []
        for _ in range(3):
            clock.advance_ms(1_000)
            broker.step()
        assert list_segments(data / "ready") == files[-1:]


def test_a_stray_name_is_one_finding(tmp_path: Path, capsys: Captured) -> None:
    data, clock = tmp_path / "data", TestClock()
    fill(data, clock)
    last = list_segments(data / "ready")[-1]
    shutil.copy(segment_path(data / "ready", last), segment_path(data / "ready", 9_999_999_999))
    found = verified(capsys, data)
    assert segment_path(data / "ready", last + 1).name in found
    assert len(found) < 5
