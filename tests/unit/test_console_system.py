"""The console's page of the system: each state of each part says what it means, and what is bad says what to do."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tarry.cli.main import command
from tarry.fronts.http.console import system
from tarry.fronts.http.console.system import BAD, GOOD, PLAIN, WARN, SystemPart, parts
from tarry.testing import open_broker


@pytest.fixture(scope="module")
def overview(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with open_broker(tmp_path_factory.mktemp("data")) as broker:
        return broker.overview() | {"disk": {"free_bytes": 1 << 40, "free_bytes_min": 1 << 29}}


def part(overview: dict[str, Any], name: str, **changed: Any) -> SystemPart:
    [found] = [each for each in parts({**overview, **changed}) if name in each.name]
    return found


TEMPLATES = [each.read_text() for each in (Path(system.__file__).parent / "templates").iterdir()]
NAMED = re.findall(r"\btarry(?: [a-z][a-z-]+)+", "\n".join(TEMPLATES))


@pytest.mark.parametrize("named", sorted({*NAMED}))
def test_a_page_names_commands_that_there_are(named: str) -> None:
    found: Any = command()
    for word in named.split()[1:]:
        if not hasattr(found, "get_command"):
            break  # the text goes on
        found = found.get_command(None, word)
        assert found is not None, named


@pytest.mark.parametrize(
    ("name", "changed"), [("Backup", {}), ("Damage", {"damage": {"places": ["a"], "unreadable_messages": 1}})]
)
def test_what_is_to_be_typed_is_taken(overview: dict[str, Any], name: str, changed: Any) -> None:
    for typed in part(overview, name, **changed).commands:
        words = shlex.split(typed)[1:]
        found: Any = command()
        while hasattr(found, "get_command"):
            found = found.get_command(None, words.pop(0))
        found.make_context("tarry", words)  # it raises for what the command does not take


def test_a_command_stands_behind_what_it_is_for(overview: dict[str, Any]) -> None:
    found = part(overview, "Backup")
    assert found.commands[-1] == "tarry backup DIR" and found.to_do[-1].startswith("Make backups")


LOG = {"uri": "s3://bucket/log", "epoch": 3, "answered_before_ms": 200}


@pytest.mark.parametrize(
    ("name", "changed", "state", "level", "text"),
    [
        ("Broker", {}, "serving", GOOD, "in and out"),
        ("Broker", {"state": "failed", "fatal": "the disk failed"}, "failed", BAD, "the disk failed"),
        ("Broker", {"test_clock": "2026-01-01"}, "serving", WARN, "test clock"),
        ("pipeline", {"pipeline": {"state": "off"}}, "off", PLAIN, "on time"),
        ("pipeline", {"pipeline": {"state": "running"}}, "running", GOOD, "moves"),
        ("pipeline", {"pipeline": {"state": "waiting"}}, "waiting", WARN, "Nothing is lost or late"),
        ("pipeline", {"pipeline": {"state": "running", "error": "no Java"}}, "running", BAD, "Nothing is lost or late"),
        ("Disk", {}, "enough", GOOD, "room"),
        ("Disk", {"disk": {"free_bytes": 900, "free_bytes_min": 500}}, "filling", WARN, "served still"),
        ("Disk", {"disk": {"free_bytes": 499, "free_bytes_min": 500}}, "full", BAD, "disk_full"),
        ("Damage", {}, "none", GOOD, "No file"),
        ("Damage", {"damage": {"places": ["a: b"], "unreadable_messages": 0}}, "1 place", BAD, "cannot be read"),
        ("Damage", {"damage": {"places": [], "unreadable_messages": 2}}, "2 messages", BAD, "2 messages"),
        ("takeover", {"log": None}, "one machine, no backup", PLAIN, "lost with it"),
        ("Takeover", {"log": {**LOG, "state": "handing out"}}, "handing out", GOOD, "standby"),
        ("Takeover", {"log": {**LOG, "state": "waiting for former leases"}}, "waiting for former leases", WARN, "over"),
        (
            "Takeover",
            {"log": {**LOG, "state": "store away", "away_since_ms": 0}},
            "store away",
            BAD,
            "since 1970-01-01",
        ),
        ("Ports", {"insecure_open": {}, "clear_ports": []}, "guarded", GOOD, "No port"),
        ("Ports", {"insecure_open": {"http": "0.0.0.0:1"}}, "open", WARN, "reach"),
        ("Certificates", {"certificates": [{"file": "c", "ends_ms": 1, "state": "valid"}]}, "valid", GOOD, "None"),
        ("Certificates", {"certificates": [{"file": "c", "ends_ms": 1, "state": "expired"}]}, "expired", BAD, "refuse"),
        ("Audit", {"audit": {"on": True, "lines": 1, "lost": 2, "refused": {}}}, "losing", BAD, "2 lines"),
    ],
)
def test_each_state_says_what_it_means(
    overview: dict[str, Any], name: str, changed: dict[str, Any], state: str, level: str, text: str
) -> None:
    found = part(overview, name, **changed)
    assert (found.state, found.level) == (state, level)
    assert text in found.meaning
    assert found.to_do or level in (GOOD, PLAIN) or changed.get("test_clock")
