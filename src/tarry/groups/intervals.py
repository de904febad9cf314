"""A set of integers as disjoint half-open intervals: the offsets that a group has acknowledged."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from tarry.base.types import Int64s, Mask


def runs(values: Int64s) -> list[tuple[int, int]]:
    """Ascending distinct integers as intervals ``[first, end)``."""
    if not len(values):
        return []
    first, last = int(values[0]), int(values[-1])
    if last - first == len(values) - 1:  # as nearly always
        return [(first, last + 1)]
    cuts = np.flatnonzero(np.diff(values) != 1) + 1
    firsts = values[np.concatenate([[0], cuts])]
    ends = values[np.concatenate([cuts - 1, [len(values) - 1]])] + 1
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


class Intervals:
    """Grows by union. Most acknowledgements extend the first interval, so the lists stay short."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._end: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(list(self._first), list(self._end), strict=True)

    def __len__(self) -> int:
        return len(self._first)

    def add(self, first: int, end: int) -> None:
        """Add ``first … end-1``; what is there already may overlap."""
        low = bisect_left(self._end, first)
        high = bisect_right(self._first, end)
        if low < high:
            first, end = min(first, self._first[low]), max(end, self._end[high - 1])
        self._first[low:high] = [first]
        self._end[low:high] = [end]

    def clear(self) -> None:
        """Be empty."""
        self._first.clear()
        self._end.clear()

    def drop_below(self, floor: int) -> int:
        """Forget what is below ``floor``, and the interval that ``floor`` lies in, if there is one.

        Returns:
            The lowest integer from ``floor`` on that is not in the set.
        """
        while self._first and self._first[0] <= floor:
            floor = max(floor, self._end.pop(0))
            self._first.pop(0)
        return floor

    def count(self, first: int, end: int) -> int:
        """Return how many of ``first … end-1`` are in the set."""
        return sum(max(0, min(e, end) - max(f, first)) for f, e in zip(self._first, self._end, strict=True))

    def mask(self, values: Int64s) -> Mask:
        """Return which of ``values`` are in the set."""
        at = np.searchsorted(np.array(self._first, np.int64), values, "right") - 1
        ends = np.array([*self._end, 0], np.int64)
        mask: Mask = (at >= 0) & (values < ends[at])
        return mask
