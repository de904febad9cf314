"""Threads that share a core: nothing before it is asked for, then one core, and back to all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from tarry.base import affinity

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is one core, or no way to ask",
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_everywhere", set())
    monkeypatch.setattr(affinity, "_shared", set())


def cores_after(*moves: Callable[[], None]) -> list[set[int]]:
    """Where a new thread may run after each move."""
    seen: list[set[int]] = []

    def run() -> None:
        for move in moves:
            move()
            seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return seen


def test_a_process_that_did_not_ask_is_left_alone() -> None:
    before = os.sched_getaffinity(0)
    assert cores_after(affinity.together, affinity.apart) == [before, before]


def test_threads_move_to_one_core_and_back_and_others_stay() -> None:
    before = os.sched_getaffinity(0)
    core = affinity.share_core()
    assert core in before
    assert cores_after(affinity.together, affinity.apart, affinity.together) == [{core}, before, {core}]
    assert os.sched_getaffinity(0) == before
