"""The dispatcher's consistent cut: when progress may be made durable, and when the former one must stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.test_wheel_loader import NOW, FakeStore, Rig

from tarry.base.types import NEVER_MS, Key
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.hand_out_bound import FileBound
from tarry.broker.series import Series
from tarry.intake import Command
from tarry.log.file_engine import FileLog
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.queue import ReadyLog
from tarry.wheel import Wheel


def no_series(wheel: Wheel, ready: ReadyLog) -> Series:
    """Recurring messages, of which these tests have none."""

    def submit(command: Command) -> None:
        raise AssertionError(f"{command} was submitted")

    return Series(wheel, ready, submit, missed_after_ms=60_000, threaded=False)


class Box(Rig):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "intake", FakeStore(), horizon_ms=10_000)
        self.ready = ReadyLog(
            FileLog(OsFiles(), directory / "ready", LogKind.READY),
            OsFiles(),
            segment_bytes_max=1 << 20,
            cache_bytes_max=0,
        )
        series = no_series(self.wheel, self.ready)
        self.bound = FileBound(OsFiles(), directory, NOW, is_new=True, ahead_ms=0)
        self.dispatcher = Dispatcher(self.wheel, self.intake, self.ready, self.loader, series, self.clock, self.bound)
        self.loader.step()

    def step(self) -> None:
        self.loader.step()
        while self.dispatcher.step():
            pass


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()
    made.ready.close()
    made.bound.close(is_durable=False)


def test_what_is_due_is_in_the_cut(box: Box) -> None:
    box.arrive(NOW - 10, NOW, NOW + 1)
    progress = box.dispatcher.progress()
    assert progress is not None
    assert (progress.fired_until_ms, progress.fired_seq) == (NOW + 1, 3)
    assert progress.accepted == {"a": 3}
    assert progress.offsets == {"a": 2}
    place, ticket = progress.ready, progress.ticket
    box.ready.sync(ticket)
    assert [b["seq"].to_pylist() for b in box.ready.rows_after(0, 0)] == [[0, 1]]
    box.clock.advance_ms(1)
    box.step()
    box.ready.flush()
    assert [b["seq"].to_pylist() for b in box.ready.rows_after(*place)] == [[2]], "and nothing else is behind it"


def test_a_late_arrival_is_handed_over_before_the_cut(box: Box) -> None:
    box.arrive(NOW)
    box.step()
    box.arrive(NOW - 100)
    progress = box.dispatcher.progress()
    assert progress is not None
    assert progress.offsets == {"a": 2}


def test_no_cut_while_the_clock_is_behind_what_has_fired(box: Box) -> None:
    box.arrive(NOW)
    box.step()
    box.clock.advance_ms(-500)
    box.arrive(NOW - 100)
    assert box.dispatcher.progress() is None, "it is pending, and below what has fired"
    box.clock.advance_ms(401)
    progress = box.dispatcher.progress()
    assert progress is not None
    assert (progress.fired_until_ms, progress.offsets) == (NOW + 1, {"a": 2})


def test_no_cut_while_the_loader_is_behind(box: Box) -> None:
    box.arrive(NOW)
    box.step()
    with box.wheel.lock:
        box.wheel.safe = Key(NOW, 7)
    assert box.dispatcher.progress() is None, "of this millisecond there may be more to come"
    with box.wheel.lock:
        box.wheel.safe = box.wheel.loaded
    assert box.dispatcher.progress() is not None


def test_a_cut_in_the_middle_of_a_herd_waits_for_all_of_it(box: Box) -> None:
    box.arrive(*[NOW + 5] * 100)
    with box.wheel.lock:
        assert box.wheel.take_due(NOW + 5, 10) is not None
    assert box.dispatcher.progress() is None


class HeldBound(FileBound):
    """A bound of logs without a lease, as while their bucket is away; it is asked a few times."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def until_ms(self) -> int:
        self.asked += 1
        assert self.asked < 100, "the dispatcher turns on the spot"
        return NEVER_MS

    def cover(self, now_ms: int) -> None:
        """It cannot be moved."""


def test_what_is_due_and_may_not_be_handed_out_is_waited_for(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    class WaitedError(Exception):
        pass

    def wait(condition: object, timeout_s: float) -> None:
        raise WaitedError(timeout_s)

    box.arrive(NOW - 10)
    series = no_series(box.wheel, box.ready)
    dispatcher = Dispatcher(box.wheel, box.intake, box.ready, box.loader, series, box.clock, HeldBound())
    monkeypatch.setattr(box.clock, "wait", wait)
    with pytest.raises(WaitedError) as waited:
        dispatcher.run()
    assert 0 < waited.value.args[0] <= 0.01, "a takeover ends such a wait at any moment"
    assert box.wheel.next_fireable() == NOW - 10


def test_sooner_arrivals_are_known(box: Box) -> None:
    box.arrive(NOW + 9000)
    assert box.wheel.next_fireable() == NOW + 9000
    box.arrive(NOW + 5)
    assert box.wheel.next_fireable() == NOW + 5


def test_rows_from_the_store_are_counted_in_the_cut(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.close()
    box.store.keys = [Key(NOW + i, i) for i in range(5)]
    box.store.committed_seq = 5
    rig = Rig(tmp_path / "again", box.store)
    series = no_series(rig.wheel, box.ready)
    dispatcher = Dispatcher(rig.wheel, rig.intake, box.ready, rig.loader, series, rig.clock, box.bound)
    rig.loader.step()
    rig.arrive(NOW + 2)
    rig.clock.advance_ms(10)
    progress = dispatcher.progress()
    assert progress is not None
    assert (progress.stored_rows, progress.offsets["a"]) == (5, 6)
    rig.close()
    box.ready.close()
