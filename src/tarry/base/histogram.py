"""A histogram that keeps percentiles of any number of values in 30 KB.

It is log-linear: up to 127 every value has its own bucket; above, each power of two is cut into 64 buckets,
so that a bucket is never wider than 1/64 of the values in it.

    value          0 … 127   128 … 255   256 … 511   512 … 1023   …   up to 2**63 - 1
    bucket width   1         2           4           8
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tarry.base.types import Int64s

_SUB_BITS = 6
_SUB = 1 << _SUB_BITS
_BUCKETS = (63 - _SUB_BITS) * _SUB + _SUB

RELATIVE_ERROR = 1 / _SUB
"""Most that :meth:`Histogram.percentile` is above the true value, relative to it; it is never below."""

PERCENTILES = (50.0, 99.0, 99.9)
_WAITING_MAX = 512
_FEW, _SPAN = 1024, 1 << 16


class Durations:
    """Values that come singly and often: each is appended, and a histogram is made of many at once."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._histogram = Histogram()

    def note(self, value: int) -> None:
        """Record another value."""
        self._waiting.append(value)
        if len(self._waiting) >= _WAITING_MAX:
            self.histogram()

    def histogram(self) -> Histogram:
        """Return the histogram of all values until now."""
        # Appending and popping are atomic; another thread may pop what we counted on.
        values = []
        with suppress(IndexError):
            while True:
                values.append(self._waiting.popleft())
        self._histogram.record(values)
        return self._histogram


class Histogram:
    """Values as counts in buckets: recorded many at a time, merged, read as percentiles. Thread-safe.

    The values are integers of any one unit. Negative ones count in the lowest bucket and show in :attr:`min`: a
    lateness that is negative is a broken promise, and must not vanish.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Int64s = np.zeros(_BUCKETS, np.int64)
        self.count = 0
        self.total = 0
        self.min: int | None = None
        self.max: int | None = None

    def record(self, values: Int64s | Sequence[int] | int) -> None:
        """Count each of ``values``."""
        array: Int64s = np.atleast_1d(np.asarray(values, np.int64))
        if not array.size:
            return
        low, high = int(array.min()), int(array.max())
        if array.size > _FEW and high - low < _SPAN:
            # Many values of few kinds, as a herd's are: which bucket each kind is in has to be found out only once.
            rows = np.bincount(array - low)
            kinds = np.flatnonzero(rows)
            counts = np.zeros(_BUCKETS, np.int64)
            np.add.at(counts, _buckets(kinds + low), rows[kinds])
            total = array.size * low + int(np.dot(rows, np.arange(len(rows))))
        else:
            counts, total = np.bincount(_buckets(array)), _exact_sum(array)
        with self._lock:
            self._counts[: len(counts)] += counts
            self._widen(low, high)
            self.count += array.size
            self.total += total

    def percentile(self, percent: float) -> int | None:
        """Return the least value, rounded up to its bucket's end, that ``percent`` of values do not exceed.

        None when empty.

        Raises:
            ValueError: ``percent`` is not within 0 to 100.
        """
        return self.percentiles([percent])[0]

    def percentiles(self, percents: Sequence[float]) -> list[int | None]:
        """:meth:`percentile` for several at one moment."""
        if not all(0 <= p <= 100 for p in percents):
            raise ValueError(f"percentiles {list(percents)}; allowed: 0 to 100")
        with self._lock:
            if not self.count or self.min is None or self.max is None:
                return [None] * len(percents)
            ranks = [max(1, int(np.ceil(p / 100 * self.count))) for p in percents]
            buckets = np.searchsorted(np.cumsum(self._counts), ranks)
            return [min(max(_bucket_end(int(b)), self.min), self.max) for b in buckets]

    def counts_below(self, bounds: Sequence[int]) -> list[int]:
        """Count the values below each of ``bounds``, without those in a bucket that a bound cuts."""
        with self._lock:
            sums = np.concatenate([[0], np.cumsum(self._counts)])
        return [int(sums[np.searchsorted(_ENDS, bound, "left")]) for bound in bounds]

    def merge(self, other: Histogram) -> None:
        """Count all that ``other`` has counted."""
        # A copy first: holding both locks could deadlock with a merge the other way round.
        others = other.copy()
        with self._lock:
            self._counts += others._counts  # noqa: SLF001 - another of this class
            if others.min is not None and others.max is not None:
                self._widen(others.min, others.max)
            self.count += others.count
            self.total += others.total

    def copy(self) -> Histogram:
        """Return a copy, which later values do not change."""
        twin = Histogram()
        with self._lock:
            twin._counts = self._counts.copy()
            twin.count, twin.total, twin.min, twin.max = self.count, self.total, self.min, self.max
        return twin

    def since(self, before: Histogram) -> Histogram:
        """Return what was counted after ``before``, an earlier state of this histogram.

        It is all of it if ``before`` is of another one (the counting process has begun anew). Minimum and maximum are
        as exact as buckets are.
        """
        now, then = self.copy(), before.copy()
        counts = now._counts - then._counts  # noqa: SLF001 - another of this class
        if (counts < 0).any():
            return now
        now._counts, now.count, now.total = counts, now.count - then.count, now.total - then.total  # noqa: SLF001
        used = np.flatnonzero(counts)
        now.min, now.max = (int(_ENDS[used[0]]), int(_ENDS[used[-1]])) if len(used) else (None, None)
        return now

    def summary(self) -> dict[str, float | int | None]:
        """Count, mean, the usual percentiles, minimum and maximum, as plain data."""
        now = self.copy()
        percentiles = dict(zip((f"p{p:g}" for p in PERCENTILES), now.percentiles(PERCENTILES), strict=True))
        mean = round(now.total / now.count, 3) if now.count else None
        return {"count": now.count, "mean": mean, **percentiles, "min": now.min, "max": now.max}

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain data; :meth:`from_json` is its inverse. Empty buckets are left out."""
        now = self.copy()
        used = np.flatnonzero(now._counts)  # noqa: SLF001 - another of this class
        return {
            "count": now.count,
            "total": now.total,
            "min": now.min,
            "max": now.max,
            "buckets": used.tolist(),
            "counts": now._counts[used].tolist(),  # noqa: SLF001 - another of this class
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Histogram.from_json, (self.to_json(),)  # a lock does not travel to another process

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """Return the histogram that :meth:`to_json` described."""
        histogram = cls()
        histogram._counts[np.asarray(data["buckets"], np.int64)] = data["counts"]
        histogram.count, histogram.total = data["count"], data["total"]
        histogram.min, histogram.max = data["min"], data["max"]
        return histogram

    def _widen(self, low: int, high: int) -> None:
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)


def _buckets(values: Int64s) -> Int64s:
    values = np.maximum(values, 0)
    # frexp gives the bit length. Above 2**53 a value just below a power of two is rounded up to it; the bucket stays
    # the same, since (shift + 1, 63) and (shift, 127) are one bucket.
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(bits - (_SUB_BITS + 1), 0)
    return np.asarray(shift * _SUB + (values >> shift), np.int64)


def _bucket_end(bucket: int) -> int:
    """Return the greatest value that falls into ``bucket``."""
    shift = max(0, bucket // _SUB - 1)
    return ((bucket - shift * _SUB + 1) << shift) - 1


_ENDS = np.array([_bucket_end(bucket) for bucket in range(_BUCKETS)], np.int64)
"""The greatest value of each bucket."""


def _exact_sum(values: Int64s) -> int:
    # The sum of int64s may pass int64; two halves of 32 bits each cannot, for fewer than 2**31 values.
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
