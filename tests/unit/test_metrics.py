"""The histogram against sorted lists."""

from __future__ import annotations

import json
import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.histogram import RELATIVE_ERROR, Durations, Histogram

INT64_MAX = 2**63 - 1
# Around powers of two is where buckets begin and end, and where the float that finds the bit length rounds.
edges = st.integers(0, 62).flatmap(lambda bit: st.integers(max(0, 2**bit - 3), 2**bit + 3))
values = st.one_of(st.integers(0, 300), edges, st.integers(0, INT64_MAX), st.just(INT64_MAX))


@given(st.lists(values, min_size=1, max_size=200), st.floats(0, 100))
def test_a_percentile_is_that_of_the_sorted_values_within_the_documented_error(
    sample: list[int], percent: float
) -> None:
    histogram = Histogram()
    histogram.record(np.array(sample, np.int64))
    true = sorted(sample)[max(1, math.ceil(percent / 100 * len(sample))) - 1]
    found = histogram.percentile(percent)
    assert found is not None
    assert true <= found <= true + math.ceil(true * RELATIVE_ERROR)


@given(st.lists(values, max_size=60), st.lists(values, max_size=60))
def test_merging_is_the_same_as_recording_all_in_one(one: list[int], other: list[int]) -> None:
    left, right, whole = Histogram(), Histogram(), Histogram()
    left.record(one)
    right.record(other)
    whole.record(one + other)
    left.merge(right)
    assert left.to_json() == whole.to_json()
    assert left.total == sum(one) + sum(other)


@given(st.lists(st.integers(-(2**63), INT64_MAX), max_size=60))
def test_it_survives_json(sample: list[int]) -> None:
    histogram = Histogram()
    histogram.record(sample)
    again = Histogram.from_json(json.loads(json.dumps(histogram.to_json())))
    assert again.to_json() == histogram.to_json()
    assert again.summary() == histogram.summary()


@given(st.lists(st.integers(0, 127), min_size=1))
def test_small_values_are_exact(sample: list[int]) -> None:
    histogram = Histogram()
    for value in sample:
        histogram.record(value)
    assert histogram.percentile(100) == max(sample)
    assert histogram.percentile(0) == min(sample)
    assert histogram.percentile(50) == sorted(sample)[math.ceil(len(sample) / 2) - 1]


def test_empty() -> None:
    histogram = Histogram()
    histogram.record(np.empty(0, np.int64))
    assert histogram.summary() == {
        "count": 0, "mean": None, "p50": None, "p99": None, "p99.9": None, "min": None, "max": None,
    }  # fmt: skip


def test_a_negative_value_shows_in_the_minimum() -> None:
    histogram = Histogram()
    histogram.record([5, -3])
    assert histogram.min == -3
    assert histogram.summary()["count"] == 2


@pytest.mark.parametrize("percent", [-1, 100.1, math.nan])
def test_a_percentile_outside_0_to_100_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        Histogram().percentile(percent)


def test_threads_lose_no_count() -> None:
    histogram = Histogram()

    def work() -> None:
        for _ in range(200):
            histogram.record([1, 1000])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.count == 1600


@given(st.lists(st.integers(0, 100_000), max_size=60), st.lists(st.integers(0, 120_000), min_size=1, max_size=8))
def test_how_many_are_below_a_bound(sample: list[int], bounds: list[int]) -> None:
    """Never more than there are; exact where no bucket is cut."""
    histogram = Histogram()
    histogram.record(sample)
    for bound, count in zip(bounds, histogram.counts_below(bounds), strict=True):
        assert sum(v < bound * (1 - 1 / 64) - 1 for v in sample) <= count <= sum(v < bound for v in sample)
        if bound <= 128 or (bound <= 1024 and bound % 8 == 0):
            assert count == sum(v < bound for v in sample)


def test_durations_are_counted_when_somebody_asks_or_when_they_are_many() -> None:
    durations = Durations()
    for value in range(2000):
        durations.note(value)
    found = durations.histogram()
    assert (found.count, found.min, found.max, found.total) == (2000, 0, 1999, sum(range(2000)))
    assert durations.histogram().count == 2000


def test_durations_of_many_threads_are_all_counted() -> None:
    durations = Durations()
    threads = [threading.Thread(target=lambda: [durations.note(1) for _ in range(5000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert durations.histogram().count == 20_000


@given(st.integers(-(2**40), 2**40), st.lists(st.integers(0, 70_000), min_size=1100, max_size=1300))
def test_many_values_are_counted_as_few_are(low: int, above: list[int]) -> None:
    at_once, one_by_one = Histogram(), Histogram()
    sample = np.array(above, np.int64) + low
    at_once.record(sample)
    for part in np.array_split(sample, 3):
        one_by_one.record(part)
    assert at_once.to_json() == one_by_one.to_json()


@given(st.lists(values, max_size=50), st.lists(values, max_size=50))
def test_what_was_counted_since(before: list[int], later: list[int]) -> None:
    histogram = Histogram()
    histogram.record(before)
    then = histogram.copy()
    histogram.record(later)
    alone = Histogram()
    alone.record(later)
    found = histogram.since(then)
    assert (found.count, found.total) == (alone.count, alone.total)
    assert found.to_json()["counts"] == alone.to_json()["counts"]
    for p in (0, 50, 99, 100) if later else ():
        assert abs(found.percentile(p) - alone.percentile(p)) <= alone.percentile(p) * RELATIVE_ERROR + 1
    other = Histogram()
    other.record([*later, *later, 7])
    assert histogram.since(other).count <= histogram.count
