"""Clients of EventBridge Scheduler's API for the tests: boto3 as it is, but for its endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.http.sqs_place import REGION, client_at, client_for, error_of, make_queue, received

ROLE = "arn:aws:iam::000000000000:role/scheduler"


def scheduler_at(url: str, key: str = "any", secret: str = "any") -> Any:
    return client_for("scheduler", url, key, secret)


def target(queue: str = "orders", text: str | None = "hello", **more: Any) -> dict[str, Any]:
    given = {} if text is None else {"Input": text}
    return {"Arn": f"arn:aws:sqs:{REGION}:000000000000:{queue}", "RoleArn": ROLE, **given, **more}


class At:
    """A broker with a test clock, its clients, and a queue "orders"."""

    def __init__(self, broker: Any, address: str) -> None:
        self.broker = broker
        self.url = f"http://{address}"
        self.arguments = arguments
        self.scheduler = scheduler_at(f"http://{address}")
        self.sqs = client_at(f"http://{address}")
        self.urls = {"orders": make_queue(self.sqs)}

    def create(self, name: str, expression: str, **more: Any) -> str:
        arn: str = self.scheduler.create_schedule(**arguments(name, expression, **more))["ScheduleArn"]
        return arn

    def update(self, name: str, expression: str, **more: Any) -> str:
        arn: str = self.scheduler.update_schedule(**arguments(name, expression, **more))["ScheduleArn"]
        return arn

    def names(self, **asked: str) -> list[str]:
        return [each["Name"] for each in self.scheduler.list_schedules(**asked)["Schedules"]]

    def bodies(self, queue: str = "orders") -> list[str]:
        """Receive all that is in a queue, and delete it."""
        url = self.urls.setdefault(queue, make_queue(self.sqs, queue))
        self.broker.advance_to(self.broker.clock.now_ms())
        found: list[str] = []
        while messages := received(self.sqs, url, WaitTimeSeconds=0, MaxNumberOfMessages=10):
            for message in messages:
                found.append(message["Body"])
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def refusal(self, call: Callable[..., Any], **arguments: Any) -> tuple[str, int]:
        return error_of(self.scheduler, call, **arguments)


def arguments(name: str, expression: str, **more: Any) -> dict[str, Any]:
    return {
        "Name": name,
        "ScheduleExpression": expression,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": target(),
        **more,
    }
