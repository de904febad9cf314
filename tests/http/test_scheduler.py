"""EventBridge Scheduler's API by boto3 as it is: schedules into queues, their series, groups and identities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.base.clock import TestClock
from tarry.fronts.http.front import HttpFront
from tarry.testing import open_broker
from tests.http.scheduler_place import At, target

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@pytest.fixture
def at(tmp_path: Path) -> Iterator[At]:
    clock = TestClock(START_MS)
    with open_broker(tmp_path / "data", clock=clock) as broker, HttpFront.start(broker, "127.0.0.1:0") as front:
        yield At(broker, front.address)


def test_once(at: At) -> None:
    at.create("once", "at(2026-03-01T08:00:00)", ScheduleExpressionTimezone="Europe/Berlin")
    shown = at.scheduler.get_schedule(Name="once")
    assert shown["State"] == "ENABLED"
    assert shown["Target"] == target()
    assert [each["Name"] for each in at.scheduler.list_schedules()["Schedules"]] == ["once"]
    at.broker.advance_to(1_772_348_400_000 - 1)
    assert at.bodies() == []
    at.broker.advance_to(1_772_348_400_000)
    assert at.bodies() == ["hello"]
    assert at.scheduler.get_schedule(Name="once")["Arn"] == shown["Arn"]
    at.scheduler.delete_schedule(Name="once")
    assert at.scheduler.list_schedules()["Schedules"] == []
    assert at.refusal(at.scheduler.get_schedule, Name="once") == ("ResourceNotFoundException", 404)
