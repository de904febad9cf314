"""The HTTP front with identities: who is asked, batches, streams and waits that end, lmstfy's API and its admin's."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.identity.conftest import Known
from tests.identity.http_place import HttpPlace, forget, serving
from tests.waiting import wait_until

from tarry.fronts.http.access import Access
from tarry.fronts.http.front import HttpFront
from tarry.fronts.http.lmstfy.names import topic_of
from tarry.fronts.http.rest.app import rest_app
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit import callers as callers_module
from tarry.fronts.kit.callers import Callers
from tarry.testing import open_broker

EVENTS = "/v1/topics/orders.a/groups/billing/events"
RECEIVE = "/v1/topics/orders.a/groups/billing/receive"


@pytest.fixture
def place(known: Known) -> Iterator[HttpPlace]:
    with serving(known.broker) as place:
        yield place


# -- who is asked ------------------------------------------------------------------------------------------------------


def test_where_a_token_may_be(place: HttpPlace, known: Known) -> None:
    basic = base64.b64encode(f"me:{known.billing}".encode()).decode()
    for headers in ({"x-token": known.billing}, {"authorization": f"Basic {basic}"}):
        assert place.ask("GET", "/v1/whoami", headers=headers).json()["identity"] == "billing"
    assert place.ask("GET", "/v1/whoami", known.admin).json()["identity"] == "admin"
    refused = place.ask("GET", "/v1/ping", params={"token": known.billing})
    assert refused.status_code == 401
    assert "the token is in the query" in refused.json()["message"]
    assert known.billing not in refused.text
    accept = {"accept": "text/event-stream"}
    with place.http.stream("GET", EVENTS, params={"token": known.billing}, headers=accept) as stream:
        assert stream.status_code == 200


def test_a_caller_asks_what_it_may_do(place: HttpPlace, known: Known) -> None:
    def may(token: str, **asked: str) -> tuple[int, object]:
        answer = place.ask("GET", "/v1/can", token, params=asked)
        return answer.status_code, answer.json().get("allowed")

    topic = {"right": "produce", "topic": "orders.new"}
    assert may(known.billing, **topic) == (200, True)
    assert may(known.billing, right="produce", topic="other") == (200, False)
    assert may(known.admin, **topic, identity="billing") == (200, True)
    assert may(known.billing, **topic, identity="admin") == (403, None)
    assert may(known.admin, right="write") == (400, None)


def test_a_forwarded_request_of_somebody_known_is_answered(place: HttpPlace, known: Known) -> None:
    headers = {"x-forwarded-for": "203.0.113.7", "host": "queue.example"}
    assert place.status("GET", "/v1/ping", known.billing, headers=headers) == 200
    assert place.status("GET", "/v1/ping", headers=headers) == 401


def test_two_words_are_for_everybody(place: HttpPlace) -> None:
    for path in ("/healthz", "/readyz"):
        answer = place.ask("GET", path)
        assert (answer.status_code, answer.text) == (200, "ok\n")
    assert place.status("GET", "/healthzz") == 404
    place.broker.close()
    assert place.status("GET", "/healthz") == 200
    answer = place.ask("GET", "/readyz")
    assert (answer.status_code, answer.text) == (503, "no\n")


def test_the_first_credential_has_each_request_ask(tmp_path: Any) -> None:
    with (
        open_broker(tmp_path) as broker,
        HttpFront.start(broker, "127.0.0.1:0") as front,
        httpx.Client(base_url=f"http://{front.address}") as http,
    ):
        assert http.get("/v1/ping").status_code == 200
        assert http.get("/v1/whoami").json()["identity"] == "local"
        assert http.post("/v1/operations/set-identity", json={"name": "a", "grants": ["admin"]}).status_code == 200
        made = http.post("/v1/operations/add-credential", json={"identity": "a"}).json()
        assert http.get("/v1/ping").status_code == 401
        headers = {"authorization": f"Bearer {made['secret']}"}
        assert http.get("/v1/ping", headers=headers).status_code == 200
        answer = http.post("/v1/operations/remove-credential", json={"id": made["id"]}, headers=headers)
        assert answer.status_code == 200
        assert http.get("/v1/ping").status_code == 200


def test_access_tokens_are_credentials_too(place: HttpPlace, known: Known) -> None:
    whole, narrow = known.broker.create_token("*").secret, known.broker.create_token("shop").secret
    assert place.status("GET", "/v1/tokens", whole) == 200
    assert place.status("GET", "/v1/tokens", narrow) == 403
    assert place.status("POST", "/v1/topics/shop%2Fq/messages?delay=1h", narrow, content=b"x") == 201
    assert place.status("POST", "/v1/topics/shopq/messages?delay=1h", narrow, content=b"x") == 403
    assert place.status("POST", "/v1/topics/other%2Fq/messages?delay=1h", narrow, content=b"x") == 403
    assert [each["topic"] for each in place.ask("GET", "/v1/topics", narrow).json()] == ["shop/q"]
    assert place.ask("GET", "/v1/whoami", narrow).json()["grants"] == [
        "produce shop/*", "consume shop/*", "look shop/*",
    ]  # fmt: skip


def test_one_secret_may_be_the_token_of_several_namespaces(place: HttpPlace, known: Known) -> None:
    secret = "a-secret-of-two-namespaces"
    tokens = [known.broker.create_token(name, secret=secret) for name in ("a", "b")]
    paths = [f"/v1/topics/{name}%2Fq/messages?delay=1h" for name in ("a", "b", "c")]
    assert [place.status("POST", path, secret, content=b"x") for path in paths] == [201, 201, 403]
    known.broker.delete_token(tokens[0].id)
    assert [place.status("POST", path, secret, content=b"x") for path in paths] == [403, 201, 403]


# -- messages of several callers --------------------------------------------------------------------------------------


def test_lines_of_a_batch_are_refused_one_by_one(place: HttpPlace, known: Known) -> None:
    lines = [
        {"topic": topic, "body": "x", "delay": "1h"} for topic in ("orders.a", "secret", "orders.cards", "orders.b")
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    answer = place.ask("POST", "/v1/batch", known.billing, content=content)
    results = [json.loads(line) for line in answer.text.splitlines()]
    assert [each.get("error") for each in results] == [None, "forbidden", "forbidden", None]
    assert {each.topic for each in known.broker.pending()} == {"orders.a", "orders.b"}


def test_what_several_callers_do_at_once_is_done_by_the_rights_of_each(place: HttpPlace, known: Known) -> None:
    """Cancellations and messages of one turn of the loop travel together."""
    others = [known.broker.schedule("secret", b"x", delay=3600) for _ in range(16)]
    own = [known.broker.schedule("orders.a", b"x", delay=3600) for _ in range(16)]
    asked = [(known.billing, each, "done") for each in own] + [(known.billing, each, "unknown") for each in others[:8]]
    asked += [(known.admin, each, "done") for each in others[8:]]
    start = threading.Barrier(len(asked))

    def cancel(token: str, handle: str) -> str:
        start.wait()
        outcome: str = place.ask("DELETE", f"/v1/messages/{handle}", token).json()["outcome"]
        return outcome

    with ThreadPoolExecutor(len(asked)) as pool:
        answers = [pool.submit(cancel, token, receipt.handle) for token, receipt, _ in asked]
        assert [each.result() for each in answers] == [outcome for *_, outcome in asked]
    assert {each.topic: each.pending for each in known.broker.pending() if each.pending} == {"secret": 8}


def test_an_event_stream_is_nobody_elses_to_go_on_with(place: HttpPlace, known: Known) -> None:
    known.broker.group("orders.a", "billing")
    known.broker.schedule("orders.a", b"x")
    other = place.token("consume orders.a")
    with place.http.stream("GET", EVENTS, headers={"authorization": f"Bearer {known.billing}"}) as stream:
        lines = stream.iter_lines()
        last = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
    resumed = {"last-event-id": f"{last.partition('.')[0]}.0"}  # what came after it is sent again
    with place.http.stream("GET", EVENTS, headers={"authorization": f"Bearer {other}", **resumed}) as stream:
        known.broker.schedule("orders.a", b"y")
        assert next(line for line in stream.iter_lines() if line.startswith("id: ")).split(".")[0] != f"id: {last[:16]}"
    again = {"authorization": f"Bearer {known.billing}", **resumed}
    with place.http.stream("GET", EVENTS, headers=again) as stream:
        assert next(line for line in stream.iter_lines() if line.startswith("id: ")).startswith(f"id: {last[:16]}.")


# -- who is known no longer --------------------------------------------------------------------------------------------


def test_an_event_stream_ends_with_its_credential(place: HttpPlace, known: Known) -> None:
    with place.http.stream("GET", EVENTS, headers={"authorization": f"Bearer {known.billing}"}) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        forget(known.broker, "billing")
        said = list(lines)
    assert "event: error" in said
    assert any("connect again" in line for line in said)
    known.broker.schedule("orders.a", b"x")
    assert place.status("GET", EVENTS, known.billing) == 401


def test_a_waiting_receive_ends_with_its_credential(place: HttpPlace, known: Known) -> None:
    group = known.broker.group("orders.a", "billing")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(place.ask, "POST", RECEIVE, known.billing, json={"wait_ms": 20_000})
        wait_until(lambda: _waits(place, "orders.a", "billing"))
        forget(known.broker, "billing")
        answer = waiting.result(15)
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated")
    known.broker.schedule("orders.a", b"x")
    wait_until(lambda: known.broker.group_info("orders.a", "billing").ready == 1)
    assert group.name == "billing"


def test_changed_rights_end_a_stream_and_other_changes_do_not(place: HttpPlace, known: Known) -> None:
    with place.http.stream("GET", EVENTS, headers={"authorization": f"Bearer {known.billing}"}) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        known.broker.set_identity("other", ["look a"])
        known.broker.add_credential("other")
        known.broker.create_token("ns")
        known.broker.group("orders.a", "billing")
        known.broker.schedule("orders.a", b"x", delay=1.0)  # after these have been looked at
        assert next(line for line in lines if line.startswith("event")) == "event: message"
        known.broker.set_identity("billing", ["produce orders.*"])
        assert next(line for line in lines if line.startswith("event")) == "event: error"


def test_whoever_was_not_asked_is_gone_once_callers_are(tmp_path: Any) -> None:
    with open_broker(tmp_path) as broker, serving(broker) as place, place.http.stream("GET", EVENTS) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        assert next(line for line in lines if line.startswith("event")) == "event: error"


@pytest.mark.asyncio
async def test_a_broker_that_tells_nothing_is_looked_at(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's: it sees the identities, and is not told of their changes."""
    monkeypatch.setattr(callers_module, "LOOK_S", 0.01)
    callers = Callers(Distant(known.broker), asyncio.get_running_loop(), "test")  # type: ignore[arg-type]
    principal = callers.authenticator.by_token(known.billing)
    refused = asyncio.Event()
    callers.add("stream", principal, lambda _: refused.set())
    callers.add("other", callers.authenticator.by_token(known.admin), lambda _: pytest.fail("it is known still"))
    forget(known.broker, "billing")
    await asyncio.wait_for(refused.wait(), 10)
    callers.close()


@pytest.mark.asyncio
async def test_a_worker_passes_on_what_it_cannot_decide(known: Known) -> None:
    """A worker knows no message's topic, so it cannot tell whether an identity may cancel it."""
    loop, passed = asyncio.get_running_loop(), []

    async def pass_on(scope: Any, receive: Any, send: Any) -> None:
        passed.append(f"{scope['method']} {scope['path']}")
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    receipt = known.broker.schedule("orders.a", b"x", delay=3600)
    with ThreadPoolExecutor(2) as pool:
        services = HttpServices(known.broker, loop, pool)
        app = rest_app(services, Access(known.broker, "open", services.callers.authenticator), pass_on)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            for token, method, path, status in (
                (known.billing, "DELETE", f"/v1/messages/{receipt.handle}", 299),
                (known.billing, "POST", "/v1/messages/cancel", 299),
                (known.billing, "GET", f"/v1/history?what={receipt.handle}", 299),
                (known.billing, "POST", "/v1/operations/message", 299),
                ("x" * 30, "GET", "/v1/ping", 299),
                (known.billing, "GET", "/v1/topics/orders.a", 200),
                (known.billing, "GET", "/v1/topics/secret", 403),
                (known.billing, "GET", "/v1/none", 404),
                (known.admin, "DELETE", f"/v1/messages/{receipt.handle}", 200),
            ):
                answer = await http.request(method, path, headers={"authorization": f"Bearer {token}"})
                assert answer.status_code == status, path
        services.close()
    assert len(passed) == 5


class Distant:
    """A broker elsewhere."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker

    @property
    def refusals(self) -> Any:
        return self._broker.refusals

    @property
    def identities(self) -> Any:
        return self._broker.identities

    @property
    def access_tokens(self) -> Any:
        return self._broker.access_tokens

    @property
    def clock(self) -> Any:
        return self._broker.clock

    @property
    def accounts(self) -> Any:
        return self._broker.accounts

    @property
    def token_issuers(self) -> Any:
        return self._broker.token_issuers

    @property
    def credential_uses(self) -> Any:
        return self._broker.credential_uses


def _waits(place: HttpPlace, topic: str, group: str) -> bool:
    return place.front._services._queues.waiting(topic, group) > 0  # noqa: SLF001 - it shows nowhere else


# -- lmstfy's API ------------------------------------------------------------------------------------------------------


class Queue:
    """lmstfy's API with one token."""

    def __init__(self, place: HttpPlace, secret: str | None) -> None:
        self._place = place
        self._headers = {} if secret is None else {"x-token": secret}

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._place.http.request(method, f"/api/{path}", headers=self._headers, **more)

    def status(self, method: str, path: str, **more: Any) -> int:
        return self.ask(method, path, **more).status_code


def test_lmstfys_tokens_are_each_of_its_namespace(place: HttpPlace, known: Known) -> None:
    one, two = (Queue(place, known.broker.create_token(name).secret) for name in ("one", "two"))
    for queue, own, other in ((one, "one/q", "two/q"), (two, "two/q", "one/q")):
        assert queue.status("PUT", own, content=b"x") == 201
        refused = queue.ask("PUT", other, content=b"x")
        assert (refused.status_code, refused.content) == (401, b'{"error":"invalid token"}')
    job = one.ask("GET", "one/q?timeout=5&ttr=60").json()["job_id"]
    assert two.status("DELETE", f"one/q/job/{job}") == 401
    assert one.status("DELETE", f"one/q/job/{job}") == 204
    for method, path in (
        *(("GET", "one/q/peek"), ("GET", f"one/q/job/{job}"), ("GET", "one/q/deadletter")),
        *(("PUT", "one/q/deadletter"), ("DELETE", "one/q/deadletter"), ("DELETE", "one/q"), ("GET", "one/q/size")),
    ):
        assert one.status(method, path) in (200, 204, 404), path


def test_lmstfy_without_a_known_token(place: HttpPlace, known: Known) -> None:
    for secret, text in ((None, b'{"error":"token not found"}'), ("x" * 24, b'{"error":"invalid token"}')):
        for method, path in (("PUT", "ns/q"), ("GET", "ns/q"), ("GET", "ns/q/size"), ("GET", "ns/q/deadletter/size")):
            refused = Queue(place, secret).ask(method, path)
            assert (refused.status_code, refused.content) == (401, text), path
    forget(known.broker, "billing")
    assert Queue(place, known.billing).ask("PUT", "ns/q").content == b'{"error":"invalid token"}'


def test_lmstfy_takes_a_bearer_token(place: HttpPlace, known: Known) -> None:
    of_namespace = known.broker.create_token("ns").secret
    identity = place.token("produce ns/q")
    for secret in (of_namespace, identity):
        assert place.status("PUT", "/api/ns/q", secret, content=b"x") == 201
    refused = place.ask("PUT", "/api/ns/q", "bad", content=b"x")
    assert (refused.status_code, refused.content) == (401, b'{"error":"invalid token"}')
    basic = place.http.put("/api/ns/q", content=b"x", auth=("", identity))
    assert basic.status_code == 401, "a page of another site could have a browser send it"


LMSTFY = {
    ("PUT", ""): "produce ns/q", ("PUT", "/bulk"): "produce ns/q", ("GET", ""): "consume ns/q group:lmstfy",
    ("GET", "/peek"): "browse ns/q group:lmstfy", ("GET", "/job/JOB"): "consume ns/q", ("GET", "/size"): "look ns/q",
    ("DELETE", ""): "manage ns/q", ("DELETE", "/job/JOB"): "consume ns/q group:lmstfy",
    ("GET", "/deadletter"): "browse ns/q", ("GET", "/deadletter/size"): "look ns/q",
    ("PUT", "/deadletter"): "manage ns/q", ("DELETE", "/deadletter"): "manage ns/q group:lmstfy",
}  # fmt: skip


def test_an_identity_uses_lmstfys_api_by_its_rights(place: HttpPlace, known: Known) -> None:
    job = Queue(place, known.broker.create_token("ns").secret).ask("PUT", "ns/q?delay=3600", content=b"x").json()
    everywhere = [f"{right} *" for right in ("produce", "consume", "browse", "manage")]
    for (method, rest), grant in LMSTFY.items():
        right, path = grant.split()[0], f"ns/q{rest.replace('JOB', job['job_id'])}"
        enough, without = Queue(place, place.token(grant)), [each for each in everywhere if right not in each]
        content = {"content": b'["x"]'}
        refused = Queue(place, place.token(*(["look a"] if right == "look" else without))).ask(method, path, **content)
        assert refused.status_code == 403, path
        assert f"has not the right {right} on topic 'ns/q'" in refused.json()["error"], path
        assert enough.status(method, path, **content) in (200, 201, 204, 404), path
    both = Queue(place, place.token("consume ns/a", "consume ns/b"))
    assert both.status("GET", "ns/a,b") == 404
    assert both.status("GET", "ns/a,b,c") == 403
    assert Queue(place, place.token("produce ns/q")).status("PUT", f"ns/q/job/{job['job_id']}", content=b"x") == 403


def test_a_long_queue_is_of_its_namespace(place: HttpPlace, known: Known) -> None:
    queue = "q" * 255
    assert topic_of("ns", queue).startswith("ns/")
    assert Queue(place, known.broker.create_token("ns").secret).status("PUT", f"ns/{queue}", content=b"x") == 201
    assert Queue(place, place.token("produce ns/*")).status("PUT", f"ns/{queue}", content=b"x") == 201


@pytest.mark.parametrize("path", ["ns/q", "ns/q,r"])
def test_a_waiting_consumer_of_lmstfy_ends_with_its_credential(place: HttpPlace, known: Known, path: str) -> None:
    token, of_identity = known.broker.create_token("ns"), place.token("consume ns/*")
    for secret, end in (
        (token.secret, lambda: known.broker.delete_token(token.id)),
        (of_identity, lambda: forget(known.broker, "somebody-1")),
    ):
        queue = Queue(place, secret)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(queue.ask, "GET", f"{path}?timeout=25")
            wait_until(lambda: _waits(place, "ns/q", "lmstfy"))
            end()
            assert waiting.result(15).status_code == 404
        wait_until(lambda: not _waits(place, "ns/q", "lmstfy"))
        assert queue.status("GET", path) == 401


def test_lmstfys_admin_port_is_for_administrators(known: Known) -> None:
    with (
        HttpFront(known.broker, "127.0.0.1:0", admin="127.0.0.1:0") as front,
        httpx.Client(base_url=f"http://{front.admin_address}") as http,
    ):
        refused = http.get("/info")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="tarry"')
        assert http.get("/info", auth=("x", known.billing)).status_code == 403
        assert http.get("/info", auth=("x", known.admin)).status_code == 200
        made = http.post("/token/ns?description=d&token=chosen-by-the-user-itself", auth=("x", known.admin))
        assert made.json() == {"token": "chosen-by-the-user-itself"}
        assert http.get("/info?token=chosen-by-the-user-itself").status_code == 401


def test_access_tokens_without_identities_are_asked_for_as_before(tmp_path: Any) -> None:
    with open_broker(tmp_path) as broker:
        access = Access(broker, "open")
        assert not access.asks
        broker.create_token("*")
        assert not access.asks, "tokens ask nobody where http_access is open"
        broker.set_identity("admin", ["admin"])
        assert not access.asks
        broker.add_credential("admin")
        assert access.asks
