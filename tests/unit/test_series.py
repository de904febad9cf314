"""Series: one occurrence pending at a time, the next one durable before the current one is handed out."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from tests.crash.tools import PARTS, KeepNothing, World, steps_of
from tests.faults import Crash

import tarry.broker.commands.advance_series as advance
from tarry.api.outcome import Outcome
from tarry.base.clock import TestClock
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.broker.queries.messages import MessageFinder
from tarry.message.receipt import Receipt
from tarry.message.schema import SCHEMA
from tarry.repeat import Repeat
from tarry.testing import TestBroker, open_broker


def take(broker: TestBroker, topic: str = "t") -> list[tuple[int, bytes]]:
    """Due times (from the test clock's beginning, in ms) and bodies of what is ready; acknowledged."""
    found: list[tuple[int, bytes]] = []
    while (batch := broker.receive(topic, "g", max_messages=100_000)).num_rows:
        broker.ack(topic, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
        found += zip(batch["due_ms"].to_pylist(), batch["body"].to_pylist(), strict=True)
    return [(due - TestClock().now_ms(), body) for due, body in found]


def pending(broker: TestBroker, topic: str = "t") -> int:
    return {e.topic: e.pending for e in broker.pending()}.get(topic, 0)


def test_every_interval_a_number_of_times(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "x", delay=5, repeat=Repeat.every("10s", times=3))
        for elapsed in (5, 10, 10, 10, 100):
            broker.advance(elapsed)
        assert [d for d, _ in take(broker)] == [5_000, 15_000, 25_000]
        assert pending(broker) == 0


def test_exactly_one_is_pending(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s"))
        for _ in range(10):
            assert pending(broker) == 1
            broker.advance(1)
        assert [d for d, _ in take(broker)] == [1000 * (i + 1) for i in range(10)]


def test_until_and_growing_intervals(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        start = broker.clock.now_ms()
        broker.schedule("u", "x", delay=1, repeat=Repeat.every("1s", until=start + 3_000))
        broker.schedule("e", "x", delay=0, repeat=Repeat.every("1s", factor=2, most="5s", times=6))
        broker.advance(60)
        assert [d for d, _ in take(broker, "u")] == [1000, 2000, 3000]
        assert [d for d, _ in take(broker, "e")] == [0, 1000, 3000, 7000, 12000, 17000]


def test_cron_in_a_zone_begins_at_its_next_instant(tmp_path: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    clock = TestClock(int(datetime(2026, 3, 27, 12, tzinfo=UTC).timestamp() * 1000))
    with open_broker(tmp_path, clock=clock) as broker:
        first = broker.schedule("t", "x", repeat={"cron": "30 2 * * *", "zone": "Europe/Berlin"})
        assert first.due == datetime(2026, 3, 28, 2, 30, tzinfo=berlin)
        broker.advance("4d")
        batch = broker.receive("t", "g", max_messages=9)
        found = [datetime.fromtimestamp(d / 1000, berlin).strftime("%d %H:%M") for d in batch["due_ms"].to_pylist()]
        # On the 29th, 02:30 does not exist.
        assert found == ["28 02:30", "29 03:00", "30 02:30", "31 02:30"]


@pytest.mark.parametrize("how", ["handle", "key"])
@pytest.mark.parametrize("elapsed", [0, 1, 3.5])
def test_cancel_ends_the_series(tmp_path: Path, how: str, elapsed: float) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "x", delay=1, key="k", repeat=Repeat.every("1s"))
        broker.advance(elapsed)

        def cancel() -> Outcome:
            return broker.cancel(first.handle) if how == "handle" else broker.cancel_key("t", "k")

        assert [cancel(), cancel()] == [Outcome.DONE, Outcome.CANCELLED]
        broker.advance(30)
        assert len(take(broker)) == int(elapsed)
        assert pending(broker) == 0


def test_a_series_that_has_ended_cannot_be_cancelled(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s", times=2))
        broker.advance(5)
        assert broker.cancel(first.handle) is Outcome.DELIVERED


def test_a_key_replaces_the_series(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "old", delay=1, key="k", repeat=Repeat.every("1s"))
        broker.advance(2)
        assert broker.schedule("t", "new", delay=5, key="k", repeat=Repeat.every("5s")).outcome == "replaced"
        broker.advance(11)
        assert take(broker) == [(1000, b"old"), (2000, b"old"), (7000, b"new"), (12000, b"new")]
        assert broker.find_key("t", "k").due_ms - TestClock().now_ms() == 17_000


def test_reschedule_moves_what_is_to_come(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s", times=5))
        broker.advance(2)
        moved = broker.reschedule(first.handle, delay=10)
        assert moved.outcome is Outcome.DONE
        broker.advance(60)
        assert [d for d, _ in take(broker)] == [1000, 2000, 12_000, 13_000, 14_000]
        assert broker.reschedule(first.handle, delay=1).outcome is Outcome.CANCELLED


def test_the_first_falls_due_while_it_is_looked_up_to_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is delivered, and the series has gone on: what is moved is the next one."""
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s", times=3))
        broker.step()
        whole, looked = MessageFinder.find, []

        def find(*given: Any) -> Any:
            found = whole(*given)
            if not looked:
                looked.append(broker.advance(1))
            return found

        monkeypatch.setattr(MessageFinder, "find", find)
        assert broker.reschedule(first.handle, delay=10).outcome is Outcome.DONE
        broker.advance(60)
        assert [d for d, _ in take(broker)] == [1000, 10_000, 11_000], "ten seconds from when it was asked for"


@pytest.mark.parametrize(
    ("missed", "expected"),
    [("all", list(range(60, 660, 60))), ("last", [60, 120, 480, 540, 600]), ("none", [60, 120, 540, 600])],
)
def test_what_downtime_missed(tmp_path: Path, missed: str, expected: list[int]) -> None:
    with open_broker(tmp_path, missed_after_ms=10_000) as broker:
        clock = broker.clock
        broker.schedule("t", "x", delay=60, repeat=Repeat.every("1m", times=10, missed=missed))
        broker.advance(125)
    clock.advance_ms(380_000)  # 505 s after the beginning
    with open_broker(tmp_path, clock=clock, missed_after_ms=10_000) as broker:
        broker.advance(600)
        assert [d // 1000 for d, _ in take(broker)] == expected
        assert pending(broker) == 0


def test_the_same_id_comes_again_and_ttl_counts_anew(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "x", delay=1, id="mine", ttl=3, repeat=Repeat.every("1s", times=3))
        broker.advance(10)
        assert broker.schedule("t", "x", id="mine").outcome == "duplicate"
        rows = [row for batch in broker.components.ready.rows_after(0, 0) for row in batch.to_pylist()]
        assert [(r["id"], r["expire_ms"] - r["due_ms"]) for r in rows] == [("mine", 2000)] * 3


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"every": "10ms"}, "at least 1000 ms"),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": "0 0 31 4 *"}, "cron is"),
        ({"cron": "* * * * * *", "every": 5}, "both of every and cron"),
        ({"cron": "x"}, "x"),
        ({"cron": "0 0 * * *", "zone": "Europe/Atlantis"}, "Europe/Atlantis"),
        ({"every": "1m", "series": 4}, "unknown field 'series'"),
        ("[1]", "no JSON object"),
    ],
)
def test_rules_that_are_refused(tmp_path: Path, rule: Any, text: str) -> None:
    with open_broker(tmp_path) as broker:
        with pytest.raises(InvalidArgumentError, match=text):
            broker.schedule("t", "x", repeat=rule)
        if isinstance(rule, str):
            rows = {"topic": ["t", "t"], "body": [b"", b""], "delay_ms": [0, 0], "repeat": [None, rule]}
            with pytest.raises(InvalidMessageError, match="row 1: repeat"):
                broker.schedule_batch(pa.record_batch(rows))
        assert pending(broker) == 0


def test_a_shortest_interval_is_a_setting(tmp_path: Path) -> None:
    with open_broker(tmp_path, repeat_ms_min=50) as broker:
        broker.schedule("t", "x", delay=0, repeat=Repeat.every(0.05, times=3))
        broker.advance(1)
        assert [d for d, _ in take(broker)] == [0, 50, 100]


@pytest.mark.rest
def test_ten_thousand_series_due_in_one_instant(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        rows = 10_000
        columns = {"topic": ["t"] * rows, "body": [b""] * rows, "delay_ms": [1000] * rows}
        broker.schedule_batch(pa.record_batch({**columns, "repeat": ['{"every":"1m"}'] * rows}))
        for turn in range(1, 4):
            broker.advance(60)
            assert broker.components.ready.topics["t"].end == turn * rows
            assert pending(broker) == rows


def test_the_next_is_durable_before_the_current_is_handed_out(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.open()
    w.b.schedule("t", "x", delay=1, repeat=Repeat.every("10s"))
    w.b.schedule("t", "plain", delay=1)
    w.files.full = True
    w.clock.advance_ms(1000)
    try:
        w.b.step()
    except OSError:
        pass  # the ready log cannot be written either
    assert [b for _, b in take_unsettled(w.b)] == [b"plain"], "it waits for its successor"
    assert w.b.components.wheel.advancing
    w.files.full = False
    w.b.step()
    assert [b for _, b in take_unsettled(w.b)] == [b"x"]
    assert pending(w.b) == 1
    w.b.close()


def take_unsettled(broker: TestBroker) -> list[tuple[int, bytes]]:
    batch = broker.receive("t", "g", max_messages=9)
    return list(zip(batch["due_ms"].to_pylist(), batch["body"].to_pylist(), strict=True))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("losses", range(2))
def test_a_crash_at_any_step_leaves_one_series(tmp_path: Path, losses: int, part: str) -> None:
    steps = 0
    for step in steps_of(part, range(1, 60), f"series {losses}"):
        w = World(tmp_path / f"{losses}-{step}")
        w.open()
        first = w.b.schedule("t", "x", delay=1, repeat=Repeat.every("1s", times=4))
        w.files.crash_at = w.files.steps + step
        try:
            w.b.advance(2.5)
            w.files.crash_at = None
        except Crash:
            steps += 1
        w.crashed(None if losses == 0 else random.Random(step))
        w.open()
        w.b.step()
        assert pending(w.b) <= 1
        w.b.advance(10)
        found = [
            row["due_ms"] - first.due_ms for batch in w.b.components.ready.rows_after(0, 0) for row in batch.to_pylist()
        ]
        assert sorted(found) == [0, 1000, 2000, 3000], f"crashed at step {step}: {found}"
        assert w.b.cancel(first.handle) is Outcome.DELIVERED
        w.b.close()
    assert steps > (10 if part == "others" else 0)


CHANGES: dict[str, tuple[Callable[[TestBroker, Receipt], str], str]] = {
    "cancel": (lambda broker, first: broker.cancel(first.handle).value, "done"),
    "cancel by key": (lambda broker, _: broker.cancel_key("t", "k").value, "done"),
    "replace": (lambda broker, _: broker.schedule("t", "new", delay=0, key="k").outcome, "scheduled"),
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", CHANGES)
def test_a_change_after_a_crash_when_the_current_one_may_have_been_handed_out(
    tmp_path: Path, how: str, times: int
) -> None:
    """That one counts as delivered. The others of its series are not: they can be cancelled, and replaced."""
    change, expected = CHANGES[how]
    w = World(tmp_path)
    w.open()
    w.b.schedule("t", "plain", delay=0)
    w.b.step()
    first = w.b.schedule("t", "x", delay=0, key="k", repeat=Repeat.every("1s", times=times))
    w.crashed(KeepNothing())
    w.open()
    outcome = change(w.b, first)
    assert outcome == (expected if times > 1 or how == "replace" else "delivered")
    w.b.advance(5)
    bodies = [row["body"] for batch in w.b.components.ready.rows_after(0, 0) for row in batch.to_pylist()]
    assert sorted(bodies) == sorted(
        [b"plain", *([] if outcome == "done" else [b"x"]), *([b"new"] if how == "replace" else [])]
    )
    assert pending(w.b) == 0
    assert w.b.cancel(first.handle) is (Outcome.CANCELLED if outcome == "done" else Outcome.DELIVERED)
    w.b.close()


def test_a_zone_that_is_not_known_any_more_ends_the_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown(text: str) -> Any:
        raise InvalidArgumentError("zone 'Europe/Atlantis' is unknown")

    with open_broker(tmp_path) as broker:
        broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s"))
        monkeypatch.setattr(advance, "read_state", unknown)
        with caplog.at_level(logging.ERROR):
            broker.advance(5)
        assert "ends: zone 'Europe/Atlantis'" in caplog.text
        assert len(take(broker)) == 1
        assert pending(broker) == 0


def test_a_cancellation_while_the_next_is_being_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher has taken the current one, and its successor is not decided yet."""
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s"))
        broker.step()
        series = broker.components.series
        whole, outcomes = series._hand_on, []  # noqa: SLF001 - a step that fails is put in its place

        def hand_on(due: Any) -> bool:
            outcomes.append(broker.cancel(first.handle))
            return whole(due)

        monkeypatch.setattr(series, "_hand_on", hand_on)
        broker.advance(5)
        assert outcomes == [Outcome.DONE]
        assert take(broker) == []
        assert pending(broker) == 0
        assert broker.cancel(first.handle) is Outcome.CANCELLED


def test_rows_of_a_series_are_messages_of_the_schema(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "x", delay=1, tag="g", properties={"a": "b"}, tries=3, repeat=Repeat.every("1s", times=2))
        broker.advance(5)
        rows = [row for batch in broker.components.ready.rows_after(0, 0) for row in batch.to_pylist()]
        assert set(rows[0]) == set(SCHEMA.names)
        same = ("topic", "tag", "properties", "body", "tries", "kind", "key", "id")
        assert [rows[0][n] for n in same] == [rows[1][n] for n in same]
        assert rows[1]["repeat"] == '{"every":"1s","times":2,"n":2,"series":0}'
