"""Garbage of a serving process: all of it is collected when the process has grown, and not too often."""

from __future__ import annotations

import weakref

import pytest

from tarry.base.placement import GROWN_BYTES, GROWN_S, OLD_S, SHARE, Collector


class Cycle:
    """Garbage that the youngest generation alone does not have: it was looked at while it was in use."""

    def __init__(self) -> None:
        self.itself = self


def test_a_process_that_grows_has_all_of_its_garbage_collected() -> None:
    now_s, resident = [0.0], [100 << 20]
    collector = Collector(lambda: now_s[0], lambda: resident[0])
    cycle = Cycle()
    gone = weakref.ref(cycle)
    collector.collect()
    del cycle

    def after(seconds: float, grown: int) -> bool:
        now_s[0] += seconds
        resident[0] += grown
        collector.collect()
        return gone() is None

    assert not after(GROWN_S, 0)
    assert not after(GROWN_S, GROWN_BYTES)
    resident[0] += 1
    assert after(GROWN_S, 0) and collector.full == 1
    after(GROWN_S / 2, 2 * GROWN_BYTES)
    assert collector.full == 1
    after(GROWN_S / 2, 0)
    assert collector.full == 2
    after(OLD_S - 1, -GROWN_BYTES)
    after(GROWN_S / 2, 0)
    assert collector.full == 3


@pytest.mark.rest
def test_what_takes_long_is_done_less_often() -> None:
    now_s, resident = [0.0], [100 << 20]

    def slow() -> float:
        now_s[0] += 0.1
        return now_s[0]

    collector = Collector(slow, lambda: resident[0])
    for _ in range(1000):
        resident[0] += GROWN_BYTES + 1
        collector.collect()
    assert 1 < collector.full <= now_s[0] / (SHARE * 0.1)
