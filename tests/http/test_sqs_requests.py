"""SQS's API as no SDK of today speaks it: in forms, in halves, in what no type allows."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import httpx
import pytest

from tests.http.rest import Rest
from tests.http.sqs_place import Client, client_of, make_queue, received


@pytest.fixture
def client(rest: Rest) -> Client:
    return client_of(rest)


@pytest.mark.parametrize(
    "head", ["POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n", "POST /schedules/a HTTP/1.1\r\n"]
)
def test_who_leaves_in_the_middle_of_a_request_is_no_error(
    rest: Rest, caplog: pytest.LogCaptureFixture, head: str
) -> None:
    """Each one was a traceback in the log."""
    with socket.create_connection(("127.0.0.1", rest.front.port), timeout=60) as connection:
        connection.sendall(f"{head}Host: localhost\r\nContent-Length: 90000\r\n\r\n{{".encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000) == b""
    assert rest.get("/v1/ping").status_code == 200  # so the loop has gone on with the other one
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.rest
def test_older_sdks_speak_in_forms(rest: Rest, client: Client) -> None:
    def ask(path: str = "/", **fields: str) -> httpx.Response:
        return rest.http.post(path, data=fields)

    made = ask(
        Action="CreateQueue", QueueName="forms", **{"Attribute.1.Name": "DelaySeconds", "Attribute.1.Value": "0"}
    )
    url = f"http://{rest.front.address}/000000000000/forms"
    assert made.headers["content-type"] == "text/xml" and f"<QueueUrl>{url}</QueueUrl>" in made.text
    sent = ask("/000000000000/forms", Action="SendMessage", QueueUrl=url, MessageBody="<a&b>\r")
    assert "<MD5OfMessageBody>" in sent.text
    got = ask("/000000000000/forms", Action="ReceiveMessage", QueueUrl=url, **{"AttributeName.1": "All"})
    assert "<Body>&lt;a&amp;b&gt;&#13;</Body>" in got.text
    assert "<Attribute><Name>ApproximateReceiveCount</Name><Value>1</Value></Attribute>" in got.text
    # The queue is that of the path, too, as in AWS's examples.
    assert "<MessageId>" in ask("/000000000000/forms", Action="SendMessage", MessageBody="b").text
    assert "<Body>b</Body>" in rest.get("/000000000000/forms/?Action=ReceiveMessage&WaitTimeSeconds=5").text
    none = ask(Action="GetQueueUrl", QueueName="none")
    assert none.status_code == 400 and "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in none.text
    assert "<Code>InvalidAction</Code>" in ask(Action="Fly").text
    assert f"<QueueUrl>{url}</QueueUrl>" in rest.get("/?Action=ListQueues").text
    client.delete_queue(QueueUrl=url)


@pytest.mark.rest
def test_nothing_that_is_sent_is_an_internal_error(rest: Rest, client: Client) -> None:
    """Wrong types, halves of surrogate pairs, deep JSON: refused or taken, and the rest of a batch told."""

    def ask(operation: str, asked: dict[str, Any]) -> httpx.Response:
        headers = {"x-amz-target": f"AmazonSQS.{operation}"}
        return rest.http.post("/", content=json.dumps(asked), headers=headers)

    url = make_queue(client, "odd")
    half, deep = "\ud800", "[" * 60_000
    policy = '{"deadLetterTargetArn":"arn:aws:sqs:x:000000000000:odd","maxReceiveCount":%s}'
    for operation, asked in (
        *(
            ("ListQueues", {name: odd})
            for name in ("QueueNamePrefix", "NextToken")
            for odd in (True, 7, [[]], {"a": 1})
        ),
        ("DeleteMessageBatch", {"QueueUrl": url, "Entries": [{"Id": "a", "ReceiptHandle": half}]}),
        ("TagQueue", {"QueueUrl": url, "Tags": {"a": half}}),
        *(
            ("SetQueueAttributes", {"QueueUrl": url, "Attributes": {"RedrivePolicy": text}})
            for text in (deep, policy % ("9" * 5000))
        ),
    ):
        assert ask(operation, asked).status_code < 500, (operation, asked)
    assert ask("SendMessage", {"QueueUrl": url, "MessageBody": 7}).json()["message"] == "MessageBody must be a string."
    entries = [{"Id": "good", "MessageBody": "x"}, {"Id": "bad", "MessageBody": "x", "DelaySeconds": half}]
    answer = ask("SendMessageBatch", {"QueueUrl": url, "Entries": entries})
    assert [each["Id"] for each in answer.json()["Successful"]] == ["good"]
    assert [each["Id"] for each in answer.json()["Failed"]] == ["bad"]
    assert [each["Body"] for each in received(client, url)] == ["x"]
