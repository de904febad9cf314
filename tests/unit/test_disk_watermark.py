"""Too little free disk: producers are told, and the log of whoever runs the broker, once for each time."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.broker import Broker, acceptance
from tarry.errors import DiskFullError
from tarry.log.files import OsFiles


class _Files(OsFiles):
    free = 1 << 20

    def free_bytes(self, path: Path) -> int:
        return self.free


def test_the_log_tells_when_producers_are_refused_and_when_not_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptance, "FREE_CHECK_S", -1.0)
    caplog.set_level(logging.INFO, "tarry.broker.acceptance")
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=2 << 20)
    files = _Files()
    with closing(Broker.open(config, clock=TestClock(), threads=False, files=files)) as broker:
        for free in (1 << 20, 3 << 20, 1 << 19):
            files.free = free
            for _ in range(3):
                if free < 2 << 20:
                    with pytest.raises(DiskFullError, match="producers are refused"):
                        broker.schedule("a", b"x")
                else:
                    broker.schedule("a", b"x")
    told = [
        (each.levelname, each.getMessage().partition(" under ")[0])
        for each in caplog.records
        if each.name == "tarry.broker.acceptance"
    ]
    assert told == [
        ("WARNING", "1 MiB of disk are free"),
        ("INFO", "there is room"),
        ("WARNING", "0 MiB of disk are free"),
    ]
    assert "producers are refused below 2 MiB (disk_free_bytes_min)" in caplog.text
