"""lmstfy's admin API: tokens, limits, what there is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.registry import ServerConfig


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[httpx.Client, httpx.Client, Broker]]:
    """Clients of the two ports."""
    config = ServerConfig(data=tmp_path / "data", pipeline="off", flight=None, disk_free_bytes_min=0)
    with Broker.open(config) as broker, HttpFront(broker, "127.0.0.1:0", admin="127.0.0.1:0") as front:
        main = httpx.Client(base_url=f"http://{front.address}", timeout=60)
        admin = httpx.Client(base_url=f"http://{front.admin_address}", timeout=60)
        with main, admin:
            yield main, admin, broker


def test_tokens(ports: tuple[httpx.Client, httpx.Client, Broker]) -> None:
    main, admin, broker = ports
    made = admin.post("/token/ns?description=client")
    assert made.status_code == 201
    secret = made.json()["token"]
    assert made.text == f'{{\n    "token": "{secret}"\n}}'
    assert main.put(f"/api/ns/q?token={secret}", content=b"x").status_code == 201
    own = admin.post("/token/ns", data={"description": "my own", "token": "a-token-of-twenty-characters"})
    assert own.json() == {"token": "a-token-of-twenty-characters"}
    again = admin.post("/token/ns?description=x&token=default:a-token-of-twenty-characters")
    assert (again.status_code, again.json()) == (400, {"error": "the token has already existed"})
    listed = admin.get("/token/ns").json()["tokens"]
    assert sorted(listed.values()) == ["client", "my own"]
    assert secret not in listed, "only its id is known"
    assert admin.delete(f"/token/ns/{secret}").status_code == 204
    assert main.put(f"/api/ns/q?token={secret}", content=b"x").status_code == 401
    [left] = admin.get("/token/ns").json()["tokens"]
    assert admin.delete(f"/token/ns/{left}").status_code == 204, "by its id"
    assert admin.delete(f"/token/ns/{left}").status_code == 204
    assert broker.tokens() == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/token/ns", "invalid description"),
        ("/token/ns?description=x&token=short", "the user token was too short"),
        ("/token/" + "n" * 256 + "?description=x", "the namespace name was too long"),
        ("/token/n.s?description=x", "namespace name contains forbidden characters"),
        ("/token/ns?description=x&pool=other", "the pool was not exists"),
        ("/token/ns?description=x&token=other:0123456789012345", "the pool was not exists"),
    ],
)
def test_tokens_that_are_refused(path: str, text: str, ports: tuple[httpx.Client, httpx.Client, Broker]) -> None:
    answer = ports[1].post(path)
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_limits(ports: tuple[httpx.Client, httpx.Client, Broker]) -> None:
    main, admin, _ = ports
    secret = admin.post("/token/ns?description=client").json()["token"]
    path = f"/token/ns/{secret}/limit"
    assert (admin.get(path).status_code, admin.get(path).text) == (404, "null")
    limiter = {"read": 0, "write": 1, "interval": 86_400}
    added = admin.post(path, json=limiter)
    assert (added.status_code, added.json()) == (201, {"limiter": limiter})
    again = admin.post(path, json=limiter)
    assert (again.status_code, again.json()) == (500, {"error": f"throttler token({secret}) has already exists"})
    assert admin.get(path).json() == limiter
    [listed] = admin.get("/limits").json()
    assert (listed["namespace"], listed["limiter"]) == ("ns", limiter)
    assert [main.put(f"/api/ns/q?token={secret}").status_code for _ in range(2)] == [201, 429]
    assert admin.put(path, json={**limiter, "write": 5}).status_code == 200
    assert main.put(f"/api/ns/q?token={secret}").status_code == 201
    assert admin.put(path, json={"read": 0, "write": 0, "interval": 1}).json() == {
        "limiter": {"read": 0, "write": 0, "interval": 1}
    }
    assert admin.put(path, json={"read": 1}).json() == {"error": "interval should be > 0"}
    for bad in (b"", b"[]", b"{", b'{"read": "x"}', b"[" * 100_000):
        assert admin.put(path, content=bad).status_code in (400, 413)
    assert admin.delete(path).json() == {"msg": "success"}
    assert admin.get(path).status_code == 404


def test_what_there_is(ports: tuple[httpx.Client, httpx.Client, Broker]) -> None:
    main, admin, broker = ports
    secret = broker.create_token().secret
    for queue in ("a/x", "a/y", "b/x"):
        assert main.put(f"/api/{queue}?token={secret}").status_code == 201
    assert admin.get("/info").json() == {"a": ["x", "y"], "b": ["x"]}
    assert admin.get("/version").json()["version"].startswith("tarry ")
    metrics = admin.get("/metrics")
    assert "tarry_" in metrics.text
    assert metrics.headers["content-type"].startswith("text/plain")
    assert admin.get("/pools").json() == ["default"]
    for path in ("/", "/token", "/token/ns/x/y", "/debug/pprof/", "/metrics/x", "//"):
        assert admin.get(path).status_code == 404
    assert len(admin.get("/none").headers["x-request-id"]) == 26
    assert main.get("/metrics").status_code == 404, "not on the main port"


def test_where_tokens_are_needed(tmp_path: Path) -> None:
    config = ServerConfig(
        data=tmp_path / "data", pipeline="off", flight=None, disk_free_bytes_min=0, http_access="tokens"
    )
    with Broker.open(config) as broker, HttpFront(broker, "127.0.0.1:0", admin="127.0.0.1:0") as front:
        narrow, everything = broker.create_token("ns").secret, broker.create_token().secret
        with httpx.Client(base_url=f"http://{front.admin_address}") as admin:
            assert admin.get("/token/ns").status_code == 401
            assert admin.get("/token/ns").headers["www-authenticate"] == 'Basic realm="tarry"'
            assert admin.get("/token/ns", auth=("anybody", narrow)).status_code == 403
            assert admin.get("/token/ns", auth=("anybody", everything)).status_code == 200
            assert admin.get("/token/ns", headers={"x-token": everything}).status_code == 200
            assert admin.get("/token/ns", headers={"authorization": "Basic !"}).status_code == 401
            assert admin.get("/token/ns", headers={"host": "evil.example"}).status_code == 401


def test_an_open_admin_port_trusts_no_foreign_page(ports: tuple[httpx.Client, httpx.Client, Broker]) -> None:
    _, admin, _ = ports
    assert admin.get("/token/ns", headers={"host": "evil.example"}).status_code == 403
    assert admin.post("/token/ns?description=x", headers={"origin": "http://evil.example"}).status_code == 403


def test_the_access_log_of_both_ports(
    ports: tuple[httpx.Client, httpx.Client, Broker], caplog: pytest.LogCaptureFixture
) -> None:
    main, admin, _ = ports
    secret = admin.post("/token/ns?description=x").json()["token"]
    headers, named = {"x-token": secret}, "tarry.fronts.http.lmstfy.access_log"

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == named]
        caplog.clear()
        return found

    with caplog.at_level(logging.INFO, named):
        assert main.put("/api/ns/q?delay=3", content=b"a", headers=headers).status_code == 201
        assert lines() == [], "it is off at first"
        assert admin.post("/accesslog", params={"status": "enable"}).status_code == 200
        lines()
        for _ in range(3):  # also those whose headers are known by now
            assert main.put("/api/ns/q?delay=3", content=b"a", headers=headers).status_code == 201
        found = lines()
        assert len(found) == 3 and all(line.startswith("PUT '/api/ns/q?delay=3': 201 after ") for line in found)
        main.put(f"/api/ns/q?token={secret}&delay=3", content=b"a")
        main.get("/api/ns/q%0aforged?timeout=0", headers=headers)
        admin.get("/token/ns")
        admin.delete(f"/token/ns/{secret}")
        main.put("/api/ns/q", content=b"a", headers=headers)
        found = lines()
        assert [line.partition(" after")[0] for line in found] == [
            "PUT '/api/ns/q': 201",
            "GET '/api/ns/q\\nforged?timeout=0': 400",
            "GET '/token/ns': 200",
            "DELETE '/token/ns/…': 204",
            "PUT '/api/ns/q': 401",
        ]
        assert not any(secret in line for line in found)
        assert admin.post("/accesslog", params={"status": "disable"}).status_code == 200
        lines()
        main.put("/api/ns/q", content=b"a", headers=headers)
        assert lines() == []
