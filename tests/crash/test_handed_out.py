"""What a consumer was handed before a crash, and what callers are told of it afterwards: never "done".

The ready log is written behind the hand-out (docs/decisions/0002). Here the directory is taken away in between: a copy
is what a killed process leaves, and it is opened with a clock that goes on, that stands still, or that was set back.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.api.operations import DiscardMessage
from tarry.base.config import Config
from tarry.broker.hand_out_bound import FILE
from tarry.testing import TestBroker, TestClock
from tests.crash.tools import SMALL
from tests.faults import FaultyFiles, FaultyOverwriteFile

T0 = 1_795_264_000_000
CLOCKS = {"goes on": 0, "is far ahead": 3_600_000, "was set back": -3_600_000}


def broker_on(data: Path, now_ms: int = T0, ahead_ms: int = 0) -> TestBroker:
    config = Config(data=data, pipeline="off", **SMALL)
    broker = TestBroker(config, TestClock(now_ms), FaultyFiles(), threads=False)
    broker.components.bound.ahead_ms = ahead_ms
    return broker


def hand_out(broker: TestBroker, topic: str = "t", group: str = "g") -> list[str]:
    """The ids of what is due, received before the ready log has any of it on disk."""
    broker.components.loader.step()
    while broker.components.dispatcher.step():
        pass
    return received(broker, topic, group)


def received(broker: TestBroker, topic: str = "t", group: str = "g") -> list[str]:
    ids: list[str] = broker.receive(topic, group, max_messages=100)["id"].to_pylist()
    return ids


class Killed:
    """A broker that handed one message out and was killed at once, and what a restart finds of it."""

    def __init__(self, tmp_path: Path, clock: str, **message: Any) -> None:
        self.broker = broker_on(tmp_path / "before")
        self.handed = self.broker.schedule("t", b"handed", delay=1, id="handed", key="k", **message)
        self.later = self.broker.schedule("t", b"later", delay=600, id="later")
        self.broker.step()
        self.broker.clock.advance_ms(1_000)
        assert hand_out(self.broker) == ["handed"]
        self.data = shutil.copytree(tmp_path / "before", tmp_path / "after")
        self.now_ms = self.broker.clock.now_ms() + CLOCKS[clock]
        self.again = broker_on(self.data, self.now_ms)

    def close(self) -> None:
        self.broker.close()
        self.again.close()


@pytest.fixture(params=list(CLOCKS))
def killed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Killed]:
    both = Killed(tmp_path, request.param)
    yield both
    both.close()


CHANGES: dict[str, Callable[[Killed], object]] = {
    "cancel": lambda k: k.again.cancel(k.handed.handle),
    "cancel_many": lambda k: k.again.cancel_many([k.handed.handle])[0],
    "cancel_key": lambda k: k.again.cancel_key("t", "k"),
    "reschedule": lambda k: k.again.reschedule(k.handed.handle, delay=60).outcome,
    "reschedule_key": lambda k: k.again.reschedule_key("t", "k", delay=60).outcome,
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_of_what_was_handed_out_is_done(killed: Killed, change: str) -> None:
    assert CHANGES[change](killed) == "delivered"
    killed.again.advance_to(max(killed.now_ms, T0 + 1_000))
    assert "handed" in received(killed.again), "it comes again, as it was not acknowledged"


def test_a_key_of_what_was_handed_out_is_not_replaced(killed: Killed) -> None:
    assert killed.again.schedule("t", b"new", delay=60, key="k", id="new").outcome == "scheduled"
    killed.again.advance_to(max(killed.now_ms, T0 + 1_000) + 60_000)
    assert set(received(killed.again)) >= {"handed", "new"}


def test_what_is_due_later_is_cancelled_as_ever(killed: Killed) -> None:
    if killed.now_ms > killed.later.due_ms:
        killed.again.step()
        assert killed.again.cancel(killed.later.handle) == "delivered"
    else:
        assert killed.again.cancel(killed.later.handle) == "done"
        killed.again.advance_to(T0 + 700_000)
        assert received(killed.again) == ["handed"]


def test_what_is_new_since_the_restart_is_cancelled_as_ever(killed: Killed) -> None:
    # Due before the bound, where the clock was set back; but nobody can have had it.
    fresh = killed.again.schedule("t", b"fresh", delay=0.5, id="fresh")
    assert killed.again.cancel(fresh.handle) == "done"


def test_to_discard_what_was_handed_out_settles_it(killed: Killed) -> None:
    # lmstfy's acknowledgement is a deletion: a consumer that had the message before the crash gives it now.
    seq, due_ms = killed.handed.seq, killed.handed.due_ms
    assert killed.again.call(DiscardMessage("t", "g", seq, due_ms)) is True
    killed.again.advance_to(max(killed.now_ms, T0 + 1_000))
    assert received(killed.again) in ([], ["later"])


def test_a_second_crash_does_not_forget_the_first(killed: Killed, tmp_path: Path) -> None:
    # Nothing was handed out again in between, so the second run's own bound alone would not cover it.
    twice = shutil.copytree(killed.data, tmp_path / "twice")
    last = broker_on(twice, killed.now_ms)
    assert last.cancel(killed.handed.handle) == "delivered"
    last.close()


def test_a_clean_stop_leaves_no_doubt(tmp_path: Path) -> None:
    first = broker_on(tmp_path / "data", ahead_ms=5_000)
    first.schedule("t", b"handed", delay=1, id="handed")
    soon = first.schedule("t", b"soon", delay=3, id="soon")
    first.advance(1)
    assert first.receive("t", "g").num_rows == 1
    first.close()
    again = broker_on(tmp_path / "data", T0 + 1_000)
    assert again.cancel(soon.handle) == "done"
    again.close()


def test_a_job_is_cancelled_but_for_what_was_handed_out(killed: Killed, tmp_path: Path) -> None:
    data = tmp_path / "job"
    before = broker_on(data)
    due_ms = [T0 + 1_000] * 3 + [T0 + 500_000] * 5
    rows = {"topic": ["t"] * 8, "due_ms": due_ms, "id": [f"j{i}" for i in range(8)], "body": [b"x"] * 8}
    bulk = before.components.bulk
    number = bulk.begin("job").number
    bulk.commit(number, *bulk.stage(number, [pa.record_batch(rows)]))
    before.step()
    before.clock.advance_ms(1_000)
    assert hand_out(before) == ["j0", "j1", "j2"]
    again = broker_on(shutil.copytree(data, tmp_path / "job-after"), killed.now_ms)
    again.clock.set_ms(min(killed.now_ms, T0 + 1_000))
    cancelled = again.cancel_job("job")
    assert (cancelled.outcome, cancelled.cancelled) == ("done", 5)
    again.advance_to(T0 + 600_000)
    assert received(again) == ["j0", "j1", "j2"]
    assert [(entry.pending, entry.ready) for entry in again.pending()] == [(0, 3)]
    for broker in (before, again):
        broker.close()


def test_a_series_goes_on_after_a_crash_amid_its_hand_out(tmp_path: Path) -> None:
    before = broker_on(tmp_path / "before")
    before.schedule("t", b"tick", delay=1, repeat={"every": "1m"})
    before.step()
    before.clock.advance_ms(1_000)
    before.components.loader.step()
    before.components.dispatcher.step()
    before.components.series.step()
    assert before.receive("t", "g").num_rows == 1
    again = broker_on(shutil.copytree(tmp_path / "before", tmp_path / "after"), T0 + 1_000)
    again.step()
    assert again.receive("t", "g").num_rows == 1, "the occurrence that was not acknowledged"
    again.advance(60)
    assert again.receive("t", "g").num_rows == 1, "the next one"
    for broker in (before, again):
        broker.close()


def test_the_bound_runs_ahead_and_covers_what_is_handed_out(tmp_path: Path) -> None:
    before = broker_on(tmp_path / "before", ahead_ms=5_000)
    receipts = [before.schedule("t", b"x", delay=delay) for delay in (1, 4, 30)]
    before.step()
    before.clock.advance_ms(1_000)
    hand_out(before)  # moves the bound to five seconds from now
    before.clock.advance_ms(3_000)
    assert len(hand_out(before, group="h")) == 2
    again = broker_on(shutil.copytree(tmp_path / "before", tmp_path / "after"), T0)
    assert [again.cancel(receipt.handle) for receipt in receipts] == ["delivered", "delivered", "done"]
    for broker in (before, again):
        broker.close()


def fail(file: FaultyOverwriteFile, at: int, content: bytes) -> None:
    raise OSError(errno.EIO, "injected")


def test_nothing_is_handed_out_before_the_bound_is_durable(tmp_path: Path) -> None:
    broker = broker_on(tmp_path / "data")
    broker.schedule("t", b"x", delay=1)
    broker.step()
    broker.clock.advance_ms(1_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyOverwriteFile, "write", fail)
        with pytest.raises(OSError, match="injected"):
            broker.components.dispatcher.step()
        assert broker.receive("t", "g").num_rows == 0
    broker.step()
    assert broker.receive("t", "g").num_rows == 1
    broker.close()


def test_a_directory_from_before_the_bound_goes_by_the_clock(tmp_path: Path) -> None:
    both = Killed(tmp_path, "goes on")
    both.again.close()
    data = shutil.copytree(tmp_path / "before", tmp_path / "old")
    (data / FILE).unlink()
    old = broker_on(data, both.now_ms)
    assert old.cancel(both.handed.handle) == "delivered"
    assert old.cancel(both.later.handle) == "done"
    old.close()
    both.close()
