"""Recurrence: when does a message come again? Pure rules; no clock, no storage.

A producer writes a :class:`Repeat`: ``Repeat.every("1m", times=5)`` or ``Repeat.cron("0 9 * * MON-FRI",
"Europe/Berlin")``, or the same as a dict or JSON text. :func:`parse` checks it. The row of an occurrence carries the
rule and where the series stands (:class:`SeriesState`); the broker asks :func:`first_due` when it accepts the message,
:func:`following` and :func:`catch_up` when an occurrence is due.

One file, one question:

===============  =========================================================================
``rule``         what is a rule, and is it valid?
``text``         how is it written, by a producer and in a row?
``series``       when is the next occurrence, and what of those that downtime has missed?
``cron``         at which instants does a cron rule fire? (daylight saving is explained there)
``local_times``  which local times match a cron expression?
``cron_fields``  what do its fields say? (the ``cronsim`` library)
``zones``        what do the clocks of a zone show?
===============  =========================================================================

What is cached in these modules are results of pure functions of short texts and numbers, which producers repeat; the
zone database counts as constant while a process lives.
"""

from tarry.repeat.rule import CRON_CHARS_MAX, FACTOR_MIN, LEAST_MS, MOST_MS, SPREAD_MS_MAX, Missed, Repeat
from tarry.repeat.series import Step, catch_up, first_due, following, spread_ms
from tarry.repeat.text import TEXT_CHARS_MAX, SeriesState, parse, read_state, series_of, state_json, to_json
from tarry.repeat.zones import LAST_MS

__all__ = [
    "CRON_CHARS_MAX",
    "FACTOR_MIN",
    "LAST_MS",
    "LEAST_MS",
    "MOST_MS",
    "SPREAD_MS_MAX",
    "TEXT_CHARS_MAX",
    "Missed",
    "Repeat",
    "SeriesState",
    "Step",
    "catch_up",
    "first_due",
    "following",
    "parse",
    "read_state",
    "series_of",
    "spread_ms",
    "state_json",
    "to_json",
]
