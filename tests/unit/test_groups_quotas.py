"""Hand-outs to consumers whose identities have quotas: fewer at a time, later, and none is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.groups import ids, of, put
from tests.waiting import wait_until

from tarry.api import filter_pause
from tarry.api.quotas import FILTERING, RECEIVING, Quotas
from tarry.base.config import Config
from tarry.base.errors import FilterPausedError, QuotaExceededError
from tarry.broker import Broker
from tarry.fronts.kit.receiving import ReceiveQueue, poll_now, receive_within
from tarry.groups.filter_threads import FilterThreads
from tarry.identity.accounts import CountedAccount, Existing
from tarry.identity.rights import Rights
from tarry.message.filter_sql import SqlFilter
from tarry.testing import TestBroker, open_broker

WANTS_FEW = "sql: p = 'yes'"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with open_broker(tmp_path) as found:
        yield found


def account(broker: Broker, name: str = "billing", **limits: int) -> CountedAccount:
    clock = broker.clock
    made = CountedAccount(name, lambda: clock.now_ms() / 1000, lambda: Existing({}, frozenset()), None)
    made.set(Quotas.of(limits), Rights(()))
    return made


def subscribe(broker: Broker, limited: CountedAccount | None, prefetch: int = 1000) -> Any:
    return broker.group("a", "g").subscribe(prefetch=prefetch, lease_ms=60_000, account=limited)


def test_no_more_is_handed_out_than_the_rate_and_each_comes_once(broker: TestBroker) -> None:
    names = [str(number) for number in range(100)]
    put(broker, "a", *names)
    consumer = subscribe(broker, account(broker, received_messages_per_second=10))
    taken: list[str] = []
    for _ in range(10):
        batch, _ = consumer.poll(1000)
        assert batch.num_rows == 10
        taken += ids(batch)
        assert consumer.ack(*of(batch)) == 10
        nothing, again_s = consumer.poll(1000)
        assert nothing is None
        assert 0 < again_s <= 0.1
        assert consumer.held_back.quota == RECEIVING[0]
        broker.clock.advance_ms(1000)
    assert taken == names
    assert broker.group_info("a", "g").lag == 0


def test_large_messages_are_handed_out_whole_and_paid_for_afterwards(broker: TestBroker) -> None:
    broker.schedule("a", b"x" * 10_000, id="large")
    broker.schedule("a", b"", id="small")
    broker.step()
    limited = account(broker, received_bytes_per_second=1000)
    consumer = subscribe(broker, limited)
    assert ids(consumer.poll(1)[0]) == ["large"]
    broker.clock.advance_ms(9_000)
    assert consumer.poll(1)[0] is None
    broker.clock.advance_ms(100)
    assert ids(consumer.poll(1)[0]) == ["small"]


def test_who_has_used_up_its_rate_leaves_the_rest_to_others(broker: TestBroker) -> None:
    put(broker, "a", "1", "2", "3")
    limited = subscribe(broker, account(broker, received_messages_per_second=1))
    other = subscribe(broker, account(broker, "other", received_messages_per_second=1000))
    assert ids(limited.poll(1000)[0]) == ["1"]
    assert limited.poll(1000)[0] is None
    assert ids(other.poll(1000)[0]) == ["2", "3"]


def test_a_message_that_comes_again_counts_again(broker: TestBroker) -> None:
    put(broker, "a", "1")
    consumer = subscribe(broker, account(broker, received_messages_per_second=1))
    batch, _ = consumer.poll(1)
    consumer.nack(*of(batch), 0)
    assert consumer.poll(1)[0] is None
    broker.clock.advance_ms(1000)
    assert ids(consumer.poll(1)[0]) == ["1"]


def test_quotas_that_are_set_and_taken_away_hold_for_consumers_that_are_there(broker: TestBroker) -> None:
    put(broker, "a", *map(str, range(30)))
    limited = account(broker)
    consumer = subscribe(broker, limited)
    assert consumer.poll(10)[0].num_rows == 10
    limited.set(Quotas.of({"received_messages_per_second": 5}), Rights(()))
    assert consumer.poll(10)[0].num_rows == 5
    limited.set(Quotas(), Rights(()))
    assert consumer.poll(100)[0].num_rows == 15


def test_who_does_not_wait_is_delayed_then_refused(tmp_path: Path) -> None:
    with open_broker(tmp_path, disk_free_bytes_min=0) as broker:
        put(broker, "a", "1")
        limited = account(broker, received_messages_per_second=1)
        consumer = subscribe(broker, limited)
        limited.charge_received(100, 0)
        threading.Thread(target=lambda: _pass(broker, 50)).start()
        with pytest.raises(QuotaExceededError, match="received_messages_per_second=1 is used up"):
            consumer.fetch(1, 0)
        assert limited.use().refused == {RECEIVING[0]: 1}
        assert consumer.fetch(1, 0.01) is None  # one that waits gets nothing in its time
        broker.clock.advance_ms(200_000)
        assert ids(consumer.fetch(1, 0)) == ["1"]


def _pass(broker: TestBroker, steps: int) -> None:
    """Have the clock go on, for those who wait by it."""
    for _ in range(steps):
        time.sleep(0.05)
        broker.clock.advance_ms(50)


# -- what an empty answer says -----------------------------------------------------------------------------------------


def test_a_quota_that_is_left_again_at_once_is_no_end_of_the_messages(broker: TestBroker) -> None:
    put(broker, "a", "1")
    now_s = [0.0]

    def tick() -> float:
        now_s[0] += 0.06  # a message's share of the rate takes 0.1 s
        return now_s[0]

    limited = CountedAccount("billing", tick, lambda: Existing({}, frozenset()), None)
    limited.set(Quotas.of({"received_messages_per_second": 10}), Rights(()))
    limited.charge_received(10, 0)
    batch = asyncio.run(_poll_now(subscribe(broker, limited)))
    assert batch is not None, "it was held back, and is not any more when one looks why"
    assert ids(batch) == ["1"]


async def _poll_now(consumer: Any) -> pa.RecordBatch | None:
    return await poll_now(asyncio.get_running_loop(), consumer, 10, 10.0)


def test_who_waits_less_than_a_second_is_held_back_for_a_second(broker: TestBroker) -> None:
    limited = account(broker, received_messages_per_second=10)

    async def use() -> pa.RecordBatch | None:
        loop = asyncio.get_running_loop()
        consumer = subscribe(broker, limited)
        queue = ReceiveQueue(loop, consumer.group)
        loop.call_soon(limited.charge_received, 15, 0)  # after it has begun to wait, and found nothing
        loop.call_soon(put, broker, "a", "1")
        loop.call_later(0.3, broker.clock.advance_ms, 1000)
        try:
            return await receive_within(queue, consumer, 10, 0.1)
        finally:
            queue.close()

    batch = asyncio.run(use())
    assert batch is not None
    assert ids(batch) == ["1"]


def test_who_found_nothing_is_not_refused_for_what_is_used_up_meanwhile(broker: TestBroker) -> None:
    limited = account(broker, received_messages_per_second=10)

    async def use() -> pa.RecordBatch | None:
        loop = asyncio.get_running_loop()
        consumer = subscribe(broker, limited)
        queue = ReceiveQueue(loop, consumer.group)
        loop.call_soon(limited.charge_received, 1000, 0)
        try:
            return await receive_within(queue, consumer, 10, 0.05)
        finally:
            queue.close()

    assert asyncio.run(use()) is None


def test_a_filter_that_ends_at_once_is_no_end_of_the_messages(tmp_path: Path) -> None:
    with Broker.open(Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0)) as broker:
        broker.set_group("a", "g", filter=WANTS_FEW)
        broker.schedule("a", b"", id="1", properties={"p": "yes"}, delay=0)
        group = broker.group("a", "g")
        wait_until(lambda: group.queue_ends[1] == 1)
        consumer = subscribe(broker, None)
        poll, looked = consumer.poll, []

        class Slow:
            """Looks why there was nothing only when the thread has come to its end."""

            def __getattr__(self, name: str) -> Any:
                return getattr(consumer, name)

            def poll(self, rows_max: int) -> Any:
                found = poll(rows_max)
                looked.append(found[0])
                wait_until(lambda: not group.is_filtering)
                return found

        batch = asyncio.run(_poll_now(Slow()))
        assert looked[0] is None, "a new filter is evaluated in a thread"
        assert batch is not None
        assert ids(batch) == ["1"]


# -- filters -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each part that is filtered counts as 20 ms of CPU time; the rows of each."""
    parts: list[int] = []
    mask, now_s = SqlFilter.mask_within, [0.0]

    def spending(wanted: SqlFilter, batch: pa.RecordBatch, cpu_s_max: float) -> Any:
        parts.append(batch.num_rows)
        now_s[0] += 0.02
        return mask(wanted, batch, 60.0)

    monkeypatch.setattr(SqlFilter, "mask_within", spending)
    monkeypatch.setattr("tarry.groups.filtering.time.thread_time", lambda: now_s[0])
    return parts


def test_filters_take_no_more_time_than_the_quota(broker: TestBroker, costly: list[int]) -> None:
    broker.set_group("a", "g", filter=WANTS_FEW)
    limited = account(broker, filter_ms_per_second=10)
    consumer = subscribe(broker, limited)
    looked = 0
    for second in range(20):
        put(broker, "a", str(second), properties={"p": "no"})
        consumer.poll(100)
        broker.clock.advance_ms(1000)
        looked = len(costly)
    assert looked * 20 <= 20 * 10 + 10 + 20  # what is saved up, and what is owed
    assert looked >= 8
    assert limited.use().delayed_ms > 0


def test_a_filter_that_is_used_up_hands_out_nothing_and_begins_nothing(broker: TestBroker, costly: list[int]) -> None:
    broker.set_group("a", "g", filter=WANTS_FEW)
    put(broker, "a", "1", "2", properties={"p": "yes"})
    limited = account(broker, filter_ms_per_second=10)
    consumer = subscribe(broker, limited)
    assert ids(consumer.poll(1)[0]) == ["1"]
    batch, again_s = consumer.poll(1)
    assert batch is None
    assert consumer.held_back.quota == FILTERING
    assert consumer.held_back.wait_s == pytest.approx(1.1, abs=0.01)
    assert again_s == 1.0  # the quota may be raised meanwhile
    looked = len(costly)
    # Who shares the group, and has a quota of its own, goes on, and pays for what it looks at.
    other = account(broker, "other", filter_ms_per_second=1000)
    assert ids(subscribe(broker, other).poll(1)[0]) == ["2"]
    assert len(costly) == looked + 1
    assert other.held_back(filters=True) is None
    assert limited.held_back(filters=False) is None  # by other groups, without a condition, it gets what there is


def test_a_tag_is_no_condition(broker: TestBroker) -> None:
    broker.set_group("a", "g", filter="red || green")
    put(broker, "a", "1", tag="red")
    limited = account(broker, filter_ms_per_second=1)
    limited.charge_filter(3600.0)
    assert ids(subscribe(broker, limited).poll(1)[0]) == ["1"]


def test_a_filter_that_is_paused_is_paid_for(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.set_group("a", "g", filter="sql: " + " OR ".join([f"p CONTAINS '{'a' * 700}b'"] * 20))
    for number in range(50):
        broker.schedule("a", b"", id=str(number), properties={"p": "a" * 60_000})
    broker.step()
    limited = account(broker, filter_ms_per_second=1)
    with pytest.raises(FilterPausedError):
        subscribe(broker, limited).poll(1000)
    held = limited.held_back(filters=True)
    assert held is not None
    assert held.wait_s >= 1000 * filter_pause.PART_S - 1


def test_a_reader_by_offsets_pays_for_its_filter(broker: TestBroker, costly: list[int]) -> None:
    broker.set_group("a", "g", filter=WANTS_FEW)
    put(broker, "a", "1", properties={"p": "yes"})
    limited = account(broker, filter_ms_per_second=10)
    [batch] = list(broker.read_queue("a", 0, 1))
    assert broker.group("a", "g").wants(batch, limited).tolist() == [True]
    assert limited.held_back(filters=True) is not None


def test_a_thread_filters_for_who_asked(tmp_path: Path, costly: list[int]) -> None:
    with Broker.open(Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0)) as broker:
        broker.set_group("a", "g", filter=WANTS_FEW)
        broker.schedule("a", b"", id="1", properties={"p": "yes"}, delay=0)
        limited = account(broker, filter_ms_per_second=1)
        consumer = subscribe(broker, limited)
        wait_until(lambda: broker.group("a", "g").queue_ends[1] == 1)
        assert consumer.poll(1)[0] is None, "a new filter is evaluated in a thread"
        wait_until(lambda: not broker.group("a", "g").is_filtering)
        assert consumer.poll(1)[0] is None, "it is paid for before it is handed out"
        assert consumer.held_back.quota == FILTERING
        limited.set(Quotas(), Rights(()))
        assert ids(consumer.fetch(1, 10)) == ["1"]


def test_filters_of_who_has_many_groups_take_turns_with_those_of_others() -> None:
    threads = FilterThreads()
    go_on, began, done = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        began.set()
        go_on.wait(60)

    threads.run(first, was_quick=False, whose="greedy")
    assert began.wait(60)
    for number in range(50):
        threads.run(partial(ran.append, f"greedy {number}"), was_quick=False, whose="greedy")
    for name in ("quiet", "other"):
        threads.run(partial(ran.append, name), was_quick=False, whose=name)
    threads.run(done.set, was_quick=False, whose="last")
    go_on.set()
    assert done.wait(60)
    assert ran[:3] == ["greedy 0", "quiet", "other"]
    threads.stop()
    with pytest.raises(RuntimeError):
        threads.run(done.set, was_quick=False, whose="late")
