"""Written forms of a rule: a producer's dict or JSON, and a row's text with the state of the series.

The fields, all optional but one of the first two::

    {"every": "1m"}                     a duration: seconds, or a text
    {"cron": "0 9 * * MON-FRI",         5 or 6 fields
     "zone": "Europe/Berlin"}           default "UTC"
     "times": 5                         occurrences in all
     "until": 1798761599999             UTC ms, or ISO 8601 with an offset
     "factor": 2, "most": "1d"          with every: each interval is the former one times factor, at most most
     "missed": "last"                   after downtime: "all" (default), "last" or "none"
     "spread": "15m", "seed": 7         each occurrence is due within that time after its own, by its number and seed
     "gap": "skip"                      with cron: a time that the clocks skip does not fire; default: at its "end"

The canonical text has them in this order, without spaces and without defaults. In a row it may go on with ``"n"``
(which occurrence the row is; absent: 1) and ``"series"`` (``seq`` of the first occurrence; absent: this is the first),
which a producer cannot give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tarry.base.delay import INT64_MAX
from tarry.base.errors import InvalidArgumentError
from tarry.repeat.rule import LEAST_MS, Repeat, check_least, refuse, short

TEXT_CHARS_MAX = 4096
"""Characters of a rule as JSON."""

FIELDS = ("every", "cron", "zone", "times", "until", "factor", "most", "missed", "spread", "seed", "gap")

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_ALLOWED = f"a Repeat, a dict or a JSON object with fields of {', '.join(FIELDS)}"


@dataclass(frozen=True, slots=True)
class SeriesState:
    """State of a series: this row is occurrence ``n``; ``series``: the ``seq`` of the first, None in it."""

    repeat: Repeat
    n: int = 1
    series: int | None = None


def parse(value: Repeat | Mapping[str, Any] | str, *, least_ms: int = LEAST_MS) -> Repeat:
    """Read a producer's rule; ``least_ms`` is the shortest interval that the broker takes.

    Raises:
        InvalidArgumentError: names the field, its value and what is allowed.
    """
    match value:
        case Repeat():
            repeat = value
        case str():
            if len(value) > TEXT_CHARS_MAX:
                raise InvalidArgumentError(f"repeat has {len(value)} characters; allowed: {TEXT_CHARS_MAX}")
            repeat = _parse_text(value)
        case Mapping():
            repeat = _from_fields(dict(value))
        case _:
            raise InvalidArgumentError(f"repeat is {short(value)} ({type(value).__name__}); allowed: {_ALLOWED}")
    return check_least(repeat, least_ms)


def to_json(repeat: Repeat) -> str:
    """Return the canonical text; :func:`parse` is its inverse."""
    return _write(_to_fields(repeat))


def read_state(text: str) -> SeriesState:
    """Read what :func:`state_json` has written.

    Raises:
        InvalidArgumentError: the text is no state, or its zone is not known any more.
    """
    fields = _object(text)
    n, series = fields.pop("n", 1), fields.pop("series", None)
    if type(n) is not int or not 1 <= n <= INT64_MAX:
        refuse("n", n, "a whole number from 1 on")
    if series is not None and (type(series) is not int or not 0 <= series <= INT64_MAX):
        refuse("series", series, "a seq, or absent")
    try:
        return SeriesState(_cached_fields(**fields), n, series)
    except TypeError:  # a value that cannot be hashed is none of a rule
        return SeriesState(_from_fields(fields), n, series)


def series_of(text: str) -> int | None:
    """Return the series of a row; None: it is the first of its own.

    The rule itself is not read: it may name a zone that this machine does not know.
    """
    series = json.loads(text).get("series")
    return None if series is None else int(series)


def state_json(state: SeriesState) -> str:
    """Return the text of a row's ``repeat`` column."""
    fields = _to_fields(state.repeat)
    if state.n != 1:
        fields["n"] = state.n
    if state.series is not None:
        fields["series"] = state.series
    return _write(fields)


def _from_fields(fields: dict[Any, Any]) -> Repeat:
    for name in fields:
        if name not in FIELDS:
            raise InvalidArgumentError(f"repeat: unknown field {short(name)}; allowed: {', '.join(FIELDS)}")
    given = {name: value for name, value in fields.items() if value is not None}
    if ("every" in given) == ("cron" in given):
        which = "both" if "every" in given else "neither"
        raise InvalidArgumentError(f"repeat: {which} of every and cron is given; allowed: exactly one of them")
    if "every" in given:
        where = given.pop("zone", "UTC")
        if not isinstance(where, str) or where != "UTC":
            refuse("zone", where, "a zone with cron only; an interval is elapsed time, the same in all zones")
        if "gap" in given:
            refuse("gap", given["gap"], "with cron only: an interval is elapsed time")
        return Repeat.every(given.pop("every"), **given)
    for name in ("factor", "most"):
        if name in given:
            refuse(name, given[name], "with every only; cron has no interval that could grow")
    return Repeat.cron(given.pop("cron"), **given)


# Producers send the same rule again and again, and many series share one. Typed: for a cache, True would be 1.
_cached_fields = lru_cache(maxsize=4096, typed=True)(lambda **fields: _from_fields(fields))


@lru_cache(maxsize=1024)
def _parse_text(text: str) -> Repeat:
    return _from_fields(_object(text))


@lru_cache(maxsize=4096)
def _duration(ms: int) -> str:
    return next(f"{ms // size}{unit}" for unit, size in _UNITS if ms % size == 0)


def _to_fields(repeat: Repeat) -> dict[str, Any]:
    fields = {
        "every": None if repeat.every_ms is None else _duration(repeat.every_ms),
        "cron": repeat.expression,
        "zone": None if repeat.zone == "UTC" else repeat.zone,
        "times": repeat.times,
        "until": repeat.until_ms,
        "factor": None if repeat.factor == 1 else repeat.factor,
        "most": None if repeat.most_ms is None else _duration(repeat.most_ms),
        "missed": None if repeat.missed == "all" else repeat.missed,
        "spread": _duration(repeat.spread_ms) if repeat.spread_ms else None,
        "seed": repeat.seed or None,
        "gap": None if repeat.gap == "end" else repeat.gap,
    }
    return {name: value for name, value in fields.items() if value is not None}


_write = json.JSONEncoder(separators=(",", ":")).encode


def _object(text: str) -> dict[str, Any]:
    try:
        fields = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        where = f", at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidArgumentError(f"repeat {short(text)} is not JSON{where}; allowed: {_ALLOWED}") from error
    if not isinstance(fields, dict):
        raise InvalidArgumentError(f"repeat {short(text)} is no JSON object; allowed: {_ALLOWED}")
    return fields


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgumentError(f"repeat: field {short(twice)} is there more than once; allowed: once")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
