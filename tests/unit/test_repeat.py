"""Rules as producers write them, rightly and wrongly; series, and catching up, against a slow definition of it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from cronsim import CronSim
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tarry.base.errors import InvalidArgumentError
from tarry.repeat import (
    LAST_MS,
    Repeat,
    SeriesState,
    Step,
    catch_up,
    first_due,
    following,
    local_times,
    parse,
    read_state,
    series,
    state_json,
    to_json,
)

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z, a Thursday
DAY = 86_400_000
INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("value", "repeat"),
    [
        ({"every": "1m"}, Repeat(every_ms=60_000)),
        ({"every": 90}, Repeat(every_ms=90_000)),
        ({"every": 1.5}, Repeat(every_ms=1500)),
        ({"every": np.int64(2)}, Repeat(every_ms=2000)),
        ({"every": timedelta(hours=2)}, Repeat(every_ms=7_200_000)),
        ({"every": "1m", "times": 5}, Repeat(every_ms=60_000, times=5)),
        ({"every": "1m", "times": np.int32(5)}, Repeat(every_ms=60_000, times=5)),
        ({"every": "1m", "times": None, "cron": None}, Repeat(every_ms=60_000)),
        ({"every": "1m", "zone": "UTC"}, Repeat(every_ms=60_000)),
        ({"every": "1m", "until": NOW}, Repeat(every_ms=60_000, until_ms=NOW)),
        ({"every": "1m", "until": "2026-01-01T01:00:00+01:00"}, Repeat(every_ms=60_000, until_ms=NOW)),
        ({"every": "1m", "until": datetime(2026, 1, 1, tzinfo=UTC)}, Repeat(every_ms=60_000, until_ms=NOW)),
        # Down, not up: nothing may be due after it.
        (
            {"every": "1m", "until": datetime(2026, 1, 1, microsecond=999, tzinfo=UTC)},
            Repeat(every_ms=60_000, until_ms=NOW),
        ),
        ({"every": "1s", "factor": 2}, Repeat(every_ms=1000, factor=2, most_ms=DAY)),
        ({"every": "1s", "factor": 2.0}, Repeat(every_ms=1000, factor=2, most_ms=DAY)),
        ({"every": "1s", "factor": 1.5, "most": "1h"}, Repeat(every_ms=1000, factor=1.5, most_ms=3_600_000)),
        ({"every": "1s", "factor": 1}, Repeat(every_ms=1000)),
        ({"every": "2d", "factor": 2}, Repeat(every_ms=2 * DAY, factor=2, most_ms=2 * DAY)),
        ({"every": "1s", "missed": "none"}, Repeat(every_ms=1000, missed="none")),
        ({"cron": "0 9 * * *"}, Repeat(expression="0 9 * * *")),
        (
            {"cron": " 0  9 * * mon-fri ", "zone": "Europe/Berlin"},
            Repeat(expression="0 9 * * MON-FRI", zone="Europe/Berlin"),
        ),
        ({"cron": "*/15 0 9 * * *"}, Repeat(expression="*/15 0 9 * * *")),
        ({"cron": "0 0 29 FEB *"}, Repeat(expression="0 0 29 FEB *")),
        ({"cron": "0 0 * 2 MON#5"}, Repeat(expression="0 0 * 2 MON#5")),
        ('{"every":"1m","times":5}', Repeat(every_ms=60_000, times=5)),
        (' {"every": 60} ', Repeat(every_ms=60_000)),
        (Repeat.every("1m", times=5), Repeat(every_ms=60_000, times=5)),
        (
            Repeat.every("1s", until=NOW, factor=2, most="1h", missed="last"),
            Repeat(every_ms=1000, until_ms=NOW, factor=2, most_ms=3_600_000, missed="last"),
        ),
        (Repeat.cron("0 9 * * *", "Asia/Tokyo"), Repeat(expression="0 9 * * *", zone="Asia/Tokyo")),
        (
            Repeat.cron("0 9 * * *", times=3, until=NOW, missed="none"),
            Repeat(expression="0 9 * * *", times=3, until_ms=NOW, missed="none"),
        ),
    ],
)
def test_a_rule_is_taken_in_every_spelling(value: Any, repeat: Repeat) -> None:
    assert parse(value) == repeat
    assert hash(parse(value)) == hash(repeat)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ({}, ["neither of every and cron"]),
        ({"times": 3}, ["neither of every and cron"]),
        ({"every": "1m", "cron": "* * * * *"}, ["both of every and cron"]),
        ({"every": "1m", "tims": 3}, ["unknown field 'tims'", "times"]),
        ({"every": "1m", 3: 3}, ["unknown field 3"]),
        ({"every_ms": 60_000}, ["unknown field 'every_ms'", "every"]),
        ({"every": "1m", "n": 2}, ["unknown field 'n'"]),
        ({"every": "1m", "series": 2}, ["unknown field 'series'"]),
        ('{"every":"1m","n":2}', ["unknown field 'n'"]),
        ({"every": "999ms"}, ["every", "999 ms", "at least 1000 ms"]),
        ({"every": 0}, ["every is 0", "1 or more"]),
        ({"every": -1}, ["every", "-1 is negative"]),
        ({"every": True}, ["every is True", "seconds"]),
        ({"every": math.nan}, ["every", "nan"]),
        ({"every": "1 fortnight"}, ["every", "fortnight"]),
        ({"every": "90"}, ["every", "'90'"]),
        ({"every": "2026-01-01T00:00:00Z"}, ["every", "2026"]),
        ({"every": "9" * 60 + "s"}, ["every", "2**63 - 1"]),
        pytest.param({"every": 10**5000}, ["every"], id="huge every"),
        ({"every": datetime(2026, 1, 1, tzinfo=UTC)}, ["every is datetime", "timedelta"]),
        ({"every": ["1m"]}, ["every is ['1m']"]),
        ({"every": b"1m"}, ["every is b'1m'"]),
        ({"every": "1m", "times": 0}, ["times is 0", "from 1"]),
        ({"every": "1m", "times": -1}, ["times is -1"]),
        ({"every": "1m", "times": True}, ["times is True"]),
        ({"every": "1m", "times": 2.0}, ["times is 2.0"]),
        ({"every": "1m", "times": "3"}, ["times is '3'"]),
        ({"every": "1m", "times": 2**63}, ["times is 9223372036854775808"]),
        pytest.param({"every": "1m", "times": 10**5000}, ["times is a int"], id="huge times"),
        ({"every": "1m", "until": datetime(2026, 1, 1)}, ["until", "naive"]),
        ({"every": "1m", "until": "2026-01-01T00:00:00"}, ["until", "naive"]),
        ({"every": "1m", "until": "tomorrow"}, ["until is 'tomorrow'", "ISO 8601"]),
        ({"every": "1m", "until": 1.5}, ["until is 1.5"]),
        ({"every": "1m", "until": True}, ["until is True"]),
        ({"every": "1m", "until": -1}, ["until is -1"]),
        ({"every": "1m", "until": 2**63}, ["until is 9223372036854775808"]),
        ({"every": "1m", "until": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, ["until"]),
        ({"every": "1m", "factor": 0.5}, ["factor is 0.5"]),
        ({"every": "1m", "factor": 1.0001}, ["factor is 1.0001", "1.01"]),
        ({"every": "1m", "factor": 0}, ["factor is 0"]),
        ({"every": "1m", "factor": -2}, ["factor is -2"]),
        ({"every": "1m", "factor": math.nan}, ["factor is nan"]),
        ({"every": "1m", "factor": math.inf}, ["factor is inf"]),
        ({"every": "1m", "factor": 2**63}, ["factor is 9223372036854775808"]),
        ({"every": "1m", "factor": True}, ["factor is True"]),
        ({"every": "1m", "factor": "2"}, ["factor is '2'"]),
        ({"every": "1m", "most": "1h"}, ["most", "factor above 1"]),
        ({"every": "1h", "factor": 2, "most": "1m"}, ["most is 60000", "3600000 ms"]),
        ({"every": "1h", "factor": 2, "most": "long"}, ["most", "'long'"]),
        ({"every": "1m", "zone": "Europe/Berlin"}, ["zone is 'Europe/Berlin'", "cron only"]),
        ({"every": "1m", "zone": ["UTC"]}, ["zone is ['UTC']"]),
        ({"every": "1m", "missed": "some"}, ["missed is 'some'", "'all', 'last', 'none'"]),
        ({"every": "1m", "missed": ["all"]}, ["missed is ['all']"]),
        ({"cron": "0 9 * * *", "factor": 2}, ["factor is 2", "every only"]),
        ({"cron": "0 9 * * *", "factor": 1}, ["factor is 1", "every only"]),
        ({"cron": "0 9 * * *", "most": "1h"}, ["most is '1h'", "every only"]),
        ({"cron": "0 9 * * *", "zone": "Europe/Bielefeld"}, ["zone is 'Europe/Bielefeld'", "IANA"]),
        ({"cron": "0 9 * * *", "zone": "Europe"}, ["zone is 'Europe'"]),
        ({"cron": "0 9 * * *", "zone": ""}, ["zone is ''"]),
        ({"cron": "0 9 * * *", "zone": "../../etc/passwd"}, ["zone is '../../etc/passwd'"]),
        ({"cron": "0 9 * * *", "zone": "/etc/localtime"}, ["zone is '/etc/localtime'"]),
        ({"cron": "0 9 * * *", "zone": "UTC\0"}, ["zone is 'UTC\\x00'"]),
        ({"cron": "0 9 * * *", "zone": "\ud800"}, ["zone is '\\ud800'"]),
        ({"cron": "0 9 * * *", "zone": "A" * 300}, ["zone is 'AAAA"]),
        ({"cron": "0 9 * * *", "zone": 1}, ["zone is 1"]),
        ({"cron": ""}, ["cron is ''", "Wrong number of fields"]),
        ({"cron": "@daily"}, ["cron is '@daily'", "5 fields"]),
        ({"cron": "* * * *"}, ["Wrong number of fields"]),
        ({"cron": "* * * * * * * *"}, ["Wrong number of fields"]),
        ({"cron": "60 * * * *"}, ["60 * * * *", "Bad minute"]),
        ({"cron": "0 24 * * *"}, ["Bad hour"]),
        ({"cron": "60 0 0 * * *"}, ["Bad second"]),
        ({"cron": "0 9 * * FRI-MON"}, ["Bad day-of-week"]),
        ({"cron": "*/0 * * * *"}, ["Bad minute"]),
        ({"cron": "٣ * * * *"}, ["cron is '٣ * * * *'"]),
        ({"cron": "1" * 1000 + " * * * *"}, ["Bad minute"]),
        ({"cron": "* " * 600}, ["characters", "1024"]),
        ({"cron": 5}, ["cron is 5"]),
        ({"cron": ["* * * * *"]}, ["cron is ["]),
        ({"cron": "0 0 30 2 *"}, ["0 0 30 2 *", "Bad day-of-month"]),
        ({"cron": "* * */20 * 1L"}, ["it never fires"]),
        ("", ["not JSON"]),
        ("every 1m", ["'every 1m' is not JSON, at character 1; allowed: "]),
        ('{"every":"1m"', ["not JSON"]),
        ('{"every":"1m"} x', ["not JSON"]),
        ('["every"]', ["no JSON object"]),
        ('"1m"', ["no JSON object"]),
        ("null", ["no JSON object"]),
        ("NaN", ["no JSON object"]),
        ('{"every":"1m","factor":NaN}', ["factor is nan"]),
        ('{"every":"1m","factor":1e999}', ["factor is inf"]),
        ('{"every":"1m","every":"2m"}', ["field 'every' is there more than once"]),
        ('{"every":{"a":1}}', ["every is {'a': 1}"]),
        pytest.param("[" * 4000, ["not JSON"], id="brackets"),
        pytest.param('{"every":"1m","times":' + "1" * 4000 + "}", ["times is 111"], id="digits"),
        pytest.param('{"every":"1m"}' + " " * 4096, ["4110 characters", "4096"], id="long text"),
        (None, ["repeat is None", "allowed"]),
        (60, ["repeat is 60 (int)"]),
        (b'{"every":"1m"}', ["bytes"]),
        ([("every", "1m")], ["list"]),
    ],
)
def test_what_is_no_rule_is_refused_with_the_field_and_the_value(value: Any, texts: list[str]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse(value)
    for text in ["repeat", *texts]:
        assert text in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "neither"),
        ({"every_ms": "1m"}, "every is '1m'"),
        ({"every_ms": 1000, "most_ms": 5}, "most is '5 ms'"),
        ({"every_ms": 1000, "factor": 2, "most_ms": "1h"}, "most is '1h'"),
        ({"every_ms": 1000, "until_ms": datetime(2026, 1, 1, tzinfo=UTC)}, "until is datetime"),
        ({"expression": "0 9 * * *", "most_ms": 5}, "most is 5"),
        ({"expression": "0 9 * * *", "factor": "x"}, "factor is 'x'"),
    ],
)
def test_a_rule_made_by_hand_is_checked_too(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Repeat(**given)
    assert text in str(caught.value)


def test_cron_given_none_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="cron is None"):
        Repeat.cron(None)  # type: ignore[arg-type]


MINUTE, HOUR = 60_000, 3_600_000


@pytest.mark.parametrize(
    ("expression", "closest_ms"),
    [
        ("* * * * * *", 1000),
        ("*/20 * * * * *", 20_000),
        ("0,50 * * * * *", 10_000),
        ("* * * * *", MINUTE),
        ("*/15 * * * *", 15 * MINUTE),
        ("0,7 * * * *", 7 * MINUTE),
        ("7/50 * * * *", 10 * MINUTE),
        ("0,59 0,23 * * *", MINUTE),  # 23:59, 00:00
        ("0,59 0,23 * * MON", 59 * MINUTE),  # Monday's 23:59 is no neighbour of its 00:00
        ("0,59 0,23 1,L * *", MINUTE),  # the last day's 23:59, the first day's 00:00
        ("0 9 * * *", DAY),
        ("0 9 * * MON,WED", 2 * DAY),
        ("0 0,12 * * SUN", 12 * HOUR),
        ("0 0 1 * *", 28 * DAY),
        ("0 0 29 2 *", (4 * 365 + 1) * DAY),
    ],
)
def test_cron_that_fires_oftener_than_allowed_is_refused(expression: str, closest_ms: int) -> None:
    assert parse({"cron": expression}, least_ms=closest_ms)
    with pytest.raises(InvalidArgumentError, match=f"oftener.*{closest_ms + 1} ms"):
        parse({"cron": expression}, least_ms=closest_ms + 1)


def test_the_least_interval_is_the_brokers() -> None:
    assert parse(Repeat.every("10ms"), least_ms=10) == Repeat(every_ms=10)
    with pytest.raises(InvalidArgumentError, match="every is '60000 ms'; allowed: at least 60001 ms"):
        parse('{"every":"1m"}', least_ms=60_001)
    with pytest.raises(InvalidArgumentError, match="every is '60000 ms'"):
        parse(Repeat.every("1m"), least_ms=60_001)


@pytest.mark.parametrize(
    ("repeat", "text"),
    [
        (Repeat.every(60), '{"every":"1m"}'),
        (Repeat.every(90, times=5), '{"every":"90s","times":5}'),
        (Repeat.every("1001ms"), '{"every":"1001ms"}'),
        (Repeat.every("48h", until=NOW), '{"every":"2d","until":1767225600000}'),
        (Repeat.every("1s", factor=2), '{"every":"1s","factor":2,"most":"1d"}'),
        (Repeat.every("1s", factor=1.5, most="1h", missed="last"), None),
        (Repeat.cron("0 9 * * mon-fri", "Europe/Berlin"), '{"cron":"0 9 * * MON-FRI","zone":"Europe/Berlin"}'),
        (Repeat.cron("0 9 * * *", missed="none"), '{"cron":"0 9 * * *","missed":"none"}'),
    ],
)
def test_the_canonical_text_is_short_and_comes_back(repeat: Repeat, text: str | None) -> None:
    assert text is None or to_json(repeat) == text
    assert parse(to_json(repeat)) == repeat


CRONS = ["*/7 * * * *", "30 2 * * *", "0 0,12 * * *", "0 * * * *", "15 30 1,2 * * *", "0 9 * * MON-FRI", "0 0 L * *"]
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata"]


@st.composite
def rules(draw: st.DrawFn) -> Repeat:
    ends: dict[str, Any] = {
        "times": draw(st.none() | st.integers(1, 40)),
        "until": draw(st.none() | st.integers(NOW, NOW + 340 * DAY)),
        "missed": draw(st.sampled_from(["all", "last", "none"])),
    }
    if draw(st.booleans()):
        return Repeat.cron(draw(st.sampled_from(CRONS)), draw(st.sampled_from(ZONES)), **ends)
    every = timedelta(milliseconds=draw(st.sampled_from([1000, HOUR, DAY]) | st.integers(1, 2 * DAY)))
    factor = draw(st.sampled_from([1, 1, 2, 3, 1.5, 1.01, 10**9]) | st.floats(1.01, 10))
    more = draw(st.none() | st.integers(0, 3 * DAY)) if factor != 1 else None
    most = None if more is None else every + timedelta(milliseconds=more)
    return Repeat.every(every, factor=factor, most=most, **ends)


@given(rules())
def test_every_rule_comes_back_from_its_text(repeat: Repeat) -> None:
    text = to_json(repeat)
    assert parse(text, least_ms=1) == repeat
    assert parse(json.loads(text), least_ms=1) == repeat
    assert to_json(parse(text, least_ms=1)) == text
    assert len(text) <= 4096


@given(rules(), st.integers(1, INT64_MAX), st.none() | st.integers(0, INT64_MAX))
@example(Repeat.every("1m"), 1, None)
def test_every_state_comes_back_from_its_text(repeat: Repeat, n: int, first: int | None) -> None:
    state = SeriesState(repeat, n, first)
    assert read_state(state_json(state)) == state


def test_the_state_of_a_first_occurrence_is_the_rule() -> None:
    rule = Repeat.every("1m", times=5)
    assert state_json(SeriesState(rule)) == to_json(rule) == '{"every":"1m","times":5}'
    assert state_json(SeriesState(rule, 3, 77)) == '{"every":"1m","times":5,"n":3,"series":77}'
    assert read_state('{"every":"1m","n":3,"series":77}').repeat is read_state('{"every":"1m","n":4}').repeat


@pytest.mark.parametrize(
    "text",
    [
        '{"every":"1m","n":0}',
        '{"every":"1m","n":true}',
        '{"every":"1m","n":"2"}',
        '{"every":"1m","n":9223372036854775808}',
        '{"every":"1m","series":-1}',
        '{"every":"1m","series":1.5}',
        '{"every":["1m"],"n":2}',
        '{"every":"1m","times":true}',
        '{"cron":"0 9 * * *","zone":"Gone/City"}',
        '{"n":1}',
        "{",
        "[]",
    ],
)
def test_what_is_no_state_is_refused(text: str) -> None:
    read_state('{"every":"1m","times":1}')  # equal to the next but for its type
    with pytest.raises(InvalidArgumentError):
        read_state(text)


def test_the_first_occurrence_of_an_interval_is_when_it_is_said_to_be() -> None:
    assert first_due(Repeat.every("1h"), NOW + 5) == NOW + 5
    assert first_due(Repeat.every("1h", until=NOW), NOW) == NOW
    with pytest.raises(
        InvalidArgumentError, match=r"due 2026-01-01T00:00:00\.001Z, .* until 2026-01-01T00:00:00\.000Z"
    ):
        first_due(Repeat.every("1h", until=NOW), NOW + 1)
    with pytest.raises(InvalidArgumentError, match="the first occurrence is due 9999-01-01T00:00:00"):
        first_due(Repeat.every("1h"), LAST_MS + 1)


def test_the_first_occurrence_of_cron_is_never_before_it_is_said_to_be() -> None:
    rule = Repeat.cron("* * * * * *")
    assert [first_due(rule, NOW + ms) for ms in (-1, 0, 1, 999, 1000)] == [NOW, NOW, NOW + 1000, NOW + 1000, NOW + 1000]
    assert first_due(Repeat.cron("0 9 * * *", "Asia/Tokyo"), NOW) == NOW  # 09:00 there
    assert first_due(rule, -5) == 0
    assert first_due(rule, -(2**63)) == 0
    with pytest.raises(InvalidArgumentError, match="after the end of the series"):
        first_due(Repeat.cron("0 9 * * *", until=NOW + 9 * HOUR - 1), NOW)
    assert first_due(Repeat.cron("0 9 * * *", until=NOW + 9 * HOUR), NOW) == NOW + 9 * HOUR
    for never in (LAST_MS, 2**62, INT64_MAX):
        with pytest.raises(InvalidArgumentError, match="does not fire in UTC from"):
            first_due(Repeat.cron("0 9 1 1 *"), never)


def dues(repeat: Repeat, due: int, most: int = 30) -> list[int]:
    found: list[int] = []
    after: int | None = due
    while after is not None and len(found) < most:
        found.append(after)
        after = following(repeat, after, len(found))
    return found


@pytest.mark.parametrize(
    ("repeat", "seconds"),
    [
        (Repeat.every("1m", times=1), [0]),
        (Repeat.every("1m", times=4), [0, 60, 120, 180]),
        (Repeat.every("1m", until=NOW + 120_000), [0, 60, 120]),
        (Repeat.every("1m", until=NOW + 119_999), [0, 60]),
        (Repeat.every("1m", times=2, until=NOW + 600_000), [0, 60]),
        (Repeat.every("1s", factor=2, times=6), [0, 1, 3, 7, 15, 31]),
        (Repeat.every("2s", factor=2, times=5, most="8s"), [0, 2, 6, 14, 22]),
        (Repeat.every("1s", factor=1.5, times=5), [0, 1, 2.5, 4.75, 8.125]),
        (Repeat.every("10s", factor=3, times=4, most="10s"), [0, 10, 20, 30]),
        (Repeat.cron("0 */8 * * *", times=4), [0, 28_800, 57_600, 86_400]),
    ],
)
def test_a_series_has_these_occurrences(repeat: Repeat, seconds: list[float]) -> None:
    assert dues(repeat, NOW) == [NOW + round(s * 1000) for s in seconds]


def test_growing_intervals_stop_at_a_day_by_default_as_in_chronos() -> None:
    rule = Repeat.every("3s", factor=2)
    found = dues(rule, NOW, 40)
    steps = [b - a for a, b in pairwise(found)]
    assert steps[:16] == [3000 * 2**k if 3000 * 2**k < DAY else DAY for k in range(16)]
    assert set(steps[16:]) == {DAY}


def test_whole_factors_are_computed_exactly_and_no_power_is_too_great() -> None:
    wide = Repeat(every_ms=1, factor=3, most_ms=INT64_MAX)
    due = following(wide, 0, 31)
    assert due == 3**30
    for factor in (2, 3, 1.01, 2**62, 1e18):
        rule = Repeat(every_ms=7, factor=factor, most_ms=DAY)
        assert following(rule, NOW, 10**18) == NOW + DAY
    assert following(Repeat(every_ms=INT64_MAX, factor=2), 0, 5) is None


def test_a_series_ends_with_the_calendar() -> None:
    assert following(Repeat.every("1h"), LAST_MS - HOUR, 1) == LAST_MS
    assert following(Repeat.every("1h"), LAST_MS - HOUR + 1, 1) is None
    assert following(Repeat(every_ms=INT64_MAX), INT64_MAX, 1) is None
    for zone in ("UTC", "Pacific/Kiritimati", "America/New_York"):
        for expression in ("* * * * * *", "0 0 * * *", "0 0 29 2 *"):
            rule = Repeat.cron(expression, zone)
            for due in (LAST_MS, INT64_MAX):
                assert following(rule, due, 1) is None
                assert catch_up(Repeat.cron(expression, zone, missed="last"), due, 1, INT64_MAX, 0) == (True, None, 0)
    second = Repeat.cron("* * * * * *", missed="last")
    assert catch_up(second, LAST_MS - 10_000, 1, INT64_MAX, 0) == (False, LAST_MS - 999, 11)


@given(rules(), st.integers(NOW, NOW + 340 * DAY), st.integers(1, 45))
def test_what_follows_is_later_and_within_the_bounds(repeat: Repeat, due: int, n: int) -> None:
    after = following(repeat, due, n)
    if after is None:
        assert repeat.times is not None or repeat.until_ms is not None
        return
    assert after > due
    assert repeat.times is None or n + 1 <= repeat.times
    assert repeat.until_ms is None or after <= repeat.until_ms


def catch_up_slowly(repeat: Repeat, due: int, n: int, now: int, missed_after: int) -> Step:
    """The definition: occurrence by occurrence."""
    after = following(repeat, due, n)
    if repeat.missed == "last" and after is not None and after <= now:
        while (after := following(repeat, due, n)) is not None and after <= now:
            due, n = after, n + 1
        return Step(False, due, n)
    missed = now - due > min(missed_after, missed_after if after is None else after - due)
    if repeat.missed == "none" and missed:
        while after is not None and after <= now:
            due, n = after, n + 1
            after = following(repeat, due, n)
        return Step(False, after, 0 if after is None else n + 1)
    return Step(True, after, 0 if after is None else n + 1)


@given(
    rules(),
    st.integers(NOW, NOW + 300 * DAY),
    st.integers(1, 45),
    st.integers(-2000, 300_000) | st.integers(-1, 60 * DAY),
    st.sampled_from([0, 1000, 60_000, DAY]),
)
@example(Repeat.every("1m", missed="none"), NOW, 1, 60_000, DAY)  # the next is due this moment
@example(Repeat.every("1m", missed="none"), NOW, 1, 60_001, DAY)
@example(Repeat.every("1m", missed="none"), NOW, 1, 1001, 1000)  # missed, and the next is not due yet
@example(Repeat.every("1m", missed="none", times=1), NOW, 1, 1001, 1000)
@example(Repeat.every("1m", missed="none", times=3), NOW, 1, HOUR, 1000)
@example(Repeat.every("1m", missed="last", times=3), NOW, 1, HOUR, 1000)
@example(Repeat.every("1m", missed="last", until=NOW + 150_000), NOW, 1, HOUR, 1000)
@example(Repeat.cron("*/7 * * * *", missed="last", times=9), NOW, 1, DAY, 1000)
@example(Repeat.cron("0 * * * *", "America/New_York", missed="last", times=20), NOW + 306 * DAY, 1, DAY, 1000)
def test_catching_up_is_as_occurrence_by_occurrence(repeat: Repeat, due: int, n: int, late: int, slack: int) -> None:
    if repeat.every_ms is not None:
        assume(late // repeat.every_ms < 20_000)
    if repeat.expression == "*/7 * * * *":
        late = min(late, 3 * DAY)
    step = catch_up(repeat, due, n, due + late, slack)
    assert step == catch_up_slowly(repeat, due, n, due + late, slack)
    # And what it says is next, taken at the same moment, is delivered or not due yet: nothing goes round in circles.
    if step.next_due_ms is not None and not step.deliver:
        assert step.next_due_ms > due
        if step.next_due_ms <= due + late:
            assert catch_up(repeat, step.next_due_ms, step.next_n, due + late, slack).deliver


YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("rule", "last"),
    [
        (Repeat.every("1s", missed="last"), (NOW + YEAR, 31_536_001)),
        (Repeat.every("1s", missed="last", times=10_000_000), (NOW + 9_999_999_000, 10_000_000)),
        (Repeat.cron("* * * * *", "Europe/Berlin", missed="last"), (NOW + YEAR, 525_601)),
        (Repeat.cron("* * * * *", "Europe/Berlin", missed="last", times=400_000), (NOW + 399_999 * MINUTE, 400_000)),
        (Repeat.cron("* * * * * *", "America/New_York", missed="last"), (NOW + YEAR, 31_536_001)),
        (Repeat.cron("* 0-23 * * *", "America/New_York", missed="last"), (NOW + YEAR, 525_601)),
        # Listed, minutes are fixed times: those of the fold's second hour do not fire.
        (Repeat.cron("0-59 0-23 * * *", "America/New_York", missed="last"), (NOW + YEAR, 525_601 - 60)),
    ],
)
def test_a_year_of_downtime_is_counted_not_walked(
    rule: Repeat, last: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = 0
    search = CronSim.__next__

    def counted(sim: CronSim) -> datetime:
        nonlocal searches
        searches += 1
        return search(sim)

    monkeypatch.setattr(CronSim, "__next__", counted)
    step = catch_up(rule, NOW, 1, NOW + YEAR, 0)
    assert step == (False, *last)
    assert searches <= 10


def test_growing_intervals_are_walked_to_their_cap_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Repeat.every("1s", factor=1.01, most="2s", missed="last")
    due, n = NOW, 1
    while (after := following(rule, due, n)) is not None and after - due < 2000:
        due, n = after, n + 1
    assert n == 71  # 1.01**70 is the first power above 2
    steps = 0
    interval_ms = series.interval_ms

    def counted(repeat: Repeat, n: int) -> int:
        nonlocal steps
        steps += 1
        return interval_ms(repeat, n)

    monkeypatch.setattr(series, "interval_ms", counted)
    whole = (NOW + YEAR - due) // 2000
    assert catch_up(rule, NOW, 1, NOW + YEAR, 0) == (False, due + whole * 2000, n + whole)
    assert steps < 80


def test_a_herd_with_one_rule_is_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Repeat.cron("3 4 * * *", "Asia/Kolkata")
    expected = following(rule, NOW, 1)
    monkeypatch.setattr(local_times, "CronFields", None)  # any further search would fail
    assert {following(read_state(state_json(SeriesState(rule, n))).repeat, NOW, n) for n in range(1, 1000)} == {
        expected
    }


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)
FIELD_TEXT = st.text(alphabet="0123456789*/,-#LWMONJAFEB", min_size=1, max_size=7)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "every": st.sampled_from(["1m", 60]) | ANYTHING,
            "cron": st.lists(FIELD_TEXT, min_size=5, max_size=6).map(" ".join) | ANYTHING,
            "zone": st.sampled_from(["UTC", "Europe/Berlin"]) | ANYTHING,
            "times": st.integers(1, 9) | ANYTHING,
            "until": st.integers(0, 2**63) | st.datetimes() | ANYTHING,
            "factor": st.floats(1, 3) | ANYTHING,
            "most": st.sampled_from(["1h", 3600]) | ANYTHING,
            "missed": st.sampled_from(["all", "last", "none"]) | ANYTHING,
        },
    )
    | ANYTHING
)
def test_whatever_is_given_is_a_rule_or_refused(value: Any) -> None:
    try:
        repeat = parse(value, least_ms=2000)
    except InvalidArgumentError as error:
        assert "repeat" in str(error)
        return
    assert parse(to_json(repeat), least_ms=2000) == repeat
    if repeat.until_ms is None:
        due = first_due(repeat, NOW)
        assert due >= NOW
