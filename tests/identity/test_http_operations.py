"""REST asks for a token before all else, and each operation for the right that it declares.

The table is made of the operations that REST offers, so that a new one is in it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.identity.conftest import Known
from tests.identity.http_place import HttpPlace, serving

from tarry.api import operations as ops
from tarry.api.needs import (
    OF_THE_BROKER,
    OF_TOPICS,
    Listed,
    Nothing,
    OnBroker,
    OnFound,
    OnPushSubscription,
    OnTopic,
    Right,
)
from tarry.api.paths import Resource, resources
from tarry.fronts.http.rest.operations import lists_of
from tarry.identity.grants import Grant

VALUES: dict[str, Any] = {
    "topic": "t", "group": "g", "to": "latest", "leases": [], "offsets": [], "lease_ms": 1000, "job": "j",
    "token": "none", "name": "p", "identity": "nobody", "id": "none", "right": "look", "keys": ["k"], "backup": "none",
    "at_ms": 1, "place": "/backups/monday", "bytes": 1,
}  # fmt: skip
MORE: dict[Any, dict[str, Any]] = {
    ops.SetTopic: {"late": "drop"},
    ops.SetGroup: {"tries": 3},
    ops.SetPushSubscription: {"topic": "t", "url": "https://example.com/"},
    ops.SetIdentity: {"name": "somebody-else"},
    ops.DeleteIdentity: {"name": "nobody"},
    ops.CreateToken: {"namespace": "shop"},
    ops.LimitToken: {"reads_max": 1, "writes_max": 1, "interval_ms": 1000},
    ops.ListPushAttempts: {"name": "p"},
    ops.GetForecast: {"unit": "hour"},
}
WRONG = {400, 401, 403, 405, 406, 415, 422, 500}
"""Answers to what is no valid request, or not allowed."""
ROUTES = list(resources())
NEEDS = (OnTopic, OnFound, OnPushSubscription, OnBroker, Listed, Nothing)


@pytest.fixture
def place(known: Known) -> Iterator[HttpPlace]:
    with serving(known.broker) as place:
        yield place


def send(place: HttpPlace, resource: Resource, token: str | None, **headers: str) -> httpx.Response:
    """A valid request for an operation, about a message that is pending, a group and a subscription."""
    receipt = place.broker.schedule("t", b"x", delay=3600)
    place.broker.group("t", "g")
    place.broker.set_push("p", topic="t", url="https://example.com/")
    found = {
        **VALUES,
        "handles": [receipt.handle], "what": receipt.handle, "seq": receipt.seq, "due_ms": receipt.due_ms,
    }  # fmt: skip
    kind: Any = resource.kind
    if kind is ops.GetHandles:
        found |= {"seqs": [receipt.seq], "due_ms": [receipt.due_ms]}
    fields = {name: found[name] for name, (_, default) in (kind.wire_fields() or {}).items() if default is ...}
    fields |= MORE.get(kind, {})
    if kind is ops.Reschedule:
        fields = {"handle": receipt.handle, "due_ms": receipt.due_ms + 1}
    path = resource.path
    for part in resource.path.split("/"):
        if part.startswith("{"):
            path = path.replace(part, str(found[part[1:-1]]))
            fields.pop(part[1:-1], None)
    if kind in (ops.Ack, ops.Nack, ops.Extend):
        fields = {**fields, "deliveries": []}
        del fields["leases"], fields["offsets"]
    if resource.method in ("GET", "DELETE"):
        assert not lists_of(kind) & fields.keys()
        return place.ask(resource.method, path, token, params=fields, headers=headers)
    return place.ask(resource.method, path, token, json=fields, headers=headers)


def granted(kind: Any) -> list[str]:
    """The grants that are just enough for an operation."""
    needs = kind.needs
    is_of_all = isinstance(needs, OnTopic | Listed) and "topic" not in (kind.wire_fields() or {})
    topics = "*" if is_of_all or kind in (ops.ListPending, ops.ListGroups, ops.GetForecast, ops.GetRates) else "t"
    match needs:
        case OnBroker(right):
            return [right.value]
        case OnTopic(right) | OnFound(right) | OnPushSubscription(right):
            return [f"{right} {topics}"]
        case Listed():
            return [f"look {topics}"]
    return []


def all_but(grants: list[str]) -> list[str]:
    """All rights but these, and but the one that has all others in it."""
    kept = {Grant.parse(line).right for line in grants}
    others = [f"{right} *" for right in OF_TOPICS if right not in kept and Right.LOOK not in kept]
    return [*others, *(right.value for right in OF_THE_BROKER if right not in kept | {Right.ADMIN})]


@pytest.mark.parametrize("needs", NEEDS)
def test_each_operation_asks_for_a_token_and_for_its_right(place: HttpPlace, needs: type) -> None:
    routes = [each for each in ROUTES if isinstance(each.kind.needs, needs)]
    assert routes
    for resource in routes:
        check(place, resource)


def check(place: HttpPlace, resource: Resource) -> None:
    """No token, wrong ones, one with the right, and one with all others."""
    where = f"{resource.method} {resource.path}"
    for token in (None, "-", "tarry_" + "x" * 38, "x" * 40):
        refused = send(place, resource, token)
        assert (refused.status_code, refused.headers.get("www-authenticate")) == (401, "Bearer"), where
        assert refused.json()["error"] == "unauthenticated", where
    enough = granted(resource.kind)
    answer = send(place, resource, place.token(*enough))
    assert answer.status_code not in WRONG, (where, answer.text)
    if not enough:
        return
    answer = send(place, resource, place.token(*all_but(enough)))
    if isinstance(resource.kind.needs, Listed) and "{topic}" not in resource.path:
        assert answer.status_code == 200, where
        assert '"t"' not in answer.text, where
    elif isinstance(resource.kind.needs, OnFound) and "{topic}" not in resource.path:
        # What is found, and not the caller's, is answered as what is unknown.
        assert answer.status_code in (200, 404), (where, answer.text)
        assert '"t"' not in answer.text, where
        assert "done" not in answer.text, where
    else:
        assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), (where, answer.text)
        assert "has not the right" in answer.json()["message"], where


def test_the_table_has_every_kind_of_need() -> None:
    assert {type(each.kind.needs) for each in ROUTES} == set(NEEDS)


OTHERS: list[tuple[str, str, dict[str, Any], Right]] = [
    ("POST", "/v1/topics/t/messages?delay=1h", {"content": b"x"}, Right.PRODUCE),
    ("PUT", "/v1/topics/t/messages?delay=1h", {"content": b"x"}, Right.PRODUCE),
    ("POST", "/v1/topics/t/messages", {"json": {"body": "x", "delay": "1h"}}, Right.PRODUCE),
    ("PUT", "/v1/topics/t/keys/other?delay=1h", {"content": b"x"}, Right.PRODUCE),
    ("GET", "/v1/topics/t/keys/k", {}, Right.PRODUCE),
    ("PATCH", "/v1/topics/t/keys/k?delay=2h", {}, Right.PRODUCE),
    ("DELETE", "/v1/topics/t/keys/k", {}, Right.PRODUCE),
    ("GET", "/v1/messages/HANDLE", {}, Right.LOOK),
    ("PATCH", "/v1/messages/HANDLE?delay=2h", {}, Right.PRODUCE),
    ("DELETE", "/v1/messages/HANDLE", {}, Right.PRODUCE),
    ("POST", "/v1/topics/t/batch", {"content": b'{"body":"x","delay":"1h"}'}, Right.PRODUCE),
    ("POST", "/v1/batch", {"content": b'{"topic":"t","body":"x","delay":"1h"}'}, Right.PRODUCE),
    ("HEAD", "/v1/topics/t/groups/g/events", {}, Right.CONSUME),
]


def test_what_is_no_operation_by_itself(place: HttpPlace) -> None:
    for method, path, more, right in OTHERS:
        receipt = place.broker.schedule("t", b"x", delay=3600, key="k", on_key="replace")
        path = path.replace("HANDLE", receipt.handle)
        assert place.status(method, path, **more) == 401, path
        refused = place.ask(method, path, place.token(*all_but([f"{right} t"])), **more)
        if receipt.handle in path:  # it is answered as one of nothing is
            assert refused.status_code == 200, path
            assert refused.json().get("outcome", "unknown") == "unknown", path
            assert not refused.json().get("events"), path
        else:
            assert refused.status_code == 403, path
        assert place.status(method, path, place.token(f"{right} t"), **more) < 400, path


def test_every_route_is_one_of_these_or_tells_nothing_of_a_broker(place: HttpPlace) -> None:
    described = place.ask("GET", "/openapi.json", place.token("look a")).json()["paths"]
    free = {"get_Ping_0", "get_GetClock_0", "post_GetHandles_0", "get_WhoAmI_0", "get_CheckAccess_0", "openapi", "docs"}
    for operation in (each for methods in described.values() for each in methods.values()):
        assert ("x-tarry-needs" in operation) == (operation["operationId"] not in free), operation["operationId"]
    routes = {(method.upper(), path) for path, methods in described.items() for method in methods}
    tried = {(each.method, each.path) for each in ROUTES}
    special = {
        ("POST", "/v1/topics/{topic}/messages"), ("PUT", "/v1/topics/{topic}/messages"),
        ("PUT", "/v1/topics/{topic}/keys/{key}"), ("GET", "/v1/topics/{topic}/keys/{key}"),
        ("PATCH", "/v1/topics/{topic}/keys/{key}"), ("DELETE", "/v1/topics/{topic}/keys/{key}"),
        ("GET", "/v1/messages/{handle}"), ("PATCH", "/v1/messages/{handle}"), ("DELETE", "/v1/messages/{handle}"),
        ("POST", "/v1/topics/{topic}/batch"), ("POST", "/v1/batch"),
        ("GET", "/v1/topics/{topic}/groups/{group}/events"),
    }  # fmt: skip
    assert routes - tried - special == {("GET", "/openapi.json"), ("GET", "/docs")}
    for path in ("/openapi.json", "/docs", "/docs/style.css", "/v1/none"):
        assert place.status("GET", path) == 401
