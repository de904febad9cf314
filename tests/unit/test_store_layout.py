"""Buckets: every row in exactly one slice, files bounded, labels that hold what they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.store.layout import DAY_MS, HOUR_MS, MINUTE_MS, cut, cut_by_size, label


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW_MS = ms("2026-11-21T14:07:30")


def label_of(due: np.ndarray, part: tuple[int, int]) -> str:
    """The bucket of a file of these rows."""
    return label(int(due[part[0]]), int(due[part[1] - 1]))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("2026-11-21T14:10:00", "2026-11-21T14:19:59.999", "10m-20261121T1410"),
        ("2026-11-21T14:09:59.999", "2026-11-21T14:10:00", "1h-20261121T14"),
        ("2026-11-21T14:59:59.999", "2026-11-21T15:00:00", "1d-20261121"),
        ("2026-11-21T23:59:59.999", "2026-11-22T00:00:00", "1mo-202611"),
        ("2026-11-30T23:59:59.999", "2026-12-01T00:00:00", "all"),
        ("2028-02-29T00:00:00", "2028-02-29T00:00:00", "10m-20280229T0000"),
    ],
)
def test_label_is_the_smallest_bucket_that_holds_both(first: str, last: str, expected: str) -> None:
    assert label(ms(first), ms(last)) == expected


@pytest.mark.parametrize("due_ms", [-1, -(2**62), ms("9999-12-31T23:59:59") + 1000, 2**62])
def test_what_no_calendar_holds_goes_to_all(due_ms: int) -> None:
    assert label(due_ms, due_ms) == "all"
    assert cut(np.array([due_ms]), NOW_MS, rows_min=1, slices_max=4) == [(0, 1)]


def test_buckets_widen_with_distance() -> None:
    minutes, hours, days = (np.array(n) for n in ([1, 20], [2, 3], [2, 3, 60, 61, 400]))
    distances = [*(minutes * MINUTE_MS), *(hours * HOUR_MS), *(days * DAY_MS)]
    due = np.array([NOW_MS + d for d in distances])
    slices = cut(due, NOW_MS, rows_min=1, slices_max=100)
    assert [stop - start for start, stop in slices] == [1, 1, 1, 1, 1, 1, 2, 1]
    # The label says what is in the file, not which level cut it: one row fits the narrowest bucket.
    assert label_of(due, slices[0]) == "10m-20261121T1400"
    assert label_of(due, slices[6]) == "1mo-202701"


def test_small_neighbours_share_a_file() -> None:
    due = NOW_MS + np.arange(0, 60 * DAY_MS, 10 * MINUTE_MS)
    slices = cut(due, NOW_MS, rows_min=1, slices_max=16)
    assert len(slices) <= 16
    assert min(stop - start for start, stop in slices) >= len(due) // 16
    assert len(cut(due, NOW_MS, rows_min=len(due), slices_max=16)) == 1
    assert cut(due[:0], NOW_MS, rows_min=1, slices_max=16) == []


WIDTH = {"10m": timedelta(minutes=10), "1h": timedelta(hours=1), "1d": timedelta(days=1)}


def span(bucket: str) -> tuple[datetime, datetime]:
    """What a reader of labels would compute."""
    width, _, text = bucket.partition("-")
    forms = {"10m": "%Y%m%dT%H%M", "1h": "%Y%m%dT%H", "1d": "%Y%m%d", "1mo": "%Y%m"}
    start = datetime.strptime(text, forms[width]).replace(tzinfo=UTC)
    return start, start + WIDTH[width] if width in WIDTH else (start + timedelta(days=31)).replace(day=1)


@given(
    st.lists(st.integers(NOW_MS - DAY_MS, NOW_MS + 500 * DAY_MS), min_size=1, max_size=200),
    st.integers(1, 20),
    st.integers(1, 16),
)
def test_pieces_tile_the_rows(values: list[int], rows_min: int, slices_max: int) -> None:
    due = np.sort(np.array(values))
    slices = cut(due, NOW_MS, rows_min=rows_min, slices_max=slices_max)
    assert 1 <= len(slices) <= slices_max
    assert [i for start, stop in slices for i in range(start, stop)] == list(range(len(due)))
    for start, stop in slices:
        assert stop - start >= min(rows_min, len(due))
        if (bucket := label_of(due, (start, stop))) != "all":
            first, end = span(bucket)
            assert first.timestamp() * 1000 <= due[start] <= due[stop - 1] < end.timestamp() * 1000


@given(st.lists(st.integers(0, 50), max_size=100), st.integers(1, 10), st.integers(1, 100))
def test_cut_by_size(sizes: list[int], rows_max: int, bytes_max: int) -> None:
    runs = cut_by_size(np.array(sizes, np.int64), rows_max=rows_max, bytes_max=bytes_max)
    assert [i for start, stop in runs for i in range(start, stop)] == list(range(len(sizes)))
    for start, stop in runs:
        assert 1 <= stop - start <= rows_max
        assert stop - start == 1 or sum(sizes[start:stop]) <= bytes_max
