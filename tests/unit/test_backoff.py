"""Pauses that double, have an end, and begin anew."""

from __future__ import annotations

from tarry.base.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_after_a_success_they_begin_anew() -> None:
    backoff = Backoff(0.5)
    assert [backoff.next_s() for _ in range(3)] == [0.5, 1.0, 2.0]
    backoff.reset()
    assert backoff.next_s() == 0.5
