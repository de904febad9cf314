"""Next occurrence of a series, and treatment of those that downtime has missed.

Everything here is a function of the rule and of one occurrence (its due time and its number), so a series is wholly in
the row of its pending occurrence. Intervals are added to due times, not to the moments of delivery: a series does not
drift. Cost does not grow with what was missed: fixed intervals and cron are counted, growing ones end at their cap.

A moment is UTC milliseconds; occurrences are numbered from 1.
"""

from __future__ import annotations

import math
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
    """Return the due time of the first occurrence: ``due_ms``, or with cron the first firing from it on.

    Raises:
        InvalidArgumentError: that is after ``until``, or a cron rule does not fire any more.
    """
    due: int | None = due_ms
    if repeat.expression is not None:
        second = next_firing(repeat.expression, repeat.zone, (due_ms - 1) // 1000)
        due = None if second is None else second * 1000
    if due is None:
        text = f"cron {repeat.expression!r} does not fire in {repeat.zone} from {format_ms(due_ms)} on"
        raise InvalidArgumentError(f"repeat: {text}; allowed: what fires within 50 years, and before the year 9999")
    if due > _end(repeat):
        text = f"the first occurrence is due {format_ms(due)}, after the end of the series"
        raise InvalidArgumentError(f"repeat: {text}; allowed: until {format_ms(_end(repeat))}")
    return due


def following(repeat: Repeat, due_ms: int, n: int) -> int | None:
    """Return the due time of occurrence ``n + 1`` from that of ``n``; None: the series ends with ``n``.

    It ends after ``times`` occurrences, at ``until``, when a cron rule does not fire any more, and with the year 9998.
    """
    if repeat.times is not None and n >= repeat.times:
        return None
    if repeat.expression is None:
        due = due_ms + interval_ms(repeat, n)
    else:
        second = next_firing(repeat.expression, repeat.zone, due_ms // 1000)
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
    """Return the last occurrence due at or before ``by_ms``, and its number; at least the given one."""
    by_ms = min(by_ms, _end(repeat))
    left = repeat.times - n if repeat.times is not None else None
    if repeat.expression is not None:
        after, by = max(due_ms // 1000, -1), by_ms // 1000
        last, count = last_firing(repeat.expression, repeat.zone, after, by)
        if left is not None and count > left:
            last, count = firing(repeat.expression, repeat.zone, after, last, left), left
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
