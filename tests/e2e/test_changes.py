"""Cancelling, moving, keys, series and groups through a broker that is a process, and killed."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from tarry import Repeat
from tarry.api.outcome import Outcome
from tarry.base.errors import KeyExistsError, NotFoundError
from tarry.client import Client, Delivery
from tests.waiting import wait_until

from .conftest import MakeBroker

FAST: dict[str, str | int] = {
    "pipeline": "off",
    "horizon_ms": 400,
    "checkpoint_interval_ms": 50,
    "segment_bytes_max": "128KiB",
}


def take(client: Client, count: int, topic: str = "t", group: str = "g") -> list[Delivery]:
    got: list[Delivery] = []
    while len(got) < count:
        more = client.receive(topic, group=group, max_messages=count - len(got), wait=60)
        assert more, f"{len(got)} of {count} came"
        got += more
    return got


@pytest.mark.rest
def test_what_was_cancelled_or_moved_stays_so_after_a_kill(make_broker: MakeBroker) -> None:
    broker = make_broker(**FAST)
    with Client(broker.address) as client:
        # Long before the kill's end: what falls due within 5 s after one may have been handed out.
        receipts = client.schedule_many({"topic": "t", "body": b"%d" % i, "delay": 20} for i in range(3000))
        handles = [receipt.handle for receipt in receipts]
        assert client.cancel_many(handles[::3]) == [Outcome.DONE] * 1000
        moved = [client.reschedule(text, delay=21) for text in handles[1:60:3]]
        assert {m.outcome for m in moved} == {Outcome.DONE}
        broker.kill()
        broker.start()
        assert client.cancel_many(handles[:3000:3]) == [Outcome.CANCELLED] * 1000
        assert client.cancel_many(handles[1:60:3]) == [Outcome.CANCELLED] * 20
        again = client.reschedule(moved[0].receipt.handle, delay=22)  # type: ignore[union-attr]
        assert again.outcome is Outcome.DONE
        assert client.pending()[0].pending == 2000
        got = take(client, 2000)
        expected = [b"%d" % i for i in range(3000) if i % 3]
        assert sorted(m.body for m in got) == sorted(expected)
        due = {m.body: m.due_ms for m in got}
        assert due[b"1"] == again.receipt.due_ms  # type: ignore[union-attr]
        assert all(due[b"%d" % (1 + 3 * i)] == m.receipt.due_ms for i, m in enumerate(moved) if i and m.receipt)
        for message in got:
            message.ack()
        client.flush()
        client.schedule("t", b"the last")
        assert take(client, 1)[0].body == b"the last"
        assert set(client.cancel_many(handles[1::3])) == {Outcome.DELIVERED, Outcome.CANCELLED}
        assert set(client.cancel_many(handles[2::3])) == {Outcome.DELIVERED}


def test_keys_and_ids_are_remembered_after_a_kill(make_broker: MakeBroker) -> None:
    broker = make_broker(**FAST)
    with Client(broker.address) as client:
        first = client.schedule("t", b"1", delay=60, key="k")
        second = client.schedule("t", b"2", delay="1h", key="k")
        once = client.schedule("t", b"once", delay="1h", id="i")
        broker.kill()
        broker.start()
        assert client.find_key("t", "k") == second
        assert client.cancel(first.handle) is Outcome.CANCELLED
        with pytest.raises(KeyExistsError):
            client.schedule("t", b"3", key="k", on_key="refuse")
        assert client.schedule("t", b"3", key="k", on_key="keep") == second
        again = client.schedule("t", b"once", delay="2h", id="i")
        assert (again, again.outcome) == (once, "duplicate")
        moved = client.reschedule_key("t", "k", delay=0)
        assert moved.outcome is Outcome.DONE
        [message] = take(client, 1)
        assert (message.body, message.key) == (b"2", "k")
        assert client.cancel_key("t", "k") is Outcome.DELIVERED
        assert client.find_key("t", "k") is None
        assert client.pending()[0].pending == 1


@pytest.mark.rest
def test_a_series_goes_on_after_a_kill_and_ends_when_it_is_cancelled(make_broker: MakeBroker) -> None:
    broker = make_broker(**FAST, repeat_ms_min=100)
    with Client(broker.address) as client:
        series = client.schedule("t", b"tick", delay="500ms", repeat=Repeat.every("500ms"), key="clock")
        due = [take(client, 1)[0].due_ms for _ in range(3)]
        broker.kill()
        broker.start()
        while len(set(due)) < 8:
            due.append(take(client, 1)[0].due_ms)
        moments = sorted(set(due))
        assert moments == [series.due_ms + 500 * i for i in range(8)]
        # The first one's handle is that of the series.
        assert client.cancel(series.handle) is Outcome.DONE
        assert client.cancel_key("t", "clock") is Outcome.CANCELLED
        cancelled_ms = time.time_ns() // 1_000_000
        # What was due by then may have been on its way; the next ones would come before this one.
        client.schedule("t", b"the last", delay="1600ms")
        late = take(client, 1)
        while late[-1].body != b"the last":
            late += take(client, 1)
        assert all(m.due_ms <= cancelled_ms and (m.due_ms - series.due_ms) % 500 == 0 for m in late[:-1])
        assert client.pending()[0].pending == 0


@pytest.mark.rest
def test_groups_are_as_they_were_after_a_kill(make_broker: MakeBroker) -> None:
    broker = make_broker(**FAST)
    with Client(broker.address) as client:
        client.set_group("t", "g", tries=1, retry="fixed 10ms", inflight_max=50)
        client.set_group("t", "late", start="latest")
        client.set_topic("t", late="dead")
        client.schedule_many({"topic": "t", "body": b"%d" % i, "properties": {"n": str(i)}} for i in range(20))
        for message in take(client, 20):
            message.nack()
        client.flush()
        wait_until(lambda: client.group_info("t", "g").dead == 20)
        client.pause("t", "g")
        before = client.groups("t")
        broker.kill()
        broker.start()
        assert client.groups("t") == before
        assert client.topic_info("t").late == "dead"
        dead_letters = client.dead_letters("t", "g")
        assert sorted(dead_letters.column("body").to_pylist()) == sorted(b"%d" % i for i in range(20))
        assert client.purge("t", "g", offsets=dead_letters.column("offset").to_pylist()[:5]) == 5
        assert client.respawn("t", "g") == 15
        wait_until(lambda: client.group_info("t", "g").lag == 15)
        assert client.receive("t", group="g") == []  # paused
        client.resume("t", "g")
        got = take(client, 15)
        assert Counter(m.body for m in got) == Counter(dead_letters.column("body").to_pylist()[5:])
        for message in got:
            message.ack()
        client.flush()
        client.delete_group("t", "g")
        broker.kill()
        broker.start()
        with pytest.raises(NotFoundError):
            client.group_info("t", "g")
        assert len(take(client, 20, group="late")) == 20
        assert client.receive("t", group="late") == []  # what was respawned is for the group that had failed


@pytest.mark.rest
def test_cancelling_races_delivery_and_both_sides_agree(make_broker: MakeBroker) -> None:
    """Every message is either cancelled or delivered, whoever was first."""
    broker = make_broker(**FAST)
    outcomes: dict[bytes, Outcome] = {}
    got: list[bytes] = []
    with Client(broker.address) as client, Client(broker.address) as consuming:
        consumer = consuming.consume("t", group="g", auto_ack=True)
        reading = threading.Thread(target=lambda: got.extend(m.body for m in consumer))
        reading.start()
        for wave in range(100):
            bodies = [b"%d/%d" % (wave, i) for i in range(40)]
            # Some fall due while they are cancelled; however slow the machine is, the last ones do not.
            delays = (f"{i * i}ms" for i in range(40))
            receipts = client.schedule_many(
                {"topic": "t", "body": b, "delay": d} for b, d in zip(bodies, delays, strict=True)
            )
            found = client.cancel_many([receipt.handle for receipt in receipts])
            outcomes.update(zip(bodies, found, strict=True))
        wait_until(lambda: not client.pending()[0].pending and not client.group_info("t", "g").lag)
        consumer.close()
        reading.join(60)
    assert Counter(outcomes.values()).keys() == {Outcome.DONE, Outcome.DELIVERED}
    assert sorted(got) == sorted(body for body, outcome in outcomes.items() if outcome is Outcome.DELIVERED)
