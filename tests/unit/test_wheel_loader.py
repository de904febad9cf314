"""The loader with a store that we control: arrivals during a load, memory that runs out, what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.test_intake_intake import batch as unnumbered
from tests.unit.test_wheel_wheel import batch, keys_of

from tarry.base.clock import TestClock
from tarry.base.types import Key
from tarry.intake import Intake, IntakeWriter, Segments, Submission
from tarry.log.file_engine import FileLog
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.store.damaged import OnDamage
from tarry.wheel.loader import Loader
from tarry.wheel.wheel import Wheel

NOW = 1_000_000_000


@dataclass
class FakeStore:
    """Keys of messages, all below ``committed_seq``. ``meanwhile`` is called before each batch that is read."""

    keys: list[Key] = field(default_factory=list)
    committed_seq: int = 0
    version: int = 0
    body: int = 10
    meanwhile: Callable[[], None] = lambda: None

    def read_window(self, after: Key, until_ms: int, batch_rows: int, on_damage: OnDamage) -> Iterator[pa.RecordBatch]:
        found = sorted(k for k in self.keys if after <= k and k.due_ms < until_ms)
        for start in range(0, len(found), min(batch_rows, 16)):
            self.meanwhile()
            yield batch(found[start : start + 16], self.body)

    def next_due(self, from_ms: int, topics: set[str]) -> dict[str, int]:
        return {}

    def first_due_ms(self, after: Key) -> int | None:
        return min((k.due_ms for k in self.keys if k >= after), default=None)


class Rig:
    """Intake, wheel and loader, with the rule of the broker's ``publish`` about who has an arrival."""

    def __init__(
        self, directory: Path, store: FakeStore, *, horizon_ms: int = 10_000, bytes_max: int = 1 << 20
    ) -> None:
        self.clock = TestClock(NOW)
        self.store = store
        self.wheel = Wheel(Key(NOW - 60_000, 0), Key(NOW - 60_000, 0))
        segments = Segments.open(FileLog(OsFiles(), directory, LogKind.INTAKE), next_seq=store.committed_seq)
        self.intake = Intake(segments)
        self.writer = IntakeWriter(segments, self.intake, segment_bytes_max=16_384, secret=b"x", publish=self.publish)
        self.loader = Loader(self.wheel, self.intake, self.clock, store, horizon_ms=horizon_ms, bytes_max=bytes_max)
        self.accepted: list[Key] = list(store.keys)
        self.taken: list[Key] = []

    def publish(self, batches: list[tuple[pa.RecordBatch, int]], add: Callable[[], None]) -> None:
        with self.wheel.lock:
            add()
            for one, size in batches:
                self.wheel.accept(self.wheel.prepare(one, size))

    def arrive(self, *due: int, body: int = 50) -> None:
        first = self.intake.published_seq
        self.writer.commit([Submission(unnumbered(list(due), body=body), lambda _: None)])
        self.accepted += [Key(d, first + i) for i, d in enumerate(due)]

    def take(self, rows_max: int = 1000) -> int:
        """What the dispatcher does; the rows that left."""
        before = len(self.taken)
        with self.wheel.lock:
            while (due := self.wheel.take_due(self.clock.now_ms(), rows_max)) is not None:
                self.taken += keys_of(due.batch)
        return len(self.taken) - before

    def run(self, until_ms: int, step_ms: int) -> None:
        while True:
            for _ in range(10_000):
                self.loader.step()
                if not self.take() and not (self.loader.short and self.wheel.bytes < 1):
                    break
            else:
                raise AssertionError("it goes on for ever")
            if self.clock.now_ms() >= until_ms:
                return
            self.clock.advance_ms(step_ms)

    def close(self) -> None:
        self.intake.close()


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    made: list[Rig] = []
    yield made
    for rig in made:
        rig.close()


def test_store_and_intake_are_merged_in_order(tmp_path: Path, rigs: list[Rig]) -> None:
    store = FakeStore([Key(NOW + 10 * i, i) for i in range(100)], committed_seq=100)
    rigs.append(rig := Rig(tmp_path, store))
    rig.arrive(*[NOW + 10 * i + 5 for i in range(100)])
    rig.run(NOW + 1000, 100)
    assert rig.taken == sorted(rig.accepted)
    assert rig.loader.stored_rows == 100


def test_what_arrives_during_a_load_is_there_once(tmp_path: Path, rigs: list[Rig]) -> None:
    store = FakeStore([Key(NOW + 30 * i, i) for i in range(100)], committed_seq=100)
    rigs.append(rig := Rig(tmp_path, store))

    def meanwhile() -> None:
        rig.arrive(NOW - 5, NOW + 15, NOW + 1500, NOW + 2999, NOW + 20_000)

    store.meanwhile = meanwhile
    rig.loader.step()
    store.meanwhile = lambda: None
    rig.run(NOW + 30_000, 500)
    assert sorted(rig.taken) == sorted(rig.accepted)
    assert len(set(rig.taken)) == len(rig.taken)


def test_nothing_is_handed_over_out_of_order_while_a_load_is_under_way(tmp_path: Path, rigs: list[Rig]) -> None:
    store = FakeStore([Key(NOW + i, i) for i in range(200)], committed_seq=200)
    rigs.append(rig := Rig(tmp_path, store))
    rig.clock.set_ms(NOW + 1000)
    rig.wheel.loaded = rig.wheel.safe = Key(NOW - 1, 0)

    store.meanwhile = lambda: (rig.take(), None)[1]
    rig.loader.step()
    rig.take()
    assert rig.taken == sorted(rig.accepted)


@pytest.mark.parametrize("where", ["store", "intake", "both"])
def test_a_herd_larger_than_the_wheel_is_read_just_ahead_of_its_delivery(
    where: str, tmp_path: Path, rigs: list[Rig]
) -> None:
    due = NOW + 3000
    stored = [Key(due, i) for i in range(2000)] if where != "intake" else []
    store = FakeStore(stored, committed_seq=len(stored), body=200)
    rigs.append(rig := Rig(tmp_path, store, bytes_max=40_000))
    if where != "store":
        for _ in range(20):
            rig.arrive(*[due] * 100, body=200)
    largest = 0.0
    for _ in range(7):
        rig.loader.step()
        assert rig.take() == 0
        largest = max(largest, rig.wheel.bytes)
        rig.clock.advance_ms(400)
    rig.clock.set_ms(due)
    for _ in range(500):
        rig.loader.step()
        largest = max(largest, rig.wheel.bytes)
        rig.take(50)
    assert rig.taken == sorted(rig.accepted), "all of it, in order"
    assert largest < 3 * 40_000, "memory does not grow with the herd"


def test_a_crowded_wheel_gives_up_its_far_end(tmp_path: Path, rigs: list[Rig]) -> None:
    rigs.append(rig := Rig(tmp_path, FakeStore(), bytes_max=30_000))
    rig.loader.step()
    for k in range(100):
        rig.arrive(*[NOW + 5000 + 10 * k] * 5, body=100)
    assert rig.wheel.bytes > 1.25 * 30_000
    rig.loader.step()
    assert rig.wheel.bytes <= 1.25 * 30_000
    assert rig.loader.short
    rig.run(NOW + 10_000, 250)
    assert rig.taken == sorted(rig.accepted)


def test_what_is_excluded_is_left_out_until_it_is_passed(tmp_path: Path, rigs: list[Rig]) -> None:
    store = FakeStore([Key(NOW + 100, i) for i in range(10)], committed_seq=10)
    rigs.append(rig := Rig(tmp_path, store))
    rig.arrive(NOW + 100, NOW + 50_000)
    rig.loader.exclude(np.array([10, 3, 4], np.int64), NOW + 100)
    rig.run(NOW + 60_000, 1000)
    assert {k.seq for k in rig.accepted} - {k.seq for k in rig.taken} == {3, 4, 10}
    assert not len(rig.loader.excluded), "and then forgotten"


def test_large_bodies_are_read_a_few_at_a_time(tmp_path: Path, rigs: list[Rig]) -> None:
    rigs.append(rig := Rig(tmp_path, FakeStore(), bytes_max=100_000))
    for k in range(30):
        rig.arrive(NOW + 10 + k, body=20_000)
    largest = 0.0
    for _ in range(100):
        rig.loader.step()
        largest = max(largest, rig.wheel.bytes)
        rig.clock.advance_ms(1)
        rig.take()
    rig.run(NOW + 1000, 100)
    assert rig.taken == sorted(rig.accepted)
    assert largest < 200_000


def test_when_is_the_next_that_is_not_loaded(tmp_path: Path, rigs: list[Rig]) -> None:
    store = FakeStore([Key(NOW + 90_000, 0)], committed_seq=1)
    rigs.append(rig := Rig(tmp_path, store))
    rig.loader.step()
    assert rig.loader.next_unloaded_ms() == NOW + 90_000
    rig.arrive(NOW + 80_000)
    assert rig.loader.next_unloaded_ms() == NOW + 80_000
    store.keys.clear()
    rig.run(NOW + 85_000, 5_000)
    assert rig.loader.next_unloaded_ms() is None


ARRIVALS = st.lists(
    st.tuples(st.sampled_from([-500, 0, 1, 40, 999, 3000, 30_000]), st.integers(1, 30), st.sampled_from([10, 2000])),
    max_size=12,
)


@settings(max_examples=examples(60))
@given(ARRIVALS, ARRIVALS, st.sampled_from([2048, 20_000, 1 << 20]), st.sampled_from([50, 2000, 60_000]))
def test_everything_leaves_once_whatever_the_horizon_and_the_memory(
    stored: list[tuple[int, int, int]], later: list[tuple[int, int, int]], bytes_max: int, horizon_ms: int
) -> None:
    import tempfile

    keys = [Key(NOW + d, 0) for d, n, _ in stored for _ in range(n)]
    keys = [Key(k.due_ms, i) for i, k in enumerate(keys)]
    with tempfile.TemporaryDirectory() as name:
        rig = Rig(Path(name), FakeStore(keys, committed_seq=len(keys)), horizon_ms=horizon_ms, bytes_max=bytes_max)
        waiting = list(later)

        def meanwhile() -> None:
            if waiting:
                due, count, body = waiting.pop()
                rig.arrive(*[rig.clock.now_ms() + due] * count, body=body)

        rig.store.meanwhile = meanwhile
        rig.run(NOW + 2000, 333)
        while waiting:
            meanwhile()
            rig.run(rig.clock.now_ms() + 500, 500)
        rig.run(rig.clock.now_ms() + 32_000, 8_000)
        assert sorted(rig.taken) == sorted(rig.accepted)
        rig.close()
