"""Queues by their offsets: ranges, what retention deleted, and groups of readers that keep their own offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.waiting import wait_until

from tarry.api.row_schemas import CANCELLED, QUEUED
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.broker import Broker
from tarry.client import Client
from tarry.spark.broker_client import BrokerClient

from .conftest import Served


@pytest.fixture
def calls(served: Served) -> Iterator[BrokerClient]:
    with BrokerClient(served.address) as client:
        yield client


def fill(client: Client, calls: BrokerClient, topic: str, rows: int) -> None:
    """Have so many more in the queue."""
    before = calls.queues([topic])[topic][1]
    for n in range(before, before + rows):
        client.schedule(topic, b"%d" % n, delay=0)
    wait_until(lambda: calls.queues([topic])[topic][1] >= before + rows)


def bodies(calls: BrokerClient, topic: str, start: int, end: int) -> list[tuple[int, bytes]]:
    got = pa.Table.from_batches(list(calls.queue(topic, start, end)), QUEUED)
    return list(zip(got["offset"].to_pylist(), got["body"].to_pylist(), strict=True))


def test_ranges(client: Client, calls: BrokerClient) -> None:
    assert calls.queues(["none"]) == {"none": (0, 0)}
    fill(client, calls, "a", 30)
    assert calls.queues() == {"a": (0, 30)}
    assert bodies(calls, "a", 0, 30) == [(n, b"%d" % n) for n in range(30)]
    assert bodies(calls, "a", 7, 9) == [(7, b"7"), (8, b"8")]
    assert bodies(calls, "a", 9, 9) == []
    with pytest.raises(InvalidArgumentError, match="allowed: up to 30"):
        bodies(calls, "a", 0, 31)
    with pytest.raises(InvalidArgumentError, match="start is 3, end 2"):
        bodies(calls, "a", 3, 2)
    with pytest.raises(NotFoundError, match="topic 'b'"):
        bodies(calls, "b", 0, 0)


def test_a_group_goes_forward_only(client: Client, calls: BrokerClient, served: Served) -> None:
    fill(client, calls, "a", 10)
    assert calls.follow("a", "g") == 0
    assert calls.advance("a", "g", 4) == 4
    assert calls.advance("a", "g", 2) == 4
    assert client.group_info("a", "g").lag == 6
    with pytest.raises(InvalidArgumentError, match="allowed: up to 10"):
        calls.advance("a", "g", 11)
    served.stop()
    served.start()
    assert calls.follow("a", "g") == 4  # durable
    assert calls.queues(["a"]) == {"a": (0, 10)}
    assert calls.follow("a", "g", "earliest") == 0
    assert calls.follow("a", "g", "latest") == 10
    assert calls.follow("a", "h", "latest") == 10
    assert calls.follow("new", "g", "latest") == 0


def test_retention_waits_for_the_group(tmp_path: Path) -> None:
    clock = TestClock()
    config = Config(data=tmp_path / "d", pipeline="off", disk_free_bytes_min=0, segment_bytes_max=4096)
    with Broker.open(config, clock=clock, threads=False) as broker:
        broker.follow_queue("a", "g")
        for n in range(40):
            broker.schedule("a", b"%0500d" % n, delay=0)
            broker.step()
        assert broker.queue_state()["a"] == (0, 40)
        broker.advance_group("a", "g", 20)
        broker.checkpoint()
        first, end = broker.queue_state()["a"]
        assert 0 < first <= 20
        assert end == 40
        kept = [o for b in broker.read_queue("a", 0, 40) for o in b.column("offset").to_pylist()]
        assert kept == list(range(first, 40))


def test_cancellations(client: Client, calls: BrokerClient) -> None:
    receipts = [client.schedule("a", b"x", delay=3600 + n) for n in range(5)]
    client.cancel(receipts[1].handle)
    client.cancel(receipts[3].handle)
    state = calls.state()
    got = pa.Table.from_batches(list(calls.cancelled(0, state.durable_seq)), CANCELLED).to_pylist()
    assert got == [{"seq": r.seq, "due_ms": r.due_ms} for r in (receipts[1], receipts[3])]
    assert list(calls.cancelled(0, 2)) == []
