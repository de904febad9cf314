"""What producers write does not steer the terminal of who looks."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli_tools import Captured

from tarry.base.config import Config
from tarry.base.logs import log_to_stderr
from tarry.base.printable import printable
from tarry.broker import Broker
from tarry.cli import output
from tarry.cli.exits import report
from tarry.cli.frame import frame
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront

EVIL = "\x1b]0;OWNED\x07\x1b[2J\x7f\x9b31m\u202eevil\r\nfake line"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        yield broker


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n")) and "\nfake line" not in text


@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_commands_print_nothing_that_steers(broker: Broker, capsys: Captured, json_option: tuple[str, ...]) -> None:
    broker.schedule("t", EVIL.encode(), key=EVIL, tag=EVIL, properties={EVIL: EVIL}, delay="1h")
    broker.schedule("t", EVIL.encode(), key=EVIL + "due", tag=EVIL, properties={"a": EVIL})
    for command in (
        ["list", "t", "--bodies"],
        ["history", "t", "--key", EVIL],
        ["peek", "t"],
        ["receive", "t", "--wait", "10s", "--ack"],
        ["cancel", "--topic", "t", "--key", EVIL],
        ["status"],
    ):
        run([*command, *json_option])
        shown = capsys.readouterr()
        assert is_harmless(shown.out), (command, shown.out)
        assert is_harmless(shown.err), (command, shown.err)


def test_what_is_shown_of_a_hostile_text(capsys: Captured) -> None:
    assert printable("héllo wörld") == "héllo wörld"
    assert printable("\x1b[2J\u202e") == "\\x1b[2J\\u202e"
    output.json_line({"key": EVIL})
    shown = capsys.readouterr().out
    assert is_harmless(shown)
    assert json.loads(shown) == {"key": EVIL}
    output.table(["NAME"], [[EVIL]])
    output.tree({"name": EVIL})
    output.note(EVIL)
    report("code", EVIL)
    found = capsys.readouterr()
    assert is_harmless(found.out)
    assert is_harmless(found.err)


def test_top_shows_no_escapes(broker: Broker) -> None:
    overview = broker.overview() | {"pipeline": {"state": EVIL, "error": EVIL}, "fatal": EVIL}
    screen = io.StringIO()
    Console(file=screen, width=200).print(frame(overview, None))
    assert "\x1b" not in screen.getvalue()
    assert "\\x1b" in screen.getvalue()


def test_the_log_shows_no_escapes(levels_as_before: None, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    log_to_stderr()
    logging.getLogger("tarry.test").warning("a client sent %s", EVIL)
    assert "\x1b" not in (said := capsys.readouterr().err)
    assert "\\x1b" in said


def test_lists_are_shown_as_lines(capsys: Captured) -> None:
    output.tree(
        {"none": [], "names": ["a", "b"], "workers": [{"name": "w1", "pid": 7, "kept": [1, 2]}, {"name": "w2"}]}
    )
    assert capsys.readouterr().out == (
        "none: -\nnames: a, b\nworkers:\n  - name: w1, pid: 7, kept: 1, 2\n  - name: w2\n"
    )
