"""Expressions of EventBridge Scheduler: those of AWS's pages, over shifts of the clocks, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tarry.fronts.http.scheduler.errors import SchedulerError
from tarry.fronts.http.scheduler.expressions import expression_of
from tarry.repeat import first_due, following


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "zone", "begin", "expected"),
    [
        ("cron(0 10 * * ? *)", "UTC", "2024-06-01T11:00", "2024-06-02T10:00 2024-06-03T10:00"),
        ("cron(0 18 ? * MON-FRI *)", "UTC", "2024-06-07T00:00", "2024-06-07T18:00 2024-06-10T18:00"),
        ("cron(0 18 ? * 2-6 *)", "UTC", "2024-06-07T00:00", "2024-06-07T18:00 2024-06-10T18:00"),
        ("cron(0 8 1 * ? *)", "UTC", "2024-06-02T00:00", "2024-07-01T08:00 2024-08-01T08:00"),
        ("cron(1/10 0 * * ? *)", "UTC", "2024-06-01T00:50", "2024-06-01T00:51 2024-06-02T00:01"),
        ("cron(0 9 ? * 2#1 *)", "UTC", "2024-06-01T00:00", "2024-06-03T09:00 2024-07-01T09:00"),
        ("cron(15 10 ? * 6L 2022-2023)", "UTC", "2022-11-26T00:00", "2022-12-30T10:15 2023-01-27T10:15"),
        ("cron(0 9 3W * ? *)", "UTC", "2024-08-01T00:00", "2024-08-02T09:00 2024-09-03T09:00"),
        ("cron(0 9 L * ? *)", "UTC", "2024-02-01T00:00", "2024-02-29T09:00 2024-03-31T09:00"),
        ("cron(0 9 ? * L *)", "UTC", "2024-06-01T10:00", "2024-06-08T09:00"),
        ("cron(0 9 ? * FRI-SUN *)", "UTC", "2024-06-07T00:00", "2024-06-07T09:00 2024-06-08T09:00 2024-06-09T09:00"),
        # Spring: half past two does not exist, and is skipped. Autumn: half past one comes once.
        ("cron(30 2 * * ? *)", "America/New_York", "2024-03-09T00:00", "2024-03-09T07:30 2024-03-11T06:30"),
        ("cron(30 1 * * ? *)", "America/New_York", "2024-11-03T00:00", "2024-11-03T05:30 2024-11-04T06:30"),
        ("rate(1 day)", "America/New_York", "2024-03-09T07:30", "2024-03-09T07:30 2024-03-10T07:30 2024-03-11T07:30"),
    ],
)
def test_when_it_fires(text: str, zone: str, begin: str, expected: str) -> None:
    rule = expression_of(text, zone).rule(None, 0, 0)
    due: int | None = first_due(rule, ms(begin))
    for n, each in enumerate(expected.split(), 1):
        assert due == ms(each), n
        due = following(rule, due, n)


def test_at_is_a_local_time() -> None:
    assert expression_of("at(2024-07-01T09:00:00)", "Europe/Berlin").at_ms == ms("2024-07-01T07:00")


@pytest.mark.parametrize(
    "text",
    [
        *("", "some cron", "at(tomorrow)", "at(2024-07-01)", "rate(0 minutes)", "rate(1 second)", "rate(1.5 hours)"),
        *(
            "cron(0 10 * * * *)",
            "cron(0 10 ? * ? *)",
            "cron(0 10 * * ?)",
            "cron(61 10 * * ? *)",
            "cron(0 10 * * ? 1969)",
        ),
        *("cron(0 10 ? * 8 *)", "cron(0 10 ? * 0 *)", "cron(0 10 31W 6 ? *)", "cron(0 10 30 2 ? *)", 7),
    ],
)
def test_what_is_none(text: object) -> None:
    with pytest.raises(SchedulerError, match="Allowed"):
        expression_of(text, "UTC")


def test_no_such_zone() -> None:
    with pytest.raises(SchedulerError, match="IANA"):
        expression_of("rate(1 hour)", "Mars/Olympus")
