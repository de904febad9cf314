"""Next occurrence of a series, and treatment of those that downtime has missed.

Everything here is a function of the rule and of one occurrence (its due time and its number), so a series is wholly in
the row of its pending occurrence. Intervals are added to due times, not to the moments of delivery: a series does not
drift. Cost does not grow with what was missed: fixed intervals and cron are counted, growing ones end at their cap.

A moment is UTC milliseconds; occurrences are numbered from 1. With a spread, an occurrence is due at its time by the
rule plus what :func:`spread_ms` says, which follows from its number. So its time is known from its due time, and is
what the next one is computed from.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import NamedTuple

from tarry.base.delay import format_ms
from tarry.base.errors import InvalidArgumentError
from tarry.repeat.cron import firing, last_firing, next_firing
from tarry.repeat.rule import Repeat
from tarry.repeat.zones import LAST_MS


class Step(NamedTuple):
    """Treatment of an occurrence that was taken.

    ``next_due_ms`` and ``next_n`` are the occurrence to be scheduled next; None and 0: the series has ended.
    """

    deliver: bool
    next_due_ms: int | None
    next_n: int


def first_due(repeat: Repeat, due_ms: int) -> int:
    """Return the due time of the first occurrence.

    Its time is ``due_ms``, or with cron the first firing from then on; a spread comes on top.

    Raises:
        InvalidArgumentError: that is after ``until``, or a cron rule does not fire any more.
    """
    due: int | None = due_ms
    if repeat.expression is not None:
        second = next_firing(repeat.expression, repeat.zone, (due_ms - 1) // 1000, repeat.gap)
        due = None if second is None else second * 1000
    if due is None:
        text = f"cron {repeat.expression!r} does not fire in {repeat.zone} from {format_ms(due_ms)} on"
        raise InvalidArgumentError(f"repeat: {text}; allowed: what fires within 50 years, and before the year 9999")
    if due > _end(repeat):
        text = f"the first occurrence is due {format_ms(due)}, after the end of the series"
        raise InvalidArgumentError(f"repeat: {text}; allowed: until {format_ms(_end(repeat))}")
    return due + spread_ms(repeat, 1)


def spread_ms(repeat: Repeat, n: int) -> int:
    """Return by how many milliseconds occurrence ``n`` is due after its time."""
    if not repeat.spread_ms:
        return 0
    digest = blake2b(f"{repeat.seed}/{n}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % repeat.spread_ms


def following(repeat: Repeat, due_ms: int, n: int) -> int | None:
    """Return the due time of occurrence ``n + 1`` from that of ``n``; None: the series ends with ``n``.

    It ends after ``times`` occurrences, at ``until``, when a cron rule does not fire any more, and with the year 9998.
    """
    at_ms = _following(repeat, due_ms - spread_ms(repeat, n), n)
    return None if at_ms is None else at_ms + spread_ms(repeat, n + 1)


def _following(repeat: Repeat, at_ms: int, n: int) -> int | None:
    """Return the time of occurrence ``n + 1`` from that of ``n``, without spread."""
    if repeat.times is not None and n >= repeat.times:
        return None
    if repeat.expression is None:
        due = at_ms + interval_ms(repeat, n)
    else:
        second = next_firing(repeat.expression, repeat.zone, at_ms // 1000, repeat.gap)
        if second is None:
            return None
        due = second * 1000
    return due if due <= _end(repeat) else None


def catch_up(repeat: Repeat, due_ms: int, n: int, now_ms: int, missed_after_ms: int) -> Step:
    """Decide about occurrence ``n``, due at ``due_ms``, that is taken at ``now_ms``.

    By ``repeat.missed``:

    - ``all``: it is delivered, and the one after it is next, which may be due in the past.
    - ``last``: if the one after it is due already, it is not delivered, and next is the last that is due by now (to be
      delivered, late); else it is delivered.
    - ``none``: if it is *missed*, it is not delivered, and next is the first that is due after now; else it is
      delivered. Missed: ``now_ms`` is more than ``missed_after_ms`` after its due time, or beyond that of the one after
      it.

    Occurrences that are passed over count towards ``times``.
    """
    after = following(repeat, due_ms, n)
    late_ms = now_ms - due_ms
    if repeat.missed == "last" and after is not None and after <= now_ms:
        return Step(False, *_reach(repeat, due_ms, n, now_ms))
    if repeat.missed == "none" and (late_ms > missed_after_ms or (after is not None and after < now_ms)):
        if after is not None and after <= now_ms:
            due_ms, n = _reach(repeat, due_ms, n, now_ms)
            after = following(repeat, due_ms, n)
        return Step(False, after, n + 1 if after is not None else 0)
    return Step(True, after, n + 1 if after is not None else 0)


def interval_ms(repeat: Repeat, n: int) -> int:
    """Return the time from occurrence ``n`` to the next: every · factor^(n-1), at most ``most``."""
    assert repeat.every_ms is not None
    every, factor, power = repeat.every_ms, repeat.factor, n - 1
    if factor == 1 or power == 0:
        return every
    assert repeat.most_ms is not None
    # More than 64 bits are beyond every cap; and the power itself may have no end.
    if power * math.log2(factor) > 64:
        return repeat.most_ms
    return min(max(int(every * factor**power), every), repeat.most_ms)


def _reach(repeat: Repeat, due_ms: int, n: int, by_ms: int) -> tuple[int, int]:
    """Return the last occurrence due at or before ``by_ms``, and its number; at least the given one.

    With a spread, the last whose whole spread is over by then, or a later one that is due.
    """
    if repeat.spread_ms:
        at_ms, reached = _reach_time(repeat, due_ms - spread_ms(repeat, n), n, by_ms - repeat.spread_ms)
        due_ms, n = at_ms + spread_ms(repeat, reached), reached
        while (after := following(repeat, due_ms, n)) is not None and after <= by_ms:
            due_ms, n = after, n + 1
        return due_ms, n
    return _reach_time(repeat, due_ms, n, by_ms)


def _reach_time(repeat: Repeat, due_ms: int, n: int, by_ms: int) -> tuple[int, int]:
    by_ms = min(by_ms, _end(repeat))
    left = repeat.times - n if repeat.times is not None else None
    if repeat.expression is not None:
        after, by = max(due_ms // 1000, -1), by_ms // 1000
        last, count = last_firing(repeat.expression, repeat.zone, after, by, repeat.gap)
        if left is not None and count > left:
            last, count = firing(repeat.expression, repeat.zone, after, last, left, repeat.gap), left
        return (last * 1000, n + count) if count else (due_ms, n)
    while left is None or left > 0:
        step = interval_ms(repeat, n)
        if due_ms + step > by_ms:
            break
        same = repeat.factor == 1 or step == repeat.most_ms  # from here on, all intervals are this one
        some = (by_ms - due_ms) // step if same else 1
        some = some if left is None else min(some, left)
        due_ms, n, left = due_ms + some * step, n + some, None if left is None else left - some
    return due_ms, n


def _end(repeat: Repeat) -> int:
    return LAST_MS if repeat.until_ms is None else min(repeat.until_ms, LAST_MS)
