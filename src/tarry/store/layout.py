"""Buckets: spans of due time that share a file. They are a timing wheel's levels, on disk.

Buckets are wider the farther away they are. Within the next hour a bucket is 10 minutes, within the day an hour, within
the month a day, then a calendar month. A label tells its width by its prefix::

    10m-20261121T1410   14:10:00.000 to 14:19:59.999
    1h-20261121T14      1d-20261121      1mo-202611      all

:func:`cut` divides the sorted due times of one task; neighbours that are too small for a file of their own are put
together, and the label is then the smallest bucket that holds all of the slice. All times are UTC.
"""

from __future__ import annotations

import numpy as np

from tarry.base.types import Int64s

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ALL = "all"
CANCELLED = "cancelled"
"""The bucket of cancellations, whatever their due time."""

_TEN_MINUTES_MS = 10 * MINUTE_MS
_MONTH_MS = 31 * DAY_MS
_LEVELS = ((HOUR_MS, _TEN_MINUTES_MS), (DAY_MS, HOUR_MS), (_MONTH_MS, DAY_MS), (None, None))
"""Up to which distance a bucket is how wide; behind the last, a calendar month."""
_YEAR_10000_MS = 253_402_300_800_000
"""No calendar that readers share reaches further; what lies outside goes to ``all``."""


def label(due_min_ms: int, due_max_ms: int) -> str:
    """Return the smallest standard bucket that holds both instants and all between."""
    if not (is_on_calendar(due_min_ms) and is_on_calendar(due_max_ms)):
        return ALL
    first, last = (np.datetime64(ms, "ms") for ms in (due_min_ms, due_max_ms))
    text = np.datetime_as_string(first, unit="m").replace("-", "").replace(":", "")
    if due_min_ms // _TEN_MINUTES_MS == due_max_ms // _TEN_MINUTES_MS:
        return f"10m-{text[:12]}0"
    if due_min_ms // HOUR_MS == due_max_ms // HOUR_MS:
        return f"1h-{text[:11]}"
    if due_min_ms // DAY_MS == due_max_ms // DAY_MS:
        return f"1d-{text[:8]}"
    if first.astype("datetime64[M]") == last.astype("datetime64[M]"):
        return f"1mo-{text[:6]}"
    return ALL


def is_on_calendar(due_ms: int) -> bool:
    """Return whether all readers have a date for it: from 1970 to 9999."""
    return 0 <= due_ms < _YEAR_10000_MS


def cut(due_ms: Int64s, now_ms: int, *, rows_min: int, slices_max: int) -> list[tuple[int, int]]:
    """Divide ascending ``due_ms`` into at most ``slices_max`` slices [start, stop).

    Each has at least ``rows_min`` rows (all, if there are fewer).
    """
    rows = len(due_ms)
    if rows == 0:
        return []
    least = max(rows_min, -(-rows // slices_max))
    stops = []
    start = 0
    for stop in [*bucket_starts(due_ms, now_ms), rows]:
        if stop - start >= least:
            stops.append(stop)
            start = stop
    # The rest is too small to stand alone: it joins the slice before it.
    stops = [*stops[:-1], rows] if stops else [rows]
    return list(zip([0, *stops], stops, strict=False))


def bucket_starts(due_ms: Int64s, now_ms: int, *, reach: int = 1) -> list[int]:
    """Return the indexes of ascending ``due_ms`` at which another bucket begins.

    ``reach`` widens all distances: rows that are rewritten as they come near are cut as fine as they will have to be
    soon, so that they are cut once.
    """
    starts: list[int] = []
    low = 0
    for distance_ms, width_ms in _LEVELS:
        high = len(due_ms) if distance_ms is None else int(np.searchsorted(due_ms, now_ms + reach * distance_ms))
        level = due_ms[low:high]
        if len(level) == 0:
            continue
        starts += [low, *(low + 1 + np.flatnonzero(np.diff(_number(level, width_ms)))).tolist()]
        low = high
    return starts[1:]


def buckets_between(due_min_ms: int, due_max_ms: int, now_ms: int) -> int:
    """Return how many buckets of an hour or more a file with these bounds lies in, as seen at ``now_ms``."""
    buckets, low = 0, due_min_ms
    for distance_ms, width_ms in ((DAY_MS, HOUR_MS), (_MONTH_MS, DAY_MS), (None, None)):
        high = due_max_ms if distance_ms is None else min(due_max_ms, now_ms + distance_ms - 1)
        if low > high:
            continue
        first, last = _number(np.array([low, high]), width_ms).tolist()
        buckets, low = buckets + last - first + 1, high + 1
    return int(buckets)


def _number(due_ms: Int64s, width_ms: int | None) -> Int64s:
    if width_ms is not None:
        return due_ms // width_ms
    return due_ms.astype("datetime64[ms]").astype("datetime64[M]").view(np.int64)


def cut_by_size(bytes_per_row: Int64s, *, rows_max: int, bytes_max: int) -> list[tuple[int, int]]:
    """Divide rows, in order, into runs of at most ``rows_max`` rows and ``bytes_max`` bytes.

    One row may be larger than that.
    """
    ends = np.cumsum(bytes_per_row)
    runs = []
    start, before = 0, 0
    while start < len(ends):
        by_bytes = int(np.searchsorted(ends, before + bytes_max, side="right"))
        stop = min(start + rows_max, max(by_bytes, start + 1), len(ends))
        runs.append((start, stop))
        start, before = stop, int(ends[stop - 1])
    return runs
