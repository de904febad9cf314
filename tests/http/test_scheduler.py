"""EventBridge Scheduler's API by boto3 as it is: schedules into queues, their series, groups and identities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry.base.clock import TestClock
from tarry.fronts.http.front import HttpFront
from tarry.fronts.http.scheduler import schedules
from tarry.fronts.http.scheduler.occurrences import occurrence_row
from tarry.fronts.http.sqs.scheduled import TIME
from tarry.testing import open_broker
from tests.http.scheduler_place import ROLE, At, target
from tests.http.sqs_place import REGION, make_queue
from tests.snippets import snippets

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, a Thursday."""
MINUTE_MS = 60_000
HOUR_MS, DAY_MS = 60 * MINUTE_MS, 24 * 60 * MINUTE_MS


@pytest.fixture
def at(tmp_path: Path) -> Iterator[At]:
    clock = TestClock(START_MS)
    with open_broker(tmp_path / "data", clock=clock) as broker, HttpFront.start(broker, "127.0.0.1:0") as front:
        yield At(broker, front.address)


def test_once(at: At) -> None:
    at.create("once", "at(2026-03-01T08:00:00)", ScheduleExpressionTimezone="Europe/Berlin")
    shown = at.scheduler.get_schedule(Name="once")
    assert shown["Arn"] == f"arn:aws:scheduler:{REGION}:000000000000:schedule/default/once"
    assert (shown["State"], shown["ActionAfterCompletion"], shown["GroupName"]) == ("ENABLED", "NONE", "default")
    retries = {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
    assert (shown["Target"], shown["FlexibleTimeWindow"]) == (target(RetryPolicy=retries), {"Mode": "OFF"})
    assert shown["CreationDate"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert at.names() == ["once"]
    at.broker.advance_to(1_772_348_400_000 - 1)
    assert at.bodies() == []
    at.broker.advance_to(1_772_348_400_000)
    assert at.bodies() == ["hello"]
    assert at.names() == ["once"]
    at.update("once", "at(2026-03-01T08:00:00)", ScheduleExpressionTimezone="Europe/Berlin", Description="sent")
    at.broker.advance("1d")
    assert at.bodies() == []
    at.scheduler.delete_schedule(Name="once")
    assert at.names() == []
    assert at.refusal(at.scheduler.get_schedule, Name="once") == ("ResourceNotFoundException", 404)


def test_rates_and_cron(at: At) -> None:
    at.create("hourly", "rate(1 hour)", Target=target(text="rate"))
    at.create("weekdays", "cron(30 9 ? * MON-FRI *)", Target=target(text="cron"))
    assert at.bodies() == ["rate"]
    at.broker.advance_to(START_MS + 9 * HOUR_MS + 30 * MINUTE_MS)
    assert sorted(at.bodies()) == ["cron"] + ["rate"] * 9
    at.update("hourly", "rate(1 hour)", Target=target(text="another"))
    at.broker.advance_to(START_MS + 10 * HOUR_MS)
    assert at.bodies() == ["another"]
    at.scheduler.delete_schedule(Name="hourly")
    at.broker.advance_to(START_MS + 4 * DAY_MS)
    assert at.bodies() == ["cron"]  # Friday's, and none on the weekend


def test_the_series_goes_on_for_years(at: At) -> None:
    """Longer than messages are kept in the queue, and than a definition is pending once."""
    at.create("yearly", "cron(0 0 1 7 ? *)")
    for year in range(3):
        at.broker.advance_to(START_MS + year * 365 * DAY_MS + 182 * DAY_MS)
        assert at.bodies() == ["hello"]
    assert at.names() == ["yearly"]


def test_disabled_and_enabled_again(at: At) -> None:
    at.create("daily", "rate(1 day)", State="DISABLED")
    at.broker.advance("2d")
    assert at.bodies() == []
    assert [each["State"] for each in at.scheduler.list_schedules(State="DISABLED")["Schedules"]] == ["DISABLED"]
    at.update("daily", "rate(1 day)")
    at.broker.advance("1h")
    assert at.bodies() == ["hello"]
    at.update("daily", "rate(1 day)", State="DISABLED")
    at.broker.advance("3d")
    assert at.bodies() == []
    assert at.scheduler.get_schedule(Name="daily")["State"] == "DISABLED"


def test_another_queue(at: At) -> None:
    make_queue(at.sqs, "others")
    at.create("daily", "rate(1 day)")
    assert at.bodies() == ["hello"]
    at.update("daily", "rate(1 day)", Target=target("others"))  # at the very moment of an occurrence
    assert (at.bodies(), at.bodies("others")) == ([], [])
    at.broker.advance("1d")
    assert (at.bodies(), at.bodies("others")) == ([], ["hello"])


@pytest.mark.parametrize("late_ms", [0, 5_000])
def test_what_is_changed_before_its_late_occurrence_is_sent(at: At, late_ms: int) -> None:
    rules = {"rate": "rate(1 hour)", "cron": "cron(0 * * * ? *)", "once": "at(2026-01-01T01:00:00)"}
    for name, expression in rules.items():
        at.create(name, expression)
    assert at.bodies() == ["hello"] * 2  # what recurs begins at once
    at.broker.clock.set_ms(START_MS + HOUR_MS + late_ms)  # and the broker has not looked yet
    for name, expression in rules.items():
        at.update(name, expression, Target=target(text=name))
    assert sorted(at.bodies()) == ["cron", "once", "rate"]
    for name, expression in rules.items():
        at.update(name, expression, Target=target(text=f"{name} again"))
    assert at.bodies() == []
    at.broker.advance_to(START_MS + 2 * HOUR_MS)
    assert sorted(at.bodies()) == ["cron again", "rate again"]


@pytest.mark.parametrize("expression", ["rate(1 hour)", "cron(0 * * * ? *)", "at(2026-01-01T01:00:00)"])
def test_what_is_sent_while_it_is_changed_comes_once(at: At, expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at.create("hourly", expression)
    at.bodies()
    moments = iter([START_MS + HOUR_MS])

    def made(*arguments: Any) -> Any:
        row = occurrence_row(*arguments)
        for moment in moments:
            at.broker.clock.set_ms(moment)
            at.broker.step()
        return row

    monkeypatch.setattr(schedules, "occurrence_row", made)
    at.update("hourly", expression, Target=target(text="changed"))
    assert at.bodies() == ["hello"]
    at.broker.advance_to(START_MS + 2 * HOUR_MS)
    assert at.bodies() == ([] if expression.startswith("at") else ["changed"])
    assert at.scheduler.get_schedule(Name="hourly")["Target"]["Input"] == "changed"


def test_a_change_within_a_flexible_window(at: At) -> None:
    names = [f"n{number}" for number in range(20)]
    window = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 60}
    for name in names:
        at.create(name, "cron(0 0 * * ? *)", FlexibleTimeWindow=window)
    at.broker.advance("30m")
    first = len(at.bodies())
    for name in names:
        at.update(name, "cron(0 0 * * ? *)", FlexibleTimeWindow=window, Description="changed")
    at.broker.advance("30m")
    assert 0 < first < 20 == first + len(at.bodies())


def test_a_change_after_the_last_occurrence(at: At) -> None:
    end = datetime(2026, 1, 1, 2, 30, tzinfo=UTC)
    at.create("until", "rate(1 hour)", EndDate=end)
    at.broker.advance("2h")
    assert len(at.bodies()) == 3
    at.update("until", "rate(1 hour)", EndDate=end, Description="over")
    assert at.scheduler.get_schedule(Name="until")["Description"] == "over"
    at.broker.advance("3h")
    assert at.bodies() == []


def test_gone_after_completion(at: At) -> None:
    at.create("once", "at(2026-01-01T01:00:00)", ActionAfterCompletion="DELETE")
    end = datetime(2026, 1, 1, 2, tzinfo=UTC)
    at.create("until", "rate(30 minutes)", ActionAfterCompletion="DELETE", EndDate=end)
    assert at.scheduler.get_schedule(Name="until")["EndDate"] == end
    at.broker.advance_to(START_MS + HOUR_MS)
    assert len(at.bodies()) == 4
    at.broker.advance_to(START_MS + HOUR_MS + 1)
    assert at.names() == ["until"]
    at.broker.advance_to(START_MS + 2 * HOUR_MS + 1)
    assert len(at.bodies()) == 2
    assert at.names() == []
    for name in ("once", "until"):
        assert at.refusal(at.scheduler.get_schedule, Name=name) == ("ResourceNotFoundException", 404)
        assert at.refusal(at.scheduler.delete_schedule, Name=name) == ("ResourceNotFoundException", 404)
    at.create("once", "rate(1 hour)")
    assert at.names() == ["once"]


def test_a_flexible_window(at: At) -> None:
    window = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 60}
    for number in range(20):
        at.create(f"n{number}", "at(2026-01-02T00:00:00)", FlexibleTimeWindow=window)
    counts = []
    for part in range(3):
        at.broker.advance_to(START_MS + DAY_MS + part * 30 * MINUTE_MS)
        counts.append(len(at.bodies()))
    assert sum(counts) == 20
    assert counts[0] < 5 <= min(counts[1:])


def test_the_event_without_an_input(at: At) -> None:
    arn = at.create("event", "rate(1 hour)", Target=target(text=None))
    at.create("filled", "rate(1 hour)", Target=target(text="<aws.scheduler.scheduled-time>"))
    [event, time] = sorted(at.bodies(), reverse=True)
    fields = json.loads(event)
    assert fields.pop("id") and time == fields["time"] == "2026-01-01T00:00:00Z"
    assert fields == {
        "version": "0",
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": "000000000000",
        "time": time,
        "region": REGION,
        "resources": [arn],
        "detail": "{}",
    }


def test_groups_with_tags(at: At) -> None:
    made = at.scheduler.create_schedule_group(Name="night", Tags=[{"Key": "team", "Value": "a"}])["ScheduleGroupArn"]
    at.scheduler.tag_resource(ResourceArn=made, Tags=[{"Key": "env", "Value": "test"}])
    at.scheduler.untag_resource(ResourceArn=made, TagKeys=["team"])
    assert at.scheduler.list_tags_for_resource(ResourceArn=made)["Tags"] == [{"Key": "env", "Value": "test"}]
    assert at.refusal(at.scheduler.create_schedule_group, Name="night") == ("ConflictException", 409)
    at.create("same", "rate(1 day)", GroupName="night")
    at.create("same", "rate(1 day)")
    assert at.names(GroupName="night") == ["same"]
    groups = at.scheduler.list_schedule_groups()["ScheduleGroups"]
    assert [(each["Name"], each["State"]) for each in groups] == [("default", "ACTIVE"), ("night", "ACTIVE")]
    at.bodies()
    at.scheduler.delete_schedule_group(Name="night")
    assert at.refusal(at.scheduler.get_schedule_group, Name="night") == ("ResourceNotFoundException", 404)
    assert at.names() == ["same"]
    at.broker.advance("1d")
    assert at.bodies() == ["hello"]


def test_pages(at: At) -> None:
    for number in range(7):
        at.create(f"n{number}", "rate(1 day)", State="DISABLED")
    pages = list(at.scheduler.get_paginator("list_schedules").paginate(PaginationConfig={"PageSize": 3}))
    assert [len(page["Schedules"]) for page in pages][:2] == [3, 3]
    assert sorted(each["Name"] for page in pages for each in page["Schedules"]) == [f"n{n}" for n in range(7)]
    assert at.names(NamePrefix="n3") == ["n3"]


def test_a_queue_that_keeps_order(at: At) -> None:
    make_queue(at.sqs, "line.fifo")
    at.create("ordered", "rate(1 day)", Target=target("line.fifo", SqsParameters={"MessageGroupId": "a"}))
    assert at.bodies("line.fifo") == ["hello"]
    bare = {"Name": "bare", "ScheduleExpression": "rate(1 day)", "FlexibleTimeWindow": {"Mode": "OFF"}}
    assert at.refusal(at.scheduler.create_schedule, **bare, Target=target("line.fifo")) == ("ValidationException", 400)


def test_a_request_that_is_repeated(at: At) -> None:
    first = at.create("daily", "rate(1 day)", ClientToken="t1")
    assert at.create("daily", "rate(1 day)", ClientToken="t1") == first
    assert at.bodies() == ["hello"]
    again = at.arguments("daily", "rate(1 day)", ClientToken="t2")
    assert at.refusal(at.scheduler.create_schedule, **again) == ("ConflictException", 409)


def test_a_token_with_other_parameters(at: At) -> None:
    """It is a conflict; the parameters of the creation are a repeat, also when they hold no longer."""
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)
    given = at.arguments("hourly", "rate(1 hour)", ClientToken="t1", StartDate=start, EndDate=end)
    first = at.scheduler.create_schedule(**given)["ScheduleArn"]
    assert at.scheduler.create_schedule(**given, State="ENABLED")["ScheduleArn"] == first
    for changed in ({"ScheduleExpression": "rate(2 hours)"}, {"Target": target(text="another")}):
        refused = at.refusal(at.scheduler.create_schedule, **{**given, **changed})
        assert refused == ("ConflictException", 409)
    at.update("hourly", "rate(3 hours)")
    at.broker.advance("2h")
    assert at.scheduler.create_schedule(**given)["ScheduleArn"] == first
    assert at.scheduler.get_schedule(Name="hourly")["ScheduleExpression"] == "rate(3 hours)"
    group = {"Name": "team", "ClientToken": "t2", "Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]}
    arn = at.scheduler.create_schedule_group(**group)["ScheduleGroupArn"]
    assert at.scheduler.create_schedule_group(**{**group, "Tags": group["Tags"][::-1]})["ScheduleGroupArn"] == arn
    assert at.refusal(at.scheduler.create_schedule_group, **{**group, "Tags": []}) == ("ConflictException", 409)


@pytest.mark.parametrize(
    "changed",
    [
        {"ScheduleExpression": "often"},
        {"ScheduleExpression": "cron(0 0 1 1 ? 2020)"},
        {"ScheduleExpressionTimezone": "Mars/Olympus"},
        {"Target": target("missing")},
        {"Target": {"Arn": "arn:aws:lambda:eu-central-1:000000000000:function:f", "RoleArn": ROLE}},
        {"FlexibleTimeWindow": {"Mode": "FLEXIBLE"}},
        {"EndDate": datetime(2025, 1, 1, tzinfo=UTC)},
        {"StartDate": datetime(2025, 12, 31, 23, 54, tzinfo=UTC)},
        {"State": "PAUSED"},
        {"ScheduleExpression": "at(2400-01-01T00:00:00)"},
    ],
)
def test_refusals(at: At, changed: dict[str, object]) -> None:
    given = at.arguments("bad", "rate(1 day)", **changed)
    assert at.refusal(at.scheduler.create_schedule, **given) == ("ValidationException", 400)
    assert at.names() == []


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("cron(60 * * * ? *)", "bad minute"),
        ("at(2400-01-01T00:00:00)", "its first time is 136600 days ahead"),
        ("at(0001-01-01T00:00:00)", "its year is 1, before 1970"),
        ("cron(0 0 * * ? 2020)", "it has no time from 2026-01-01T00:00:00.000Z on"),
    ],
)
def test_a_refusal_speaks_of_what_was_given(at: At, expression: str, why: str) -> None:
    with pytest.raises(at.scheduler.exceptions.ValidationException) as refused:
        at.create("bad", expression)
    text = refused.value.response["Error"]["Message"]
    assert text.startswith(f"Invalid Schedule Expression {expression}: {why}") and "llowed: " in text


def test_what_is_past_is_sent_at_once(at: At) -> None:
    for moment in ("1970-01-01T00:00:00", "2025-12-31T23:59:59"):
        at.create("past", f"at({moment})", ActionAfterCompletion="DELETE", Target=target(text=TIME))
        assert at.bodies() == [f"{moment}Z"]
        at.broker.advance("1s")
        assert at.names() == []


def test_a_start_a_few_minutes_ago(at: At) -> None:
    start = datetime(2025, 12, 31, 23, 56, tzinfo=UTC)
    at.create("hourly", "rate(1 hour)", StartDate=start)
    at.broker.advance("2h")
    assert len(at.bodies()) == 2
    at.update("hourly", "rate(1 hour)", StartDate=start, Description="its start is hours ago by now")
    at.broker.advance("1h")
    assert len(at.bodies()) == 1


def test_odd_requests(at: At) -> None:
    for method, path, body in (
        *(("PATCH", "/schedules/a", b""), ("POST", "/schedules", b"{}"), ("POST", "/schedules/a", b"[")),
        *(("POST", "/schedules/a", b"\xff"), ("GET", "/schedules/..%2f", b""), ("GET", "/schedules?MaxResults=x", b"")),
        *(("GET", "/schedules?NextToken=zz", b""), ("GET", "/tags/arn", b""), ("POST", "/schedules/a", b"[" * 9999)),
        ("POST", "/schedules/a", b'{"Target":{"Arn":7},"FlexibleTimeWindow":{"Mode":"OFF"}}'),
        ("POST", "/schedules/a", b'{"StartDate":1e400}'),
    ):
        answer = httpx.request(method, at.url + path, content=body)
        assert answer.status_code in (400, 404)
        assert answer.headers["x-amzn-errortype"] in ("ValidationException", "UnknownOperationException")
        assert answer.json()["Message"]
    nowhere = httpx.post(f"{at.url}/schedules/a", json=at.arguments("a", "rate(1 day)", ScheduleExpressionTimezone=""))
    half = b'{"ScheduleExpression":"rate(1 day)","FlexibleTimeWindow":{"Mode":"OFF"},"Description":"\\ud800",' + (
        b'"Target":{"Arn":"arn:aws:sqs:us-east-1:000000000000:orders","RoleArn":"r"}}'
    )
    assert httpx.post(f"{at.url}/schedules/a", content=half).status_code == 400
    assert nowhere.status_code == 400 and "Timezone ''" in nowhere.json()["Message"]


@pytest.mark.rest
def test_after_a_restart(tmp_path: Path) -> None:
    clock = TestClock(START_MS)
    with open_broker(tmp_path / "data", clock=clock) as broker, HttpFront.start(broker, "127.0.0.1:0") as front:
        at = At(broker, front.address)
        at.scheduler.create_schedule_group(Name="night")
        at.create("daily", "rate(1 day)", GroupName="night")
        assert at.bodies() == ["hello"]
    with open_broker(tmp_path / "data", clock=clock) as broker, HttpFront.start(broker, "127.0.0.1:0") as front:
        at = At(broker, front.address)
        assert at.names(GroupName="night") == ["daily"]
        broker.advance("1d")
        assert at.bodies() == ["hello"]


def test_the_pages_program_runs(at: At, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = [each.code for each in snippets("python") if each.page == "docs/eventbridge-scheduler.md"]
    exec(compile(program.replace("http://localhost:7777", at.url), "docs/eventbridge-scheduler.md", "exec"), {})
    assert capsys.readouterr().out == "['every-morning']\n"
