"""A message that is scheduled only if one of its key is pending, or a certain one: answers, and what is delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.base.clock import TestClock
from tarry.base.errors import InvalidArgumentError, KeyExistsError
from tarry.message.receipt import NO_SEQ
from tarry.testing import TestBroker, open_broker


def bodies(broker: TestBroker) -> list[bytes]:
    batch = broker.receive("t", "g", max_messages=100)
    if batch.num_rows:
        broker.ack("t", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
    return [bytes(body) for body in batch["body"].to_pylist()]


def outcomes(broker: TestBroker, **columns: Any) -> list[str]:
    rows = len(columns["key"])
    plain = {"topic": ["t"] * rows, "body": [b"%d" % row for row in range(rows)], "delay_ms": [1000] * rows}
    return list(broker.schedule_batch(pa.table(plain | columns)).outcomes)


def test_only_what_is_pending_is_replaced(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        never = broker.schedule("t", "a", delay=5, key="k", on_key="if_pending")
        assert (never.outcome, never.seq, never.handle) == ("not_pending", NO_SEQ, "")
        broker.schedule("t", "b", delay=5, key="k")
        assert broker.schedule("t", "c", delay=5, key="k", on_key="if_pending").outcome == "replaced"
        broker.advance(5)
        assert bodies(broker) == [b"c"]
        assert broker.schedule("t", "d", delay=5, key="k", on_key="if_pending").outcome == "not_pending", "delivered"
        broker.schedule("t", "e", delay=5, key="k")
        broker.cancel_key("t", "k")
        assert broker.schedule("t", "f", delay=5, key="k", on_key="if_pending").outcome == "not_pending", "cancelled"
        broker.advance(60)
        assert bodies(broker) == []


def test_only_the_one_that_is_named(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "a", delay=5, key="k")
        second = broker.schedule("t", "b", delay=6, key="k", if_seq=first.seq)
        assert second.outcome == "replaced"
        changed = broker.schedule("t", "c", delay=5, key="k", if_seq=first.seq)
        assert (changed.outcome, changed.seq, changed.due_ms) == ("changed", second.seq, second.due_ms)
        assert broker.cancel(changed.handle) == "done", "its receipt is that of the one that is pending"
        assert broker.schedule("t", "d", delay=5, key="k", if_seq=second.seq).outcome == "not_pending"
        moved = broker.schedule("t", "e", delay=5, key="k")
        assert broker.reschedule_key("t", "k", delay=9).outcome == "done"
        assert broker.schedule("t", "f", delay=5, key="k", if_seq=moved.seq).outcome == "changed", "moved meanwhile"
        broker.advance(60)
        assert bodies(broker) == [b"e"]


def test_the_occurrence_of_a_series(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "tick", delay=60, key="k", repeat={"every": "1m"})
        broker.advance(60)
        assert bodies(broker) == [b"tick"]
        changed = broker.schedule("t", "end", delay=60, key="k", if_seq=first.seq)
        assert changed.outcome == "changed"
        assert broker.schedule("t", "end", delay=60, key="k", if_seq=changed.seq).outcome == "replaced"
        broker.advance(600)
        assert bodies(broker) == [b"end"]


def test_a_batch_decides_each_row(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        seqs = [broker.schedule("t", name, delay=5, key=name).seq for name in ("a", "b", "c")]
        policies = ["if_pending", None, "if_pending", "if_pending", "if_pending", "keep", None]
        wanted = [seqs[0], seqs[2], None, None, None, None, None]
        keys = ["a", "b", "x", "c", "a", "a", "x"]
        assert outcomes(broker, key=keys, on_key=policies, if_seq=pa.array(wanted, pa.int64())) == [
            *("replaced", "changed", "not_pending", "replaced", "replaced", "kept", "scheduled")
        ]
        broker.advance(60)
        assert sorted(bodies(broker)) == [b"3", b"4", b"6", b"b"]


def test_a_batch_that_is_refused_withdraws_nothing(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "first", delay=5, key="k")
        for policies in (["if_pending", "refuse"], ["refuse", "if_pending"]):
            with pytest.raises(KeyExistsError):
                outcomes(broker, key=["k", "k"], on_key=policies)
        assert outcomes(broker, key=["x", "x"], on_key=["if_pending", "refuse"]) == ["not_pending", "scheduled"]
        broker.advance(60)
        assert bodies(broker) == [b"1", b"first"]


def test_a_retry_with_an_id_is_a_duplicate(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "a", delay=5, key="k")
        again = [broker.schedule("t", "b", delay=5, key="k", id="i", if_seq=first.seq) for _ in range(2)]
        assert [each.outcome for each in again] == ["replaced", "duplicate"]
        assert again[0].seq == again[1].seq
        missed = [broker.schedule("t", "c", delay=5, key="x", id="j", on_key="if_pending") for _ in range(2)]
        assert [each.outcome for each in missed] == ["not_pending"] * 2


def test_it_is_so_after_a_restart(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        first = broker.schedule("t", "a", delay=5, key="k")
        second = broker.schedule("t", "b", delay=5, key="k", if_seq=first.seq)
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.schedule("t", "c", delay=5, key="k", if_seq=first.seq).seq == second.seq
        broker.advance(5)
        assert bodies(broker) == [b"b"]


@pytest.mark.parametrize(
    "options",
    [
        *({"on_key": "if_pending"}, {"if_seq": 1}, {"key": "k", "if_seq": -1}, {"key": "k", "if_seq": "1"}),
        *({"key": "k", "if_seq": 1, "on_key": "keep"}, {"key": "k", "if_seq": 1, "on_key": "refuse"}),
    ],
)
def test_a_condition_that_means_nothing(options: dict[str, Any], tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker, pytest.raises(InvalidArgumentError, match=r"if_seq|if_pending"):
        broker.schedule("t", "x", **options)
