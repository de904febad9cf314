"""lmstfy's API: each route, and what jobs go through."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.lmstfy_place import Lmstfy, data_of, serving
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lmstfy]:
    """One broker for all; each test has queues of its own."""
    with serving(tmp_path_factory.mktemp("lmstfy") / "data") as place:
        # What opens files is done before the first test, after which none may be open that was not before.
        place.ask("DELETE", f"ns/first/job/{place.publish('ns/first?delay=3600')}")
        yield place


def test_publish_consume_ack(place: Lmstfy) -> None:
    id = place.publish("ns/a?ttl=60&tries=3", b"\x00\xff body")
    job = place.consume("ns/a?timeout=10&ttr=30")
    assert data_of(job) == b"\x00\xff body"
    assert {"msg": "new job", "namespace": "ns", "queue": "a", "job_id": id}.items() <= job.items()
    assert (job["ttl"], job["remain_tries"], job["attributes"]) == (60, 2, None)
    assert 0 <= job["elapsed_ms"] < 60_000
    assert place.ask("DELETE", f"ns/a/job/{id}").status_code == 204
    assert place.broker.group_info("ns/a", "lmstfy").lag == 0
    assert place.ask("GET", f"ns/a/job/{id}").status_code == 404
    assert place.ask("DELETE", f"ns/a/job/{id}").status_code == 204, "always"


def test_the_bytes_of_answers(place: Lmstfy) -> None:
    answer = place.ask("PUT", "ns/bytes?ttl=0&tries=5", b"hello", enable_job_version="yes", job_attr_color="<red>")
    id = answer.json()["job_id"]
    assert answer.content == b'{"job_id":"%s","msg":"published"}' % id.encode()
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert (len(answer.headers["x-request-id"]), len(id)) == (26, 27)
    job = place.ask("GET", "ns/bytes?timeout=10")
    elapsed = str(job.json()["elapsed_ms"])
    assert job.text == (
        '{"attributes":{"color":"\\u003cred\\u003e"},"data":"aGVsbG8=","elapsed_ms":' + elapsed + f',"job_id":"{id}",'
        '"msg":"new job","namespace":"ns","queue":"bytes","remain_tries":4,"ttl":0}'
    )
    peeked = place.ask("GET", f"ns/bytes/job/{id}")
    elapsed = str(peeked.json()["elapsed_ms"])
    assert peeked.text == (
        '{"attributes":{"color":"\\u003cred\\u003e"},"data":"aGVsbG8=","elapsed_ms":' + elapsed + f',"job_id":"{id}",'
        '"namespace":"ns","queue":"bytes","remain_tries":0,"ttl":0}'
    )
    assert place.ask("GET", "ns/bytes/size").text == '{"namespace":"ns","queue":"bytes","size":0}'
    assert place.ask("GET", "ns/bytes").text == '{"msg":"no job available"}'
    deleted = place.ask("DELETE", f"ns/bytes/job/{id}")
    assert (deleted.content, deleted.headers.get("content-type")) == (b"", None)
    assert "x-request-id" in deleted.headers


def test_delay(place: Lmstfy) -> None:
    id = place.publish("ns/delay?delay=1")
    assert place.consume("ns/delay") is None
    assert place.ask("GET", f"ns/delay/job/{id}").json()["job_id"] == id, "while it is pending"
    job = place.consume("ns/delay?timeout=20")
    assert job["job_id"] == id
    assert job["elapsed_ms"] >= 1000, "never early"


def test_a_pending_job_is_taken_back(place: Lmstfy) -> None:
    id = place.publish("ns/cancel?delay=3600")
    assert place.ask("DELETE", f"ns/other/job/{id}").status_code == 204
    assert place.ask("GET", f"ns/cancel/job/{id}").status_code == 200, "another queue's path does nothing to it"
    place.ask("DELETE", f"ns/cancel/job/{id}")
    assert place.ask("GET", f"ns/cancel/job/{id}").json() == {"error": "job not found"}
    assert [t.pending for t in place.broker.pending(next_due=False) if t.topic == "ns/cancel"] in ([], [0])


def test_a_ready_job_is_taken_back(place: Lmstfy) -> None:
    first, second = place.publish("ns/ready"), place.publish("ns/ready")
    place.wait_for_size(2, "ns/ready/size")
    place.ask("DELETE", f"ns/ready/job/{first}")
    assert place.consume("ns/ready?timeout=10")["job_id"] == second
    assert place.consume("ns/ready") is None


@pytest.mark.rest
def test_jobs_are_found_by_their_ids_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        pending, ready = place.publish("ns/q?delay=3600"), place.publish()
        leased = place.publish("ns/held?tries=5")
        assert place.consume("ns/held?timeout=10")["job_id"] == leased
        secret = place.secret
    with serving(tmp_path) as place:
        place.secret = secret
        for id, queue in ((pending, "q"), (ready, "q"), (leased, "held")):
            assert place.ask("GET", f"ns/{queue}/job/{id}").status_code == 200
            assert place.ask("DELETE", f"ns/{queue}/job/{id}").status_code == 204
            assert place.ask("GET", f"ns/{queue}/job/{id}").status_code == 404
        assert place.consume("ns/q,held") is None
        assert place.broker.group_info("ns/held", "lmstfy").lag == 0


@pytest.mark.rest
def test_ttr_and_tries(place: Lmstfy) -> None:
    id = place.publish("ns/ttr?tries=2")
    assert place.consume("ns/ttr?timeout=10&ttr=1")["remain_tries"] == 1
    assert place.consume("ns/ttr") is None
    again = place.consume("ns/ttr?timeout=20&ttr=1")
    assert (again["job_id"], again["remain_tries"]) == (id, 0)
    wait_until(lambda: place.size("ns/ttr/deadletter/size") == 1)
    head = place.ask("GET", "ns/ttr/deadletter")
    assert head.text == f'{{"deadletter_head":"{id}","deadletter_size":1,"namespace":"ns","queue":"ttr"}}'
    assert data_of(place.ask("GET", f"ns/ttr/job/{id}").json()) == b"hello", "a dead job can be looked at"
    answer = place.ask("PUT", "ns/ttr/deadletter?limit=5&ttl=100")
    assert answer.text == '{"count":1,"msg":"respawned"}'
    job = place.consume("ns/ttr?timeout=10&ttr=60")
    assert (job["job_id"], job["remain_tries"], job["ttl"]) == (id, 0, 100)
    assert place.ask("GET", f"ns/ttr/job/{id}").status_code == 200
    assert place.ask("DELETE", f"ns/ttr/job/{id}").status_code == 204
    assert place.ask("GET", f"ns/ttr/job/{id}").status_code == 404
    assert place.broker.group_info("ns/ttr", "lmstfy").lag == 0


def test_dead_letters_are_deleted(place: Lmstfy) -> None:
    ids = [place.publish("ns/dead") for _ in range(3)]
    assert len(place.consume("ns/dead?timeout=10&ttr=0&count=3")) >= 1
    wait_until(lambda: place.consume("ns/dead?ttr=0&count=3") is None and place.size("ns/dead/deadletter/size") == 3)
    assert place.ask("DELETE", "ns/dead/deadletter").status_code == 204
    assert place.ask("GET", "ns/dead/deadletter").json()["deadletter_size"] == 2
    assert place.ask("DELETE", f"ns/dead/job/{ids[2]}").status_code == 204, "one by its id"
    assert place.size("ns/dead/deadletter/size") == 1
    assert place.ask("DELETE", "ns/dead/deadletter?limit=9223372036854775807").status_code == 204
    empty = '{"deadletter_head":"","deadletter_size":0,"namespace":"ns","queue":"dead"}'
    assert place.ask("GET", "ns/dead/deadletter").text == empty
    assert place.ask("PUT", "ns/dead/deadletter").text == '{"count":0,"msg":"respawned"}'


def test_bulk(place: Lmstfy) -> None:
    body = b' [ "hello msg" , 123456,{"msg" : "success"},["foo","bar"],true , null,"\xff", 1e400]\n'
    answer = place.ask("PUT", "ns/bulk/bulk?ttl=10", body)
    assert answer.status_code == 201, answer.text
    ids = answer.json()["job_ids"]
    assert answer.text == json.dumps({"job_ids": ids, "msg": "published"}, separators=(",", ":"))
    place.wait_for_size(8, "ns/bulk/size")
    jobs = place.consume("ns/bulk?count=100")
    assert [job["job_id"] for job in jobs] == ids
    assert [data_of(job) for job in jobs] == [
        *(b'"hello msg"', b"123456", b'{"msg" : "success"}', b'["foo","bar"]', b"true", b"null", b'"\xff"', b"1e400")
    ]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "request body should be an array of objects"),
        (b"{}", 400, "request body should be an array of objects"),
        (b"[1,]", 400, "request body should be an array of objects"),
        (b"[1 2]", 400, "request body should be an array of objects"),
        (b"[1", 400, "request body should be an array of objects"),
        (b"[1]]", 400, "request body should be an array of objects"),
        (b"[NaN]", 400, "request body should be an array of objects"),
        (b"[" * 100_000, 400, "request body should be an array of objects"),
        (b"[]", 400, "no jobs"),
        (b"null", 400, "no jobs"),
        (b"[" + b"1," * 64 + b"1]", 400, "too many jobs"),
        (b'["' + b"x" * (1 << 20) + b'"]', 413, "job too large"),
    ],
)
def test_bad_bulk(body: bytes, status: int, text: str, place: Lmstfy) -> None:
    answer = place.ask("PUT", "ns/bad/bulk", body)
    assert (answer.status_code, answer.json()) == (status, {"error": text})


def test_republish(place: Lmstfy) -> None:
    id = place.publish("ns/again?tries=3")
    assert place.consume("ns/again?timeout=10")["job_id"] == id
    new = place.publish(f"ns/again/job/{id}?ttl=10", b"other")
    assert new != id
    assert place.ask("GET", f"ns/again/job/{id}").status_code == 404
    job = place.consume("ns/again?timeout=10")
    assert (job["job_id"], data_of(job), job["ttl"]) == (new, b"other", 10)
    refused = place.ask("PUT", f"ns/again/job/{new}?ttl=x")
    assert refused.json() == {"error": "invalid ttl"}
    assert place.ask("GET", f"ns/again/job/{new}").status_code == 200, "a refused one takes nothing away"


def test_queues_by_priority(place: Lmstfy) -> None:
    for name in ("low", "high", "low", "high"):
        place.publish(f"ns/{name}")
    place.wait_for_size(2, "ns/low/size")
    place.wait_for_size(2, "ns/high/size")
    assert [job["queue"] for job in place.consume("ns/high,low,none?count=3")] == ["high", "high", "low"]
    assert place.consume("ns/,high,,low")["queue"] == "low"
    assert place.consume("ns/high,low,high") is None


def test_who_waits_for_several_queues_gets_the_first_job(place: Lmstfy) -> None:
    got: list[dict[str, object]] = []
    waiting = threading.Thread(target=lambda: got.append(place.consume("ns/w1,w2,w3?timeout=60")))
    waiting.start()
    wait_until(lambda: place.broker.has_topic("ns/w3"))
    id = place.publish("ns/w2")
    waiting.join(60)
    assert [job["job_id"] for job in got] == [id]
    place.publish("ns/w1")
    place.wait_for_size(1, "ns/w1/size")


def test_peek_and_size(place: Lmstfy) -> None:
    assert place.ask("GET", "ns/peek/peek").json() == {"error": "the queue is empty"}
    first, second = place.publish("ns/peek?tries=7", b"1"), place.publish("ns/peek", b"2")
    place.wait_for_size(2, "ns/peek/size")
    job = place.ask("GET", "ns/peek/peek").json()
    assert (job["job_id"], job["remain_tries"], data_of(job)) == (first, 7, b"1")
    assert place.consume("ns/peek")["job_id"] == first
    assert place.ask("GET", "ns/peek/peek").json()["job_id"] == second
    assert place.size("ns/peek/size") == 1


def test_destroy(place: Lmstfy) -> None:
    place.publish("ns/destroy")
    place.publish("ns/destroy?delay=3600")
    place.wait_for_size(1, "ns/destroy/size")
    assert place.ask("DELETE", "ns/destroy").status_code == 204
    assert place.size("ns/destroy/size") == 0
    assert place.consume("ns/destroy") is None
    assert place.ask("DELETE", "ns/never").status_code == 204
    [pending] = [t.pending for t in place.broker.pending() if t.topic == "ns/destroy"]
    assert pending == 1, "what is delayed stays"


@pytest.mark.rest
def test_ttl(place: Lmstfy) -> None:
    place.publish("ns/ttl?ttl=1")
    place.publish("ns/ttl?ttl=0", b"for ever")
    place.publish("ns/later?delay=2")
    assert place.consume("ns/later?timeout=60")
    assert data_of(place.ask("GET", "ns/ttl/peek").json()) == b"for ever"
    job = place.consume("ns/ttl")
    assert (data_of(job), job["ttl"]) == (b"for ever", 0)
    assert place.consume("ns/ttl") is None


def test_attributes(place: Lmstfy) -> None:
    given = {"job_attr_hello": "world", "job_attr_" + "k" * 300: "v" * 300, "job_attr_empty": ""}
    place.publish("ns/attributes", enable_job_version="YES", **given)
    place.publish("ns/attributes", enable_job_version="NO", **given)
    assert place.consume("ns/attributes?timeout=10")["attributes"] == {"hello": "world", "k" * 32: "v" * 128}
    assert place.consume("ns/attributes?timeout=10")["attributes"] is None
    many = {f"job_attr_{n}": "x" for n in range(17)}
    answer = place.ask("PUT", "ns/attributes", b"x", enable_job_version="YES", **many)
    assert (answer.status_code, answer.json()) == (400, {"error": "too many attributes, cannot exceed 16"})


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        *(("PUT", f"ns/q?delay={v}", "invalid delay") for v in ("", "x", "-1", "4294967296", "1.5", "+1", "%C2%B2")),
        ("PUT", "ns/q?delay=2000000000&ttl=0", "invalid delay"),  # above delay_ms_max
        ("PUT", "ns/q?ttl=x", "invalid ttl"),
        ("PUT", "ns/q?delay=10&ttl=9", "ttl is shorter than delay"),
        ("PUT", "ns/q?tries=65536", "invalid tries"),
        ("PUT", "ns/q?tries=0", "tries shouldn't be zero"),
        ("PUT", "ns/q/bulk?tries=0", "tries shouldn't be zero"),
        ("GET", "ns/q?ttr=x", "invalid ttr"),
        ("GET", "ns/q?timeout=-1", "invalid timeout"),
        *(("GET", f"ns/q?count={v}", "invalid count") for v in ("0", "101", "x", "")),
        ("GET", "ns/,,", "invalid queue name(s)"),
        ("PUT", "ns/q/deadletter?limit=0", "invalid limit"),
        ("PUT", "ns/q/deadletter?limit=9223372036854775808", "invalid limit"),
        ("PUT", "ns/q/deadletter?ttl=-1", "invalid ttl"),
        ("DELETE", "ns/q/deadletter?limit=x", "invalid limit"),
        ("PUT", "ns/_q", "queue name contains forbidden characters"),
        ("PUT", "ns/a,b", "queue name contains forbidden characters"),
        ("PUT", "ns/a%20b", "queue name contains forbidden characters"),
        ("PUT", "ns/a%0d%0aX-Evil:1", "queue name contains forbidden characters"),
        ("PUT", "ns/%2e%2e", "queue name contains forbidden characters"),
        ("PUT", "ns/%c3%bc", "queue name contains forbidden characters"),
        ("PUT", "ns/%ff", "queue name contains forbidden characters"),
        ("PUT", "n.s/q", "namespace name contains forbidden characters"),
        ("GET", "n.s/q", "namespace name contains forbidden characters"),
        ("GET", "ns/a.b", "queue name contains forbidden characters"),
        ("PUT", "n" * 256 + "/q", "namespace or queue name too long"),
        ("GET", "ns/" + "q" * 256 + "/size", "namespace or queue name too long"),
    ],
)
def test_refused(method: str, path: str, text: str, place: Lmstfy) -> None:
    answer = place.ask(method, path, b"[1]" if path.startswith("ns/q/bulk") else b"x")
    assert (answer.status_code, answer.json()) == (400, {"error": text})
    assert "x-evil" not in answer.headers
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", "ns/q"), ("PATCH", "ns/q"), ("HEAD", "ns/q"), ("GET", "ns"), ("GET", ""), ("GET", "ns/q/nothing")),
        *(("PUT", "ns/q/peek"), ("GET", "ns/q/job"), ("GET", "ns/q/job/"), ("GET", "ns/q/job/x/y")),
        *(("GET", "%2e%2e/%2e%2e/etc/passwd"), ("GET", "ns/q/%2e%2e/%2e%2e/x"), ("GET", "ns/q%2fjob%2fx%2fy")),
    ],
)
def test_no_route(method: str, path: str, place: Lmstfy) -> None:
    answer = place.ask(method, path)
    assert answer.status_code == 404
    assert method == "HEAD" or answer.json() in ({"error": "api not found"}, {"error": "not found"})


def test_tokens(place: Lmstfy) -> None:
    def status(path: str, **headers: str) -> tuple[int, str]:
        answer = place.http.put(f"/api/{path}", headers={k.replace("_", "-"): v for k, v in headers.items()})
        return answer.status_code, answer.json().get("error", "")

    assert status("ns/t") == (401, "token not found")
    assert status("ns/t", x_token="x" * 30) == (401, "invalid token")
    assert status("other/t", x_token=place.secret) == (401, "invalid token")
    assert status(f"ns/t?token={place.secret}") == (201, "")
    assert status("ns/t", x_token=f"default:{place.secret}") == (201, "")
    assert status("ns/t", x_token=f"none:{place.secret}") == (404, "pool not found")
    everything = place.broker.create_token()
    assert status("other/t", x_token=everything.secret) == (201, "")
    place.broker.delete_token(everything.id)
    place.wait_told()
    assert status("other/t", x_token=everything.secret) == (401, "invalid token")
    assert place.http.get("/api/ns/t/size").status_code == 200, "without a token"
    assert place.http.get("/api/ns/t/deadletter/size").status_code == 200


def test_token_limits(place: Lmstfy) -> None:
    made = place.broker.create_token("ns")
    place.broker.limit_token(made.id, reads_max=1, writes_max=2, interval_ms=86_400_000)
    for _ in range(3):
        assert place.ask("GET", "ns/limited", x_token=made.secret).status_code == 404, "no job counts for nothing"
    assert place.ask("PUT", "ns/limited?ttl=x", b"", x_token=made.secret).status_code == 400, "nor a refusal"
    assert [place.ask("PUT", "ns/limited", b"1", x_token=made.secret).status_code for _ in range(3)] == [201, 201, 429]
    place.wait_for_size(2, "ns/limited/size")
    assert place.ask("GET", "ns/limited", x_token=made.secret).status_code == 200
    answer = place.ask("GET", "ns/limited", x_token=made.secret)
    assert answer.status_code == 429
    assert answer.json() == {"msg": f"token({made.id}) consume reach the limit rate, please retry later"}
    place.broker.limit_token(made.id)
    assert place.ask("GET", "ns/limited", x_token=made.secret).status_code == 200


def test_long_names_and_topics(place: Lmstfy) -> None:
    queue = "q" * 255
    id = place.publish(f"ns/{queue}")
    assert place.consume(f"ns/{queue}?timeout=10")["job_id"] == id
    job = place.publish(f"ns/{queue[:-1]}r")
    assert job != id
    assert place.consume(f"ns/{queue}") is None


def test_an_empty_body_and_the_largest(place: Lmstfy) -> None:
    largest = bytes(range(256)) * 4096
    place.publish("ns/sizes", b"")
    place.publish("ns/sizes", largest)
    assert data_of(place.consume("ns/sizes?timeout=10")) == b""
    assert data_of(place.consume("ns/sizes?timeout=10")) == largest
    answer = place.ask("PUT", "ns/sizes", largest + b"x")
    assert (answer.status_code, answer.json()) == (413, {"error": "body too large"})


def test_a_bulk_after_the_first_one_is_the_same(place: Lmstfy) -> None:
    for _ in range(2):  # the second one finds the queue, and goes another way
        answer = place.ask("PUT", "ns/bulks/bulk?tries=2", b'["a", {"b":1}]')
        ids = answer.json()["job_ids"]
        assert answer.content == b'{"job_ids":["%s","%s"],"msg":"published"}' % tuple(id.encode() for id in ids)
        jobs = [place.consume("ns/bulks?timeout=10") for _ in ids]
        assert {(job["job_id"], data_of(job)) for job in jobs} == set(zip(ids, (b'"a"', b'{"b":1}'), strict=True))
        for id in ids:
            assert place.ask("DELETE", f"ns/bulks/job/{id}").status_code == 204
    assert place.ask("PUT", "ns/bulks/bulk?tries=2", b"[]").json() == {"error": "no jobs"}
    assert place.ask("PUT", "ns/bulks/bulk?tries=2", b"[1").status_code == 400
    assert place.ask("PUT", "ns/bulks/bulk?tries=2", json.dumps([1] * 65).encode()).json() == {"error": "too many jobs"}
    assert place.broker.group_info("ns/bulks", "lmstfy").lag == 0


def test_a_target_that_is_known_asks_for_a_token_each_time(place: Lmstfy) -> None:
    for _ in range(2):
        place.publish("ns/known?delay=3600")
    for wrong in ("", "another", place.secret[:-1], place.broker.create_token("other").secret):
        answer = place.http.put("/api/ns/known?delay=3600", content=b"x", headers={"x-token": wrong})
        assert answer.status_code == 401, wrong
    token = place.broker.create_token("ns")
    headers = {"x-token": token.secret}
    assert place.http.put("/api/ns/known?delay=3600", content=b"x", headers=headers).status_code == 201
    place.broker.delete_token(token.id)
    place.wait_told()
    assert place.http.put("/api/ns/known?delay=3600", content=b"x", headers=headers).status_code == 401


def test_the_id_of_a_job_with_a_version(place: Lmstfy) -> None:
    id = place.publish("ns/version", enable_job_version="YES")
    assert (len(id), id[0]) == (27, "1")
    job = place.consume("ns/version?ttr=60&timeout=10")
    assert (job["job_id"], job["attributes"]) == (id, None)
    assert place.ask("GET", f"ns/version/job/{id}").json()["job_id"] == id
    assert place.ask("DELETE", f"ns/version/job/{id}").status_code == 204
    assert place.broker.group_info("ns/version", "lmstfy").lag == 0
    [id] = place.ask("PUT", "ns/version/bulk?delay=60", b'["x"]', enable_job_version="YES").json()["job_ids"]
    assert (len(id), id[0]) == (27, "1")
    assert place.ask("DELETE", f"ns/version/job/{id}").status_code == 204
    assert place.ask("GET", f"ns/version/job/{id}").status_code == 404


def test_a_slash_at_the_end(place: Lmstfy) -> None:
    place.publish("ns/slash")
    moved = place.ask("GET", "ns/slash/?timeout=1&x=%22")
    assert (moved.status_code, moved.headers["location"]) == (301, "/api/ns/slash?timeout=1&x=%22")
    assert moved.text == '<a href="/api/ns/slash?timeout=1&amp;x=%22">Moved Permanently</a>.\n\n'
    moved = place.ask("PUT", "ns/slash/bulk/", b'["x"]')
    assert (moved.status_code, moved.headers["location"], moved.content) == (307, "/api/ns/slash/bulk", b"")
    for path in ("ns/slash//", "ns/slash/none/"):
        assert place.ask("GET", path).json() == {"error": "api not found"}
