"""What happened to one message: each way that it can go is told, and what is gone is said to be."""

from __future__ import annotations

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.groups import SMALL, ack, fail, nack, take

from tarry.api.views import Event, History
from tarry.base.errors import ForgedHandleError, InvalidArgumentError
from tarry.message import handle
from tarry.message.receipt import Receipt
from tarry.message.schema import SCHEMA
from tarry.store import Store, stage
from tarry.testing import TestBroker, open_broker

HOUR_MS = 3_600_000


def commit(broker: TestBroker) -> None:
    """What the schedule query does, without Spark: all of the intake goes into the store."""
    state = broker.intake_state()
    store = Store.open(state["store_uri"])
    start, end = store.snapshot().committed_seq, state["durable_seq"]
    table = pa.Table.from_batches(list(broker.read_intake(start, end)), SCHEMA)
    store.commit(stage(table, store.root, f"test-{uuid.uuid4().hex}", state["now_ms"]), start, end)
    broker.store_committed()
    broker.step()


def event_names(history: History) -> list[str]:
    return [event.event for event in history.events]


def only(history: History, name: str) -> Event:
    [event] = [event for event in history.events if event.event == name]
    return event


def groups(history: History) -> dict[str, dict[str, Any]]:
    return {
        e.details["group"]: {n: v for n, v in e.details.items() if n != "group"}
        for e in history.events
        if e.event == "group"
    }


def test_from_pending_to_acknowledged(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=30_000) as broker:
        born = broker.clock.now_ms()
        receipt = broker.schedule("a", b"body", delay="1h", key="k", tag="t", properties={"p": "1"})
        found = broker.history(receipt.handle)
        accepted, pending = found.events
        assert (accepted.at_ms, accepted.event, accepted.seq) == (born, "accepted", receipt.seq)
        assert accepted.details == {
            "topic": "a", "id": receipt.id, "key": "k", "tag": "t", "due_ms": born + HOUR_MS,
        }  # fmt: skip
        assert (pending.at_ms, pending.event, pending.details) == (born + HOUR_MS, "pending", {"place": "intake"})
        assert found.unknown == []
        assert broker.history(receipt.id).events == found.events
        commit(broker)
        assert only(broker.history(receipt.handle), "pending").details == {"place": "store"}
        broker.advance("59m30s")
        assert only(broker.history(receipt.handle), "pending").details == {"place": "wheel"}
        broker.group("a", "g")
        broker.group("a", "h")
        broker.advance("30s")
        found = broker.history(receipt.handle)
        assert event_names(found) == ["accepted", "due", "group", "group"]
        assert only(found, "due").details == {"topic": "a", "offset": 0}
        assert groups(found) == {"g": {"state": "ready"}, "h": {"state": "ready"}}
        assert len(found.unknown) == 2
        batch = take(broker)
        until = broker.clock.now_ms() + 30_000
        assert groups(broker.history(receipt.handle))["g"] == {"state": "leased", "attempt": 1, "until_ms": until}
        nack(broker, batch, delay_ms=5000)
        waits = {"state": "waiting", "attempt": 2, "again_ms": broker.clock.now_ms() + 5000}
        assert groups(broker.history(receipt.id, topic="a"))["g"] == waits
        broker.advance(5)
        ack(broker, take(broker))
        assert groups(broker.history(receipt.handle)) == {"g": {"state": "settled"}, "h": {"state": "ready"}}


def test_cancelled_wherever_it_is(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("a", b"x", delay="1h")
        broker.schedule("a", b"y", delay="1h")
        broker.advance(1)
        at = broker.clock.now_ms()
        assert broker.cancel(first.handle) == "done"
        found = broker.history(first.handle)
        assert event_names(found) == ["accepted", "cancelled"]
        assert (only(found, "cancelled").at_ms, found.unknown) == (at, [])
        second = broker.schedule("a", b"z", delay="2h")
        commit(broker)
        broker.advance(1)
        assert broker.cancel(second.handle) == "done"
        at = broker.clock.now_ms()
        commit(broker)
        broker.advance("10m")
        assert only(broker.history(second.handle), "cancelled").at_ms == at


def test_rescheduled_and_replaced(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        start = broker.clock.now_ms()
        first = broker.schedule("a", b"x", delay="1h", id="m")
        broker.advance(1)
        moved = broker.reschedule(first.handle, delay="3h").receipt
        assert moved is not None
        found = broker.history(first.handle)
        assert event_names(found) == ["accepted", "rescheduled", "accepted", "pending"]
        event = only(found, "rescheduled")
        assert (event.seq, event.details) == (first.seq, {"by_seq": moved.seq, "due_ms": moved.due_ms})
        assert only(found, "pending").seq == moved.seq
        assert found.unknown == []
        # By its id it is found where it is now.
        assert event_names(broker.history("m", topic="a"))[-1] == "pending"
        old = broker.schedule("a", b"1", delay="1h", key="k")
        new = broker.schedule("a", b"2", delay="2h", key="k")
        found = broker.history(old.handle)
        assert only(found, "replaced").details == {"by_seq": new.seq, "due_ms": start + 1000 + 2 * HOUR_MS}


def test_rescheduled_long_ago_and_all_of_it_in_the_store(tmp_path: Path) -> None:
    with open_broker(tmp_path, segment_bytes_max=4096) as broker:
        first = broker.schedule("a", b"x", delay="1h", id="m")
        commit(broker)
        moved = broker.reschedule(first.handle, delay="3h").receipt
        gone = broker.schedule("a", b"x", delay="1h")
        commit(broker)
        broker.cancel(gone.handle)
        for n in range(40):  # the intake's segments are sealed, and deleted
            broker.schedule("b", b"x" * 500, delay="9h", id=str(n))
            broker.step()
        commit(broker)
        broker.step()
        assert broker.intake_state()["first_seq"] > gone.seq + 1
        found = broker.history(first.handle)
        assert moved is not None
        assert only(found, "rescheduled").details["by_seq"] == moved.seq
        assert event_names(found) == ["accepted", "rescheduled", "accepted", "pending"]
        assert found.unknown == []
        found = broker.history(gone.handle)
        assert event_names(found) == ["accepted", "cancelled"]


def test_dead_and_respawned(tmp_path: Path) -> None:
    with open_broker(tmp_path, retry_ms=1) as broker:
        broker.set_group("a", "g", tries=2)
        receipt = broker.schedule("a", b"x", id="m")
        broker.step()
        fail(broker, 2)
        died_ms = broker.clock.now_ms()
        found = broker.history(receipt.handle)
        assert groups(found) == {"g": {"state": "settled"}}
        dead = only(found, "dead")
        assert dead.at_ms == died_ms
        assert dead.details == {"group": "g", "cause": "tries", "attempts": "2", "offset": 0, "kept": "yes"}
        assert broker.respawn("a", "g") == 1
        broker.step()
        found = broker.history(receipt.handle)
        assert only(found, "dead").details["kept"] == "no"
        again = only(found, "respawned")
        assert (again.seq != receipt.seq, again.details["only"]) == (True, "g")
        assert event_names(broker.history("m")).count("due") == 2


def test_expiry_and_series(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        now = broker.clock.now_ms()
        short = broker.schedule("a", b"x", delay="1m", ttl=90)
        event = only(broker.history(short.handle), "expired")
        assert (event.at_ms, event.details) == (now + 90_000, {"to_come": True})
        series = broker.schedule("s", b"x", delay="1m", repeat={"every": "1m"})
        broker.advance("61s")
        found = broker.history(series.handle)
        assert event_names(found)[:2] == ["accepted", "due"]
        assert only(found, "next").at_ms == now + 120_000
        broker.advance("60s")
        assert only(broker.history(short.handle), "expired").details == {}


@pytest.mark.parametrize("way", ["handle", "key", "replaced"])
def test_a_cancelled_series_has_no_next_one(tmp_path: Path, way: str) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("s", b"x", delay="1h", key="k", repeat={"every": "1h"})
        broker.advance("61m")
        now = broker.clock.now_ms()
        last = only(broker.history(first.handle), "next").details["by_seq"]
        if way == "handle":
            assert broker.cancel(first.handle) == "done"
        elif way == "key":
            assert broker.cancel_key("s", "k") == "done"
        else:
            new = broker.schedule("s", b"y", delay="1h", key="k")
        for _ in range(2):
            found = broker.history(first.handle)
            assert "next" not in event_names(found)
            ended = only(found, "replaced" if way == "replaced" else "cancelled")
            assert (ended.at_ms, ended.seq) == (now, last)
            if way == "replaced":
                assert ended.details["by_seq"] == new.seq
            broker.advance("30m")


def test_what_is_gone_is_said_to_be(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL, retention_ms=HOUR_MS) as broker:
        receipt = broker.schedule("a", b"x" * 500, delay=1)
        broker.group("a", "g")
        broker.advance(2)
        ack(broker, take(broker))
        for _ in range(60):  # segments are deleted, of intake and ready log
            broker.schedule("a", b"x" * 500)
            broker.advance(1)
            ack(broker, take(broker))
        commit(broker)
        broker.step()
        found = broker.history(receipt.handle)
        assert event_names(found) == ["due"]
        assert any("concluded from its due time alone" in sentence for sentence in found.unknown)
        broker.advance("2h")
        found = broker.history(receipt.handle)
        assert found.events == []
        assert "Nothing is known of it" in found.unknown[0]
    assert History("x", [], []).events == []


def test_what_never_was_and_what_is_refused(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        assert event_names(broker.history("never")) == []
        assert "Without a topic" in broker.history("never").unknown[0]
        assert "Nothing is known" in broker.history("never", topic="a").unknown[0]
        receipt = broker.schedule("a", b"x", delay="1h")
        genuine = handle.decode(receipt.handle)
        with pytest.raises(ForgedHandleError, match="was not made by this broker"):
            broker.history(handle.encode(genuine.seq, genuine.due_ms, genuine.first_seq, genuine.rows, b"12345678"))
        # Its due time is a hint that nobody has signed.
        other = handle.encode(genuine.seq, genuine.due_ms + 5, genuine.first_seq, genuine.rows, genuine.token)
        assert event_names(broker.history(other)) == []
        for wrong in ("", None, 5):
            with pytest.raises(InvalidArgumentError, match="what is"):
                broker.history(wrong)  # type: ignore[arg-type]


def test_ids_of_many_messages_and_of_what_has_fallen_due(tmp_path: Path) -> None:
    with open_broker(tmp_path, dedupe_ms=0) as broker:
        for topic in "ab":
            broker.schedule(topic, b"x", id="same")
            broker.schedule(topic, b"x", id="same", delay="1h")
        broker.step()
        assert event_names(broker.history("same")).count("accepted") == 4
        assert event_names(broker.history("same", topic="b")).count("accepted") == 2
        other = broker.schedule("a", b"x")
        broker.step()
        assert [e.seq for e in broker.history(other.id).events if e.event == "due"] == [other.seq]


def test_it_survives_a_restart(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        clock = broker.clock
        late = broker.schedule("a", b"x", delay="1h")
        now = broker.schedule("a", b"x")
        broker.step()
        before = [broker.history(r.handle).events for r in (late, now)]
    with open_broker(tmp_path, clock=clock) as broker:
        broker.step()
        assert [broker.history(r.handle).events for r in (late, now)] == before


_op = st.one_of(
    st.tuples(st.just("schedule"), st.integers(0, 20)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("move"), st.integers(0, 30)),
    st.tuples(st.just("advance"), st.integers(1, 8)),
    st.tuples(st.just("commit"), st.just(0)),
)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(_op, min_size=5, max_size=40))
def test_whatever_happens_each_message_has_the_end_that_it_had(ops: list[tuple[str, int]]) -> None:
    """Against a model of the answers that were given; nothing is deleted meanwhile, so everything is known."""
    with TemporaryDirectory() as directory, open_broker(directory, horizon_ms=3000, dedupe_ms=0) as broker:
        made: list[Receipt] = []
        ends: dict[int, tuple[str, int | None]] = {}
        for op, value in ops:
            if op == "schedule":
                made.append(broker.schedule("a", b"x", delay=value, id=None if value % 2 else f"i{len(made)}"))
            elif op == "advance":
                broker.advance(value)
            elif op == "commit":
                commit(broker)
            elif made:
                target = made[value % len(made)]
                if op == "cancel" and broker.cancel(target.handle) == "done":
                    ends[target.seq] = ("cancelled", None)
                elif op == "move" and broker.clock.now_ms() + 1000 * value != target.due_ms:
                    moved = broker.reschedule(target.handle, delay=value).receipt
                    if moved is not None:
                        ends[target.seq] = ("rescheduled", moved.seq)
                        made.append(moved)
        broker.step()
        for receipt in made:
            found = [event for event in broker.history(receipt.handle).events if event.seq == receipt.seq]
            end = "due" if receipt.due_ms <= broker.clock.now_ms() else "pending"
            wanted, by = ends.get(receipt.seq, (end, None))
            assert [event.event for event in found if event.event != "group"] in (["accepted", wanted], [wanted])
            last = next(event for event in found if event.event == wanted)
            assert last.details.get("by_seq") == by
