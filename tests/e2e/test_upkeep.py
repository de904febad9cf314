"""The upkeep of the store beside a serving broker, through a kill: every message comes once, and no file is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tarry.client import Client
from tarry.store import Store
from tests.waiting import wait_until

from .conftest import MakeBroker

WAVES, ROWS = 8, 200
SETTINGS: dict[str, str | int] = {
    "pipeline": "on",
    "spark_master": "local[2]",
    "schedule_interval_ms": 100,
    "compact_interval_ms": 300,
    "horizon_ms": 300,
    "checkpoint_interval_ms": 50,
}


def wait(client: Client, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the status is so; the one that was."""
    seen: list[dict[str, Any]] = []

    def look() -> bool:
        seen[:] = [client.status()]
        return done(seen[0])

    wait_until(look, 120, lambda: seen[0]["pipeline"])
    return seen[0]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def totals(status: dict[str, Any]) -> dict[str, int]:
    return status["pipeline"].get("compact", {}).get("totals", {})


@pytest.mark.spark
@pytest.mark.long
def test_what_is_merged_while_it_is_served_comes_once(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS)
    with Client(broker.address, timeout=60) as client:
        started_ms = now_ms()
        client.schedule("warm", b"up", delay="40d")
        wait(client, lambda s: s["store"]["committed_seq"] >= 1)
        # All is to be in the store before it is due: on a machine where Spark starts slowly, that takes longer, too.
        due = 2 * now_ms() - started_ms + 10_000
        for wave in range(WAVES):
            numbers = range(wave * ROWS, (wave + 1) * ROWS)
            body, at = [b"%d" % n for n in numbers], [due + n * 7 % 4000 for n in numbers]
            table = pa.table({"topic": ["t"] * ROWS, "body": body, "due_ms": pa.array(at, pa.int64())})
            client.schedule_batch(table)
            wait(client, lambda s, seq=1 + (wave + 1) * ROWS: s["store"]["committed_seq"] >= seq)
        # The job reports both parts: neither hides the other.
        status = wait(client, lambda s: totals(s).get("works", 0) >= 2)
        assert status["pipeline"]["job"] == "schedule"
        assert totals(status)["rows_written"] >= ROWS
        broker.kill()
        broker.start()
        seen: list[int] = []
        with client.consume("t", group="g", prefetch=20_000, timeout=60) as consumer:
            for message in consumer:
                seen.append(int(message.body))
                message.ack()
                if len(seen) == WAVES * ROWS:
                    break
            consumer.flush()
        assert sorted(seen) == list(range(WAVES * ROWS))
        client.schedule("t", b"the last")
        assert [message.body for message in client.receive("t", group="g", wait=60)] == [b"the last"]
        # What has fired leaves the table; what is due in weeks stays.
        store = Store.open(str(broker.data / "store"))
        wait(client, lambda s: int(store.snapshot().files.rows.sum()) == 1)
        assert {t.topic: t.pending for t in client.pending()} == {"warm": 1, "t": 0}
