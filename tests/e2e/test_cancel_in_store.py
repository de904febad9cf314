"""Cancelling while Spark moves the messages to the store, and after it has; through a kill, and to the delivery."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from tarry.api.outcome import Outcome
from tarry.client import Client
from tests.waiting import wait_until

from .conftest import MakeBroker

ROWS = 3000
SETTINGS: dict[str, str | int] = {
    "pipeline": "on",
    "spark_master": "local[2]",
    "schedule_interval_ms": 500,
    "horizon_ms": 300,
    "checkpoint_interval_ms": 50,
    "segment_bytes_max": "64KiB",
}


def wait_committed(client: Client, seq: int) -> None:
    wait_until(lambda: client.status()["store"]["committed_seq"] >= seq, 120, lambda: client.status()["pipeline"])


@pytest.mark.long
@pytest.mark.spark
def test_what_is_cancelled_on_its_way_to_the_store_never_comes(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS)
    with Client(broker.address, timeout=60) as client:
        started_ms = now_ms()
        client.schedule("warm", b"up", delay="1d")
        wait_committed(client, 1)
        # All is to be in the store before it is due: on a machine where Spark starts slowly, that takes longer, too.
        due = 2 * now_ms() - started_ms + 5_000
        waves: list[list[str]] = []
        gone: set[int] = set()
        for _ in range(4):
            [accepted] = client.schedule_batch(
                _table(range(len(waves) * ROWS, (len(waves) + 1) * ROWS), due), chunk_rows=ROWS
            )
            waves.append(accepted.handles())
            # Some of this wave before it is committed, some of the former ones while or after they are.
            for place, handles in enumerate(waves):
                picked = range(len(waves) - place, ROWS, 17)
                outcomes = client.cancel_many([handles[i] for i in picked])
                fresh = {place * ROWS + i for i in picked} - gone
                assert outcomes.count(Outcome.DONE) == len(fresh)
                assert outcomes.count(Outcome.CANCELLED) == len(picked) - len(fresh)
                gone |= fresh
            wait_committed(client, 1 + (len(waves) - 1) * ROWS)
        wait_committed(client, 1 + len(waves) * ROWS)
        picked = range(9, ROWS, 17)
        assert client.cancel_many([waves[0][i] for i in picked]) == [Outcome.DONE] * len(picked)
        gone |= set(picked)
    broker.kill()
    # What is delivered comes from the store and the intake: that takes no Spark.
    with Client(make_broker(**SETTINGS | {"pipeline": "off"}).address, timeout=60) as client:
        left = len(waves) * ROWS - len(gone)
        assert {t.topic: t.pending for t in client.pending()} == {"warm": 1, "t": left}
        assert client.cancel(waves[0][9]) is Outcome.CANCELLED
        seen: list[int] = []
        with client.consume("t", group="g", prefetch=20_000, timeout=60) as consumer:
            for message in consumer:
                seen.append(int(message.body))
                message.ack()
                if len(seen) == left:
                    break
            consumer.flush()
        assert sorted(seen) == sorted(set(range(len(waves) * ROWS)) - gone)
        client.schedule("t", b"the last")
        assert [message.body for message in client.receive("t", group="g", wait=60)] == [b"the last"]
        assert {t.topic: t.pending for t in client.pending()} == {"warm": 1, "t": 0}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _table(numbers: range, due_ms: int) -> pa.Table:
    rows = len(numbers)
    return pa.table(
        {
            "topic": ["t"] * rows,
            "body": [b"%d" % n for n in numbers],
            "due_ms": pa.array([due_ms + n % 3000 for n in numbers], pa.int64()),
        }
    )
