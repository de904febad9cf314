"""A pytest plugin for moto's own tests: they run against a server of SQS's API, whose queues are deleted between them."""

from __future__ import annotations

import os
from typing import Any

import botocore.session
import moto.core
import pytest
from moto.core.models import ServerModeMockAWS

ACCOUNT = "000000000000"
_CLIENT = botocore.session.Session().create_client(
    "sqs",
    region_name="us-east-1",
    endpoint_url=os.environ["TEST_SERVER_MODE_ENDPOINT"],
    aws_access_key_id="a",
    aws_secret_access_key="b",
)


def reset(_: ServerModeMockAWS) -> None:
    for page in _CLIENT.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 100}):
        for url in page.get("QueueUrls", []):
            _CLIENT.delete_queue(QueueUrl=url)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any) -> str | None:
    """Moto asks another service for the account's id."""
    if fixturedef.argname != "account_id":
        return None
    fixturedef.cached_result = (ACCOUNT, None, None)
    return ACCOUNT


moto.core.DEFAULT_ACCOUNT_ID = ACCOUNT
ServerModeMockAWS.reset = reset
