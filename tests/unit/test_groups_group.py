"""A group by itself: leases, expiry, retries, and what is true after a restart. The clock is the test's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.test_queue_log import NOW, Box

from tarry.api.groups import GroupSettings
from tarry.api.retry import parse_retry
from tarry.base.clock import SystemClock, TestClock
from tarry.base.errors import CorruptError, NotFoundError, OverloadedError, StaleLeaseError, TarryError
from tarry.groups import Group, GroupRegistry, GroupSubscription, delivery
from tarry.groups.beginning import Beginning
from tarry.groups.control import GroupControl
from tarry.groups.dead_letters import DeadLetters, GroupRetention
from tarry.groups.services import GroupServices
from tarry.log.file_engine import FileLog
from tarry.log.frame import HEADER_BYTES, LogKind
from tarry.log.segment import list_segments, segment_path
from tarry.queue import Journal, journal
from tarry.queue.entries import JournalEntry, JournalOp
from tarry.queue.topic import Topic
from tarry.testing import open_broker

LEASE_MS = 1000


class Rig:
    """A topic "a" on a real ready log, a real journal, and one group."""

    def __init__(self, directory: Path, clock: object = None, *, threaded: bool = False, **settings: object) -> None:
        self.directory, self.threaded, self.settings = directory, threaded, GroupSettings().changed(**settings)
        self.clock = clock or TestClock(NOW)
        self.box = Box(directory / "ready")
        self.numbers = itertools.count(1)
        self.handed: list[int] = []
        self.copies: list[pa.RecordBatch] = []
        self.copy_error: TarryError | None = None
        self.on_handout: Callable[[], None] = lambda: None
        self.begin()

    def begin(self) -> None:
        log = self.box.log
        registry = GroupRegistry()
        self.journal = Journal(
            FileLog(self.box.files, self.directory / "acks", LogKind.ACKS),
            segment_bytes_max=4096,
            sync_ready=lambda ticket: log.sync(log.ticket() if ticket is None else ticket),
            snapshot=registry.entries,
            on_fatal=lambda error: None,
            threaded=self.threaded,
        )
        self.topic: Topic = log.topic("a")
        services = GroupServices(
            self.clock,  # type: ignore[arg-type]
            self.journal,
            log.ticket,
            self.numbers,
            self.note_handout,
            parse_retry("fixed 500ms"),
        )
        beginning = Beginning()
        for entry in self.journal.entries():
            beginning.replay(entry)
        self.control = GroupControl(self.topic, "g", services, self.put_copies, self.settings, None, beginning)
        self.group: Group = self.control.group
        registry.add(self.control)
        self.guard = GroupRetention(registry, DeadLetters(registry, services.clock, self.put_copies, 1 << 40))

    def note_handout(self, due_ms: np.ndarray, *_: object) -> None:
        self.handed.extend(due_ms.tolist())
        self.on_handout()

    def put_copies(self, copies: pa.RecordBatch, on_result: Callable[[object], None]) -> None:
        if self.copy_error is None:
            self.copies.append(copies)
        on_result(self.copy_error)

    def restart(self) -> None:
        """As a process that was killed does: what was written is there."""
        self.box.log.flush()
        self.journal.close()
        self.box.log.close()
        self.box.open((0, 0), {})
        self.begin()

    def consumer(self, prefetch: int = 1000, lease_ms: int = LEASE_MS) -> GroupSubscription:
        return self.group.subscribe(prefetch=prefetch, lease_ms=lease_ms)

    def close(self) -> None:
        self.journal.close()
        self.box.log.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def take(consumer: GroupSubscription, limit: int = 1000) -> pa.RecordBatch:
    batch = consumer.fetch(limit, 0)
    assert batch is not None, "nothing there"
    return batch


def empty(consumer: GroupSubscription) -> bool:
    return consumer.fetch(1000, 0) is None


def offsets(batch: pa.RecordBatch) -> list[int]:
    return batch["offset"].to_pylist()


def of(batch: pa.RecordBatch, *rows: int) -> tuple[np.ndarray, np.ndarray]:
    picked = list(rows) if rows else list(range(batch.num_rows))
    return batch["lease"].to_numpy()[picked], batch["offset"].to_numpy()[picked]


def test_each_message_goes_to_one_consumer(rig: Rig) -> None:
    rig.box.append(*["a"] * 10)
    one, two = rig.consumer(), rig.consumer()
    first, second = take(one, 4), take(two)
    assert (offsets(first), offsets(second)) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
    assert first["attempt"].to_pylist() == [1] * 4
    assert empty(one)
    assert rig.handed == [NOW] * 10
    assert one.ack(*of(first)) == 4
    assert two.ack(*of(second)) == 6
    assert rig.group.floor == 10
    assert rig.group.unsettled == 0


def trickle(rig: Rig, rows: int, *, body: int = 50) -> None:
    """A frame for each message."""
    for _ in range(rows):
        rig.box.append("a", body=body)
        rig.box.log.flush()


def test_one_fetch_fills_up_from_many_frames(rig: Rig) -> None:
    trickle(rig, 60)
    rig.restart()
    rig.box.append(*["a"] * 40)  # in memory
    consumer = rig.consumer()
    batch = take(consumer, 90)
    assert offsets(batch) == list(range(90))
    assert batch["seq"].to_pylist() == rig.box.seqs["a"][:90]
    assert len(set(batch["lease"].to_pylist())) == 1, "what came together is extended together"
    assert offsets(take(consumer)) == list(range(90, 100))
    assert len(rig.handed) == 100
    assert empty(consumer)


def test_one_fetch_has_what_comes_again_and_what_is_new(rig: Rig) -> None:
    trickle(rig, 9)
    rig.restart()
    consumer = rig.consumer()
    held = take(consumer, 6)
    back = held.take(pa.array([1, 4]))
    consumer.nack(back["lease"].to_numpy(), back["offset"].to_numpy(), 0)
    batch = take(consumer)
    assert (offsets(batch), batch["attempt"].to_pylist()) == ([1, 4, 6, 7, 8], [2, 2, 1, 1, 1])
    assert batch["seq"].to_pylist() == [rig.box.seqs["a"][offset] for offset in offsets(batch)]
    assert consumer.held == 9
    consumer.ack(batch["lease"].to_numpy(), batch["offset"].to_numpy())
    assert consumer.held == 4


def test_one_fetch_is_bounded_in_bytes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "READ_BYTES", 5000)
    trickle(rig, 12, body=2000)
    rig.restart()
    consumer = rig.consumer()
    batches = [take(consumer) for _ in range(4)]
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 3]
    assert empty(consumer)


def test_one_fetch_gives_what_lies_before_a_damaged_frame(rig: Rig) -> None:
    trickle(rig, 6)
    rig.restart()
    path = segment_path(rig.box.directory, 0)
    entry = rig.box.log.frames_in(0)[4]
    with path.open("r+b") as file:
        file.seek(entry.position + HEADER_BYTES)
        file.write(b"\xff")
    consumer = rig.consumer()
    assert offsets(take(consumer)) == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(CorruptError, match=f"{path} at offset {entry.position}"):
            take(consumer)
    assert rig.group.counts()["leased"] == 4


def test_prefetch_bounds_what_a_consumer_holds(rig: Rig) -> None:
    rig.box.append(*["a"] * 10)
    consumer = rig.consumer(prefetch=3)
    batch = take(consumer)
    assert offsets(batch) == [0, 1, 2]
    assert empty(consumer)
    consumer.ack(*of(batch, 1))
    assert offsets(take(consumer)) == [3]
    consumer.nack(*of(batch, 0), 100)
    assert offsets(take(consumer)) == [4]
    assert consumer.held == 3


def test_a_lease_expires_and_the_attempt_counts(rig: Rig) -> None:
    rig.box.append("a", "a")
    consumer = rig.consumer()
    batch = take(consumer)
    consumer.ack(*of(batch, 0))
    rig.clock.advance_ms(LEASE_MS - 1)
    assert empty(consumer)
    rig.clock.advance_ms(1)
    again = take(consumer)
    assert (offsets(again), again["attempt"].to_pylist()) == ([1], [2])
    assert consumer.held == 1
    results: list[object] = []
    assert consumer.ack(*of(batch, 1), results.append) == 0
    assert isinstance(results[0], StaleLeaseError)
    assert consumer.ack(*of(again)) == 1
    assert rig.group.unsettled == 0


def test_an_expired_lease_is_good_until_somebody_looks(rig: Rig) -> None:
    rig.box.append("a")
    consumer = rig.consumer()
    batch = take(consumer)
    rig.clock.advance_ms(10 * LEASE_MS)
    assert consumer.ack(*of(batch)) == 1
    assert empty(consumer)


def test_extend_holds_the_batch_longer(rig: Rig) -> None:
    rig.box.append("a", "a")
    consumer = rig.consumer()
    batch = take(consumer)
    rig.clock.advance_ms(900)
    assert consumer.extend(*of(batch, 0), 5000) == 1
    rig.clock.advance_ms(4999)
    assert empty(consumer)
    rig.clock.advance_ms(1)
    assert offsets(take(consumer)) == [0, 1]
    assert consumer.extend(*of(batch), 5000) == 0


def test_extend_can_shorten_a_lease(rig: Rig) -> None:
    rig.box.append("a")
    consumer = rig.consumer()
    batch = take(consumer)
    consumer.extend(*of(batch), 10)
    rig.clock.advance_ms(10)
    assert offsets(take(consumer)) == [0]


def test_nack_gives_back_after_its_delay(rig: Rig) -> None:
    rig.box.append("a", "a", "a")
    consumer = rig.consumer()
    batch = take(consumer)
    assert consumer.nack(*of(batch, 1)) == 1  # the default: 500
    assert consumer.nack(*of(batch, 0), 0) == 1
    again = take(consumer)
    assert (offsets(again), again["attempt"].to_pylist()) == ([0], [2])
    rig.clock.advance_ms(499)
    assert empty(consumer)
    rig.clock.advance_ms(1)
    assert offsets(take(consumer)) == [1]
    assert consumer.nack(*of(batch, 0), 0) == 0, "its lease is another one by now"


def test_nack_does_not_hold_up_what_is_new(rig: Rig) -> None:
    rig.box.append("a")
    consumer = rig.consumer()
    consumer.nack(*of(take(consumer)), 60_000)
    rig.box.append("a")
    assert offsets(take(consumer)) == [1]


def test_mixed_and_repeated_settlements(rig: Rig) -> None:
    rig.box.append(*["a"] * 6)
    consumer = rig.consumer()
    one, two = take(consumer, 3), take(consumer, 3)
    leases = np.concatenate([one["lease"], two["lease"], one["lease"]])
    every = np.concatenate([one["offset"], two["offset"], one["offset"]])
    results: list[object] = []
    assert rig.group.ack(leases, every, results.append) == 6
    assert isinstance(results[0], StaleLeaseError), "three were given twice"
    assert rig.group.ack(np.empty(0, np.int64), np.empty(0, np.int64), results.append) == 0
    assert results[1] is None
    assert rig.group.ack(np.array([77]), np.array([0]), results.append) == 0
    assert "1 of 1 leases are stale" in str(results[2])


def test_a_closed_consumer_gives_back_at_once(rig: Rig) -> None:
    rig.box.append(*["a"] * 3)
    one, two = rig.consumer(), rig.consumer()
    batch = take(one)
    one.ack(*of(batch, 1))
    one.close()
    one.close()
    assert one.fetch(1, None) is None
    again = take(two)
    assert (offsets(again), again["attempt"].to_pylist()) == ([0, 2], [2, 2])


def test_never_early_after_the_clock_was_set_back(rig: Rig) -> None:
    rig.box.append("a", due_ms=NOW + 50)
    rig.box.append("a", due_ms=NOW + 20)
    rig.box.append("a", due_ms=NOW)
    consumer = rig.consumer()
    assert offsets(take(consumer)) == [2], "what is due does not wait behind what is not"
    assert empty(consumer)
    rig.clock.advance_ms(20)
    assert offsets(take(consumer)) == [1]
    rig.clock.advance_ms(30)
    batch = take(consumer)
    assert (offsets(batch), batch["attempt"].to_pylist()) == ([0], [1])
    rig.box.append("a", due_ms=NOW + 50)
    assert offsets(take(consumer)) == [3]


def test_never_early_for_a_retry_either(rig: Rig) -> None:
    rig.box.append("a", due_ms=NOW)
    rig.box.append("a", due_ms=NOW - 500)
    consumer = rig.consumer()
    consumer.nack(*of(take(consumer)), 0)
    rig.clock.advance_ms(-300)
    assert empty(consumer), "its back-off is kept as an instant, too"
    rig.clock.set_ms(NOW)
    batch = take(consumer)
    rig.clock.advance_ms(-300)
    consumer.nack(*of(batch), 0)
    again = take(consumer)
    assert (offsets(again), again["attempt"].to_pylist()) == ([1], [3]), "the other one is not due yet, as it is now"
    rig.clock.set_ms(NOW)
    assert offsets(take(consumer)) == [0]


def test_deferred_rows_survive_a_restart(rig: Rig) -> None:
    rig.box.append("a", due_ms=NOW + 50)
    rig.box.append("a", due_ms=NOW)
    consumer = rig.consumer()
    consumer.ack(*of(take(consumer)))
    rig.restart()
    consumer = rig.consumer()
    assert empty(consumer)
    rig.clock.advance_ms(50)
    assert offsets(take(consumer)) == [0]
    assert empty(consumer)


def test_a_retry_of_what_retention_deleted_is_forgotten(rig: Rig) -> None:
    for _ in range(8):
        rig.box.append("a", "a", body=1500)
        rig.box.log.flush()
    consumer = rig.consumer()
    while not empty(consumer):
        pass
    rig.clock.advance_ms(LEASE_MS)
    first = rig.topic.extents[1].first
    assert rig.box.log.delete_consumed(1 << 60, 1, rig.guard, lambda _: None, below=1 << 60) > 0
    rig.topic.extents = [e for e in rig.topic.extents if e.first >= first]
    got: list[int] = []
    while (batch := consumer.fetch(1000, 0)) is not None:
        got += offsets(batch)
        consumer.ack(*of(batch))
    assert got == list(range(rig.topic.first, 16))
    assert rig.group.unsettled == 0
    assert rig.group.floor == 16


def test_unsettled_does_not_count_what_retention_deleted(rig: Rig) -> None:
    for _ in range(8):
        rig.box.append("a", "a", body=1500)
        rig.box.log.flush()
    assert rig.group.unsettled == 16
    assert rig.box.log.delete_consumed(1 << 60, 1, rig.guard, lambda _: None, below=1 << 60) > 0
    assert rig.group.unsettled == 16 - rig.topic.first < 16


def test_what_was_settled_is_settled_after_a_restart(rig: Rig) -> None:
    rig.box.append(*["a"] * 10)
    consumer = rig.consumer()
    batch = take(consumer)
    consumer.ack(*of(batch, 0, 1, 5, 9))
    consumer.nack(*of(batch, 3, 4), 700)
    rig.restart()
    consumer = rig.consumer()
    again = take(consumer)
    assert offsets(again) == [2, 6, 7, 8]
    assert again["attempt"].to_pylist() == [1] * 4
    assert empty(consumer)
    rig.clock.advance_ms(700)
    retried = take(consumer)
    assert (offsets(retried), retried["attempt"].to_pylist()) == ([3, 4], [2, 2])
    rig.box.append("a")
    assert offsets(take(consumer)) == [10]


def test_what_was_acknowledged_stays_so_whatever_is_written_later(rig: Rig) -> None:
    # A consumer's nack may be written after another one's acknowledgement of the same message, that it led to.
    rig.box.append(*["a"] * 3)
    batch = take(rig.consumer())
    rig.group.ack(*of(batch, 1))
    rig.journal.write([JournalEntry("a", "g", JournalOp.RETRY, 0, 3, 2, NOW)], 0)
    rig.restart()
    assert offsets(take(rig.consumer())) == [0, 2]


def test_a_journal_ahead_of_the_ready_log_is_refused(rig: Rig) -> None:
    rig.box.append("a")
    rig.journal.write([JournalEntry("a", "g", JournalOp.ACK, 5, 9)], 0)
    with pytest.raises(CorruptError, match=r"offsets below 9 of topic 'a', but the ready log ends at 1"):
        rig.restart()


def test_the_journal_rolls_and_keeps_the_state(rig: Rig) -> None:
    rig.box.append(*["a"] * 200)
    consumer = rig.consumer()
    batch = take(consumer)
    for row in range(0, 200, 2):
        consumer.ack(*of(batch, row))
    consumer.nack(*of(batch, 1, 3), 10_000)
    [segment] = list_segments(rig.directory / "acks")
    assert segment > 0, "it rolled"
    rig.restart()
    consumer = rig.consumer()
    assert offsets(take(consumer)) == list(range(5, 200, 2))


def test_consumers_wait_for_what_comes_and_wake_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, SystemClock(), threaded=True)
    got: list[int] = []
    lock = threading.Lock()

    def consume() -> None:
        consumer = rig.consumer(lease_ms=60_000)
        while (batch := consumer.fetch(7, None)) is not None:
            with lock:
                got.extend(offsets(batch))
            consumer.ack(*of(batch))

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        rig.box.append(*["a"] * 10)
        rig.topic.notify()
    while rig.group.unsettled:
        rig.topic.notify()
    rig.control.stop()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(got) == list(range(500)), "each once"
    rig.close()


def test_a_consumer_that_is_closed_on_its_way_to_a_lease_gets_none(rig: Rig) -> None:
    # Leased to it, the message would be back only when the lease ends. While another consumer is served, it waits for
    # the group's lock, and is closed by who has it.
    rig.box.append("a", "a")
    closing, other = rig.consumer(), rig.consumer()
    asked = threading.Event()
    answers: list[pa.RecordBatch | None] = []

    def ask() -> None:
        asked.set()
        answers.append(closing.fetch(10, 0))

    thread = threading.Thread(target=ask)

    def close_while_it_asks() -> None:
        if not asked.is_set():
            thread.start()
            assert asked.wait(20)
            closing.close()

    rig.on_handout = close_while_it_asks
    assert offsets(take(other, 1)) == [0]
    thread.join(20)
    assert answers == [None]
    assert offsets(take(other)) == [1], "nobody has it"


def test_the_only_consumer_has_room_again_when_its_leases_have_ended(rig: Rig) -> None:
    rig.box.append("a")
    only = rig.consumer(prefetch=1)
    assert offsets(take(only)) == [0]
    assert only.poll(1) == (None, 0.05)
    rig.clock.advance_ms(LEASE_MS)
    assert offsets(take(only)) == [0]


def test_a_consumer_without_room_does_not_spin_for_what_it_could_not_take(rig: Rig) -> None:
    rig.box.append("a", "a")
    full, other = rig.consumer(prefetch=1, lease_ms=10 * LEASE_MS), rig.consumer(prefetch=1)
    take(full)
    other.nack(*of(take(other)), 0)
    waits: list[float | None] = []

    def wait(condition: threading.Condition, timeout_s: float | None) -> None:
        waits.append(timeout_s)
        if len(waits) == 3:
            rig.control.stop()

    rig.clock.wait = wait  # type: ignore[method-assign]
    rig.clock.advance_ms(5 * LEASE_MS)
    assert full.fetch(1, None) is None
    assert waits == [0.05] * 3


def test_a_journal_with_too_much_to_write_refuses_and_changes_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.box.append("a", "a", "a")
    consumer = rig.consumer()
    batch = take(consumer, 2)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "ENTRIES_MAX", 0)
        for refused in (consumer.ack, consumer.nack, rig.group.reject):
            with pytest.raises(OverloadedError, match="try again"):
                refused(*of(batch))
        with pytest.raises(OverloadedError, match="try again"):
            rig.group.ack_each(*of(batch), lambda error: None)
        with pytest.raises(OverloadedError, match="try again"):
            rig.control.seek(0, lambda error: None)
        rig.clock.advance_ms(LEASE_MS)
        assert consumer.poll(10) == (None, 0.05), "nothing is handed out, and no lease expires"
        assert rig.group.counts()["leased"] == 2
    assert consumer.ack(*of(batch)) == 2
    assert offsets(take(consumer)) == [2]


def test_consumers_are_told_with_what_each_holds(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("orders", "g", tries=3)
        for _ in range(6):
            broker.schedule("orders", b"x")
        broker.step()
        group = broker.group("orders", "g")
        first = group.subscribe(prefetch=3, lease_ms=5000)
        idle = group.subscribe(prefetch=10, lease_ms=60_000)
        first.fetch(3, 0)
        broker.advance("1s")
        broker.receive("orders", "g", max_messages=2, lease_ms=30_000)
        now_ms = broker.clock.now_ms()
        full, called, waiting = broker.consumers("orders", "g")
        assert (full.state, full.held, full.prefetch, full.attempt_max) == ("full", 3, 3, 1)
        assert (full.oldest_lease_ms, full.lease_end_ms, full.began_ms) == (now_ms - 1000, now_ms + 4000, now_ms - 1000)
        assert (called.state, called.held, called.lease_end_ms) == ("full", 2, now_ms + 30_000)
        assert (waiting.state, waiting.held, waiting.oldest_lease_ms, waiting.identity) == ("idle", 0, None, None)
        assert [each.number for each in broker.consumers("orders", "g", limit=1)] == [full.number]
        broker.advance("5s")  # the lease ends
        assert [each.held for each in broker.consumers("orders", "g")][:1] == [2]
        idle.close()
        first.close()
        assert [each.number for each in broker.consumers("orders", "g")] == [called.number]
        broker.advance("1m")
        assert broker.consumers("orders", "g") == []
        with pytest.raises(NotFoundError):
            broker.consumers("orders", "none")
