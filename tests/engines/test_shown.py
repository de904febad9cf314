"""What an owner shows of its logs: in its status, in metrics, in ``tarry top``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tarry.api.operations import GetOverview
from tarry.cli.frame import log_line
from tarry.fronts.http.console.overview import health
from tarry.fronts.metrics.collector import BrokerCollector
from tarry.testing import TestBroker
from tests.engines.test_broker import Machines
from tests.waiting import wait_until


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path, "objects")
    yield machines
    machines.close()


def metrics(broker: TestBroker) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    shown = generate_latest(registry).decode().splitlines()
    lines = (line for line in shown if line.startswith(("tarry_log", "tarry_serving")))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def top(broker: TestBroker) -> str:
    overview = broker.call(GetOverview())
    return log_line(overview["log"], overview["uptime_ms"])


def test_an_owner_says_whether_it_hands_out_and_since_when_the_store_is_away(machines: Machines) -> None:
    broker = machines.broker()
    broker.schedule("a", b"x", delay=1)
    log = broker.status()["log"]
    assert (log["role"], log["state"], log["away_since_ms"]) == ("owner", "handing out", None)
    assert log["round_ms"]["count"] >= 1
    shown = metrics(broker)
    assert (shown["tarry_serving"], shown["tarry_log_leased"], shown["tarry_log_epoch"]) == (1, 1, 1)
    assert shown['tarry_log_requests_total{kind="put"}'] >= 1
    assert shown["tarry_log_round_duration_seconds_count"] >= 1
    assert "nothing is" not in top(broker)
    assert broker.status()["state"] == "serving"

    machines.ways[0].is_cut = True
    machines.wait_for_leases()
    status = broker.status()
    log = status["log"]
    assert (status["state"], log["state"], log["leased"]) == ("store away", "store away", False)
    assert health(broker.overview())[0]["text"].startswith("The bucket gives no answer since 2")
    assert log["away_since_ms"] <= machines.clock.now_ms() - 2000
    shown = metrics(broker)
    assert (shown["tarry_serving"], shown["tarry_log_leased"]) == (0, 0)
    assert shown["tarry_log_answered_seconds"] >= 2
    assert "nothing is handed out: store away since 2" in top(broker)

    machines.ways[0].is_cut = False
    wait_until(lambda: broker.status()["log"]["state"] == "handing out")
    second = machines.broker()
    assert (second.status()["log"]["state"], second.status()["log"]["epoch"]) == ("waiting for former leases", 2)
    wait_until(lambda: broker.status()["log"]["role"] == "former owner")
