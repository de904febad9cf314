"""A pytest plugin for tests of moto: they run against another server, which is emptied between them.

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
QUEUES: list[str] = json.loads(os.environ["MOTO_QUEUES"])
"""Queues that are there before each test."""


def _client(service: str) -> Any:
    return botocore.session.Session().create_client(
        service,
        region_name="us-east-1",
        endpoint_url=os.environ["TEST_SERVER_MODE_ENDPOINT"],
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )


_SQS, _SCHEDULER = _client("sqs"), _client("scheduler")


def reset(_: ServerModeMockAWS) -> None:
    for page in _SCHEDULER.get_paginator("list_schedules").paginate():
        for schedule in page["Schedules"]:
            _SCHEDULER.delete_schedule(Name=schedule["Name"], GroupName=schedule["GroupName"])
    for page in _SCHEDULER.get_paginator("list_schedule_groups").paginate():
        for group in page["ScheduleGroups"]:
            if group["Name"] != "default":
                _SCHEDULER.delete_schedule_group(Name=group["Name"])
    for page in _SQS.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 100}):
        for url in page.get("QueueUrls", []):
            if url.rpartition("/")[2] not in QUEUES:
                _SQS.delete_queue(QueueUrl=url)
    for name in QUEUES:
        _SQS.create_queue(QueueName=name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = DIFFERENCES.get(item.name) or DIFFERENCES.get(item.name.partition("[")[0])
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
