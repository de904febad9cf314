"""The rule by which an entry of beat comes again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.schedules import BaseSchedule, crontab, schedule

from tarry.celery.beat import _first_of, rule_of, topics_with
from tarry.repeat import Repeat

APP = Celery("shop", set_as_current=False)


def pending(due: datetime | None) -> Any:
    """A client that finds one series, due at a time, or none."""
    receipt = None if due is None else SimpleNamespace(due_ms=int(due.timestamp() * 1000))
    return SimpleNamespace(find_key=lambda topic, key: receipt)


def entry(when: Any, **more: Any) -> ScheduleEntry:
    return ScheduleEntry("e", "shop.note", schedule=when, app=APP, **more)


@pytest.mark.parametrize(
    ("when", "rule"),
    [
        (schedule(timedelta(seconds=90), app=APP), Repeat.every("90s", missed="last")),
        (crontab(minute="*/15", app=APP), Repeat.cron("*/15 * * * *", "Europe/Berlin", missed="last")),
        (
            crontab(minute=0, hour=[3, 1], day_of_week="mon-fri", app=APP),
            Repeat.cron("0 1,3 * * mon-fri", "Europe/Berlin", missed="last"),
        ),
        (crontab(minute=0, hour=0, day_of_month=1, day_of_week="mon", app=APP), None),
        (BaseSchedule(app=APP), None),
    ],
    ids=["interval", "quarters", "weekdays", "both days", "its own"],
)
def test_rules(when: Any, rule: Repeat | None) -> None:
    APP.conf.timezone = "Europe/Berlin"
    assert rule_of(entry(when), "Europe/Berlin") == rule


def test_computed_arguments_stay_beats_own() -> None:
    when = schedule(timedelta(seconds=90), app=APP)
    assert rule_of(entry(when, args=(BeatLazyFunc(int),)), "UTC") is None


@pytest.mark.parametrize("option", ["countdown", "eta"])
def test_what_is_due_later_than_it_is_sent_stays_beats_own(option: str) -> None:
    """As a series it came without the countdown, too early."""
    when = schedule(timedelta(seconds=90), app=APP)
    assert rule_of(entry(when, options={option: 10}), "UTC") is None


def test_an_interval_ends_for_the_first_time_when_it_has_passed() -> None:
    """It came at once, from each of two beats that were started together, and again at each change of the entry."""
    rule, now = Repeat.every("1h"), datetime.now(UTC)
    fresh = _first_of(pending(None), rule, "celery", "k")
    assert fresh is not None and timedelta(0) <= fresh - now - timedelta(hours=1) < timedelta(minutes=1)
    soon = now.replace(microsecond=0) + timedelta(minutes=5)
    assert _first_of(pending(soon), rule, "celery", "k") == soon, "a change does not begin the interval anew"
    assert _first_of(pending(soon), Repeat.cron("0 1 * * *", "UTC"), "celery", "k") is None


def test_a_series_between_two_occurrences_is_found() -> None:
    """While one is handed on, nothing is pending under its key for some milliseconds; beat ended with a traceback."""
    looks = iter([None, None, None, object()])

    class Asked:
        def find_key(self, topic: str, key: str) -> object:
            return next(looks, None) if topic == "b" else None

    asked: Any = Asked()
    assert topics_with(asked, ["a", "b"], "k") == ["b"]
    assert topics_with(asked, ["a"], "k") == []
