"""Intervals against a set."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.groups.intervals import Intervals, runs

OFFSETS = st.integers(0, 60)
STEPS = st.lists(st.one_of(st.tuples(OFFSETS, st.integers(1, 20)), st.tuples(OFFSETS)), max_size=40)


@given(STEPS)
def test_intervals_are_a_set(steps: list[tuple[int, ...]]) -> None:
    intervals, model = Intervals(), set[int]()
    for step in steps:
        if len(step) == 2:
            intervals.add(step[0], step[0] + step[1])
            model |= set(range(step[0], step[0] + step[1]))
        else:
            floor = intervals.drop_below(step[0])
            expected = step[0]
            while expected in model:
                expected += 1
            assert floor == expected
            model = {i for i in model if i >= floor}
            # What lay below the floor is forgotten as well.
            assert all(first > floor for first, _ in intervals)
        assert {i for first, end in intervals for i in range(first, end)} >= model
        assert [i for i in model if not intervals.mask(np.array([i]))[0]] == []
        pairs = list(intervals)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(pairs)), "disjoint, and joined where they touch"
        values = np.arange(100)
        mine = intervals.mask(values)
        assert {int(v) for v in values[mine]} == {i for first, end in pairs for i in range(first, end)}
        assert len(intervals) == len(pairs)


@given(st.sets(OFFSETS))
def test_runs(values: set[int]) -> None:
    found = runs(np.array(sorted(values), np.int64))
    assert {i for first, end in found for i in range(first, end)} == values
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found))
