"""What tests of groups share: taking, settling, and what a dead letter says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tarry.testing import TestBroker

SMALL: dict[str, Any] = {"segment_bytes_max": 8192, "ready_cache_bytes_max": 4096, "retry_ms": 1000, "lease_ms": 30_000}
"""Settings under which a few dozen messages fill a segment."""


def ids(batch: pa.RecordBatch) -> list[str]:
    return batch["id"].to_pylist()


def of(batch: pa.RecordBatch, *rows: int) -> tuple[Any, Any]:
    """Leases and offsets of some rows, or of all."""
    picked = list(rows) if rows else list(range(batch.num_rows))
    return batch["lease"].to_numpy()[picked], batch["offset"].to_numpy()[picked]


def put(broker: TestBroker, topic: str, *names: str, **message: Any) -> None:
    """Schedule messages with these ids, due at once unless said otherwise, and let them become ready."""
    for name in names:
        broker.schedule(topic, name.encode(), id=name, **message)
    broker.step()


def take(broker: TestBroker, topic: str = "a", group: str = "g", limit: int = 1000, **how: Any) -> pa.RecordBatch:
    return broker.receive(topic, group, max_messages=limit, **how)


def ack(broker: TestBroker, batch: pa.RecordBatch, *rows: int, topic: str = "a", group: str = "g") -> int:
    return broker.ack(topic, group, *of(batch, *rows))


def nack(
    broker: TestBroker, batch: pa.RecordBatch, *rows: int, delay_ms: int | None = 0, topic: str = "a", group: str = "g"
) -> int:
    return broker.nack(topic, group, *of(batch, *rows), delay_ms)


def fail(broker: TestBroker, times: int, topic: str = "a", group: str = "g") -> None:
    """Take what there is and give it back, so many times; then let the dead letters become ready."""
    for _ in range(times):
        nack(broker, take(broker, topic, group), topic=topic, group=group)
    broker.step()


def says(batch: pa.RecordBatch) -> list[dict[str, str]]:
    """The properties of each row, but for the place that a respawned one had first."""
    pairs = batch["properties"].to_pylist()
    return [{name: text for name, text in row or () if name != "tarry.first"} for row in pairs]


def drained(broker: TestBroker, topic: str = "a", group: str = "g", limit: int = 1000) -> list[str]:
    """The ids of all that can be taken now, each batch acknowledged before the next is taken."""
    found: list[str] = []
    while (batch := take(broker, topic, group, limit)).num_rows:
        found += ids(batch)
        ack(broker, batch, topic=topic, group=group)
    return found
