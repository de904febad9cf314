"""Following the clock: each record once and never early, whatever store, clock and crashes of single shards do, read
ahead or straight from the store.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.relay_store import SHARDS, Stored

from tarry.base.clock import TestClock
from tarry.spark.pipeline.compact import in_process
from tarry_relay import read_ahead, upkeep
from tarry_relay.deliver import DeliverPlan, DeliverWork, reached
from tarry_relay.files import Reached
from tarry_relay.follow import Follower
from tarry_relay.markers import Marker
from tarry_relay.schedule import ShardResult
from tarry_relay.upkeep import RelayUpkeep
from tarry_relay.writer import KafkaRecord


class BrokenError(Exception):
    """Kafka is away."""


class Kafka:
    """What is committed: markers, and records with the moment at which they came."""

    def __init__(self, clock: TestClock) -> None:
        self.clock = clock
        self.markers: dict[Any, Marker] = {}
        self.records: list[tuple[int, KafkaRecord]] = []
        self.breaks: set[int] = set()
        """Shards whose next commit fails: 1 before it took place, -1 afterwards; shard + 1, so that there is a sign."""

    def place(self, marker_topic: str, shard: int) -> Reached:
        return reached(self.markers.get((marker_topic, shard), Marker(None))) or Reached(0, 0)


class FakeWriter:
    def __init__(self, kafka: Kafka, shard: int) -> None:
        self.kafka, self.shard = kafka, shard
        self.written: list[KafkaRecord] = []

    def markers(self, partitions: Any) -> dict[Any, Marker]:
        return {p: self.kafka.markers.get(p, Marker(None)) for p in partitions}

    def missing(self, topics: set[str]) -> dict[str, str]:
        return {}

    def write(self, records: Sequence[KafkaRecord]) -> None:
        self.written += records

    def failures(self) -> dict[str, str]:
        return {}

    def commit(self, markers: dict[Any, Marker]) -> None:
        before, after = self.shard + 1, -self.shard - 1
        if before in self.kafka.breaks:
            self.kafka.breaks.discard(before)
            raise BrokenError
        self.kafka.records += [(self.kafka.clock.now_ms(), record) for record in self.written]
        self.kafka.markers |= markers
        if after in self.kafka.breaks:
            self.kafka.breaks.discard(after)
            raise BrokenError


class Task:
    """A shard's follower, as its task has it, with what is Kafka's faked; begun anew at the marker after each crash."""

    def __init__(self, world: Stored, kafka: Kafka, shard: int, clock: TestClock) -> None:
        self.world, self.kafka, self.shard, self.clock = world, kafka, shard, clock
        self.ahead: list[bool] = []
        """For each delivery of something, whether it was read ahead."""
        self.between: Any = None
        """What was read ahead, as the follower shows it to the work."""
        self.begin()

    def begin(self) -> None:
        world, place = self.world, self.kafka.place(self.world.settings.marker_topic, self.shard)
        self.work = DeliverWork(world.settings, world.uri)
        self.follower = Follower(world.settings, world.uri, self.shard, self.deliver, place, self.clock)

    def of(self, shard: int) -> FakeWriter:
        return FakeWriter(self.kafka, shard)

    def drop(self, shard: int) -> None:
        pass

    def deliver(self, plan: DeliverPlan, between: Any) -> ShardResult:
        self.between = between
        self.ahead += [plan.ahead] if plan.rows else []
        return self.work(plan, self, between)  # type: ignore[arg-type]

    def until_nothing_more(self) -> None:
        """Deliver all that is due, through crashes."""
        for _ in range(200):
            before = (len(self.kafka.records), self.follower.place)
            try:
                self.follower.step()
            except BrokenError:
                self.begin()
                continue
            if before == (len(self.kafka.records), self.follower.place):
                return
        raise AssertionError("it does not come to an end")


class Idle(threading.Event):
    """Is set after it was asked so often, or when there is nothing left to do but to wait."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0 or super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


def follow(follower: Follower, pieces: int) -> None:
    """Deliver what is due, and read ahead by so many pieces while nothing is."""
    follower.follow(3_600.0, Idle(pieces + 1), lambda done: None)


moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 90), min_size=1, max_size=8)),
        st.tuples(st.just("clock"), st.integers(0, 20)),
        st.tuples(st.just("rewrite"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("break"), st.sampled_from([1, 2, -1, -2])),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("upkeep"), st.just(0)),
    ),
    max_size=16,
)


@settings(max_examples=examples(150), deadline=None)
@given(moves, st.sampled_from([0, 3, 1000]), st.sampled_from([2, 5, 1000]))
def test_each_record_comes_once_and_never_early(
    tmp_path_factory: Any, some: list[Any], direct_rows_max: int, batch_rows_max: int
) -> None:
    world = Stored(tmp_path_factory.mktemp("follow"))
    more = {"direct_rows_max": direct_rows_max, "batch_rows_max": batch_rows_max}
    world.settings = type(world.settings)(**{**_plain(world.settings), **more})
    clock = TestClock(1)
    kafka = Kafka(clock)
    tasks = [Task(world, kafka, shard, clock) for shard in range(SHARDS)]
    relay_upkeep = RelayUpkeep(world.store, in_process, clock=clock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "WINDOW_MS", 15)
        patch.setattr(read_ahead, "PIECE_ROWS", 3)
        patch.setattr(upkeep, "SOON_MS", 0)
        for what, value in [*some, ("clock", 100)]:
            if what == "add":
                world.add(value)
            elif what == "rewrite":
                world.rewrite(bool(value))
            elif what == "restart":
                broken = not value
                for task in tasks if value else ():
                    try:
                        task.follower.settle(clock.now_ms())
                    except BrokenError:
                        broken = True
                if not broken:
                    assert len({kafka.place(world.settings.marker_topic, task.shard) for task in tasks}) == 1
                for task in tasks:
                    task.begin()
            elif what == "break":
                kafka.breaks.add(value)
            elif what == "upkeep":
                relay_upkeep.round(threading.Event())
            elif what == "read":
                for task in tasks:
                    try:
                        follow(task.follower, pieces=value)
                    except BrokenError:
                        task.begin()
            else:
                clock.advance_ms(value)
                for task in tasks:
                    task.until_nothing_more()
                places = [task.follower.committed for task in tasks]
                world.store.delivered = Reached(min(p.t for p in places), min(p.v for p in places))
                due = sorted(ms for ms in world.due.values() if ms <= clock.now_ms())
                assert sorted(_due(record) for _, record in kafka.records) == due
    sources = [record.source for _, record in kafka.records]
    assert len(set(sources)) == len(sources) == len(world.due)
    assert all(_due(record) <= at for at, record in kafka.records)
    if direct_rows_max == 0:
        assert not any(ahead for task in tasks for ahead in task.ahead)


def test_what_is_read_ahead_is_bounded_and_comes_in_order(tmp_path_factory: Any, monkeypatch: Any) -> None:
    """A herd that does not fit the memory comes from the store; what fits was read ahead; either in order."""
    monkeypatch.setattr(read_ahead, "PIECE_ROWS", 10)
    for rows, fits in ((50, True), (500, False)):
        world = Stored(tmp_path_factory.mktemp("herd"))
        world.settings = type(world.settings)(**{**_plain(world.settings), "direct_rows_max": 100})
        clock = TestClock(1)
        kafka = Kafka(clock)
        tasks = [Task(world, kafka, shard, clock) for shard in range(SHARDS)]
        world.add([1] * SHARDS)
        for task in tasks:
            task.follower.step()
        world.add([1_000] * rows)
        world.add([999] * 10)
        for task in tasks:
            follow(task.follower, pieces=1_000)
        assert sum(len(part.records) for task in tasks for part in task.between(1, 1_000)) <= 120
        clock.advance_ms(1_000)
        for task in tasks:
            task.ahead.clear()
            task.until_nothing_more()
            assert task.ahead
            assert all(task.ahead) == fits
        assert len(kafka.records) == rows + 10 + SHARDS
        for shard in range(SHARDS):
            dues = [_due(r) for _, r in kafka.records if int(r.source.split("/")[1]) % SHARDS == shard]
            assert dues == sorted(dues)


def _due(record: KafkaRecord) -> int:
    return int(dict(record.headers)["tarry-was-due-ms"] or 0)


def _plain(some: Any) -> dict[str, Any]:
    return {name: getattr(some, name) for name in some.__slots__}
