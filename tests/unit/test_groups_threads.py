"""Groups with the broker's threads: burying, seeking, deleting and changing settings, all at once, and nothing hangs.

Each wait is for an event or a count, with a limit only so that a failure ends.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.groups import ids
from tests.waiting import wait_until

from tarry.base.config import Config
from tarry.base.errors import ClosedError, NotFoundError, StaleLeaseError
from tarry.broker import Broker

WAIT_S = 60


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    config = Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0, checkpoint_interval_ms=50)
    return Broker.open(config)


def schedule(broker: Broker, names: list[str], **columns: list[str]) -> None:
    rows = {"topic": ["a"] * len(names), "delay_ms": [0] * len(names), "body": [b"x"] * len(names), "id": names}
    broker.schedule_batch(pa.record_batch({**rows, **columns}))


def run(*works: Callable[[], None]) -> None:
    """Each in a thread of its own; all end well."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  told below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "it hangs"
    assert not errors, errors


def test_poison_that_every_consumer_fails_ends_among_the_dead(broker: Broker) -> None:
    broker.set_group("a", "g", tries=3, retry="fixed 1ms")
    names = [f"{k}" for k in range(600)]
    acked: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    lock = threading.Lock()

    def consume() -> None:
        consumer = broker.subscribe("a", "g", prefetch=50)
        while sum(acked.values()) < 400 or broker.group_info("a", "g").lag:
            batch = consumer.fetch(50, 0.05)
            if batch is None:
                continue
            leases, offsets = batch["lease"].to_numpy(), batch["offset"].to_numpy()
            poison = [int(name) % 3 == 0 for name in ids(batch)]
            for wrong, settle in ((True, consumer.nack), (False, consumer.ack)):
                rows = [row for row, is_poison in enumerate(poison) if is_poison == wrong]
                settle(leases[rows], offsets[rows])
                with lock:
                    (attempts if wrong else acked).update(batch["id"].take(pa.array(rows, pa.int64())).to_pylist())

    def produce() -> None:
        for start in range(0, len(names), 60):
            schedule(broker, names[start : start + 60])

    with broker:
        run(produce, consume, consume, consume)
        expected = {n for n in names if int(n) % 3 == 0}
        wait_until(lambda: broker.group_info("a", "g").dead == len(expected))
        assert set(ids(broker.dead_letters("a", "g", limit=1000))) == expected
        assert set(attempts.values()) == {3}
        assert acked == Counter(set(names) - expected), "each once"
        assert broker.respawn("a", "g", per_second=2000) == len(expected)
        broker.set_group("a", "g", tries=0)
        got: set[str] = set()
        consumer = broker.subscribe("a", "g")
        while got != expected:
            batch = consumer.fetch(1000, WAIT_S)
            assert batch is not None
            got.update(ids(batch))
            consumer.ack(batch["lease"].to_numpy(), batch["offset"].to_numpy())


@pytest.mark.rest
def test_seeking_while_messages_are_copied_to_the_dead_letters(broker: Broker) -> None:
    broker.set_group("a", "g", tries=1)
    schedule(broker, [f"{k}" for k in range(300)])
    over = threading.Event()

    def fail() -> None:
        consumer = broker.subscribe("a", "g", prefetch=20)
        while not over.is_set():
            batch = consumer.fetch(20, 0.02)
            if batch is not None:
                consumer.nack(batch["lease"].to_numpy(), batch["offset"].to_numpy())

    def seek() -> None:
        rng = random.Random(1)
        for _ in range(60):
            ahead = broker.seek("a", "g", rng.choice(["earliest", "latest"]))
            assert 0 <= ahead <= 300
        over.set()

    with broker:
        run(fail, fail, seek)
        broker.set_group("a", "g", tries=0)
        wait_until(lambda: broker.group_info("a", "g").burying == 0)
        assert broker.seek("a", "g", "earliest") == 300
        consumer, seen = broker.subscribe("a", "g"), set()
        while len(seen) < 300:
            batch = consumer.fetch(1000, WAIT_S)
            assert batch is not None
            seen.update(ids(batch))
            consumer.ack(batch["lease"].to_numpy(), batch["offset"].to_numpy())
        assert broker.group_info("a", "g").lag == 0


@pytest.mark.rest
def test_deleting_and_making_groups_while_they_are_used(broker: Broker) -> None:
    over = threading.Event()

    def use() -> None:
        while not over.is_set():
            try:
                consumer = broker.subscribe("a", "g", prefetch=20)
                batch = consumer.fetch(20, 0.01)
                if batch is not None:
                    consumer.nack(batch["lease"].to_numpy(), batch["offset"].to_numpy(), 0)
                consumer.close()
            except ClosedError:
                pass  # deleted in between

    def change() -> None:
        rng = random.Random(2)
        for k in range(80):
            schedule(broker, [f"{k}"])
            try:
                match rng.randint(0, 3):
                    case 0:
                        broker.delete_group("a", "g")
                    case 1:
                        broker.set_group("a", "g", tries=rng.randint(1, 3), ordered=rng.random() < 0.5)
                    case 2:
                        broker.seek("a", "g", "earliest")
                    case 3:
                        broker.groups()
            except (NotFoundError, ClosedError):
                pass
        over.set()

    with broker:
        run(use, use, change)
        assert broker.status()["state"] == "serving"


def test_consumers_of_a_paused_or_full_group_wake_when_they_may(broker: Broker) -> None:
    with broker:
        broker.set_group("a", "g", inflight_max=1)
        schedule(broker, ["m", "n"])
        one, two = broker.subscribe("a", "g"), broker.subscribe("a", "g")
        first = one.fetch(5, WAIT_S)
        assert first is not None
        assert first.num_rows == 1
        got: list[pa.RecordBatch | None] = []
        waiting = threading.Thread(target=lambda: got.append(two.fetch(5, WAIT_S)))
        waiting.start()
        one.ack(first["lease"].to_numpy(), first["offset"].to_numpy())
        waiting.join(WAIT_S)
        assert got[0] is not None
        assert ids(first) + ids(got[0]) == ["m", "n"]
        broker.pause("a", "g")
        two.ack(got[0]["lease"].to_numpy(), got[0]["offset"].to_numpy())
        schedule(broker, ["o"])
        waiting = threading.Thread(target=lambda: got.append(one.fetch(5, WAIT_S)))
        waiting.start()
        wait_until(lambda: broker.group_info("a", "g").ready == 1)
        assert waiting.is_alive()
        broker.resume("a", "g")
        waiting.join(WAIT_S)
        assert got[1] is not None
        assert ids(got[1]) == ["o"]


def test_settling_and_seeking_race_and_the_seek_wins_or_the_lease_is_stale(tmp_path: Path) -> None:
    """An acknowledgement counts before the seek, or is refused: what the seek brings back is there after a restart."""
    for round_ in range(15):
        config = Config(data=tmp_path / str(round_), pipeline="off", disk_free_bytes_min=0)
        with Broker.open(config) as broker:
            broker.group("a", "g")
            schedule(broker, [f"{k}" for k in range(40)])
            consumer = broker.subscribe("a", "g")
            batches = []
            while sum(b.num_rows for b in batches) < 40:
                batch = consumer.fetch(10, WAIT_S)
                assert batch is not None
                batches.append(batch)

            def settle(batches: list[pa.RecordBatch] = batches, broker: Broker = broker) -> None:
                for batch in batches:
                    try:
                        broker.ack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
                    except StaleLeaseError:
                        return

            def seek(broker: Broker = broker) -> None:
                broker.seek("a", "g", "earliest")

            run(settle, seek)
            assert broker.group_info("a", "g").lag == 40
        with Broker.open(config) as broker:
            assert broker.group_info("a", "g").lag == 40


def test_who_receives_waits_until_a_new_group_is_durable(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both who makes it and who comes meanwhile; its successor would begin behind what they could have had."""
    held, syncing = threading.Event(), threading.Event()
    writer = broker.components.journal._writer  # noqa: SLF001 - a disk that takes its time
    sync = writer.sync

    def sync_held() -> int:
        syncing.set()
        assert held.wait(WAIT_S)
        return sync()

    monkeypatch.setattr(writer, "sync", sync_held)
    returned: list[int] = []

    def receive() -> None:
        returned.append(broker.receive("a", "g", start="latest").num_rows)

    def look() -> None:
        assert syncing.wait(WAIT_S)
        wait_until(lambda: broker.components.groups.has("a", "g"))
        second = threading.Thread(target=receive, daemon=True)
        second.start()
        second.join(0.2)  # only a defect is found sooner than it is there
        assert not returned
        held.set()
        second.join(WAIT_S)

    run(receive, look)
    assert returned == [0, 0]
    broker.close()
