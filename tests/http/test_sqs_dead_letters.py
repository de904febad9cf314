"""Dead letters by SQS's API: redrive policies, and tasks that move messages back."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tarry.api.operations import GetGroup
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.settling import SqsSettling
from tests.http.rest import Rest
from tests.http.sqs_place import REGION, Client, client_of, error_of, make_queue, received
from tests.waiting import wait_until

YEAR_S = 365 * 86_400


@pytest.fixture
def client(rest: Rest) -> Client:
    return client_of(rest)


@pytest.mark.rest
def test_there_and_back(client: Client) -> None:
    dead = make_queue(client, "dead")
    arn = f"arn:aws:sqs:{REGION}:000000000000:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    url = make_queue(client, RedrivePolicy=policy)
    assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    text = {"DataType": "String", "StringValue": "red"}
    sent = client.send_message(QueueUrl=url, MessageBody="x", MessageAttributes={"color": text})
    for _ in range(2):
        [message] = received(client, url)
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    assert received(client, url, WaitTimeSeconds=0) == []
    [letter] = received(client, dead, VisibilityTimeout=0)
    assert (letter["MessageId"], letter["Body"]) == (sent["MessageId"], "x")
    assert letter["MessageAttributes"] == {"color": text}
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == f"arn:aws:sqs:{REGION}:000000000000:orders"
    assert letter["Attributes"]["SentTimestamp"] == message["Attributes"]["SentTimestamp"]

    client.start_message_move_task(SourceArn=arn)

    def task() -> dict[str, Any]:
        return dict(client.list_message_move_tasks(SourceArn=arn)["Results"][0])

    wait_until(lambda: task()["Status"] == "COMPLETED", what=task)
    assert task()["ApproximateNumberOfMessagesMoved"] == 1
    [back] = received(client, url)
    assert back["MessageId"] != sent["MessageId"] and back["MessageAttributes"] == {"color": text}
    assert "DeadLetterQueueSourceArn" not in back["Attributes"]


@pytest.mark.rest
def test_of_two_tasks_that_are_asked_for_at_once_one_begins(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = make_queue(client, "dead")
    arn = f"arn:aws:sqs:{REGION}:000000000000:dead"
    make_queue(client, RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2}))
    both, go_on = threading.Barrier(2, timeout=60), threading.Event()
    call, settle = HttpServices.call, SqsSettling.settle

    async def looking(self: HttpServices, operation: Any) -> Any:
        found = await call(self, operation)
        if isinstance(operation, GetGroup):
            await asyncio.to_thread(both.wait)
        return found

    async def later(self: SqsSettling, *given: Any) -> bool:
        await asyncio.to_thread(go_on.wait, 60)
        return await settle(self, *given)

    client.send_message(QueueUrl=dead, MessageBody="x")
    monkeypatch.setattr(HttpServices, "call", looking)
    monkeypatch.setattr(SqsSettling, "settle", later)

    def start(_: int) -> str:
        try:
            client.start_message_move_task(SourceArn=arn)
        except client.exceptions.ClientError as error:
            return str(error.response["Error"]["Message"])
        return "begun"

    with ThreadPoolExecutor(2) as pool:
        begun, refused = sorted(pool.map(start, range(2)))[::-1]
    go_on.set()
    assert begun == "begun" and refused.startswith("There is already a task running."), refused


@pytest.mark.rest
def test_a_task_that_is_cancelled_leaves_each_message_in_one_queue(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message that it was at was in both, and those that it had taken were out of reach for a minute."""
    dead = make_queue(client, "dead")
    arn = f"arn:aws:sqs:{REGION}:000000000000:dead"
    url = make_queue(client, RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2}))
    for number in range(5):
        client.send_message(QueueUrl=dead, MessageBody=str(number))
    copied, go_on, settle = threading.Event(), threading.Event(), SqsSettling.settle

    async def later(self: SqsSettling, *given: Any) -> bool:
        copied.set()
        await asyncio.to_thread(go_on.wait, 60)
        return await settle(self, *given)

    monkeypatch.setattr(SqsSettling, "settle", later)
    task = client.start_message_move_task(SourceArn=arn, DestinationArn=arn.replace("dead", "orders"))
    assert copied.wait(60)
    client.cancel_message_move_task(TaskHandle=task["TaskHandle"])
    go_on.set()

    def counts(queue: str) -> list[int]:
        found = client.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        return [int(found[f"ApproximateNumberOfMessages{kind}"]) for kind in ("", "NotVisible")]

    wait_until(lambda: (counts(url), counts(dead)) == ([1, 0], [4, 0]), what=lambda: (counts(url), counts(dead)))


def test_a_policy_names_a_queue_of_its_kind(client: Client) -> None:
    make_queue(client, "dead.fifo")
    for target in ("none", "dead.fifo"):
        policy = {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:000000000000:{target}", "maxReceiveCount": 2}
        refused = error_of(client, partial(make_queue, client), RedrivePolicy=json.dumps(policy))
        assert refused == ("InvalidParameterValue", 400)
