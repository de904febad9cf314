"""What the README and the first pages behind it show works: Python is run, commands exist, links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.base.config import Config
from tarry.broker import Broker
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront
from tarry.testing import TestBroker

ROOT = Path(__file__).parents[2]
FIRST_PAGES = ("README.md", "docs/python.md", "docs/command-line.md")
SHOWN = "\n".join((ROOT / name).read_text() for name in FIRST_PAGES)
PYTHON = re.findall(r"```python\n(.*?)```", SHOWN, re.DOTALL)
COMMANDS = re.findall(r"^tarry (\w+)", "\n".join(re.findall(r"```sh\n(.*?)```", SHOWN, re.DOTALL)), re.MULTILINE)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs/decisions").glob("*.md"),
    *(ROOT / "packages").glob("*/README.md"),
]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    config = Config(data=tmp_path / "served", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        yield front.address


def test_its_python_runs(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tarry_broker: TestBroker
) -> None:
    """From top to bottom, as somebody tries it out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARRY_DISK_FREE_BYTES_MIN", "0")
    names: dict[str, Any] = {}
    try:
        for code in PYTHON:
            code = code.replace("localhost:7611", address).replace("timeout=5", "timeout=0.3")
            exec(compile(code, "first pages", "exec"), names)
    finally:
        if client := names.get("client"):
            client.close()
    names["test_a_reminder_that_is_cancelled"](tarry_broker)


def test_it_has_examples() -> None:
    assert len(PYTHON) == 7
    shown = {
        "serve",
        "send",
        "receive",
        "work",
        "cancel",
        "pending",
        "list",
        "top",
        "group",
        "forecast",
        "dead",
        "verify",
        "size",
        "takeover",
        "backup",
        "migrate",
    }
    assert set(COMMANDS) == shown


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_its_commands_have_the_options_it_shows(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    # "tarry group set": the options are those of the inner command.
    inner = {"group": ["set"], "dead": ["list"]}.get(command, [])
    assert run([command, *inner, "--help"]) == 0
    known = capsys.readouterr().out
    shown = [line for line in SHOWN.splitlines() if line.startswith(f"tarry {command}")]
    for option in re.findall(r"(--[a-z-]+)", " ".join(shown)):
        assert option in known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_make_target_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )*([a-z][a-z0-9-]*)", page.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_decision_is_in_the_index() -> None:
    decisions = ROOT / "docs/decisions"
    index = (decisions / "README.md").read_text()
    for page in decisions.glob("0*.md"):
        title = page.read_text().partition("\n")[0]
        assert title.startswith(f"# {int(page.name[:4])}. "), page.name
        assert f"- [{title.removeprefix('# ')}]({page.name})" in index
