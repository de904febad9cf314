"""Tarry's own API over HTTP: messages, keys, handles, groups, dead letters: each with a real broker behind it."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.fronts.kit.loop_thread import THREADS
from tarry.message.filter_sql import SqlFilter
from tarry.message.topics import TOPIC_PATTERN
from tests.http.rest import Rest
from tests.waiting import wait_until

HOUR_MS = 3_600_000


def test_a_body_as_it_is_with_its_fields_in_the_query_and_in_headers(rest: Rest) -> None:
    body = bytes(range(256))
    answer = rest.http.post(
        "/v1/topics/orders/messages?tag=vip&property.Größe=9",
        content=body,
        headers={"x-tarry-key": "order-7", "x-tarry-property-shop": "42", "content-type": "image/png"},
    )
    receipt = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/messages/{receipt['handle']}"
    [message] = rest.receive()
    assert base64.b64decode(message["body_base64"]) == body
    assert (message["key"], message["tag"], message["id"]) == ("order-7", "vip", receipt["id"])
    assert message["properties"] == {"Größe": "9", "shop": "42"}
    assert message["attempt"] == 1


def test_all_of_it_as_json(rest: Rest) -> None:
    fields = {"body": "ünpaid?", "id": "a", "properties": {"a": "b"}, "ttl": "1h", "tries": 3, "delay": 0}
    answer = rest.post("/v1/topics/orders/messages", fields)
    assert (answer.status_code, answer.json()["outcome"]) == (201, "scheduled")
    again = rest.post("/v1/topics/orders/messages", fields)
    assert (again.status_code, again.json()["outcome"]) == (200, "duplicate")
    coded = rest.post("/v1/topics/orders/messages", {"body_base64": "AP8="})
    assert coded.status_code == 201
    messages = rest.receive(max_messages=10)
    wait_until(lambda: messages.extend(rest.receive(max_messages=10, wait_ms=100)) or len(messages) == 2)
    by_id = {m["id"]: m for m in messages}
    assert (by_id["a"]["body"], by_id["a"]["tries"]) == ("ünpaid?", 3)
    assert by_id[coded.json()["id"]]["body_base64"] == "AP8="


@pytest.mark.parametrize(
    "time", [{"due_ms": "{}"}, {"due": "{}"}, {"due": "2050-01-01T00:00:00Z"}, {"delay": "1h"}, {"delay_ms": HOUR_MS}]
)
def test_every_way_to_say_when(rest: Rest, time: dict[str, Any]) -> None:
    due_ms = rest.get("/v1/ping").json()["now_ms"] + HOUR_MS
    time = {name: str(value).format(due_ms) for name, value in time.items()}
    by_query = rest.schedule(**time)
    assert by_query["due_ms"] >= due_ms
    in_json = {name: int(v) if v.isdigit() and name != "due" else v for name, v in time.items()}
    assert rest.post("/v1/topics/orders/messages", in_json).json()["due_ms"] >= due_ms
    moved = rest.http.patch(f"/v1/messages/{by_query['handle']}", json=in_json)
    assert moved.json()["outcome"] == "done"
    assert rest.http.patch(f"/v1/messages/{by_query['handle']}", params=time).json()["outcome"] == "cancelled"


def test_a_handle_cancels_once_with_a_definite_answer(rest: Rest) -> None:
    path = f"/v1/messages/{rest.schedule(delay='1h')['handle']}"
    assert [event["event"] for event in rest.get(path).json()["events"]] == ["accepted", "pending"]
    assert [rest.http.delete(path).json() for _ in range(2)] == [{"outcome": "done"}, {"outcome": "cancelled"}]
    assert rest.http.patch(path, json={"delay": "2h"}).json() == {"outcome": "cancelled", "receipt": None}
    delivered = f"/v1/messages/{rest.schedule()['handle']}"
    rest.receive()
    assert rest.http.delete(delivered).json() == {"outcome": "delivered"}
    assert rest.http.delete("/v1/messages/nonsense").status_code == 400


def test_a_key_is_a_resource(rest: Rest) -> None:
    path = "/v1/topics/orders/keys/a%2Fb%20c"
    assert rest.get(path).status_code == 404
    assert rest.http.put(f"{path}?delay=1h", content=b"1").json()["outcome"] == "scheduled"
    replaced = rest.http.put(path, json={"body": "2", "delay": "1h"})
    assert (replaced.status_code, replaced.json()["outcome"]) == (201, "replaced")
    kept = rest.http.put(f"{path}?delay=1h&on_key=keep", content=b"3")
    assert (kept.status_code, kept.json()["handle"]) == (200, replaced.json()["handle"])
    refused = rest.http.put(f"{path}?delay=1h&on_key=refuse", content=b"4")
    assert (refused.status_code, refused.json()["error"]) == (409, "key_exists")
    seq = replaced.json()["seq"]
    changed = rest.http.put(f"{path}?delay=1h&if_seq={seq - 1}", content=b"5")
    assert (changed.status_code, changed.json()["outcome"], changed.json()["seq"]) == (412, "changed", seq)
    absent = rest.http.put(f"{path}x?delay=1h&on_key=if_pending", content=b"6")
    assert (absent.status_code, absent.json()["outcome"], absent.json()["handle"]) == (412, "not_pending", "")
    moved = rest.http.patch(path, json={"delay": "2h"}).json()
    assert rest.get(path).json() == moved["receipt"]
    [pending] = rest.get("/v1/topics/orders/messages", params={"key": "a/b c"}).json()["messages"]
    assert (pending["body"], pending["due_ms"]) == ("2", moved["receipt"]["due_ms"])
    assert [rest.http.delete(path).json()["outcome"] for _ in range(2)] == ["done", "cancelled"]
    assert rest.http.put(f"{path}?key=c", content=b"").status_code == 400


@pytest.mark.rest
def test_recurrence(rest: Rest) -> None:
    rule = {"every": "1s", "times": 2}
    assert rest.post("/v1/topics/orders/messages", {"body": "x", "repeat": rule}).status_code == 201
    assert rest.receive()[0]["body"] == rest.receive()[0]["body"] == "x"
    wrong = rest.post("/v1/topics/orders/messages", {"repeat": {"every": "soon"}})
    assert wrong.status_code in (400, 422)
    assert "soon" in wrong.json()["message"]


def test_what_is_pending_page_by_page(rest: Rest) -> None:
    for number in range(5):
        rest.schedule(str(number).encode(), delay_ms=HOUR_MS + number)
    bodies, cursor = [], None
    while cursor is not None or not bodies:
        page = rest.get("/v1/messages", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        bodies += [message["body"] for message in page["messages"]]
        cursor = page.get("cursor")
    assert bodies == ["0", "1", "2", "3", "4"]
    assert rest.get("/v1/topics/other/messages").json() == {"messages": []}
    [coded] = rest.get("/v1/messages", params={"limit": 1, "encoding": "base64"}).json()["messages"]
    assert coded["body_base64"] == "MA=="


def test_a_group_from_its_making_to_its_end(rest: Rest) -> None:
    group = "/v1/topics/orders/groups/billing"
    assert rest.get(group).status_code == 404
    set_up = rest.http.patch(group, json={"tries": 1, "filter": "vip"}).json()
    assert (set_up["tries"], set_up["filter"]) == (1, "vip")
    rest.schedule(tag="vip")
    [message] = rest.receive(group="billing")
    assert rest.post(f"{group}/nack", {"deliveries": [message["delivery"]]}).json() == {"settled": 1}
    letters: list[dict[str, Any]] = []
    wait_until(lambda: letters or letters.extend(rest.get(f"{group}/dead-letters").json()["messages"]))
    assert letters[0]["properties"]["tarry.dead.cause"]
    assert rest.post(f"{group}/dead-letters/respawn", {"offsets": [letters[0]["offset"]]}).json() == {"respawned": 1}
    assert len(rest.receive(group="billing")) == 1
    assert rest.http.post(f"{group}/pause").json() == {}
    assert rest.get(group).json()["paused"] is True
    assert rest.http.post(f"{group}/resume").json() == {}
    assert rest.post(f"{group}/seek", {"to": "earliest"}).json()["ahead"] >= 1
    assert rest.post(f"{group}/dead-letters/purge").json() == {"purged": 0}
    assert rest.http.delete(group).json() == {}
    assert rest.get(group).json()["error"] == "not_found"


def test_receiving_waits_and_settling_is_by_the_delivery(rest: Rest) -> None:
    group = "/v1/topics/orders/groups/g"
    rest.schedule(b"later", delay_ms=200)
    [message] = rest.receive()
    extended = rest.post(f"{group}/extend", {"deliveries": [message["delivery"]], "lease_ms": 60_000})
    assert extended.json() == {"settled": 1}
    assert rest.http.post(f"{group}/nack?delay_ms=0&deliveries={message['delivery']}").json() == {"settled": 1}
    [again] = rest.receive()
    assert again["attempt"] == 2
    stale = rest.post(f"{group}/ack", {"deliveries": [message["delivery"]]})
    assert (stale.status_code, stale.json()["error"]) == (409, "stale_lease")
    assert rest.post(f"{group}/ack", {"deliveries": [again["delivery"]]}).json() == {"settled": 1}
    assert rest.receive(wait_ms=0) == rest.receive(wait_ms=50) == []
    assert rest.post(f"{group}/ack", {"deliveries": ["1.2", "x"]}).status_code == 400
    assert rest.post("/v1/topics/orders/groups/none/ack", {"deliveries": ["1.2"]}).status_code == 404


def test_figures(rest: Rest) -> None:
    rest.schedule(delay="30m")
    assert rest.get("/v1/topics").json()[0]["pending"] == 1
    assert sum(load[1] for load in rest.get("/v1/forecast?unit=minute").json()["loads"]) == 1
    assert rest.get("/v1/status").json()["state"] == "serving"
    assert {"topics", "groups", "lateness"} <= rest.get("/v1/overview?most=5&always=orders").json().keys()
    assert rest.get("/v1/topics/orders/exists").json() == {"exists": True}
    assert rest.get("/v1/jobs").json() == {"jobs": []}
    assert rest.http.delete("/v1/jobs/none").json()["outcome"] == "unknown"


def test_a_job_that_nobody_knows(rest: Rest) -> None:
    answer = rest.get("/v1/jobs/none")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    jobs = rest.broker.components.bulk
    jobs.begin("nightly")
    [job] = rest.get("/v1/jobs/nightly").json()["jobs"]
    assert job["job"] == "nightly"


def test_access_tokens_are_made_and_deleted(rest: Rest) -> None:
    made = rest.post("/v1/tokens", {"namespace": "shop"}).json()
    assert made["secret"]
    [listed] = rest.get("/v1/tokens").json()
    assert "secret" not in listed
    assert listed["digest"] == ""
    assert rest.http.delete(f"/v1/tokens/{listed['id']}").json() == {}
    assert rest.get("/v1/tokens").json() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.from_regex(TOPIC_PATTERN, fullmatch=True).map(lambda text: text[:40]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    st.binary(max_size=200),
)
def test_any_name_and_body_come_back_as_they_were(rest: Rest, topic: str, key: str, body: bytes) -> None:
    path = f"/v1/topics/{quote(topic, safe='')}/keys/{quote(key, safe='')}"
    answer = rest.http.put(path, json={"body_base64": base64.b64encode(body).decode(), "delay": "1h"})
    if topic in (".", "..") or key in (".", ".."):
        return  # which clients take out of a path
    assert answer.status_code == 201, answer.text
    fields = {"key": key, "topic": topic, "encoding": "base64"}
    [message] = rest.get("/v1/messages", params=fields).json()["messages"]
    assert (message["topic"], message["key"]) == (topic, key)
    assert base64.b64decode(message["body_base64"]) == body
    assert rest.http.delete(path).json() == {"outcome": "done"}


def test_a_filter_that_takes_too_long_stops_no_one_else(rest: Rest) -> None:
    condition = "sql: " + " OR ".join([f"p CONTAINS '{'a' * 700}b'"] * 20)
    rest.http.patch("/v1/topics/slow/groups/g", json={"filter": condition})
    for _ in range(30):
        message = {"body": "x", "properties": {"p": "a" * 60_000}}
        assert rest.http.post("/v1/topics/slow/messages", json=message).status_code < 300
    wait_until(lambda: rest.broker.group("slow", "g").queue_ends[1] == 30)
    answer = rest.http.post("/v1/topics/slow/groups/g/receive?wait_ms=60000")
    assert (answer.status_code, answer.json()["error"]) == (503, "filter_paused")
    assert answer.headers["retry-after"]
    assert "CPU time" in rest.http.get("/v1/topics/slow/groups/g").json()["filter_paused"]
    page = rest.http.get("/console/group?topic=slow&group=g").text
    assert "filter paused" in page
    assert "CPU time" in page


def test_who_waits_for_a_condition_takes_no_thread_from_others(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    go, mask = threading.Event(), SqlFilter.mask_within

    def held(wanted: SqlFilter, batch: pa.RecordBatch, cpu_s_max: float) -> Any:
        assert go.wait(60)
        return mask(wanted, batch, cpu_s_max)

    monkeypatch.setattr(SqlFilter, "mask_within", held)
    names = [f"g{number}" for number in range(THREADS + 2)]
    for name in names:
        rest.http.patch(f"/v1/topics/slow/groups/{name}", json={"filter": "sql: n = '1'"})
    assert rest.http.post("/v1/topics/slow/messages?property.n=1", content=b"x").status_code < 300
    wait_until(lambda: rest.broker.group("slow", "g0").queue_ends[1] == 1)
    with ThreadPoolExecutor(len(names)) as pool:
        paths = [f"/v1/topics/slow/groups/{name}/receive" for name in names]
        answers = [pool.submit(rest.http.post, path) for path in paths]
        try:
            wait_until(lambda: all(rest.broker.group("slow", name).is_filtering for name in names))
            assert rest.http.get("/v1/ping").status_code == 200
            assert not any(answer.done() for answer in answers)
        finally:
            go.set()
        assert all(len(answer.result().json()["messages"]) == 1 for answer in answers)


@pytest.mark.parametrize(
    ("place", "name"), [("ordesr", "'ordesr'"), ("ordesr/groups/g", "'g'"), ("orders/groups/h", "'h'")]
)
def test_what_is_not_there_cannot_be_looked_at(rest: Rest, place: str, name: str) -> None:
    rest.broker.set_group("orders", "g", tries=5)
    answer = rest.get(f"/v1/topics/{place}")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert name in answer.json()["message"]
    assert rest.get("/v1/topics/ordesr/exists").json() == {"exists": False}
    assert rest.get("/v1/topics/orders").status_code == 200
    assert rest.get("/v1/topics/orders/groups/g").status_code == 200
