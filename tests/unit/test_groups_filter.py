"""Filters of groups: what does not match is settled without a consumer; a change is about what nobody had yet."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.groups import SMALL, ack, drained, ids, nack, put, take

from tarry.base.clock import TestClock
from tarry.base.errors import InvalidArgumentError
from tarry.groups import delivery, policy
from tarry.log.files import OsFiles
from tarry.log.json_file import write_json
from tarry.testing import open_broker


def test_what_does_not_match_is_settled(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", filter="A || B")
        for k, tag in enumerate(["A", "C", "B", None, "A", "C"]):
            broker.schedule("a", b"", id=str(k), tag=tag)
        broker.step()
        assert take(broker, limit=1)["id"].to_pylist() == ["0"]
        batch = take(broker)
        assert ids(batch) == ["2", "4"]
        ack(broker, batch)
        info = broker.group_info("a", "g")
        assert (info.lag, info.leased) == (1, 1)
        assert ids(take(broker, group="h")) == [str(k) for k in range(6)]
        broker.set_group("a", "g", filter="*")
    with open_broker(tmp_path, clock=clock) as broker:
        assert drained(broker) == ["0"], "settled for good"


def test_one_receive_fills_up_with_what_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "CHOICE_ROWS", 8)
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", filter="A")
        for k in range(40):
            put(broker, "a", str(k), tag="A" if k % 5 == 0 else "B")
        assert ids(take(broker, limit=6)) == ["0", "5", "10", "15", "20", "25"]
        assert ids(take(broker)) == ["30", "35"]
        assert broker.group_info("a", "g").lag == 8


def test_a_change_is_about_what_was_not_handed_out(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "1", "2", tag="A")
        put(broker, "a", "3", "4", tag="B")
        batch = take(broker, limit=1)
        nack(broker, batch)
        broker.set_group("a", "g", filter="B")
        assert sorted(drained(broker)) == ["1", "3", "4"], "1 was handed out once"
        assert broker.group_info("a", "g").lag == 0


def test_a_condition_over_properties(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", filter="sql: price > 3 AND region = 'eu'")
        for k, (price, region) in enumerate([("5", "eu"), ("2", "eu"), ("9", "us"), ("10", "eu")]):
            put(broker, "a", str(k), properties={"price": price, "region": region})
        put(broker, "a", "bare")
        assert drained(broker) == ["0", "3"]


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_few_of_many(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SCAN_ROWS", 300)
    monkeypatch.setattr(delivery, "CHOICE_ROWS", 64)
    with open_broker(tmp_path, **SMALL) as broker:
        broker.set_group("a", "g", filter="wanted")
        rows = 3000
        for start in range(0, rows, 500):
            names = [str(k) for k in range(start, start + 500)]
            tags = ["wanted" if k % 701 == 0 else "other" for k in range(start, start + 500)]
            columns = {"topic": ["a"] * 500, "delay_ms": [0] * 500, "body": [b""] * 500, "id": names, "tag": tags}
            broker.schedule_batch(pa.record_batch(columns))
            broker.step()
        assert drained(broker, limit=limit) == [str(k) for k in range(rows) if k % 701 == 0]
        assert broker.group_info("a", "g").lag == 0
        broker.step()
        assert broker.components.ready.topic("a").first > 0, "what is settled is deleted"


def test_a_condition_that_takes_too_long_passes_over_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        matches_all = False

        def mask(self, batch: pa.RecordBatch) -> object:
            raise InvalidArgumentError("too slow (injected)")

    with open_broker(tmp_path) as broker:
        put(broker, "a", "1", "2")
        nack(broker, take(broker, limit=1))
        with monkeypatch.context() as patch:
            patch.setattr(policy, "parse_filter", lambda text: Slow())
            broker.set_group("a", "g", filter="slow")
        for _ in range(3):
            with pytest.raises(InvalidArgumentError, match="too slow"):
                take(broker)
        broker.set_group("a", "g", filter="*")
        assert sorted(drained(broker)) == ["1", "2"]


def test_a_tag_that_looks_like_two_is_refused_and_a_stored_one_stays(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        for set_filter in (
            lambda: broker.set_group("a", "g", filter="A & B"),
            lambda: broker.set_push("p", topic="a", url="https://example.com/", filter="A & B"),
        ):
            with pytest.raises(InvalidArgumentError, match="is one tag; allowed"):
                set_filter()
        for missing in ("A ||", "&& A"):
            with pytest.raises(InvalidArgumentError, match="a tag is needed on each side"):
                broker.set_group("a", "g", filter=missing)
        assert broker.groups() == []
        broker.set_group("a", "g", filter="A")
    path = tmp_path / "policies.json"
    fields = json.loads(path.read_text())
    del fields["crc"]
    fields["groups"][0][2]["filter"] = "A & B"  # of a version that took it
    write_json(OsFiles(), path, fields.pop("version"), fields)
    with open_broker(tmp_path) as broker:
        assert broker.set_group("a", "g", tries=3, filter="A & B").filter == "A & B"
        put(broker, "a", "1", tag="A")
        put(broker, "a", "2", tag="A & B")
        assert drained(broker) == ["2"]
