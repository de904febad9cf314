"""Threads that share a core: one core for those that pass small batches on, all for bulk; nothing without it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from tarry.base.placement import ANY_CORE, SharedCore

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is one core, or no way to ask",
)


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


def test_a_part_that_was_handed_nothing_leaves_threads_alone() -> None:
    before = os.sched_getaffinity(0)
    assert cores_after(ANY_CORE.together, ANY_CORE.apart) == [before, before]


def test_threads_move_to_one_core_and_back_and_others_stay() -> None:
    before = os.sched_getaffinity(0)
    placement = SharedCore()
    core = {max(before)}
    assert cores_after(placement.together, placement.apart, placement.together) == [core, before, core]
    assert os.sched_getaffinity(0) == before
