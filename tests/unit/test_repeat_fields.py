"""Years, the weekday next to a day, times that the clocks skip, and spreads: instants worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import InvalidArgumentError
from tarry.repeat import Repeat, catch_up, first_due, following, parse, read_state, spread_ms, state_json
from tarry.repeat.text import SeriesState

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def firings(rule: Repeat, begin: str, number: int) -> list[str]:
    found = [first_due(rule, ms(begin))]
    while len(found) < number and (after := following(rule, found[-1], len(found))) is not None:
        found.append(after)
    return [datetime.fromtimestamp(each / 1000, UTC).strftime("%Y-%m-%dT%H:%M") for each in found]


@pytest.mark.parametrize(
    ("expression", "begin", "expected"),
    [
        # 15 June 2024 is a Saturday, 15 September a Sunday.
        ("0 0 10 15W * * *", "2024-06-01", "2024-06-14T10:00 2024-07-15T10:00 2024-08-15T10:00 2024-09-16T10:00"),
        # 1 June 2024 is a Saturday, and 30 June a Sunday: the weekday stays in the month.
        ("0 0 0 1W 6 *", "2024-01-01", "2024-06-03T00:00 2025-06-02T00:00"),
        ("0 0 0 30W 6 *", "2024-01-01", "2024-06-28T00:00 2025-06-30T00:00"),
        ("0 0 0 31W * *", "2024-01-01", "2024-01-31T00:00 2024-03-29T00:00 2024-05-31T00:00"),
        ("0 0 0 1W,20 6 *", "2024-01-01", "2024-06-03T00:00 2024-06-20T00:00 2025-06-02T00:00"),
        ("0 15 10 * 2 5L 2026-2027", "2024-01-01", "2026-02-27T10:15 2027-02-26T10:15"),
        ("0 0 0 1 1 * 2030/2", "2024-01-01", "2030-01-01T00:00 2032-01-01T00:00 2034-01-01T00:00"),
        ("0 0 0 1 1 * 2025,2031", "2025-06-01", "2031-01-01T00:00"),
        ("0 0 0 1 1 * */50", "2025-06-01", "2070-01-01T00:00"),
    ],
)
def test_years_and_weekdays(expression: str, begin: str, expected: str) -> None:
    rule, due = Repeat.cron(expression), [ms(each) for each in expected.split()]
    assert firings(rule, begin, len(due)) == expected.split()
    last = Repeat.cron(expression, missed="last")
    for n, at in enumerate(due[1:], 2):
        assert catch_up(last, due[0], 1, at, 0)[:] == (False, at, n)


@pytest.mark.parametrize("expression", ["0 0 0 32W * *", "0 0 0 0W * *", "0 0 0 W * *", "0 0 0 31W 6 *"])
def test_no_such_weekday(expression: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cron"):
        Repeat.cron(expression)


@pytest.mark.parametrize("year", ["1969", "2200", "2030-2029", "30", "*/0", "2030,", "?"])
def test_no_such_year(year: str) -> None:
    with pytest.raises(InvalidArgumentError, match="Bad year"):
        Repeat.cron(f"0 0 0 1 1 * {year}")


@pytest.mark.parametrize(
    ("expression", "zone", "begin", "expected"),
    [
        ("30 2 * * *", "America/New_York", "2024-03-09", "2024-03-09T07:30 2024-03-11T06:30 2024-03-12T06:30"),
        ("30 1,2,3 * * *", "America/New_York", "2024-03-10", "2024-03-10T06:30 2024-03-10T07:30 2024-03-11T05:30"),
        ("0 2,3 * * *", "America/New_York", "2024-03-10", "2024-03-10T07:00 2024-03-11T06:00 2024-03-11T07:00"),
        ("30 1 * * *", "America/New_York", "2024-11-02", "2024-11-02T05:30 2024-11-03T05:30 2024-11-04T06:30"),
        ("0 0 * * *", "Asia/Beirut", "2022-03-25", "2022-03-25T22:00 2022-03-27T21:00"),
        ("0 9 * * *", "Pacific/Apia", "2011-12-29", "2011-12-29T19:00 2011-12-30T19:00"),
    ],
)
def test_what_the_clocks_skip(expression: str, zone: str, begin: str, expected: str) -> None:
    rule, due = Repeat.cron(expression, zone, gap="skip"), [ms(each) for each in expected.split()]
    assert firings(rule, begin, len(due)) == expected.split()
    last = Repeat.cron(expression, zone, gap="skip", missed="last")
    for n, at in enumerate(due[1:], 2):
        assert catch_up(last, due[0], 1, at, 0)[:] == (False, at, n)


@given(st.integers(0, 1 << 53 - 1), st.integers(1, 24 * 60), st.booleans(), st.integers(0, 10**12))
def test_a_spread_is_within_its_time_and_does_not_drift(
    seed: int, spread_minutes: int, is_cron: bool, begin_ms: int
) -> None:
    plain = Repeat.cron("*/30 * * * *") if is_cron else Repeat.every("30m")
    more: Any = {"spread": f"{spread_minutes}m", "seed": seed}
    rule = Repeat.cron("*/30 * * * *", **more) if is_cron else Repeat.every("30m", **more)
    at, due = first_due(plain, begin_ms), first_due(rule, begin_ms)
    for n in range(1, 40):
        assert due - at == spread_ms(rule, n) and at <= due < at + spread_minutes * MINUTE_MS
        following_at, following_due = following(plain, at, n), following(rule, due, n)
        assert following_at is not None and following_due is not None
        at, due = following_at, following_due


def test_series_of_other_seeds_come_at_other_moments() -> None:
    moments = [spread_ms(Repeat.every("1h", spread="15m", seed=seed), 1) for seed in range(1000)]
    quarters = [sum(low <= each < high for each in moments) for low, high in pairwise(range(0, 900_001, 225_000))]
    assert len(set(moments)) > 990 and min(quarters) > 150


def test_after_downtime_the_last_one_is_found_with_a_spread() -> None:
    rule = Repeat.every("1m", spread="10m", seed=3, missed="last")
    dues = [first_due(rule, 0)]
    while len(dues) < 500:
        after = following(rule, dues[-1], len(dues))
        assert after is not None
        dues.append(after)
    step = catch_up(rule, dues[0], 1, dues[300], 0)
    assert not step.deliver and step.next_due_ms == dues[step.next_n - 1] <= dues[300]
    assert step.next_n > 290


def test_it_is_written_and_read() -> None:
    rule = Repeat.cron("0 0 9 15W * * 2030", "Europe/Berlin", spread="15m", seed=7, gap="skip")
    text = state_json(SeriesState(rule, 3, 9))
    assert '"spread":"15m","seed":7,"gap":"skip"' in text
    assert read_state(text) == SeriesState(rule, 3, 9)
    assert parse({"every": "1h", "spread": 90}) == Repeat.every("1h", spread="90s")


@pytest.mark.parametrize(
    "given_fields",
    [
        {"every": "1h", "spread": "25h"},
        {"every": "1h", "spread": -1},
        {"every": "1h", "seed": 1},
        {"every": "1h", "spread": "1m", "seed": -1},
        {"every": "1h", "gap": "skip"},
        {"cron": "0 9 * * *", "gap": "run"},
    ],
)
def test_what_is_refused(given_fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        parse(given_fields)
