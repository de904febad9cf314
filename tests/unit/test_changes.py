"""Cancelling and rescheduling, wherever the message is, with a definite answer, also when the disk is full."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crash.tools import World
from tests.faults import Crash

from tarry.api.outcome import Outcome
from tarry.base.errors import (
    DelayTooLongError,
    DiskFullError,
    ForgedHandleError,
    InvalidArgumentError,
)
from tarry.message import handle
from tarry.message.receipt import Receipt
from tarry.repeat import Repeat
from tarry.testing import TestBroker, open_broker

DONE, DELIVERED, CANCELLED, UNKNOWN = Outcome.DONE, Outcome.DELIVERED, Outcome.CANCELLED, Outcome.UNKNOWN
DAY = 86_400_000


@pytest.fixture
def w(tmp_path: Path) -> Any:
    world = World(tmp_path, settings={"horizon_ms": 2_000})
    world.open()
    yield world
    if world.broker is not None:
        world.b.close()


def one(broker: TestBroker, delay_ms: int, **more: Any) -> Receipt:
    return broker.schedule("t", b"body", due=broker.clock.now_ms() + delay_ms, **more)


def stay(w: World) -> None:
    """Where it was accepted: in the wheel if it is soon, else in the intake."""


def commit(w: World) -> None:
    """Into the store; the intake has it, too."""
    w.pipeline_commits()
    w.b.step()


def commit_and_forget(w: World) -> None:
    """Into the store; the intake's segment is deleted."""
    for _ in range(3):
        w.schedule("fill", [0] * 4, body=4000)
        w.b.advance(0.001)
        commit(w)
    assert w.b.components.intake.first_seq > 0


def restart(w: World) -> None:
    w.reopen()


def crash(w: World) -> None:
    w.crashed(None)
    w.open()


def lose_registry(w: World) -> None:
    w.b.checkpoint()
    w.b.close()
    shutil.rmtree(w.directory / "registry", ignore_errors=True)
    w.open()


MOVES: list[Callable[[World], None]] = [stay, commit, commit_and_forget, restart, crash]


@pytest.mark.parametrize("move", MOVES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("delay_ms", [500, 60_000, 20 * DAY])
def test_cancel_wherever_the_message_is(w: World, move: Callable[[World], None], delay_ms: int) -> None:
    gone, kept = one(w.b, delay_ms), one(w.b, delay_ms)
    move(w)
    assert w.b.cancel(gone.handle) is DONE
    assert w.b.cancel(gone.handle) is CANCELLED
    assert {e.topic: e.pending for e in w.b.pending()}["t"] == 1
    w.b.advance_to(kept.due_ms)
    assert w.b.receive("t", "g", max_messages=9)["seq"].to_pylist() == [kept.seq]
    assert w.b.cancel(kept.handle) is DELIVERED


@pytest.mark.parametrize("after", [*MOVES, lose_registry], ids=lambda f: f.__name__)
@pytest.mark.parametrize("before", MOVES, ids=lambda f: f.__name__)
def test_a_cancellation_lasts_whatever_happens_then(
    w: World, before: Callable[[World], None], after: Callable[[World], None]
) -> None:
    messages = [one(w.b, d) for d in (500, 60_000, 20 * DAY) for _ in range(2)]
    assert [m.seq for m in messages] == list(range(6))
    before(w)
    assert w.b.cancel_many([m.handle for m in messages[::2]]) == [DONE] * 3
    after(w)
    assert w.b.cancel_many([m.handle for m in messages[::2]]) == [CANCELLED] * 3
    assert {e.topic: e.pending for e in w.b.pending()}["t"] == 3
    w.b.advance("21d")
    assert [seq for batch in w.b.components.ready.rows_after(0, 0) for seq in batch["seq"].to_pylist() if seq < 6] == [
        1,
        3,
        5,
    ]
    assert {e.topic: (e.pending, e.next_due_ms) for e in w.b.pending()}["t"] == (0, None)


def test_the_answers(tmp_path: Path) -> None:
    with open_broker(tmp_path, retention_ms=DAY) as broker:
        soon, far = one(broker, 10), one(broker, 10_000)
        broker.advance(0.01)
        assert broker.cancel(soon.handle) is DELIVERED
        assert broker.reschedule(soon.handle, delay=1).outcome is DELIVERED
        assert broker.cancel_many([far.handle, far.handle, soon.handle]) == [DONE, CANCELLED, DELIVERED]
        assert broker.reschedule(far.handle, delay=1).outcome is CANCELLED
        assert broker.cancel_many([]) == []
        broker.advance("3d")
        # What became of a message is remembered for the retention.
        assert broker.cancel(soon.handle) is UNKNOWN
        assert broker.cancel(far.handle) is UNKNOWN


def test_nothing_is_found_under_a_key_once_it_was_delivered(w: World) -> None:
    one(w.b, 1_000, key="once")
    one(w.b, 1_000, key="again", repeat=Repeat.every("1h"))
    seq_before = w.b.find_keyed("t", "again").column("seq")[0].as_py()
    assert w.b.find_keyed("t", "once").num_rows == 1
    w.b.advance("1s")
    assert w.b.find_keyed("t", "once") is DELIVERED
    assert w.b.find_keyed("t", "again").column("seq")[0].as_py() != seq_before
    restart(w)
    assert w.b.find_keyed("t", "once") is DELIVERED
    assert w.b.find_keyed("t", "again").num_rows == 1


def test_a_handle_that_is_damaged_or_forged_is_refused(tmp_path: Path) -> None:
    with open_broker(tmp_path / "a") as broker, open_broker(tmp_path / "b") as other:
        mine, theirs = one(broker, 1000), one(other, 1000)
        with pytest.raises(InvalidArgumentError, match="damaged"):
            broker.cancel(mine.handle[:-4] + "AAAA")
        with pytest.raises(InvalidArgumentError, match="not a handle: 'x'"):
            broker.cancel("x")
        with pytest.raises(ForgedHandleError, match="was not made by this broker"):
            broker.cancel(theirs.handle)
        with pytest.raises(ForgedHandleError, match="handle 1: "):
            broker.cancel_many([mine.handle, theirs.handle])
        assert broker.cancel(mine.handle) is DONE, "the good one among bad ones was not touched"


@pytest.mark.parametrize("by_ms", [-3000, -1, 1, 5_000_000])
def test_a_handle_with_another_due_time_cancels_nothing(w: World, by_ms: int) -> None:
    """The due time in a handle is a hint that nobody has signed."""
    m = one(w.b, 4000)
    found = handle.decode(m.handle)
    forged = handle.encode(m.seq, m.due_ms + by_ms, found.first_seq, found.rows, found.token)
    for _ in range(2):
        assert w.b.cancel(forged) in (UNKNOWN, DELIVERED)
        assert w.b.reschedule(forged, delay=1).outcome in (UNKNOWN, DELIVERED)
        commit(w)
    assert {e.topic: e.pending for e in w.b.pending()} == {"t": 1}
    assert w.b.cancel(m.handle) is DONE


def test_reschedule_moves_the_message_with_all_that_it_has(w: World) -> None:
    properties = {"a": "1"}
    m = one(w.b, 60_000, id="mine", key="k", tag="g", properties=properties, ttl=300, tries=7, order_key="o")
    for place, delay_ms in enumerate([500, 90_000, 1_500, 20 * DAY, 0]):
        moved = w.b.reschedule(m.handle, due=w.b.clock.now_ms() + delay_ms)
        assert (moved.outcome, moved.receipt.due_ms) == (DONE, w.b.clock.now_ms() + delay_ms)
        assert w.b.cancel(m.handle) is CANCELLED
        m = moved.receipt
        assert w.b.find_key("t", "k") == m
        MOVES[place % len(MOVES)](w)
    w.b.step()
    [row] = w.b.receive("t", "g", max_messages=9).to_pylist()
    wanted = {"id": "mine", "key": "k", "tag": "g", "tries": 7, "due_ms": m.due_ms, "body": b"body", "seq": m.seq}
    assert {name: row[name] for name in wanted} == wanted
    assert row["properties"] == [("a", "1"), ("tarry.order", "o")]
    # It is of use for as long after its due time as it was: 300 s from acceptance, due after 60 s.
    assert row["expire_ms"] - row["due_ms"] == 240_000
    assert w.b.reschedule(m.handle, delay=1).outcome is DELIVERED


def test_a_message_without_an_id_keeps_that_of_its_first_seq(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        m = one(broker, 1000)
        moved = broker.reschedule(m.handle, delay=2).receipt
        again = broker.reschedule(moved.handle, delay=1).receipt
        assert m.id == moved.id == again.id
        broker.advance(2)
        assert broker.receive("t", "g", max_messages=9)["id"].to_pylist() == [m.id]


def test_times_that_are_refused(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        m = one(broker, 1000)
        for given in ({}, {"delay": 1, "due": 1}):
            with pytest.raises(InvalidArgumentError, match="allowed: one of them"):
                broker.reschedule(m.handle, **given)
        with pytest.raises(InvalidArgumentError, match="due is -1"):
            broker.reschedule(m.handle, due=-1)
        with pytest.raises(DelayTooLongError):
            broker.reschedule(m.handle, delay="3000w")
        assert broker.cancel(m.handle) is DONE


def test_a_full_disk_cancels_nothing_and_loses_nothing(w: World) -> None:
    soon, far = one(w.b, 500), one(w.b, 60_000)
    w.files.full = True
    for m in (soon, far):
        with pytest.raises(DiskFullError):
            w.b.cancel(m.handle)
        with pytest.raises(DiskFullError):
            w.b.reschedule(m.handle, delay=1)
    w.files.full = False
    assert w.b.cancel(far.handle) is DONE
    w.b.advance(0.5)
    assert w.b.receive("t", "g", max_messages=9)["seq"].to_pylist() == [soon.seq]


def test_what_falls_due_while_its_cancellation_fails_is_delivered(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decided, taken by the dispatcher, and then the disk is full: it was kept aside, and is due after all."""
    m, other = one(w.b, 500), one(w.b, 500)
    w.b.step()
    wheel, intake = w.b.components.wheel, w.b.components.intake
    whole = intake._segments.append  # noqa: SLF001 - a step that fails, or waits, is put in its place

    def full(buffers: Any) -> None:
        w.clock.advance_ms(600)
        with wheel.lock:
            due = wheel.take_due(w.clock.now_ms(), 100)
        assert due is not None and due.batch["seq"].to_pylist() == [other.seq]
        assert wheel.tombstones.holds_rows
        assert w.b.checkpoint() is False, "a crash now would lose it"
        monkeypatch.setattr(intake._segments, "append", whole)  # noqa: SLF001 - a step is replaced
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(intake._segments, "append", full)  # noqa: SLF001 - a step is replaced
    with pytest.raises(DiskFullError):
        w.b.cancel(m.handle)
    w.b.step()
    assert w.b.receive("t", "g", max_messages=9)["seq"].to_pylist() == [m.seq]


def test_what_is_loaded_while_it_is_cancelled_is_not_delivered(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader has moved the horizon past the message and has not read it yet."""
    m, kept = one(w.b, 60_000), one(w.b, 60_000)
    commit(w)
    loader = w.b.components.loader
    whole = loader._add  # noqa: SLF001 - a step that fails, or waits, is put in its place
    answers = []

    def add(batch: pa.RecordBatch, *, stored: bool) -> int:
        if not answers:
            answers.append(w.b.cancel(m.handle))
        return whole(batch, stored=stored)

    monkeypatch.setattr(loader, "_add", add)
    w.b.advance("61s")
    assert answers == [DONE]
    assert w.b.receive("t", "g", max_messages=9)["seq"].to_pylist() == [kept.seq]
    assert not w.b.components.wheel.tombstones or w.b.cancel(m.handle) is CANCELLED


def test_a_cancellation_committed_to_the_store_before_and_after_its_message(w: World) -> None:
    first = [one(w.b, 60_000) for _ in range(4)]
    w.b.cancel(first[0].handle)  # with its message in one batch of the pipeline
    commit(w)
    w.b.cancel(first[1].handle)  # its message is in the store
    commit(w)
    w.b.cancel(first[2].handle)  # never committed
    lose_registry(w)
    assert [w.b.cancel(m.handle) for m in first] == [CANCELLED, CANCELLED, CANCELLED, DONE]
    w.b.advance("2m")
    assert w.b.receive("t", "g", max_messages=9).num_rows == 0


def test_a_damaged_registry_is_made_again(w: World) -> None:
    gone, named = one(w.b, 60_000), one(w.b, 60_000, key="k", id="i")
    w.b.cancel(gone.handle)
    commit(w)
    w.b.close()
    for path in (w.directory / "registry").iterdir():
        if path.suffix in (".log", ".sst") or path.name.startswith("MANIFEST"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
            path.write_bytes(content)
    w.open()
    assert w.b.cancel(gone.handle) is CANCELLED
    assert w.b.find_key("t", "k") == named
    assert one(w.b, 5, id="i").outcome == "duplicate"


def test_millions_cancelled_take_no_memory_of_their_own(w: World) -> None:
    """What lies beyond the wheel is withdrawn from it as soon as the registry has it."""
    accepted = w.b.schedule_batch(
        pa.record_batch({"topic": ["t"] * 5000, "delay_ms": pa.array([60_000] * 5000), "body": [b""] * 5000})
    )
    assert w.b.cancel_many(accepted.handles()) == [DONE] * 5000
    assert len(w.b.components.wheel.tombstones) == 0
    assert {e.topic: e.pending for e in w.b.pending()} == {"t": 0}
    w.b.advance("2m")
    assert w.b.receive("t", "g", max_messages=9).num_rows == 0
    assert w.b.cancel_many(accepted.handles()) == [CANCELLED] * 5000
    w.b.advance("8d")
    w.b.checkpoint()
    assert not len(w.b.components.registry.cancelled_between((0, 0), 1 << 60, 1)[0]), "forgotten after the retention"


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.rest) for n in range(6, 30))])
def test_at_the_due_time_exactly_one_wins(seed: int, tmp_path: Path) -> None:
    """With the test clock: thousands of messages, each cancelled about when it falls due."""
    rng = random.Random(seed)
    with open_broker(tmp_path, horizon_ms=50) as broker:
        messages = [one(broker, rng.randint(0, 100)) for _ in range(120)]
        outcomes: dict[int, Outcome] = {}
        for _ in range(40):
            broker.advance_to(broker.clock.now_ms() + rng.choice([0, 1, 5]))
            for m in rng.sample(messages, 6):
                if m.seq not in outcomes:
                    outcomes[m.seq] = broker.cancel(m.handle)
        broker.advance(1)
        got = set(broker.receive("t", "g", max_messages=1000)["seq"].to_pylist())
        assert set(outcomes.values()) <= {DONE, DELIVERED}
        for m in messages:
            assert (m.seq in got) == (outcomes.get(m.seq) is not DONE)


def test_a_crash_between_decision_and_disk_cancels_nothing(w: World) -> None:
    m = one(w.b, 500)
    w.files.crash_at = w.files.steps + 1
    with pytest.raises(Crash):
        w.b.cancel(m.handle)
    w.crashed(random.Random(1))
    w.open()
    w.b.advance(1)
    assert w.b.receive("t", "g", max_messages=9)["seq"].to_pylist() == [m.seq]
