"""A pytest plugin for tests of moto: they run against another server, whose queues are deleted between them.

Those that are known to differ have to fail: one that passes is to be taken from the list.
"""

from __future__ import annotations

import json
import os
from typing import Any

import botocore.session
import moto.core
import pytest
from moto.core.models import ServerModeMockAWS

ACCOUNT = "000000000000"
DIFFERENCES: dict[str, str] = json.loads(os.environ["MOTO_DIFFERENCES"])
"""Reasons by test."""
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = DIFFERENCES.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any) -> str | None:
    """Moto asks another service for the account's id."""
    if fixturedef.argname != "account_id":
        return None
    fixturedef.cached_result = (ACCOUNT, None, None)
    return ACCOUNT


moto.core.DEFAULT_ACCOUNT_ID = ACCOUNT
ServerModeMockAWS.reset = reset
