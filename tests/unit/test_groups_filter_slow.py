"""Filters that take their time: evaluated in threads, and paused where they take too much of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.groups import drained, ids, put, take
from tests.waiting import wait_until

from tarry.api import filter_pause
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import FilterPausedError
from tarry.broker import Broker
from tarry.groups import filtering
from tarry.message.filter_sql import FilterTooSlowError, SqlFilter
from tarry.queue.topic import READ_BYTES, Topic
from tarry.testing import open_broker

SLOW = "sql: " + " OR ".join([f"p CONTAINS '{'a' * 700}b'"] * 20)
LONG = {"p": "a" * 60_000}


def test_a_slow_filter_is_paused_until_it_is_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", filter=SLOW)
        for number in range(50):
            broker.schedule("a", b"", id=str(number), properties=LONG)
        broker.step()
        with pytest.raises(FilterPausedError, match=r"or until its filter is set: filter .sql: p CONTAINS"):
            take(broker)
        assert "is paused for 60 s" in caplog.text
        assert "CPU time" in broker.group_info("a", "g").filter_paused
        started_s = time.thread_time()
        with pytest.raises(FilterPausedError):
            take(broker)
        assert time.thread_time() - started_s < filter_pause.PART_S, "it is not evaluated again"
        assert len(drained(broker, group="other")) == 50
        broker.set_group("a", "g", filter="*")
        assert broker.group_info("a", "g").filter_paused == ""
        assert len(drained(broker)) == 50


def test_a_paused_filter_has_another_chance_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", filter="sql: x IS NULL")
        put(broker, "a", "1")
        monkeypatch.setattr(filter_pause, "PART_S", -1.0)
        for name in ("_STEPS_MAX", "_STEPS_MIN"):
            monkeypatch.setattr(f"tarry.message.filter_sql.{name}", 1)
        with pytest.raises(FilterPausedError):
            take(broker)
        monkeypatch.undo()
        with pytest.raises(FilterPausedError):
            take(broker)
        clock.advance_ms(filter_pause.PAUSE_MS)
        assert ids(take(broker)) == ["1"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One with threads."""
    with Broker.open(Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0)) as found:
        yield found


def schedule(broker: Broker, count: int, **properties: str) -> None:
    rows = [list(properties.items())] * count
    columns = {"topic": ["a"] * count, "body": [b""] * count, "delay_ms": [0] * count}
    broker.schedule_batch(pa.table({**columns, "properties": pa.array(rows, pa.map_(pa.string(), pa.string()))}))


def test_a_poll_never_waits_for_a_filter(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: dict[str, float] = {}
    mask = SqlFilter.mask_within

    def noting(wanted: SqlFilter, batch: pa.RecordBatch, cpu_s_max: float) -> Any:
        began_s = time.thread_time()
        try:
            return mask(wanted, batch, cpu_s_max)
        finally:
            name = threading.current_thread().name.partition("_")[0]
            evaluated[name] = evaluated.get(name, 0.0) + time.thread_time() - began_s

    monkeypatch.setattr(SqlFilter, "mask_within", noting)
    broker.set_group("a", "g", filter=SLOW)
    schedule(broker, 100, **LONG)
    group = broker.group("a", "g")
    wait_until(lambda: group.queue_ends[1] == 100)
    subscription = group.subscribe(prefetch=1000, lease_ms=60_000)
    news = threading.Event()
    group.listen(news.set)
    with pytest.raises(FilterPausedError):
        while True:
            news.clear()
            assert subscription.poll(1000)[0] is None
            assert news.wait(60)
    assert evaluated.keys() == {"tarry-filters"}


@pytest.mark.rest
def test_filters_of_many_groups_take_two_threads_and_the_messages_of_one_look_each(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who polls, such as a front's event loop, neither evaluates nor reads what is not known to be wanted."""
    mask, read, here = SqlFilter.mask_within, Topic.read, threading.current_thread()
    began, done, read_here = threading.Semaphore(0), threading.Event(), 0
    evaluating: set[str] = set()

    def waiting(wanted: SqlFilter, batch: pa.RecordBatch, cpu_s_max: float) -> Any:
        evaluating.add(threading.current_thread().name)
        began.release()
        assert threading.current_thread() is here or done.wait(60)
        return mask(wanted, batch, cpu_s_max)

    def noting(topic: Topic, offset: int, rows_max: int, *bytes_max: int) -> Any:
        nonlocal read_here
        read_here += threading.current_thread() is here
        return read(topic, offset, rows_max, *bytes_max)

    for number in range(30):
        broker.set_group("a", f"g{number}", filter=SLOW)
    schedule(broker, 100, **LONG)
    groups = [broker.group("a", f"g{number}") for number in range(30)]
    wait_until(lambda: groups[0].queue_ends[1] == 100)
    subscriptions = [group.subscribe(prefetch=1000, lease_ms=60_000) for group in groups]
    monkeypatch.setattr(SqlFilter, "mask_within", waiting)
    monkeypatch.setattr(Topic, "read", noting)
    before_bytes = pa.total_allocated_bytes()
    for _ in range(3):
        assert all(subscription.poll(1000)[0] is None for subscription in subscriptions)
    assert began.acquire(timeout=60)
    assert all(group.is_filtering for group in groups)
    assert read_here == 0
    # What the queue keeps in memory is read without a copy; those who wait for a thread hold nothing.
    assert pa.total_allocated_bytes() - before_bytes < 2 * READ_BYTES
    done.set()
    wait_until(lambda: all(group.filter_paused for group in groups))
    assert evaluating <= {thread.name for thread in threading.enumerate() if thread.name.startswith("tarry-filters")}
    assert len(evaluating) == 1, "new filters are one after the other"


def test_a_filter_that_was_quick_is_asked_on_the_spot_until_it_is_not(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask, where = SqlFilter.mask_within, []

    def noting(wanted: SqlFilter, batch: pa.RecordBatch, cpu_s_max: float) -> Any:
        where.append(threading.current_thread() is threading.main_thread())
        return mask(wanted, batch, -1.0 if is_slow and where[-1] else 1.0)

    monkeypatch.setattr(SqlFilter, "mask_within", noting)
    monkeypatch.setattr(filtering, "HERE_S", 60.0)
    for name in ("_STEPS_MAX", "_STEPS_MIN"):
        monkeypatch.setattr(f"tarry.message.filter_sql.{name}", 1)
    broker.set_group("a", "g", filter="sql: n = 'b'")
    subscription = broker.group("a", "g").subscribe(prefetch=1000, lease_ms=60_000)
    is_slow, count = False, 0
    for slow, expected in ((False, [False]), (False, [True]), (True, [True, False]), (False, [False])):
        is_slow = slow
        schedule(broker, 10, n="b")
        batch = subscription.fetch(1000, 60)
        while batch is not None:
            count += batch.num_rows
            batch = subscription.fetch(1000, 0)
        assert where == expected
        where.clear()
    assert count == 40


def test_of_many_rows_that_wait_each_look_brings_some_to_a_consumer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of more rows than results are kept of, and where retention has deleted the first of them."""
    monkeypatch.setattr(filtering, "PART_ROWS", 100)
    monkeypatch.setattr(filtering, "HERE_ROWS", 0)
    broker.set_group("a", "g", filter="sql: n = 'b'")
    schedule(broker, 3000, n="b")
    group = broker.group("a", "g")
    first, batches = group.subscribe(prefetch=10_000, lease_ms=60_000), []
    while sum(batch.num_rows for batch in batches) < 3000:
        batches.append(first.fetch(1000, 60))
    for batch in batches:
        first.give_back(batch.column("lease").to_numpy(), batch.column("offset").to_numpy())
    read = Topic.read
    monkeypatch.setattr(Topic, "read", lambda topic, offset, *most: read(topic, max(1, offset), *most))
    again = group.subscribe(prefetch=10_000, lease_ms=60_000)
    assert sum(batch.num_rows for batch in iter(lambda: again.fetch(1000, 0), None)) == 2999


def test_what_a_thread_has_looked_at_is_handed_out_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtering, "HERE_ROWS", 0)
    broker.set_group("a", "g", filter="sql: n = 'b'")
    for name in "ab" * 3:
        schedule(broker, 700, n=name)
    group = broker.group("a", "g")
    wait_until(lambda: group.queue_ends[1] == 4200)
    subscription = group.subscribe(prefetch=10_000, lease_ms=60_000)
    seen: list[int] = []
    while (batch := subscription.fetch(500, 0)) is not None:
        seen += batch.column("offset").to_pylist()
        assert all(dict(row)["n"] == "b" for row in batch.column("properties").to_pylist())
    assert len(seen) == len(set(seen)) == 2100
    assert broker.group_info("a", "g").lag == 2100
    subscription.close()
    again = group.subscribe(prefetch=10_000, lease_ms=60_000)
    assert sum(batch.num_rows for batch in iter(lambda: again.fetch(500, 0), None)) == 2100


def test_a_machine_that_does_other_things_pauses_no_filter() -> None:
    """A second in which the evaluating thread does not run is no time of the filter's."""
    wanted = SqlFilter("sql: x IS NULL", " x IS NULL")
    properties = pa.array([None], pa.map_(pa.string(), pa.string()))
    row = pa.record_batch({"properties": properties, "tag": pa.nulls(1, pa.string())})

    def sleepy() -> bool:
        time.sleep(0.02)
        return passed()

    passed, wanted._deadline.passed = wanted._deadline.passed, sleepy  # type: ignore[method-assign]  # noqa: SLF001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tarry.message.filter_sql._STEPS_MAX", 1)
        patch.setattr("tarry.message.filter_sql._STEPS_MIN", 1)
        assert wanted.mask_within(row, filter_pause.PART_S).tolist() == [True]
        with pytest.raises(FilterTooSlowError):
            wanted.mask_within(row, -1.0)
