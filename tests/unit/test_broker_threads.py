"""The broker with its threads and the machine's clock: everything arrives, nothing early, whatever runs beside it.

Nothing is said about how late; each wait is for an event, with a limit only so that a failure ends.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.errors import OverloadedError, TarryError
from tarry.broker import Broker, scheduling
from tarry.message.schema import SCHEMA
from tarry.store import Store, stage

WAIT_S = 60


class SteppedClock(SystemClock):
    """The machine's clock, set wrong by ``offset_ms``."""

    offset_ms = 0
    highest_ms = 0

    def now_ms(self) -> int:
        now = super().now_ms() + self.offset_ms
        self.highest_ms = max(self.highest_ms, now)
        return now

    def start_ms(self) -> int:
        return super().start_ms() + self.offset_ms

    def seconds_until(self, due_ms: int) -> float:
        return super().seconds_until(due_ms - self.offset_ms)


class Load:
    """Producers and consumers on one broker, and what they saw."""

    def __init__(self, broker: Broker, clock: SystemClock) -> None:
        self.broker, self.clock = broker, clock
        self.lock = threading.Lock()
        self.accepted: dict[str, int] = {}
        self.got: Counter[str] = Counter()
        self.early: list[tuple[str, int]] = []
        self.errors: list[BaseException] = []
        self.done = threading.Event()
        self.produced = threading.Event()

    def produce(self, seed: int, batches: int, rows: int, delays: list[int], body: int) -> None:
        rng = random.Random(seed)
        for number in range(batches):
            count = rng.randint(1, rows)
            names = [f"{seed}-{number}-{i}" for i in range(count)]
            batch = pa.record_batch(
                {
                    "topic": [rng.choice("abc")] * count,
                    "delay_ms": pa.array([rng.choice(delays) for _ in names], pa.int64()),
                    "id": names,
                    "body": [b"x" * body] * count,
                }
            )
            while True:
                try:
                    accepted = self.broker.schedule_batch(batch)
                    break
                except OverloadedError:
                    self.done.wait(0.01)
            with self.lock:
                self.accepted.update(zip(names, accepted.due_ms.tolist(), strict=True))

    def consume(self, topic: str, prefetch: int, nack: float, seed: int) -> None:
        rng = random.Random(seed)
        consumer = self.broker.subscribe(topic, "g", prefetch=prefetch)
        while not self.done.is_set():
            batch = consumer.fetch(prefetch, 0.2)
            if batch is None:
                continue
            # A step back between the broker's look at the clock and ours does not make it early.
            now = max(self.clock.now_ms(), getattr(self.clock, "highest_ms", 0))
            leases, offsets = batch["lease"].to_numpy(), batch["offset"].to_numpy()
            late = [i for i, d in zip(batch["id"].to_pylist(), batch["due_ms"].to_pylist(), strict=True) if d > now]
            self.early += [(i, now) for i in late]
            if rng.random() < nack:
                consumer.nack(leases, offsets, 1)
                continue
            with self.lock:
                self.got.update(batch["id"].to_pylist())
            consumer.ack(leases, offsets)
            self.look()

    def look(self) -> None:
        if self.produced.is_set():
            with self.lock:
                if len(self.got) >= len(self.accepted):
                    self.done.set()

    def thread(self, work: object, *args: object) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)  # type: ignore[operator]
            except BaseException as error:  # noqa: BLE001  told to the main thread
                self.errors.append(error)
                self.done.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def run(self, producers: int, batches: int, rows: int, delays: list[int], body: int, nack: float = 0.0) -> None:
        consumers = [self.thread(self.consume, t, 500, nack, i) for i, t in enumerate("abcabc")]
        made = [self.thread(self.produce, n, batches, rows, delays, body) for n in range(producers)]
        for thread in made:
            thread.join(WAIT_S)
        self.produced.set()
        self.look()
        finished = self.done.wait(WAIT_S)
        self.done.set()
        for thread in consumers:
            thread.join(WAIT_S)
        assert not self.errors, self.errors
        assert self.broker.status()["state"] == "serving"
        assert finished, f"{len(self.accepted) - len(self.got)} of {len(self.accepted)} never came"
        assert not self.early
        assert set(self.got) == set(self.accepted)
        assert max(self.got.values()) == 1, "twice, without a crash"


def opened(directory: Path, clock: SystemClock, **settings: object) -> Broker:
    defaults = {"disk_free_bytes_min": 0, "checkpoint_interval_ms": 20, "horizon_ms": 1000}
    return Broker.open(Config(data=directory, pipeline="off", **{**defaults, **settings}), clock=clock)


SETTINGS = [
    pytest.param({}, id="default"),
    pytest.param({"segment_bytes_max": 16_384, "ready_cache_bytes_max": 0}, id="small-segments-no-cache"),
    pytest.param({"wheel_bytes_max": 30_000, "horizon_ms": 20}, id="small-wheel"),
    pytest.param(
        {"wheel_bytes_max": 30_000, "segment_bytes_max": 8192, "ready_cache_bytes_max": 3000, "horizon_ms": 10},
        id="everything-small",
    ),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_many_threads(settings: dict[str, object], tmp_path: Path) -> None:
    clock = SystemClock()
    with opened(tmp_path, clock, **settings) as broker:
        Load(broker, clock).run(4, 25, 20, [0, 5, 20, 50], body=100)
        entries = {e.topic: (e.pending, e.ready) for e in broker.pending()}
        assert entries == dict.fromkeys("abc", (0, 0))
    with opened(tmp_path, clock, **settings) as broker:
        for topic in "abc":
            assert broker.receive(topic, "g", max_messages=10).num_rows == 0, "nothing again after a clean stop"


def test_messages_that_are_given_back_come_again(tmp_path: Path) -> None:
    clock = SystemClock()
    with opened(tmp_path, clock, segment_bytes_max=8192) as broker:
        Load(broker, clock).run(2, 15, 10, [0, 10], body=50, nack=0.3)


def test_the_pipeline_commits_and_the_broker_deletes_meanwhile(tmp_path: Path) -> None:
    clock = SystemClock()
    with opened(tmp_path, clock, segment_bytes_max=8192, horizon_ms=50, wheel_bytes_max=60_000) as broker:
        load = Load(broker, clock)

        def pipeline() -> None:
            store = Store.open(broker.config.store_uri)
            while not load.done.wait(0.03):
                state = broker.intake_state()
                start, end = store.snapshot().committed_seq, state["durable_seq"]
                table = pa.Table.from_batches(list(broker.read_intake(start, end)), SCHEMA)
                rest = table.filter(
                    pa.array(
                        (table["due_ms"].to_numpy() >= state["fired_until_ms"])
                        | (table["seq"].to_numpy() >= state["fired_seq"])
                    )
                )
                files = stage(rest, store.root, uuid.uuid4().hex, state["now_ms"]) if rest.num_rows else []
                store.commit(files, start, end)
                broker.store_committed()
                broker.pending()

        thread = load.thread(pipeline)
        load.run(3, 25, 15, [0, 30, 300, 700], body=300)
        thread.join(WAIT_S)
        assert not load.errors, load.errors
        assert broker.status()["store"]["committed_seq"] > 0


def test_the_wall_clock_steps_while_it_runs(tmp_path: Path) -> None:
    clock = SteppedClock()
    with opened(tmp_path, clock) as broker:
        load = Load(broker, clock)

        def step() -> None:
            rng = random.Random(7)
            while not load.done.wait(0.05):
                clock.offset_ms += rng.choice([-300, -40, 40, 300])
                if abs(clock.offset_ms) > 600:
                    clock.offset_ms = 0

        thread = threading.Thread(target=step)
        thread.start()
        try:
            load.run(2, 15, 10, [0, 10, 60], body=50)
        finally:
            load.done.set()
            thread.join()


def test_closing_under_load_answers_everybody(tmp_path: Path) -> None:
    clock = SystemClock()
    broker = opened(tmp_path, clock)
    answers: list[object] = []
    submitted = [0]
    refused = threading.Event()

    def produce() -> None:
        batch = pa.record_batch({"topic": ["a"], "delay_ms": [3], "body": [b"x"]})
        while True:
            try:
                broker.submit(batch, answers.append)
                submitted[0] += 1
            except TarryError:
                refused.set()
                return

    consumer = broker.subscribe("a", "g")
    fetched = threading.Event()

    def consume() -> None:
        while consumer.fetch(100, None) is not None:
            pass
        fetched.set()

    threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    while len(answers) < 20:
        refused.wait(0.001)
    broker.close()
    assert refused.wait(WAIT_S)
    assert fetched.wait(WAIT_S)
    for thread in threads:
        thread.join(WAIT_S)
    assert len(answers) == submitted[0]
    accepted = sum(not isinstance(a, TarryError) for a in answers)
    with opened(tmp_path, clock) as again:
        assert sum(again.components.intake.accepted.values()) == accepted


def test_batches_that_grow_are_written_out_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of a dictionary column may name the same long text: of many such batches at once, all would be there."""
    inside, most = [0], [0]
    admit = scheduling.admit

    def slow(*args: Any, **more: Any) -> pa.RecordBatch:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        never.wait(0.02)  # a moment in which another would come in
        try:
            return admit(*args, **more)
        finally:
            inside[0] -= 1

    never = threading.Event()
    monkeypatch.setattr(scheduling, "admit", slow)
    bodies = pa.array([b"x" * 1000] * 50).dictionary_encode()
    table = pa.table({"topic": ["t"] * 50, "delay_ms": [60_000] * 50, "body": bodies})
    with Broker.open(Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0)) as broker:
        callers = [threading.Thread(target=broker.schedule_batch, args=(table,)) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert broker.status()["accepted"] == 200
    assert most == [1]
