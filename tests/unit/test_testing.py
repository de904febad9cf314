"""``tarry.testing``, as its users use it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tarry
from tarry.base.errors import ClosedError, InvalidArgumentError
from tarry.testing import TestBroker, TestClock, open_broker


def test_a_year_passes_without_waiting(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("orders", b"unpaid?", delay="365d")
        broker.advance(timedelta(days=364))
        assert broker.receive("orders", "billing").num_rows == 0
        broker.advance("1d")
        [message] = broker.receive("orders", "billing").to_pylist()
        assert message["body"] == b"unpaid?"
        assert message["due_ms"] == broker.clock.now_ms()


def test_each_message_becomes_due_at_its_own_moment(tmp_path: Path) -> None:
    moments: list[tuple[str, int]] = []
    with open_broker(tmp_path) as broker:
        start = broker.clock.now_ms()

        def on_news() -> None:
            batch = broker.receive("a", "g", max_messages=100)
            moments.extend((i, broker.clock.now_ms() - start) for i in batch["id"].to_pylist())
            if batch.num_rows:
                broker.ack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())

        unsubscribe = broker.group("a", "g").listen(on_news)
        for delay in (5000, 1, 70_000, 3_600_000, 0):
            broker.schedule("a", b"x", delay=delay / 1000, id=str(delay))
        broker.advance(7200)
        unsubscribe()
        assert moments == [("0", 0), ("1", 1), ("5000", 5000), ("70000", 70_000), ("3600000", 3_600_000)]
        assert broker.clock.now_ms() == start + 7_200_000


@pytest.mark.parametrize("by", ["1h30m", timedelta(minutes=90), 5400, 5400.0])
def test_ways_to_say_how_far(by: str | timedelta | float, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        before = broker.clock.now_ms()
        broker.advance(by)
        assert broker.clock.now_ms() - before == 5_400_000


def test_a_restart_keeps_what_was_accepted(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.schedule("a", b"x", due=datetime.fromtimestamp(clock.now_ms() / 1000 + 60, UTC))
    with open_broker(tmp_path, clock=clock) as broker:
        broker.advance(60)
        assert broker.receive("a", "g").num_rows == 1


def test_settings_are_those_of_a_broker(tmp_path: Path) -> None:
    with open_broker(tmp_path, retry_ms=7000) as broker:
        broker.schedule("a", b"x")
        broker.advance(0)
        batch = broker.receive("a", "g")
        broker.nack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
        broker.advance(6.999)
        assert broker.receive("a", "g").num_rows == 0
        broker.advance(0.001)
        assert broker.receive("a", "g")["attempt"].to_pylist() == [2]
    with pytest.raises(InvalidArgumentError, match="unknown setting"), open_broker(tmp_path, no_such=1):
        pass


def test_nothing_happens_by_itself(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("a", b"x")
        assert broker.receive("a", "g").num_rows == 0
        broker.step()
        assert broker.receive("a", "g").num_rows == 1
    with pytest.raises(ClosedError):
        broker.step()


def test_the_broker_opens_in_process(tmp_path: Path) -> None:
    with tarry.open(tmp_path, disk_free_bytes_min=0) as broker:
        broker.schedule("a", "text", delay=0.01)
        batch = broker.receive("a", "g", wait_ms=60_000)
        assert batch["body"].to_pylist() == [b"text"]
        assert broker.ack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy()) == 1


def test_the_fixture_is_the_real_broker(tarry_broker: TestBroker) -> None:
    receipt = tarry_broker.schedule("orders", b"unpaid?", delay="30d")
    tarry_broker.advance("29d")
    assert tarry_broker.receive("orders", "billing").num_rows == 0
    tarry_broker.advance("1d")
    [message] = tarry_broker.receive("orders", "billing").to_pylist()
    assert (message["seq"], message["body"]) == (receipt.seq, b"unpaid?")


def test_the_fixture_costs_tests_that_do_not_use_it_nothing() -> None:
    code = "import sys, tarry.pytest_plugin; print(sorted({'pyarrow', 'numpy'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_columns_of_what_was_received_settle_it_as_they_are(tmp_path: Path) -> None:
    """One row or several: Arrow's arrays, and not only NumPy's."""
    with open_broker(tmp_path) as broker:
        for rows in (1, 3):
            broker.schedule_batch(
                pa.table({"topic": ["orders"] * rows, "delay_ms": [1000] * rows, "body": [b"x"] * rows})
            )
            broker.advance("1s")
            batch = broker.receive("orders", group="billing", max_messages=10)
            assert broker.ack("orders", "billing", batch.column("lease"), batch.column("offset")) == rows
        with pytest.raises(InvalidArgumentError, match=r"leases is .*; allowed: whole numbers"):
            broker.ack("orders", "billing", ["x"], [1])
        with pytest.raises(InvalidArgumentError, match="2 leases and 1 offsets"):
            broker.ack("orders", "billing", pa.array([1, 2]), pa.array([1]))
