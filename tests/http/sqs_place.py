"""Clients of SQS's API for the tests: boto3 as it is, but for its endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import botocore.session
from botocore.config import Config

from tests.http.rest import Rest

Client = Any
"""A client that boto3 makes of its model of the service."""
REGION = "eu-central-1"
_SESSION = botocore.session.Session()
"""It keeps the models of the services: to read one takes longer than most tests."""


def client_of(place: Rest, key: str = "any", secret: str = "any") -> Client:
    return client_at(f"http://{place.front.address}", key, secret)


def client_at(url: str, key: str = "any", secret: str = "any") -> Client:
    return client_for("sqs", url, key, secret)


def client_for(service: str, url: str, key: str, secret: str) -> Client:
    """The client that ``boto3.client`` returns."""
    where = {"region_name": REGION, "endpoint_url": url, "aws_access_key_id": key, "aws_secret_access_key": secret}
    return _SESSION.create_client(service, config=Config(retries={"total_max_attempts": 1}), **where)


def make_queue(client: Client, name: str = "orders", **attributes: str) -> str:
    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    url: str = client.create_queue(QueueName=name, Attributes={**fifo, **attributes})["QueueUrl"]
    return url


def received(client: Client, url: str, **more: Any) -> list[dict[str, Any]]:
    """What a receive gives, with all that it can give."""
    asked = {"WaitTimeSeconds": 10, "MessageAttributeNames": ["All"], "AttributeNames": ["All"], **more}
    found: list[dict[str, Any]] = client.receive_message(QueueUrl=url, **asked).get("Messages", [])
    return found


def error_of(client: Client, call: Callable[..., Any], **arguments: Any) -> tuple[str, int]:
    """The code and the status of a refusal."""
    try:
        call(**arguments)
    except client.exceptions.ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError(f"not refused: {arguments}")
