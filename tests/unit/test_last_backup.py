"""The last backup: noted by the broker, known after a restart, told by status, metrics and the console."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tarry.api.operations import RecordBackup
from tarry.backup.making import make_backup
from tarry.backup.recording import record
from tarry.backup.restoring import restore
from tarry.base.clock import TestClock
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.broker.last_backup import FILE
from tarry.fronts.http.console.system import parts
from tarry.fronts.metrics.collector import BrokerCollector
from tarry.testing import TestBroker, open_broker

T0 = 1_795_264_000_000
HOUR_MS = 3_600_000
NONE = {"at_ms": None, "place": None, "bytes": None}


def metric(broker: TestBroker) -> float:
    [found] = [each for each in BrokerCollector(broker).collect() if each.name == "tarry_last_backup_timestamp_seconds"]
    return float(found.samples[0].value)


def part(broker: TestBroker) -> Any:
    [found] = [each for each in parts(broker.overview()) if each.name == "Backup and takeover"]
    return found


def test_it_is_known_after_a_restart_and_of_no_restored_broker(tmp_path: Path) -> None:
    with open_broker(tmp_path / "data", clock=TestClock(T0)) as broker:
        assert (broker.status()["backup"], metric(broker), part(broker).state) == (NONE, 0, "one machine, no backup")
        manifest = make_backup(broker, tmp_path / "backup")
        assert record(broker, manifest, "/backups/monday") is None
        known = {"at_ms": T0, "place": "/backups/monday", "bytes": manifest.bytes}
        assert broker.status()["backup"] == known
        make_backup(broker, tmp_path / "second")
    with open_broker(tmp_path / "data", clock=TestClock(T0 + HOUR_MS)) as again:
        assert (again.status()["backup"], metric(again)) == (known, T0 / 1000)
        assert part(again).state == "backed up"
        assert part(again).figures[0] == ("Last backup", "2026-11-21 12:26:40.000, 1h ago")
        again.advance("26h")
        assert (part(again).state, part(again).level) == ("old backup", "warn")
    restore(tmp_path / "second", tmp_path / "new")
    with open_broker(tmp_path / "new", clock=TestClock(T0)) as restored:
        assert restored.status()["backup"] == NONE


def test_an_older_one_changes_nothing_and_one_ahead_of_the_clock_does_not_hide_others(tmp_path: Path) -> None:
    with open_broker(tmp_path / "data", clock=TestClock(T0)) as broker:
        broker.record_backup(T0 - 1000, "b", 2)
        broker.record_backup(T0 - 2000, "a", 1)
        assert broker.status()["backup"]["place"] == "b"
        broker.record_backup(T0 + HOUR_MS, "c", 3)
        assert broker.status()["backup"] == {"at_ms": T0, "place": "c", "bytes": 3}
    with open_broker(tmp_path / "data", clock=TestClock(T0 - HOUR_MS)) as back:  # the clock was wrong
        back.record_backup(T0 - HOUR_MS, "d", 4)
        assert back.status()["backup"]["place"] == "d"


@pytest.mark.parametrize("values", [(-1, "a", 1), (1, "a", -1), (1, "", 1), (1, "a" * 2001, 1)])
def test_what_is_no_backup_is_refused(values: tuple[int, str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        RecordBackup(*values)


def test_a_damaged_file_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_broker(tmp_path / "data", clock=TestClock(T0)) as broker:
        broker.record_backup(T0, "a", 1)
    (tmp_path / "data" / FILE).write_bytes(b"{")
    with caplog.at_level(logging.WARNING), open_broker(tmp_path / "data", clock=TestClock(T0)) as again:
        assert again.status()["backup"] == NONE
        assert "when the last backup was made is not known any more" in caplog.text
        again.record_backup(T0, "b", 1)
    with open_broker(tmp_path / "data", clock=TestClock(T0)) as once_more:
        assert once_more.status()["backup"]["place"] == "b"


def test_a_broker_that_has_gone_is_no_failure_of_the_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_broker(tmp_path / "data", clock=TestClock(T0)) as broker:
        manifest = make_backup(broker, tmp_path / "backup")

        def gone(*_: object) -> None:
            raise UnavailableError("no answer")

        monkeypatch.setattr(broker, "record_backup", gone, raising=False)
        assert "no answer" in str(record(broker, manifest, "a", patience_s=0))
