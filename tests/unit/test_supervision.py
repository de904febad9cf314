"""Pauses that grow while something fails, and what keeps something running with them."""

from __future__ import annotations

import math
import signal
import threading
from types import SimpleNamespace

import pytest

from tarry.base import back_off
from tarry.base.back_off import BackOff
from tarry.base.supervision import end_of_process, keep_running


class StoppedByTheWaits(threading.Event):
    """It is set after so many waits, none of which takes time."""

    def __init__(self, waits_max: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._waits_max = waits_max

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        if len(self.waits) == self._waits_max:
            self.set()
        return self.is_set()


def test_pauses_grow_to_the_longest() -> None:
    pauses = BackOff(1, 5)
    assert [pauses.fail() for _ in range(5)] == [1, 2, 4, 5, 5]
    pauses.reset()
    assert [pauses.fail() for _ in range(2)] == [1, 2]
    assert [pauses.lengthen(), pauses.fail()] == [5, 5]
    endless = BackOff(1, math.inf)
    assert [endless.fail() for _ in range(11)][-1] == 1024


def test_a_healthy_run_ends_the_series_of_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(back_off, "time", SimpleNamespace(monotonic=lambda: now_s))
    pauses, stopping = BackOff(1, 8, healthy_s=100), StoppedByTheWaits(7)
    lasting_s = iter([1, 1, 1, 1, 99, 100, 1])

    def run() -> str:
        nonlocal now_s
        pauses.begin()
        now_s += next(lasting_s)
        return "ended"

    keep_running(run, lambda _: pauses.fail(), stopping)
    assert stopping.waits == [1, 2, 4, 8, 8, 1, 2]


def test_without_a_beginning_nothing_is_healthy() -> None:
    pauses = BackOff(1, 8, healthy_s=0)
    assert not pauses.is_healthy()
    pauses.begin()
    assert pauses.is_healthy()


def test_what_ends_well_is_begun_again_at_once() -> None:
    ends: list[str | None] = [None, "a", None, "b"]
    told: list[str] = []
    stopping = StoppedByTheWaits(2)

    def on_failure(failure: str) -> float:
        told.append(failure)
        return len(told)

    keep_running(lambda: ends.pop(0), on_failure, stopping)
    assert (told, stopping.waits, ends) == (["a", "b"], [1, 2], [])


def test_a_failure_while_stopping_is_not_told() -> None:
    stopping = threading.Event()

    def run() -> str:
        stopping.set()
        return "stopped"

    keep_running(run, lambda _: pytest.fail("told"), stopping)


def test_what_cannot_be_helped_ends_it() -> None:
    def on_failure(failure: Exception) -> float:
        raise failure

    with pytest.raises(KeyError):
        keep_running(lambda: KeyError("x"), on_failure, threading.Event())


def test_how_a_process_ended() -> None:
    assert end_of_process(0) == "exit code 0"
    assert end_of_process(78) == "exit code 78"
    assert end_of_process(-signal.SIGKILL) == "killed by SIGKILL"
    assert end_of_process(-40) == "killed by signal 40"
