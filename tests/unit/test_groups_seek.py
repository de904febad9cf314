"""Seeking: to a time, the earliest, the latest; what is replayed or skipped, and what is true after a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults import FaultyFiles
from tests.groups import SMALL, ack, drained, fail, ids, nack, put, take

from tarry.base.clock import TestClock
from tarry.base.errors import StaleLeaseError
from tarry.log.segment import list_segments
from tarry.testing import open_broker

HOUR_MS = 3_600_000


def test_back_to_the_earliest(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        put(broker, "a", *"abcd")
        batch = take(broker)
        ack(broker, batch, 0, 2)
        nack(broker, batch, 1, delay_ms=60_000)
        assert broker.seek("a", "g", "earliest") == 4
        with pytest.raises(StaleLeaseError):
            ack(broker, batch, 3)
        info = broker.group_info("a", "g")
        assert (info.lag, info.ready, info.leased, info.waiting) == (4, 4, 0, 0)
        again = take(broker)
        assert (ids(again), again["attempt"].to_pylist()) == (["a", "b", "c", "d"], [1] * 4)
        ack(broker, again, 0)
    with open_broker(tmp_path, clock=clock) as broker:
        assert drained(broker) == ["b", "c", "d"]


def test_forward_to_the_latest(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        put(broker, "a", *"abcd")
        batch = take(broker, limit=2)
        nack(broker, batch, 0, delay_ms=1000)
        assert broker.seek("a", "g", "latest") == 0
        put(broker, "a", "e")
        broker.advance(100)
        assert ids(take(broker)) == ["e"]
    with open_broker(tmp_path, clock=clock) as broker:
        assert drained(broker) == ["e"]
        assert broker.group_info("a", "g").lag == 0


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["memory", "disk"])
def test_to_a_time(settings: dict[str, int], tmp_path: Path) -> None:
    with open_broker(tmp_path, **settings) as broker:
        start = broker.clock.now_ms()
        for k in range(40):
            broker.schedule("a", b"x" * 700, id=f"{k:02}", delay=k)
        for k in range(41):
            broker.advance_to(start + 1000 * k)
        assert len(drained(broker)) == 40
        for k in (0, 17, 39):
            assert broker.seek("a", "g", start + 1000 * k) >= 40 - k
            first = broker.components.ready.topic("a").first
            assert drained(broker) == [f"{i:02}" for i in range(max(k, first), 40)]
            assert broker.seek("a", "g", start + 1000 * k - 999) == 40 - max(k, first), "between two"
        assert broker.seek("a", "g", start + 40_000) == 0
        assert broker.seek("a", "g", 0) == 40 - broker.components.ready.topic("a").first


def test_nothing_due_at_or_after_the_time_is_skipped(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        keep = broker.subscribe("a", "keep")  # so that nothing is deleted
        start = broker.clock.now_ms()
        due: dict[str, int] = {}
        for k in range(60):
            broker.clock.advance_ms(1000)
            late = start - 5000 * (k % 3) + 1000 * k
            due[str(k)] = late
            broker.schedule("a", b"x" * 500, id=str(k), due=late)
            broker.step()
        drained(broker)
        for moment in range(start - 10_000, start + 61_000, 3500):
            broker.seek("a", "g", moment)
            seen = drained(broker)
            assert {n for n, d in due.items() if d >= moment} <= set(seen)
            if seen:
                assert due[seen[0]] >= moment, "and it begins with one of them"
        keep.close()


def test_what_was_acknowledged_before_a_seek_does_not_count_after_it(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, segment_bytes_max=4096) as broker:
        names = [f"{k:03}" for k in range(120)]
        put(broker, "a", *names)
        batch = take(broker)
        for row in range(0, 120, 2):
            ack(broker, batch, row)
            if row == 60:
                broker.seek("a", "g", "earliest")
                batch = take(broker)
    with open_broker(tmp_path, clock=clock) as broker:
        assert list_segments(tmp_path / "acks")[0] > 0, "the journal rolled"
        assert drained(broker) == [n for k, n in enumerate(names) if k % 2 or k <= 60]


def test_dead_letters_come_again_after_a_seek_behind_them(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", "m", "n")
        fail(broker, 1)
        assert broker.group_info("a", "g").dead == 2
        assert broker.seek("a", "g", "earliest") == 2
        batch = take(broker)
        assert (ids(batch), batch["attempt"].to_pylist()) == (["m", "n"], [1, 1])
        ack(broker, batch)
        assert broker.group_info("a", "g").dead == 2, "and stay"


def test_a_seek_with_copies_that_were_refused(tmp_path: Path) -> None:
    files = FaultyFiles()
    with open_broker(tmp_path, files=files) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", "m")

        files.full_directory = "intake"
        fail(broker, 1)
        assert broker.group_info("a", "g").burying == 1
        broker.seek("a", "g", "earliest")
        files.full_directory = ""
        assert broker.group_info("a", "g").burying == 0
        broker.advance(5)
        assert drained(broker) == ["m"]
        assert broker.group_info("a", "g").dead == 0


def test_order_and_filter_are_asked_again(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", ordered=True, filter="A")
        put(broker, "a", "x1", "x2", order_key="x", tag="A")
        put(broker, "a", "no", tag="B")
        assert ids(take(broker)) == ["x1"]
        broker.set_group("a", "g", filter="")
        broker.seek("a", "g", "earliest")
        assert ids(take(broker)) == ["x1", "no"]
        assert broker.group_info("a", "g").blocked == 1


def test_lost_to_retention_is_counted_and_survives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = TestClock()
    settings = {**SMALL, "retention_ms": HOUR_MS, "ready_cache_bytes_max": 0}
    with open_broker(tmp_path, clock=clock, **settings) as broker:
        for k in range(30):
            broker.schedule("a", b"x" * 900, id=str(k))
            broker.step()
        kept, retried, failing = (take(broker, limit=1, lease_ms=3 * HOUR_MS) for _ in range(3))
        nack(broker, retried, delay_ms=10)
        assert broker.group("a", "idle").name == "idle"
        for path in (tmp_path / "ready").glob("*.log"):
            os.utime(path, (1, 1))
        broker.advance("2h")
        first = broker.components.ready.topic("a").first
        assert first > 3
        assert broker.group_info("a", "idle").lost == first
        assert broker.group_info("a", "g").lost == first - 2, "two are in a consumer's hands"
        assert ack(broker, kept) == 1
        nack(broker, failing)
        assert broker.group_info("a", "g").lost == first - 1, "and one is not any more"
        assert "group 'idle' of topic 'a': 4 messages are older than the retention" in caplog.text
        info = broker.group_info("a", "g")
        assert info.lag == 30 - first
        assert info.oldest_due_ms is not None
        assert drained(broker) == [str(k) for k in range(first, 30)]
        assert broker.group_info("a", "g").oldest_due_ms is None
    with open_broker(tmp_path, clock=clock, **settings) as broker:
        assert broker.group_info("a", "idle").lost == first
        assert broker.group_info("a", "g").lost == first - 1
        assert broker.group_info("a", "g").lag == 0


def test_an_ordered_group_goes_on_after_a_loss(tmp_path: Path) -> None:
    settings = {**SMALL, "retention_ms": HOUR_MS, "ready_cache_bytes_max": 0}
    with open_broker(tmp_path, **settings) as broker:
        broker.set_group("a", "g", ordered=True)
        for k in range(30):
            broker.schedule("a", b"x" * 900, id=str(k), order_key="x")
            broker.step()
        batch = take(broker)
        nack(broker, batch, delay_ms=10_000_000)
        for path in (tmp_path / "ready").glob("*.log"):
            os.utime(path, (1, 1))
        broker.advance("2h")
        first = broker.components.ready.topic("a").first
        assert first > 1
        assert drained(broker) == [str(k) for k in range(first, 30)]
        assert broker.group_info("a", "g").lost == first
