"""Cron across shifts of the clocks: instants worked out by hand from the zones' shifts, and a search minute by minute.

No expected instant comes from the code under test or its library: each is written as UTC, or found by asking zoneinfo
what the clocks show at every minute.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.repeat import Repeat, catch_up, first_due, following

MINUTE = timedelta(minutes=1)

# Zone, the last second before a shift and the first after it (UTC), what the clocks show then.
SHIFTS = [
    ("America/New_York", "2024-03-10 06:59:59", "01:59:59", "03:00:00"),
    ("America/New_York", "2024-11-03 05:59:59", "01:59:59", "01:00:00"),
    ("Europe/Berlin", "2024-03-31 00:59:59", "01:59:59", "03:00:00"),
    ("Europe/Berlin", "2024-10-27 00:59:59", "02:59:59", "02:00:00"),
    ("Australia/Lord_Howe", "2024-10-05 15:29:59", "01:59:59", "02:30:00"),
    ("Australia/Lord_Howe", "2024-04-06 14:59:59", "01:59:59", "01:30:00"),
    ("Australia/Adelaide", "2024-10-05 16:29:59", "01:59:59", "03:00:00"),
    ("Australia/Adelaide", "2024-04-06 16:29:59", "02:59:59", "02:00:00"),
    ("Pacific/Chatham", "2024-09-28 13:59:59", "02:44:59", "03:45:00"),
    ("America/Sao_Paulo", "2018-11-04 02:59:59", "23:59:59", "01:00:00"),
    ("America/Sao_Paulo", "2018-02-18 01:59:59", "23:59:59", "23:00:00"),
    ("Asia/Beirut", "2022-03-26 21:59:59", "23:59:59", "01:00:00"),
    ("America/Havana", "2024-11-03 04:59:59", "00:59:59", "00:00:00"),
    ("Antarctica/Troll", "2024-03-31 00:59:59", "00:59:59", "03:00:00"),
    ("Antarctica/Troll", "2024-10-27 00:59:59", "02:59:59", "01:00:00"),
    ("Africa/Casablanca", "2024-03-10 01:59:59", "02:59:59", "02:00:00"),
    ("Pacific/Apia", "2011-12-30 09:59:59", "23:59:59", "00:00:00"),
]

# What, cron, zone, from (UTC), the firings from then on: day and time in UTC, of the same month.
TABLE = [
    # New York goes forward at 07:00Z on 10 March 2024 (02:00 becomes 03:00), and back at 06:00Z on 3 November.
    ("gap", "30 2 * * *", "America/New_York", "2024-03-09 00:00", "09T07:30 10T07:00 11T06:30 12T06:30"),
    ("end of the gap", "0 3 * * *", "America/New_York", "2024-03-09 00:00", "09T08:00 10T07:00 11T07:00"),
    ("before the gap", "59 1 * * *", "America/New_York", "2024-03-09 00:00", "09T06:59 10T06:59 11T05:59"),
    ("gap, several", "0,20,40 2 * * *", "America/New_York", "2024-03-10 00:00", "10T07:00 11T06:00 11T06:20"),
    (
        "gap and its end",
        "30 1,2,3 * * *",
        "America/New_York",
        "2024-03-10 00:00",
        "10T06:30 10T07:00 10T07:30 11T05:30",
    ),
    ("gap, one with its end", "0 2,3 * * *", "America/New_York", "2024-03-10 00:00", "10T07:00 11T06:00 11T07:00"),
    ("fold", "30 1 * * *", "America/New_York", "2024-11-02 00:00", "02T05:30 03T05:30 04T06:30"),
    ("begin of the fold", "0 1 * * *", "America/New_York", "2024-11-02 00:00", "02T05:00 03T05:00 04T06:00"),
    ("end of the fold", "0 2 * * *", "America/New_York", "2024-11-02 00:00", "02T06:00 03T07:00 04T07:00"),
    ("from within the fold", "30 1 * * *", "America/New_York", "2024-11-03 06:10", "04T06:30 05T06:30"),
    ("from between the two", "45 1 * * *", "America/New_York", "2024-11-03 06:01", "04T06:45 05T06:45"),
    ("quarters, gap", "*/15 * * * *", "America/New_York", "2024-03-10 06:30", "10T06:30 10T06:45 10T07:00 10T07:15"),
    (
        "quarters, fold",
        "*/15 * * * *",
        "America/New_York",
        "2024-11-03 05:30",
        "03T05:30 03T05:45 03T06:00 03T06:15 03T06:30 03T06:45 03T07:00 03T07:15",
    ),
    ("hourly, gap", "0 * * * *", "America/New_York", "2024-03-10 05:00", "10T05:00 10T06:00 10T07:00 10T08:00"),
    ("hourly, fold", "0 * * * *", "America/New_York", "2024-11-03 04:00", "03T04:00 03T05:00 03T06:00 03T07:00"),
    ("hours listed, fold", "0 0-23 * * *", "America/New_York", "2024-11-03 04:00", "03T04:00 03T05:00 03T07:00"),
    (
        "hours listed, gap",
        "0 0-23 * * *",
        "America/New_York",
        "2024-03-10 05:00",
        "10T05:00 10T06:00 10T07:00 10T08:00",
    ),
    ("quarters of the gap", "*/15 2 * * *", "America/New_York", "2024-03-09 07:30", "09T07:30 09T07:45 11T06:00"),
    ("six fields, gap", "15 30 2 * * *", "America/New_York", "2024-03-09 00:00", "09T07:30:15 10T07:00 11T06:30:15"),
    ("six fields, fold", "15 30 1 * * *", "America/New_York", "2024-11-03 00:00", "03T05:30:15 04T06:30:15"),
    ("seconds run, fold", "*/30 59 1 * * *", "America/New_York", "2024-11-03 05:59", "03T05:59 03T05:59:30 03T06:59"),
    # Berlin goes forward at 01:00Z on 31 March 2024 (02:00 becomes 03:00), and back at 01:00Z on 27 October.
    ("gap", "30 2 * * *", "Europe/Berlin", "2024-03-29 12:00", "30T01:30 31T01:00"),
    ("gap of one day only", "30 2 31 * *", "Europe/Berlin", "2024-03-01 00:00", "2024-03-31T01:00 2024-05-31T00:30"),
    ("fold", "30 2 * * *", "Europe/Berlin", "2024-10-26 00:00", "26T00:30 27T00:30 28T01:30"),
    ("working day", "0 9 * * MON-FRI", "Europe/Berlin", "2024-10-24 12:00", "25T07:00 28T08:00 29T08:00"),
    ("quarters, gap", "*/15 * * * *", "Europe/Berlin", "2024-03-31 00:45", "31T00:45 31T01:00 31T01:15"),
    ("quarters, fold", "*/15 * * * *", "Europe/Berlin", "2024-10-27 00:45", "27T00:45 27T01:00 27T01:15 27T01:30"),
    ("even hours, gap", "0 */2 * * *", "Europe/Berlin", "2024-03-30 23:00", "30T23:00 31T02:00 31T04:00"),
    ("even hours, fold", "0 */2 * * *", "Europe/Berlin", "2024-10-26 22:00", "26T22:00 27T00:00 27T01:00 27T03:00"),
    # Lord Howe goes forward by half an hour at 15:30Z on 5 October 2024 (02:00 becomes 02:30), and back at 15:00Z on
    # 6 April (02:00 becomes 01:30).
    ("gap", "15 2 * * *", "Australia/Lord_Howe", "2024-10-04 00:00", "04T15:45 05T15:30 06T15:15"),
    ("not in the gap", "45 2 * * *", "Australia/Lord_Howe", "2024-10-04 00:00", "04T16:15 05T15:45 06T15:45"),
    ("fold", "45 1 * * *", "Australia/Lord_Howe", "2024-04-05 00:00", "05T14:45 06T14:45 07T15:15"),
    ("before the fold", "15 1 * * *", "Australia/Lord_Howe", "2024-04-05 00:00", "05T14:15 06T14:15 07T14:45"),
    ("quarters, gap", "*/15 * * * *", "Australia/Lord_Howe", "2024-10-05 15:00", "05T15:00 05T15:15 05T15:30 05T15:45"),
    (
        "quarters, fold",
        "*/15 * * * *",
        "Australia/Lord_Howe",
        "2024-04-06 14:30",
        "06T14:30 06T14:45 06T15:00 06T15:15 06T15:30 06T15:45",
    ),
    ("hourly, gap", "0 * * * *", "Australia/Lord_Howe", "2024-10-05 14:30", "05T14:30 05T16:00 05T17:00"),
    ("hourly, fold", "0 * * * *", "Australia/Lord_Howe", "2024-04-06 14:00", "06T14:00 06T15:30 06T16:30"),
    ("at :45, fold", "45 * * * *", "Australia/Lord_Howe", "2024-04-06 14:00", "06T14:45 06T15:15 06T16:15"),
    ("hour after the fold", "*/15 3 * * *", "Australia/Lord_Howe", "2024-04-06 15:00", "06T16:30 06T16:45 06T17:00"),
    # Adelaide (half an hour off, southern) goes forward at 16:30Z on 5 October 2024, and back at 16:30Z on 6 April.
    ("gap", "30 2 * * *", "Australia/Adelaide", "2024-10-04 00:00", "04T17:00 05T16:30 06T16:00"),
    ("fold", "30 2 * * *", "Australia/Adelaide", "2024-04-05 00:00", "05T16:00 06T16:00 07T17:00"),
    ("quarters, fold", "*/15 * * * *", "Australia/Adelaide", "2024-04-06 16:15", "06T16:15 06T16:30 06T16:45"),
    # Chatham (three quarters off) goes forward at 14:00Z on 28 September 2024: 02:45 becomes 03:45.
    ("gap", "0 3 * * *", "Pacific/Chatham", "2024-09-27 00:00", "27T14:15 28T14:00 29T13:15"),
    ("hourly, gap", "0 * * * *", "Pacific/Chatham", "2024-09-28 12:00", "28T12:15 28T13:15 28T14:15 28T15:15"),
    # Midnight that does not exist: São Paulo at 03:00Z on 4 November 2018, Beirut at 22:00Z on 26 March 2022.
    ("no midnight", "0 0 * * *", "America/Sao_Paulo", "2018-11-03 00:00", "03T03:00 04T03:00 05T02:00"),
    ("no midnight", "0 0 * * *", "Asia/Beirut", "2022-03-25 00:00", "25T22:00 26T22:00 27T21:00"),
    ("no midnight, weekly", "0 0 * * SUN", "Asia/Beirut", "2022-03-25 00:00", "2022-03-26T22:00 2022-04-02T21:00"),
    ("quarters, no midnight", "*/15 * * * SUN", "America/Sao_Paulo", "2018-11-03 12:00", "04T03:00 04T03:15"),
    ("minutes of no midnight", "*/20 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00", "05T02:00 05T02:20"),
    # The hour before midnight twice (São Paulo, 02:00Z on 18 February 2018), and that after it (Havana, 05:00Z on
    # 3 November 2024).
    ("late twice", "30 23 * * *", "America/Sao_Paulo", "2018-02-17 00:00", "17T01:30 18T01:30 19T02:30"),
    ("midnight after it", "0 0 * * *", "America/Sao_Paulo", "2018-02-17 00:00", "17T02:00 18T03:00 19T03:00"),
    ("midnight twice", "0 0 * * *", "America/Havana", "2024-11-02 00:00", "02T04:00 03T04:00 04T05:00"),
    # Two hours at once: Troll at 01:00Z on 31 March and on 27 October 2024.
    ("gap of two hours", "30 1,2 * * *", "Antarctica/Troll", "2024-03-30 00:00", "30T01:30 30T02:30 31T01:00 31T23:30"),
    ("fold of two hours", "30 1,2 * * *", "Antarctica/Troll", "2024-10-26 12:00", "26T23:30 27T00:30 28T01:30"),
    # Ramadan: Casablanca is an hour behind from 02:00Z on 10 March to 02:00Z on 14 April 2024.
    ("fold", "30 2 * * *", "Africa/Casablanca", "2024-03-09 00:00", "09T01:30 10T01:30 11T02:30"),
    ("gap", "30 2 * * *", "Africa/Casablanca", "2024-04-12 00:00", "12T02:30 13T02:30 14T02:00 15T01:30"),
    # A day that does not exist: Apia had no 30 December 2011; it ended before it began, at 10:00Z.
    ("no such day", "0 9 * * *", "Pacific/Apia", "2011-12-28 12:00", "28T19:00 29T19:00 30T10:00 30T19:00 31T19:00"),
    ("no such day, runs", "*/30 9 30 * *", "Pacific/Apia", "2011-11-29 00:00", "30T19:00 30T19:30"),
    # No shift, but dates that not every month or year has.
    ("leap day", "0 12 29 2 *", "Europe/Berlin", "2023-03-01 00:00", "2024-02-29T11:00 2028-02-29T11:00"),
    ("no leap day", "0 12 29 2 *", "UTC", "2096-02-01 00:00", "2096-02-29T12:00 2104-02-29T12:00"),
    ("28 February", "0 0 28 2 *", "UTC", "2024-02-01 00:00", "2024-02-28T00:00 2025-02-28T00:00"),
    ("31st", "0 0 31 * *", "UTC", "2025-01-31 00:00", "2025-01-31T00:00 2025-03-31T00:00 2025-05-31T00:00"),
    ("30th", "0 0 30 * *", "UTC", "2025-01-31 00:00", "2025-03-30T00:00 2025-04-30T00:00"),
    ("last day", "0 0 L * *", "UTC", "2024-01-31 00:01", "2024-02-29T00:00 2024-03-31T00:00 2024-04-30T00:00"),
    ("last weekday", "0 0 LW * *", "UTC", "2024-05-31 00:01", "2024-06-28T00:00 2024-07-31T00:00 2024-08-30T00:00"),
    ("last Friday", "0 0 * * 5L", "UTC", "2024-05-31 00:01", "2024-06-28T00:00 2024-07-26T00:00"),
    ("second Tuesday", "0 0 * * TUE#2", "UTC", "2024-05-31 00:01", "2024-06-11T00:00 2024-07-09T00:00"),
    ("13th or Friday", "0 0 13 * FRI", "UTC", "2024-06-12 00:00", "13T00:00 14T00:00 21T00:00 28T00:00"),
    ("odd days and Friday", "0 0 */2 * FRI", "UTC", "2024-06-01 00:00", "07T00:00 21T00:00"),
    ("new year", "0 0 1 JAN *", "Asia/Tokyo", "2024-01-01 00:00", "2024-12-31T15:00 2025-12-31T15:00"),
    ("one after midnight", "1 0 1 1 *", "Asia/Kolkata", "2024-01-01 00:00", "2024-12-31T18:31 2025-12-31T18:31"),
    ("Sunday as 7", "0 12 * * 7", "UTC", "2024-06-01 00:00", "02T12:00 09T12:00"),
    ("steps from 5", "5/20 0 * * *", "UTC", "2024-06-01 00:00", "01T00:05 01T00:25 01T00:45 02T00:05"),
]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(("name", "before", "shown_before", "shown_after"), SHIFTS)
def test_the_zones_shift_when_the_table_takes_them_to(
    name: str, before: str, shown_before: str, shown_after: str
) -> None:
    at = datetime.fromisoformat(before).replace(tzinfo=UTC)
    shown = [(at + timedelta(seconds=s)).astimezone(ZoneInfo(name)).strftime("%H:%M:%S") for s in (0, 1)]
    assert shown == [shown_before, shown_after]


@pytest.mark.parametrize(
    ("expression", "zone", "begin", "expected"),
    [pytest.param(*row[1:], id=f"{row[2]} {row[0]} {row[1]}") for row in TABLE],
)
def test_a_rule_fires_at_the_instants_of_the_table(expression: str, zone: str, begin: str, expected: str) -> None:
    due = [ms(text if len(text) > 12 else begin[:8] + text) for text in expected.split()]
    rule = Repeat.cron(expression, zone)

    found = [first_due(rule, ms(begin))]
    while len(found) < len(due):
        after = following(rule, found[-1], len(found))
        assert after is not None
        found.append(after)
    assert [datetime.fromtimestamp(m / 1000, UTC) for m in found] == [
        datetime.fromtimestamp(m / 1000, UTC) for m in due
    ]

    # After downtime until any of them, that one is found at once, and with its number.
    last = Repeat.cron(expression, zone, missed="last")
    for n, at in enumerate(due[1:], 2):
        for now in (at, at + 999):
            assert catch_up(last, due[0], 1, now, 0)[:] == (False, at, n)
    assert catch_up(last, due[0], 1, due[1] - 1, 0)[:] == (True, due[1], 2)


ZONES = ["UTC", *sorted({name for name, *_ in SHIFTS} - {"Pacific/Apia"}), "Asia/Kathmandu", "Africa/El_Aaiun"]
WINDOW = timedelta(days=4)


@lru_cache(maxsize=64)
def _minutes(zone: str, begin: datetime) -> list[tuple[int, datetime]]:
    """Each minute of the window: its instant, and what the clocks show."""
    info = ZoneInfo(zone)
    count = WINDOW // MINUTE
    instants = [begin + i * MINUTE for i in range(count)]
    return [(int(t.timestamp() * 1000), t.astimezone(info).replace(tzinfo=None)) for t in instants]


def _firings(zone: str, begin: datetime, minutes: set[int], hours: set[int], fixed: bool) -> list[int]:
    """Minute by minute: when do the clocks show a matching time, or jump over one?"""
    found = set()
    shown_already: set[datetime] = set()
    former: datetime | None = None
    for instant, shown in _minutes(zone, begin):
        matches = shown.minute in minutes and shown.hour in hours
        if matches and not (fixed and shown in shown_already):
            found.add(instant)
        if fixed and former is not None and shown > former + MINUTE:  # forward: what was skipped fires now
            skipped = [former + i * MINUTE for i in range(1, (shown - former) // MINUTE)]
            if any(w.minute in minutes and w.hour in hours for w in skipped):
                found.add(instant)
        shown_already.add(shown)
        former = shown
    return sorted(found)


@st.composite
def _case(draw: st.DrawFn) -> tuple[str, str, datetime, list[int]]:
    name, before, *_ = draw(st.sampled_from(SHIFTS[:16]))
    zone = draw(st.sampled_from([name, name, name, *ZONES]))
    shift = datetime.fromisoformat(before).replace(tzinfo=UTC, second=0)
    # The search starts well before the shift: it would not know what was shown before its first minute.
    begin = shift - timedelta(days=2) + draw(st.integers(-600, 600)) * MINUTE
    step = draw(st.sampled_from([0, 0, 5, 7, 15, 25, 45]))
    minutes = set(range(0, 60, step)) if step else draw(st.sets(st.integers(0, 59), min_size=1, max_size=4))
    hours = set(range(24)) if draw(st.booleans()) else draw(st.sets(st.integers(0, 5), min_size=1, max_size=4))
    star_minute, star_hour = step > 0 and draw(st.booleans()), len(hours) == 24 and draw(st.booleans())
    minute = f"*/{step}" if star_minute else ",".join(str(m) for m in sorted(minutes))
    hour = "*" if star_hour else ",".join(str(h) for h in sorted(hours))
    firings = _firings(zone, begin, minutes, hours, fixed=not (star_minute or star_hour))
    return f"{minute} {hour} * * *", zone, begin, firings


@given(_case(), st.data())
def test_a_rule_fires_as_a_search_minute_by_minute_finds(
    case: tuple[str, str, datetime, list[int]], data: st.DataObject
) -> None:
    expression, zone, begin, firings = case
    begin_ms = int(begin.timestamp() * 1000)
    every_one = Repeat.cron(expression, zone)
    due = first_due(every_one, begin_ms)
    found = []
    while due is not None and due < begin_ms + WINDOW // timedelta(milliseconds=1):
        found.append(due)
        due = following(every_one, due, len(found))  # type: ignore[assignment]
    assert found == firings

    # From any moment on, and up to any moment, the search finds the same sequence: where it begins does not matter.
    moment = data.draw(st.integers(begin_ms, firings[-1]))
    nth = bisect_right(firings, moment - 1)
    assert first_due(every_one, moment) == firings[nth]
    last = Repeat.cron(expression, zone, missed="last")
    upto = bisect_right(firings, moment)
    if upto > 1:
        assert catch_up(last, firings[0], 1, moment, 0)[:] == (False, firings[upto - 1], upto)


def test_a_time_of_the_gap_only_never_fires_again() -> None:
    # New York's second Sunday of March has had no 02:xx since 2007; before that, the shift was in April.
    rule = Repeat.cron("*/5 2 * 3 SUN#2", "America/New_York")
    assert first_due(rule, ms("2006-01-01")) == ms("2006-03-12T07:00")
    assert following(rule, ms("2006-03-12T07:55"), 12) is None
