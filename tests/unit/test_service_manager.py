"""What systemd is told, and the unit beside it."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.cli.exits import ExitCode
from tarry.cli.notify import ServiceManager

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "examples" / "systemd"
UNIT = UNITS / "tarry.service"
EXPOSURE_MAX = 2.5


@pytest.fixture(params=["path", "abstract"])
def listening(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str]]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@tarry-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1) if request.param == "abstract" else name)
        manager.settimeout(5)
        yield manager, name


def test_it_is_told_how_the_service_stands(listening: tuple[socket.socket, str]) -> None:
    manager, name = listening
    now_s = [100.0]
    own = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"}, lambda: now_s[0])
    own.is_serving("serving flight")
    for now_s[0] in (100.0, 114.9, 115.0, 120.0, 131.0):
        own.lives()
    own.is_stopping()
    told = [manager.recv(100).decode() for _ in range(5)]
    assert told == ["READY=1\nSTATUS=serving flight", *["WATCHDOG=1"] * 3, "STOPPING=1\nSTATUS=stopping"]


def test_nobody_watches_it(listening: tuple[socket.socket, str]) -> None:
    manager, name = listening
    ServiceManager({"NOTIFY_SOCKET": name}).lives()
    ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}).lives()
    ServiceManager({"NOTIFY_SOCKET": name}).is_serving("x")
    assert manager.recv(100).startswith(b"READY=1")


def test_where_no_manager_is_nothing_fails() -> None:
    for environment in ({}, {"NOTIFY_SOCKET": "/nowhere/to/be/found", "WATCHDOG_USEC": "soon"}):
        own = ServiceManager(environment)
        own.is_serving("x")
        own.lives()
        own.is_stopping()


def test_restarts_go_on_through_a_long_outage_of_a_bucket() -> None:
    unit = _read(UNIT)
    assert (unit["Service"]["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
    never = {ExitCode(int(code)) for code in unit["Service"]["RestartPreventExitStatus"].split()}
    assert never == {ExitCode.USAGE, ExitCode.CORRUPT}


def test_credentials_come_from_a_file_that_need_not_be_there() -> None:
    file = _read(UNIT)["Service"]["EnvironmentFile"]
    assert file == "-/etc/tarry/env"
    docs = (ROOT / "docs" / "operations-running.md").read_text()
    assert f"`{file.removeprefix('-')}`" in docs


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_one_and_has_few_rights(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/tarry/bin/tarry", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert unit.name not in verified.stderr
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    [line] = [line for line in judged.stdout.splitlines() if "Overall exposure level" in line]
    assert float(line.split(": ")[1].split()[0]) <= EXPOSURE_MAX


def test_the_timer_makes_a_backup_at_a_place_of_its_own(tmp_path: Path) -> None:
    service, timer = _read(UNITS / "tarry-backup.service")["Service"], _read(UNITS / "tarry-backup.timer")["Timer"]
    program = shlex.split(_read(UNIT)["Service"]["ExecStart"])[0]
    shell, option, script = shlex.split(service["ExecStart"].replace("%%", "%"))
    name, place = service["Environment"].split()[0].split("=", 1)
    for where in (place, "s3://bucket/backups"):
        said = subprocess.run(
            [shell, option, script.replace(program, "echo")],
            env={"PATH": os.environ["PATH"], name: where},
            capture_output=True,
            text=True,
            check=True,
        )
        assert re.fullmatch(rf"backup {where}/\d{{4}}-\d\d-\d\dT\d{{4}}\n", said.stdout), said
    assert (service["Type"], service["EnvironmentFile"]) == ("oneshot", _read(UNIT)["Service"]["EnvironmentFile"])
    assert timer["Persistent"] == "true", "a machine that was off makes it when it is on"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_units_of_the_timer_are_some(tmp_path: Path) -> None:
    for unit in UNITS.glob("tarry*"):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/tarry/bin/tarry", "/bin/true"))
    for name in ("tarry-backup.service", "tarry-backup.timer"):
        verified = subprocess.run(
            ["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True, check=False
        )
        assert "tarry" not in verified.stderr
    calendar = _read(UNITS / "tarry-backup.timer")["Timer"]["OnCalendar"]
    subprocess.run(["systemd-analyze", "calendar", calendar], capture_output=True, check=True)


def _read(unit: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    assert found.read(unit)
    return found
