"""boto3 as it is: all that it is told is the endpoint, by AWS_ENDPOINT_URL_SQS."""

from __future__ import annotations

import json
import time
from typing import Any

import boto3
from botocore.exceptions import ClientError

sqs = boto3.client("sqs")


def receive(url: str, count: int = 1, **more: Any) -> list[dict[str, Any]]:
    asked = {"MessageAttributeNames": ["All"], "AttributeNames": ["All"], "WaitTimeSeconds": 2, **more}
    found: list[dict[str, Any]] = []
    for _ in range(20):
        found += sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=min(10, count - len(found)), **asked).get(
            "Messages", []
        )
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} messages of {count}")


def refused(error: type[Exception], call: Any, **arguments: Any) -> None:
    try:
        call(**arguments)
    except error:
        return
    raise AssertionError(f"not refused: {arguments}")


def attribute(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def messages(url: str) -> None:
    """Attributes of every kind, whose MD5s botocore checks; leases; a batch with a bad entry."""
    attributes = {"price": {"DataType": "Number.euro", "StringValue": "3.5"}, "color": attribute("grün")}
    attributes["raw"] = {"DataType": "Binary", "BinaryValue": b"\x00\x01\xff"}
    sqs.send_message(QueueUrl=url, MessageBody="grüße 😀", MessageAttributes=attributes)
    [first] = receive(url)
    assert first["Body"] == "grüße 😀" and first["MessageAttributes"] == attributes, first
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    [again] = receive(url)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2" and again["MessageId"] == first["MessageId"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    entries = [{"Id": str(n), "MessageBody": f"body {n}"} for n in range(9)]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[*entries, {"Id": "bad", "MessageBody": "\x01"}])
    assert len(answer["Successful"]) == 9 and [each["Id"] for each in answer["Failed"]] == ["bad"], answer
    assert answer["Failed"][0]["SenderFault"] is True
    held = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(receive(url, 9))]
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[{**e, "VisibilityTimeout": 60} for e in held])
    assert len(answer["Successful"]) == 9, answer
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[*held, {"Id": "x", "ReceiptHandle": "nonsense"}])
    assert len(answer["Successful"]) == 9 and answer["Failed"][0]["Code"] == "ReceiptHandleIsInvalid", answer


def delays(url: str) -> None:
    """A second, twenty years, a time of its own, and a key by which a message takes another's place."""
    begun = time.time()
    sqs.send_message(QueueUrl=url, MessageBody="far", DelaySeconds=20 * 365 * 86400)
    due = attribute(str(int(begun * 1000) + 1500))
    keyed = {"tarry-key": attribute("order-1")}
    sqs.send_message(QueueUrl=url, MessageBody="former", DelaySeconds=3600, MessageAttributes=keyed)
    sqs.send_message(QueueUrl=url, MessageBody="at", MessageAttributes={"tarry-due": due})
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=1, MessageAttributes=keyed)
    found = sorted(each["Body"] for each in receive(url, 2))
    assert found == ["at", "later"] and time.time() - begun >= 1.5, found
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesDelayed"] == "1", counts
    sqs.purge_queue(QueueUrl=url)
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert {counts[f"ApproximateNumberOfMessages{what}"] for what in ("", "Delayed", "NotVisible")} == {"0"}, counts


def fifo() -> str:
    url: str = sqs.create_queue(
        QueueName="python.fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    )["QueueUrl"]
    sent = [
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g") for body in ("one", "two", "two", "three")
    ]
    assert sent[1]["MessageId"] == sent[2]["MessageId"]
    for body in ("one", "two", "three"):
        [found] = receive(url)
        assert found["Body"] == body, found
        sqs.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    refused(ClientError, sqs.send_message, QueueUrl=url, MessageBody="no group")
    return url


def dead_letters() -> None:
    dead = sqs.create_queue(QueueName="python-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = sqs.create_queue(QueueName="python-tried", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="bad")
    [found] = receive(url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"], VisibilityTimeout=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)
    [found] = receive(dead)
    assert found["MessageId"] == sent["MessageId"] and found["Attributes"]["DeadLetterQueueSourceArn"].endswith("tried")
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    for each in (url, dead):
        sqs.delete_queue(QueueUrl=each)


def tags_and_pages(url: str) -> None:
    sqs.tag_queue(QueueUrl=url, Tags={"team": "a", "stage": "test"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["stage"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
    made = [sqs.create_queue(QueueName=f"page-{n}")["QueueUrl"] for n in range(5)]
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix="page-", PaginationConfig={"PageSize": 2})
    assert [page["QueueUrls"] for page in pages] == [made[:2], made[2:4], made[4:]]
    for each in made:
        sqs.delete_queue(QueueUrl=each)


def errors(url: str) -> None:
    kinds = sqs.exceptions
    refused(kinds.QueueDoesNotExist, sqs.get_queue_url, QueueName="none")
    refused(kinds.ReceiptHandleIsInvalid, sqs.delete_message, QueueUrl=url, ReceiptHandle="nonsense")
    refused(kinds.EmptyBatchRequest, sqs.send_message_batch, QueueUrl=url, Entries=[])
    twice = [{"Id": "a", "MessageBody": "x"}] * 2
    refused(kinds.BatchEntryIdsNotDistinct, sqs.send_message_batch, QueueUrl=url, Entries=twice)
    refused(kinds.InvalidMessageContents, sqs.send_message, QueueUrl=url, MessageBody="\x01")
    changed = {"VisibilityTimeout": "7"}
    refused(kinds.QueueNameExists, sqs.create_queue, QueueName="python", Attributes=changed)
    unknown = {"Nonsense": "7"}
    refused(kinds.InvalidAttributeName, sqs.set_queue_attributes, QueueUrl=url, Attributes=unknown)
    stranger = boto3.client("sqs", aws_access_key_id="nobody", aws_secret_access_key="nothing")
    try:
        stranger.list_queues()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "InvalidClientTokenId", error


def main() -> None:
    url = sqs.create_queue(QueueName="python", Attributes={"VisibilityTimeout": "5"})["QueueUrl"]
    messages(url)
    delays(url)
    dead_letters()
    tags_and_pages(url)
    errors(url)
    for each in (url, fifo()):
        sqs.delete_queue(QueueUrl=each)
    print("python: ok")


if __name__ == "__main__":
    main()
