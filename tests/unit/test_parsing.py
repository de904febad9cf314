"""Refusals of requests' fields: each names the field, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tarry.api.operation import Request
from tarry.api.operations.delivery import Ack, Subscribe
from tarry.api.operations.groups import Seek, SetGroup
from tarry.api.operations.jobs import CommitJob, ListJobs
from tarry.api.operations.messages import CancelKeys, Reschedule
from tarry.api.operations.push import SetPushSubscription
from tarry.api.operations.queries import GetForecast, GetOverview, ListPending
from tarry.api.parsing import from_json, from_texts
from tarry.base.errors import InvalidArgumentError

GROUP = {"topic": "t", "group": "g"}
JOB: dict[str, Any] = {"job": "j", "number": 1, "files": [], "topics": {}}
HANDLE_OR_KEY = "allowed: a handle, or a topic and a key"


def refusal(read: Callable[..., object], kind: type[Request], values: Mapping[str, Any]) -> str:
    with pytest.raises(InvalidArgumentError) as refused:
        read(kind, values)
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "values", "says"),
    [
        (SetGroup, {**GROUP, "tries": "x"}, "tries is 'x'; allowed: a whole number, 0 to 2147483647"),
        (SetGroup, {**GROUP, "tries": True}, "tries is True; allowed: a whole number, 0 to 2147483647"),
        (SetGroup, {**GROUP, "ordered": "x"}, "ordered is 'x'; allowed: true or false"),
        (SetGroup, {**GROUP, "start": "x"}, "start is 'x'; allowed: 'earliest' or 'latest'"),
        (SetGroup, {**GROUP, "filter": 5}, "filter is 5; allowed: a text"),
        (Subscribe, {**GROUP, "prefetch": -1}, "prefetch is -1; allowed: a whole number, 1 to 4611686018427387903"),
        (Subscribe, {"topic": None, "group": "g"}, "topic is None; allowed: a text"),
        (ListJobs, {"limit": 0}, "limit is 0; allowed: a whole number, 1 to 10000"),
        (ListPending, {"limit": 1.5}, "limit is 1.5; allowed: a whole number, 1 to 1000"),
        (GetForecast, {"unit": 5}, "unit is 5; allowed: minute, hour, day"),
        (Reschedule, {"handle": 5, "delay_ms": 1}, "handle is 5; allowed: a text"),
        (Reschedule, {"delay_ms": 1}, f"handle is None, topic None, key None; {HANDLE_OR_KEY}"),
        (Reschedule, {"handle": "h", "key": "k", "due_ms": 1}, f"handle is 'h', topic None, key 'k'; {HANDLE_OR_KEY}"),
        (Seek, {**GROUP, "to": 1.5}, "to is 1.5; allowed: a whole number of 64 bits or a text"),
        (CancelKeys, {"topic": "t", "keys": "k"}, "keys is 'k'; allowed: a list of texts"),
        (CancelKeys, {"topic": "t", "keys": ["k", 5]}, "keys.1 is 5; allowed: a text"),
        (CancelKeys, {"topic": "t", "keys": ["k"] * 65_537}, "keys has 65537 values; allowed: at most 65536"),
        (Ack, {**GROUP, "leases": ["x"], "offsets": [1]}, "leases.0 is 'x'; allowed: a whole number of 64 bits"),
        (GetOverview, {"always_groups": 5}, "always_groups is 5; allowed: a list of lists"),
        (GetOverview, {"always_groups": [5]}, "always_groups.0 is 5; allowed: a list of texts"),
        (CommitJob, {**JOB, "topics": 5}, "topics is 5; allowed: an object of whole numbers"),
        (CommitJob, {**JOB, "files": [5]}, "files.0 is 5; allowed: an object"),
        (SetPushSubscription, {"name": "n", "headers": 5}, "headers is 5; allowed: an object of texts"),
        (SetPushSubscription, {"name": "n", "per_second": "x"}, "per_second is 'x'; allowed: a number"),
    ],
)
def test_a_refusal_says_what_is_allowed(kind: type[Request], values: Mapping[str, Any], says: str) -> None:
    assert refusal(from_json, kind, values) == says


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"limit": "x"}, "limit is 'x'; allowed: a whole number, 1 to 1000"),
        ({"limit": "1.5"}, "limit is '1.5'; allowed: a whole number, 1 to 1000"),
        ({"bodies": "maybe"}, "bodies is 'maybe'; allowed: true or false"),
    ],
)
def test_a_refusal_of_texts_says_what_is_allowed(values: Mapping[str, Any], says: str) -> None:
    assert refusal(from_texts, ListPending, values) == says
