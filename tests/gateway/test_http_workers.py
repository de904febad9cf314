"""Several workers of the HTTP front: a client is treated alike whichever it reaches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry.api.operations import LimitToken
from tarry.fronts.http.front import HttpFront
from tarry.fronts.kit.admission import Admission, Admissions
from tarry.fronts.metrics.collector import BrokerCollector
from tests.gateway.worker_places import Workers, http_workers
from tests.http.lmstfy_place import Lmstfy
from tests.http.rest import Rest
from tests.http.test_rest_events import events_of
from tests.loopgrpc.certificates import make_certificate
from tests.waiting import wait_until

GROUP = "/v1/topics/orders/groups/g"


class Place:
    """Two workers, and a client of each."""

    def __init__(self, workers: Workers[HttpFront], clients: list[httpx.Client]) -> None:
        self.broker = workers.broker
        self.home = workers.home
        self.rest = [Rest(workers.broker, front, http) for front, http in zip(workers.fronts, clients, strict=True)]
        self.lmstfy = [Lmstfy(workers.broker, rest.front, rest.http) for rest in self.rest[:1]]
        self.lmstfy.append(_with_secret(self.rest[1], self.lmstfy[0].secret))


def _with_secret(rest: Rest, secret: str) -> Lmstfy:
    client = Lmstfy.__new__(Lmstfy)
    client.broker, client.front, client.http, client.secret = rest.broker, rest.front, rest.http, secret
    return client


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with http_workers(tmp_path / "data", 2, admin="127.0.0.1:0") as workers, ExitStack() as stack:
        clients = [httpx.Client(base_url=f"http://{front.address}", timeout=60) for front in workers.fronts]
        for client in clients:
            stack.enter_context(client)
        yield Place(workers, clients)


def test_a_message_of_one_worker_is_received_and_settled_by_the_other(place: Place) -> None:
    here, there = place.rest
    here.schedule(b"hello")
    [message] = there.receive()
    assert message["body"] == "hello"
    settled = here.post(f"{GROUP}/extend", {"deliveries": [message["delivery"]], "lease_ms": 60_000})
    assert settled.json() == {"settled": 1}
    assert here.post(f"{GROUP}/ack", {"deliveries": [message["delivery"]]}).json() == {"settled": 1}
    assert there.post(f"{GROUP}/ack", {"deliveries": [message["delivery"]]}).status_code == 409
    extended = there.post(f"{GROUP}/extend", {"deliveries": [message["delivery"]], "lease_ms": 60_000})
    assert extended.json() == {"settled": 0}


def test_a_receive_that_does_not_wait_gets_what_there_is(place: Place) -> None:
    here, there = place.rest
    assert there.receive(wait_ms=0) == []
    for number in range(3):
        here.schedule(b"%d" % number)
    wait_until(lambda: place.broker.group_info("orders", "g").ready == 3)
    assert len(there.receive(wait_ms=0, max_messages=2)) == 2
    assert len(here.receive(wait_ms=0, max_messages=2)) == 1
    assert here.receive(wait_ms=0) == []


def test_a_filter_is_waited_for_by_a_receive_that_does_not_wait(place: Place) -> None:
    here, there = place.rest
    there.http.patch(GROUP, json={"filter": "sql:parity = 'odd'"})
    for number in range(5):
        here.schedule(b"%d" % number, **{"property.parity": ("even", "odd")[number % 2]})
    wait_until(lambda: {each.topic: each.ready for each in place.broker.pending()}.get("orders") == 5)
    assert {m["body"] for m in there.receive(wait_ms=0, max_messages=10)} == {"1", "3"}


def test_an_event_stream_goes_on_through_another_worker(place: Place) -> None:
    here, there = place.rest
    for number in range(3):
        here.schedule(b"%d" % number)
    with events_of(here) as stream:
        first = stream.message()
        assert first["body"] == "0"
    with events_of(there, last=first["event_id"]) as stream:
        again = [stream.message() for _ in range(2)]
    assert [message["body"] for message in again] == ["1", "2"]
    assert first["event_id"].partition(".")[0] == again[0]["event_id"].partition(".")[0], "the same session"
    assert there.post(f"{GROUP}/ack", {"deliveries": [first["delivery"]]}).json() == {"settled": 1}


def test_the_console_is_the_homes(place: Place) -> None:
    for rest in place.rest:
        page = rest.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert rest.get("/static/console.css").status_code == rest.http.head("/static/console.css").status_code


def test_without_the_home_the_workers_say_so(place: Place) -> None:
    here = place.rest[0]
    place.home.stop()
    answer = here.get("/")
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    here.schedule()


def test_a_job_is_acknowledged_by_the_worker_that_did_not_hand_it_out(place: Place) -> None:
    here, there = place.lmstfy
    id = here.publish("ns/q?tries=3")
    job = there.consume("ns/q?timeout=0&ttr=60")
    assert job["job_id"] == id, "a read sees what was published before, wherever"
    assert here.ask("DELETE", f"ns/q/job/{id}").status_code == 204
    assert place.broker.group_info("ns/q", "lmstfy").lag == 0
    assert here.consume("ns/q?timeout=0") is None


def test_several_queues_are_looked_at_by_priority(place: Place) -> None:
    here, there = place.lmstfy
    here.publish("ns/low", b"low")
    here.publish("ns/high", b"high")
    assert there.size("ns/low/size") == there.size("ns/high/size") == 1
    assert there.consume("ns/high,low?timeout=0")["queue"] == "high"
    assert there.consume("ns/high,low?timeout=0")["queue"] == "low"
    assert there.consume("ns/high,low?timeout=0") is None


def test_a_tokens_limit_is_for_all_workers_together(place: Place) -> None:
    here, there = place.lmstfy
    [token] = place.broker.tokens("ns")
    place.broker.call(LimitToken(token.id, 0, 3, 3_600_000))
    # What each worker was told, which may have been nothing yet.
    told = [rest.front._broker for rest in place.rest]  # noqa: SLF001
    wait_until(lambda: all([each.writes_max for each in broker.access_tokens] == [3] for broker in told))
    answers = [client.ask("PUT", "ns/q").status_code for client in (here, there, here, there, here)]
    assert answers == [201, 201, 201, 429, 429]


def test_a_new_token_is_good_at_once_and_a_deleted_one_soon_nowhere(place: Place) -> None:
    for client in place.lmstfy:
        client.secret = place.broker.create_token("other").secret
        assert client.ask("PUT", "other/q").status_code == 201
    for token in place.broker.tokens("other"):
        place.broker.delete_token(token.id)
    for client in place.lmstfy:
        wait_until(lambda client=client: client.ask("PUT", "other/q").status_code == 401)


def test_the_access_log_is_switched_for_all(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    admin = f"http://{place.home.admin_address}"
    logged = caplog.at_level(logging.WARNING, "tarry.fronts.http.lmstfy.access_log")

    def is_noted(client: Lmstfy) -> bool:
        caplog.clear()
        client.publish()
        return "PUT '/api/ns/q'" in caplog.text

    with logged:
        assert not any(is_noted(client) for client in place.lmstfy)
        assert httpx.post(f"{admin}/accesslog?status=enable").json() == {"status": "enabled"}
        for client in place.lmstfy:
            wait_until(lambda client=client: is_noted(client))


def test_open_access_is_for_this_machine_also_in_a_worker(place: Place) -> None:
    for path in ("/v1/ping", "/", f"{GROUP}/events"):
        refused: Any = place.rest[0].get(path, headers={"x-forwarded-for": "1.2.3.4"})
        assert refused.status_code == 403, path


def test_the_home_knows_a_client_by_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by the user of its socket, who is the broker's."""
    places: list[Admission] = []
    admit = Admissions.admit

    def spy(self: Admissions, peer_host: str, cut: Any) -> Admission:
        places.append(admit(self, peer_host, cut))
        return places[-1]

    monkeypatch.setattr(Admissions, "admit", spy)
    made = make_certificate(tmp_path)
    context = made.client_context()
    context.load_cert_chain(made.certificate, made.key)
    files = {"tls_certificate": str(made.certificate), "tls_key": str(made.key), "tls_client_ca": str(made.certificate)}
    with http_workers(tmp_path / "data", 1, **files) as workers:
        port = workers.fronts[0].address.rpartition(":")[2]
        places.clear()
        with httpx.Client(base_url=f"https://localhost:{port}", verify=context, timeout=60) as client:
            assert client.post("/v1/topics/orders/messages", content=b"x").status_code == 201
            page = client.get("/")  # the home's
            assert page.status_code == 200
            assert "; Secure" in page.headers["set-cookie"]
        assert [place.peer_host for place in places] == ["127.0.0.1"] * 2, "at the worker, and at the home"
        assert {str(place.principal) for place in places} == {"certificate commonName=localhost"}


def test_the_figures_of_workers_are_metrics(place: Place) -> None:
    for rest in place.rest:
        process = {"pid": 1, "restarts": 0, "uptime_ms": 1, "cpu_ms": 1, "resident_bytes": 1}
        worker: Any = rest.front._broker  # noqa: SLF001 - a worker's process says it
        worker.say({**process, **rest.front.figures()})
    wait_until(lambda: len(place.broker.status()["gateways"]) == 2)
    [connections] = [m for m in BrokerCollector(place.broker).collect() if m.name == "tarry_gateway_connections"]
    assert {sample.labels["worker"] for sample in connections.samples} == {"http-1", "http-2"}
