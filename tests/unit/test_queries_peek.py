"""Peeking at what is ready: it shows, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crash.tools import SMALL

from tarry.api.row_schemas import PEEKED
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.testing import TestBroker, open_broker


def ids(batch: pa.RecordBatch) -> list[str]:
    return batch["id"].to_pylist()


def ready(broker: TestBroker, count: int, body: bytes = b"x") -> None:
    for n in range(count):
        broker.schedule("a", body, id=str(n))
        broker.step()


def settle(broker: TestBroker, group: str, batch: pa.RecordBatch) -> None:
    broker.ack("a", group, batch["lease"].to_numpy(), batch["offset"].to_numpy())


def test_what_a_group_has_not_settled_is_seen_and_not_taken(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        ready(broker, 10)
        held = broker.receive("a", "g", max_messages=6)
        settle(broker, "g", held.slice(1, 2))
        broker.nack("a", "g", held["lease"].to_numpy()[4:5], held["offset"].to_numpy()[4:5], 60_000)
        for _ in range(2):
            seen = broker.peek("a", group="g", limit=100)
            assert seen.schema == PEEKED
            assert ids(seen) == ["0", "3", "4", "5", "6", "7", "8", "9"]
            assert seen["offset"].to_pylist() == [0, 3, 4, 5, 6, 7, 8, 9]
        assert ids(broker.peek("a", group="g", limit=3)) == ["0", "3", "4"]
        assert ids(broker.receive("a", "g", max_messages=100)) == ["6", "7", "8", "9"]


def test_without_a_group_it_is_the_one_that_has_most_left(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        ready(broker, 5)
        assert ids(broker.peek("a")) == ["0", "1", "2", "3", "4"]
        settle(broker, "fast", broker.receive("a", "fast", max_messages=5))
        assert ids(broker.peek("a")) == []
        settle(broker, "slow", broker.receive("a", "slow", max_messages=2))
        assert ids(broker.peek("a")) == ["2", "3", "4"]
        assert [t.ready for t in broker.pending()] == [3]


def test_also_what_is_on_disk_alone(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        ready(broker, 30, b"x" * 900)
        seen = broker.peek("a", limit=1000)
        assert ids(seen) == [str(n) for n in range(30)]
        assert set(seen["body"].to_pylist()) == {b"x" * 900}


def test_no_group_and_no_topic_are_made_by_looking(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        assert broker.peek("never").num_rows == 0
        assert broker.peek("never").schema == PEEKED
        ready(broker, 1)
        broker.group("a", "g")
        with pytest.raises(NotFoundError, match=r"topic 'a' has no group 'h'; its groups are: g"):
            broker.peek("a", group="h")
        with pytest.raises(NotFoundError, match="topic 'never' has no group 'g'; it has none"):
            broker.peek("never", group="g")
        assert [t.topic for t in broker.pending()] == ["a"]


@pytest.mark.parametrize(
    "asked", [{"topic": "no topic"}, {"limit": 0}, {"limit": 1001}, {"limit": True}, {"limit": "1"}]
)
def test_what_is_not_allowed_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker, pytest.raises(InvalidArgumentError, match="allowed"):
        broker.peek(**{"topic": "a", **asked})
