"""The five programs of ``docs/worker-compared.md``: ours run, and the page's lines are those of the files."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tarry.client import Client
from tarry.testing import TestBroker
from tests.contract.conftest import Served
from tests.modules import module_at

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "worker" / "compared"
NAMES = ("tarry", "dramatiq", "celery", "temporal", "faststream")
SECTION = re.compile(r"^# -- (\d): ", re.MULTILINE)


def lines_of(name: str) -> list[int]:
    """The lines of code of each program: neither blank ones nor comments."""
    parts = SECTION.split((PROGRAMS / f"{name}_programs.py").read_text())[1:]
    assert parts[::2] == ["1", "2", "3", "4", "5"]
    codes = [part.partition("\n")[2] for part in parts[1::2]]
    return [
        sum(bool(line.strip()) and not line.strip().startswith("#") for line in code.splitlines()) for code in codes
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_counts_their_lines(name: str) -> None:
    ast.parse((PROGRAMS / f"{name}_programs.py").read_text())
    counts = lines_of(name)
    page = (ROOT / "docs" / "worker-compared.md").read_text()
    row = f"[{name}](../examples/worker/compared/{name}_programs.py) | " + " | ".join(map(str, [*counts, sum(counts)]))
    assert row in page, row


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Any:
    return module_at(PROGRAMS / "tarry_programs.py", during=monkeypatch)


def test_bills_and_mails(programs: Any, tarry_broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with tarry_broker.run(programs.worker) as running:
        tarry_broker.schedule("orders", '{"number": 7}')
        tarry_broker.schedule("mails", '{"to": "nowhere"}')
        tarry_broker.advance("1s")
        assert [each.ending for each in running.handled] == ["handled", "rejected"]
    assert capsys.readouterr().out == "bill 7\n"


def test_its_test(programs: Any, tarry_broker: TestBroker) -> None:
    programs.test_a_mail_is_tried_again(tarry_broker)


def test_a_cancel_is_definite(programs: Any, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.worker, "address", served.address)
    assert programs.remind_and_think_better() == "done"


@pytest.mark.rest
def test_a_stop_lets_a_report_end(served: Served, client: Client) -> None:
    # Its 20 seconds are one here.
    code = """
import time
sleep = time.sleep
time.sleep = lambda seconds: print("begun") or sleep(seconds / 20)
from tarry_programs import worker
worker.run()
"""
    client.set_group("reports", "billing")
    client.schedule("reports", "x", delay=0)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TARRY_ENDPOINT": served.address}
    work = subprocess.Popen(
        [sys.executable, "-c", code], cwd=PROGRAMS, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert work.stdout is not None
        assert work.stdout.readline() == "begun\n", "what is leased and was not begun is given back"
        work.send_signal(signal.SIGTERM)
        assert work.stdout.read() == "reported\n"
        assert work.wait(60) == 0
        assert client.group_info("reports", "billing").lag == 0
    finally:
        work.kill()
        work.wait()
