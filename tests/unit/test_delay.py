"""Every way of saying when, and every way of saying it wrong."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarry.base.delay import (
    DELAY_MS_MAX,
    INT64_MAX,
    DelayLevel,
    check_due,
    datetime_ms,
    due_from_delay,
    format_ms,
    parse_duration_ms,
    parse_levels,
)
from tarry.base.errors import DelayTooLongError, InvalidArgumentError, TarryError

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("delay", "ms"),
    [
        (0, 0),
        (90, 90_000),
        (np.int64(90), 90_000),
        (np.float64(0.5), 500),
        (1.1, 1100),
        (0.0001, 1),
        (1e-12, 0),
        (timedelta(hours=1), 3_600_000),
        (timedelta(microseconds=1), 1),
        (timedelta.max, 86_400_000_000_000_000),
        ("500ms", 500),
        ("1h30m", 5_400_000),
        (" 1 h 30 m ", 5_400_000),
        ("1.5s", 1500),
        ("0.1ms", 1),
        ("2w", 14 * 86_400_000),
        (DelayLevel(0), 0),
        (DelayLevel(-1), 0),
        (DelayLevel(1), 1000),
        (DelayLevel(18), 7_200_000),
        (DelayLevel(99), 7_200_000),
    ],
)
def test_a_delay_is_counted_from_now(delay: object, ms: int) -> None:
    assert due_from_delay(delay, NOW) == NOW + ms  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("instant", "ms"),
    [
        (datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), NOW + 1000),
        (datetime(2026, 1, 1, 1, 0, tzinfo=ZoneInfo("Europe/Berlin")), NOW),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), NOW + 1),
        ("2026-01-01T00:00:01Z", NOW + 1000),
        ("2026-01-01T01:00:00+01:00", NOW),
        ("2026-01-01 00:00:00+00:00", NOW),
        (datetime(2020, 1, 1, tzinfo=UTC), 1_577_836_800_000),
    ],
)
def test_an_instant_is_itself(instant: datetime | str, ms: int) -> None:
    assert due_from_delay(instant, NOW) == ms


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        (True, "truth value"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "inf"),
        (-1, "-1 is negative"),
        (-1e-9, "negative"),
        pytest.param(-(10**5000), "negative", id="huge"),
        (timedelta(seconds=-1), "negative"),
        ("", "''"),
        ("90", "'90'"),
        ("1 fortnight", "fortnight"),
        ("-5s", "'-5s'"),
        ("1h 30", "1h 30"),
        ("٣s", "not a duration"),
        ("9" * 5000 + "s", "not a duration"),
        ("2026-01-01", "naive"),
        ("2026-01-01T00:00:00", "naive"),
        ("2026-13-01T00:00:00Z", "not an instant"),
        (datetime(2026, 1, 1), "naive"),
        (None, "NoneType"),
        (b"1s", "bytes"),
        ([1], "list"),
        (DelayLevel("3"), "'3'"),  # type: ignore[arg-type]
        (DelayLevel(True), "True"),
    ],
)
def test_what_means_no_delay_is_refused_with_the_value(delay: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        due_from_delay(delay, NOW)  # type: ignore[arg-type]
    assert text in str(caught.value)


@pytest.mark.parametrize("delay", [10**30, pytest.param(10**5000, id="huge"), 1e300, 1.7e308])
def test_a_delay_beyond_all_numbers_is_too_long(delay: float) -> None:
    with pytest.raises(DelayTooLongError):
        due_from_delay(delay, NOW)


def test_check_due_names_both_sides_of_the_limit() -> None:
    assert check_due(NOW + DELAY_MS_MAX, NOW, DELAY_MS_MAX) == NOW + DELAY_MS_MAX
    with pytest.raises(DelayTooLongError, match=r"due 2066-.*Z is 14,640\.0 days away; .* is 14,640\.0 days"):
        check_due(NOW + DELAY_MS_MAX + 1, NOW, DELAY_MS_MAX)
    for absurd in (INT64_MAX, 10**30, 10**5000):
        with pytest.raises(DelayTooLongError):
            check_due(absurd, NOW, DELAY_MS_MAX)


def test_the_ends_of_the_calendar() -> None:
    west, east = timezone(timedelta(hours=-23)), timezone(timedelta(hours=23))
    assert datetime_ms(datetime.max.replace(tzinfo=west)) > datetime_ms(datetime.max.replace(tzinfo=east))
    assert datetime_ms(datetime.min.replace(tzinfo=east)) < datetime_ms(datetime.min.replace(tzinfo=west))
    assert format_ms(NOW) == "2026-01-01T00:00:00.000Z"
    assert format_ms(INT64_MAX) == f"{INT64_MAX} ms"
    assert format_ms(-(10**5000)) == "beyond 2**63 ms"


def test_level_tables() -> None:
    assert parse_levels("1s 2m") == (1000, 120_000)
    assert due_from_delay(DelayLevel(7), 0, parse_levels("1s 2m")) == 120_000
    for table in ("", "  ", "1s two"):
        with pytest.raises(InvalidArgumentError):
            parse_levels(table)


@given(
    st.lists(st.tuples(st.integers(0, 999), st.sampled_from(["ms", "s", "m", "h", "d", "w"])), min_size=1, max_size=5)
)
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    unit_ms = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
    assert parse_duration_ms("".join(f"{n}{u}" for n, u in parts)) == sum(n * unit_ms[u] for n, u in parts)


@given(st.floats(0, 1e9))
def test_seconds_are_never_rounded_down(seconds: float) -> None:
    assert due_from_delay(seconds, 0) >= seconds * 1000 - 1e-6


@given(st.datetimes(timezones=st.timezones()))
def test_an_instant_is_never_rounded_down(when: datetime) -> None:
    ms = datetime_ms(when)
    exact = (when - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)
    assert exact - 0.02 <= ms < exact + 1.02  # the float's own error, at the far ends of the calendar


anything = st.one_of(
    st.text(),
    st.from_regex(r"[0-9.]{0,40}(ms|[smhdwT:+-])[0-9.-]{0,40}"),
    st.integers(),
    st.floats(),
    st.binary(),
    st.none(),
    st.booleans(),
    st.timedeltas(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.integers().map(DelayLevel),
)


@given(anything)
@example("T")
@example("0000-")
def test_no_other_error_than_ours(delay: object) -> None:
    try:
        due = due_from_delay(delay, NOW)  # type: ignore[arg-type]
    except TarryError:
        return
    assert isinstance(due, int)
