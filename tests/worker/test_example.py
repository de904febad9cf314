"""``examples/worker/shop.py`` does what it says, over weeks and in a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tarry.client import Client
from tarry.testing import TestBroker
from tests.contract.conftest import Served
from tests.modules import module_at
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "worker"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Any:
    return module_at(EXAMPLE / "shop.py", during=monkeypatch)


def order(number: int, address: str = "anna@example.com") -> str:
    return json.dumps({"number": number, "address": address, "cents": 1999})


def test_four_weeks(shop: Any, tarry_broker: TestBroker) -> None:
    with tarry_broker.run(shop.worker):
        sent = shop.worker.state.sent
        for number, address in ((7, "anna@example.com"), (8, "bert@example.com"), (9, "nowhere")):
            tarry_broker.schedule("orders", order(number, address))
        tarry_broker.advance("1d")
        assert [text for _, text in sent] == ["Please pay 19.99 for order 7.", "Please pay 19.99 for order 8."]
        tarry_broker.schedule("payments", "7")
        tarry_broker.advance("12d23h59m")
        assert len(sent) == 2
        tarry_broker.advance("1m")
        tarry_broker.advance("14d")
        assert sent[2:] == [
            ("bert@example.com", "Order 8 is not paid."),
            ("bert@example.com", "Order 8 is cancelled."),
        ]
    assert tarry_broker.dead_letters("orders", "bills").num_rows == 1
    assert tarry_broker.dead_letters("reminders", "bills").num_rows == 0


@pytest.mark.rest
def test_it_runs_as_its_first_lines_say(served: Served, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_ENDPOINT", served.address)
    command = [sys.executable, "-m", "tarry", "work", "shop:worker"]
    work = subprocess.Popen(command, cwd=EXAMPLE, stderr=subprocess.PIPE, text=True)
    try:
        subprocess.run([sys.executable, "shop.py"], cwd=EXAMPLE, check=True)
        wait_until(lambda: client.find_key("cancellations", "order-7") is not None)
        work.terminate()
        assert work.wait(60) == 0
        assert work.stderr is not None
        assert "orders order-7, attempt 1: handled in" in work.stderr.read()
    finally:
        work.kill()
        work.wait()
