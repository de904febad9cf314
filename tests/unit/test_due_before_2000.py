"""Seconds where milliseconds are meant name an instant of 1970: refused wherever a due time is taken, by value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.base.clock import TestClock
from tarry.base.delay import DUE_MS_MIN
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.fronts.rocketmq.common.draft import SECONDS_MIN, DraftRules, due_ms_of
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.testing import TestBroker, open_broker
from tarry_relay.headers import RecordAction, decide
from tarry_relay.rules import TopicRule

SECONDS = 1_893_456_000
"""2030-01-01 as it is in seconds."""


def batch(due: pa.Array, name: str = "due_ms") -> pa.RecordBatch:
    return pa.record_batch({"topic": ["a"] * len(due), "body": [b""] * len(due), name: due})


WAYS: dict[str, Callable[[TestBroker, int], Any]] = {
    "schedule": lambda b, due: b.schedule("a", b"x", due=due),
    "schedule, an instant": lambda b, due: b.schedule("a", b"x", due=datetime.fromtimestamp(due / 1000, UTC)),
    "schedule, an instant as delay": lambda b, due: b.schedule(
        "a", b"x", delay=datetime.fromtimestamp(due / 1000, UTC)
    ),
    "schedule_batch": lambda b, due: b.schedule_batch(batch(pa.array([due]))),
    "schedule_batch, timestamps": lambda b, due: b.schedule_batch(
        batch(pa.array([due], pa.timestamp("ms", "UTC")), "due")
    ),
    "reschedule": lambda b, due: b.reschedule(b.schedule("a", b"x", delay=5000).handle, due=due),
    "a series": lambda b, due: b.schedule("a", b"x", due=due, repeat={"every": "1h"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused_with_its_value_and_what_is_allowed(way: str, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        with pytest.raises(InvalidArgumentError, match=rf"{SECONDS}.*seconds for milliseconds"):
            WAYS[way](broker, SECONDS)
        with pytest.raises(InvalidArgumentError, match="allowed"):
            WAYS[way](broker, DUE_MS_MIN - 1)
        WAYS[way](broker, DUE_MS_MIN)


def test_of_a_batch_the_row_is_named_and_nothing_accepted(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        now = broker.clock.now_ms()
        with pytest.raises(InvalidArgumentError, match=f"row 1: due is {SECONDS}"):
            broker.schedule_batch(batch(pa.array([now, SECONDS])))
        assert broker.status()["accepted"] == 0


def test_a_clock_of_before_then_may_name_its_own_time(tmp_path: Path) -> None:
    with open_broker(tmp_path, clock=TestClock(1_000_000)) as broker:
        broker.schedule("a", b"x", due=1_000_500)
        broker.advance(1)
        assert broker.receive("a", "g").num_rows == 1


def test_a_clock_of_before_then_has_the_same_limit(tmp_path: Path) -> None:
    """A row of that time, which is right, does not hide one beyond the limit behind it."""
    with open_broker(tmp_path, clock=TestClock(1_000_000)) as broker:
        rows = pa.table({"topic": ["a", "a"], "body": [b"x", b"y"], "due_ms": [1_000_500, 1 << 60]})
        with pytest.raises(InvalidMessageError, match="row 1"):
            broker.schedule_batch(rows)
        assert broker.status()["accepted"] == 0


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "__STARTDELIVERTIME", None])
def test_rocketmq_clients_are_refused_seconds_of_today_and_get_at_once_what_the_original_gives_so(
    name: str | None,
) -> None:
    clock, rules = TestClock(), DraftRules(1000, 1000, 40 * 366 * 86_400_000, (1000,))

    def due(value: int) -> int | None:
        return due_ms_of({} if name is None else {name: str(value)}, value if name is None else None, clock, rules)

    for value in (SECONDS, SECONDS_MIN, DUE_MS_MIN - 1):
        with pytest.raises(Refusal, match=f"{value}.*seconds for milliseconds"):
            due(value)
    assert due(SECONDS_MIN - 1) == due(0) == clock.now_ms()
    assert due(DUE_MS_MIN) == DUE_MS_MIN


def test_a_record_of_the_relay_goes_to_the_dead_ones() -> None:
    rule = TopicRule("out")
    now = TestClock().now_ms()
    decision = decide(rule, [("tarry-due-ms", str(SECONDS).encode())], None, False, now, now, 1 << 50)
    assert decision.action is RecordAction.DEAD
    assert str(SECONDS) in decision.reason


@pytest.mark.parametrize("to", [2030, SECONDS])
def test_no_group_goes_on_from_there_by_mistake(to: int, tmp_path: Path) -> None:
    """Else all that is kept would come again."""
    with open_broker(tmp_path) as broker:
        broker.subscribe("a", "g")
        with pytest.raises(InvalidArgumentError, match=rf"seek to {to} \(1970-.*; allowed: .* for milliseconds"):
            broker.seek("a", "g", to)
        assert broker.seek("a", "g", 0) == broker.seek("a", "g", DUE_MS_MIN) == 0
