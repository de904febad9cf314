"""What Tarry's own API refuses: paths, methods, media types, bodies, names, access; and that it describes itself."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry.api.operations import OPERATIONS, CreateToken
from tarry.api.paths import ELSEWHERE, INTERNAL, resources
from tarry.fronts.http.body_budget import BodyBudget
from tests.http.rest import Rest, serving

MESSAGES = "/v1/topics/orders/messages"


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """One broker for all of them: nothing that is refused changes it."""
    with serving(tmp_path_factory.mktemp("rest") / "data") as place:
        yield place


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/topics//messages", 404, "not_found"),
        ("GET", "/v1/%2e%2e/%2e%2e/etc/passwd", 404, "not_found"),
        ("POST", "/v1/ping", 405, "method_not_allowed"),
        ("TRACE", "/v1/ping", 405, "method_not_allowed"),
        ("GET", "/v1/ping?x=1", 400, "invalid_argument"),
        ("GET", "/v1/messages?limit=many", 400, "invalid_argument"),
        ("GET", "/v1/messages?limit=1&limit=2", 400, "invalid_argument"),
        ("GET", "/v1/messages?limit=%ff", 400, "invalid_argument"),
        ("GET", "/v1/messages?" + "always=a&" * 1001, 400, "invalid_argument"),
        ("GET", "/v1/messages/%ff", 400, "invalid_argument"),
        ("POST", "/v1/topics/%0d%0aset-cookie:%20a/messages", 422, "invalid_message"),
        ("POST", "/v1/topics/a%00b/messages", 422, "invalid_message"),
        ("POST", "/v1/topics/tarry.halves/messages", 422, "invalid_message"),
        ("POST", "/v1/topics/tarry.halves/groups/g/receive", 400, "invalid_argument"),
        ("POST", "/v1/topics/tarry.halves/groups/checks/ack?leases=1&offsets=0", 400, "invalid_argument"),
        ("GET", "/v1/topics/tarry.halves/groups/g/events", 400, "invalid_argument"),
        ("DELETE", "/v1/topics/tarry.halves/groups/checks", 400, "invalid_argument"),
        ("POST", f"{MESSAGES}?due=tomorrow", 422, "invalid_message"),
        ("POST", f"{MESSAGES}?delay=1h&due_ms=5", 422, "invalid_message"),
        ("POST", f"{MESSAGES}?delay=1h&delay=2h", 400, "invalid_argument"),
        ("POST", f"{MESSAGES}?tries={'9' * 5000}", 422, "invalid_message"),
        ("POST", f"{MESSAGES}?colour=red", 400, "invalid_argument"),
        ("POST", "/v1/topics/orders/groups/g/receive?max_messages=0", 400, "invalid_argument"),
    ],
)
def test_requests_that_cannot_be(rest: Rest, method: str, path: str, status: int, code: str) -> None:
    answer = rest.http.send(httpx.Request(method, f"http://{rest.front.address}{path}"))
    assert (answer.status_code, answer.json()["error"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 422),
        (b"\xff\xfe", 400),
        (b'{"body": "\\ud800"}', 400),
        (b'{"body": 5}', 422),
        (b'{"body": "a", "body_base64": "YQ=="}', 422),
        (b'{"body_base64": "!"}', 422),
        (b'{"properties": {"a": 1}}', 422),
        (b'{"delay": NaN}', 400),
        (b'{"delay": true}', 422),
        (b'{"tries": 1.5}', 422),
        (b"[" * 100_000, 400),
        (b'{"repeat": ' + b'{"every":' * 5000 + b"1" + b"}" * 5001, 400),
    ],
)
def test_messages_that_are_none(rest: Rest, body: bytes, status: int) -> None:
    answer = rest.http.post(MESSAGES, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]
    assert rest.get("/v1/topics").json() == [], "nothing was scheduled"


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("", [("X-Tarry-Key", "a"), ("X-Tarry-Key", "b")]),
        ("", [("X-Tarry-Delay", "1s"), ("x-tarry-delay", "1h")]),
        ("", [("X-Tarry-Property-Shop", "1"), ("X-Tarry-Property-Shop", "2")]),
        ("?property.shop=1&property.shop=2", []),
        ("?property.shop=1", [("X-Tarry-Property-Shop", "2")]),
        ("", [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-id", "2"), ("ce-source", "/"), ("ce-type", "t")]),
    ],
)
def test_what_is_said_twice_is_refused(rest: Rest, query: str, headers: list[tuple[str, str]]) -> None:
    """The last one was taken."""
    answer = rest.http.post(f"{MESSAGES}{query}", content=b"x", headers=httpx.Headers(headers))
    assert answer.status_code in (400, 422), answer.text
    assert "twice; allowed: once" in answer.json()["message"]


def test_a_due_time_without_its_zone_is_refused(rest: Rest) -> None:
    told = "due is '2030-01-01'; allowed: ISO 8601 with an offset, '2030-01-01T00:00:00Z', or UTC milliseconds"
    for answer in (rest.post(f"{MESSAGES}?due=2030-01-01"), rest.post(MESSAGES, {"due": "2030-01-01"})):
        assert (answer.status_code, answer.json()["message"]) == (422, told)


def test_media_types(rest: Rest) -> None:
    form = rest.http.post("/v1/topics/orders/groups/g/receive", data={"wait_ms": "0"})
    assert (form.status_code, form.json()["error"]) == (415, "unsupported_media_type")
    assert rest.get("/v1/ping", headers={"accept": "text/html, image/*;q=0.5"}).status_code == 406
    assert rest.get("/v1/ping", headers={"accept": "application/json;q=0, */*"}).status_code == 406
    assert rest.get("/v1/ping", headers={"accept": "text/html, application/*;q=0.1"}).status_code == 200
    assert rest.http.head("/v1/ping").content == b""


@pytest.mark.rest
def test_a_body_that_is_too_long_is_refused_while_it_comes(rest: Rest) -> None:
    limit = rest.broker.config.body_bytes_max
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 100 * limit:
            sent += 1 << 16
            yield bytes(1 << 16)

    try:
        answer = rest.http.post(MESSAGES, content=endless())
        assert (answer.status_code, answer.json()["error"]) == (413, "message_too_large")
    except httpx.WriteError:
        pass  # the broker hung up on it
    assert sent < 20 * limit
    announced = (f"POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {limit + 1}\r\n"
                 "Expect: 100-continue\r\n\r\n")  # fmt: skip
    with socket.create_connection(("127.0.0.1", rest.front.port)) as raw:
        raw.sendall(announced.encode())
        assert raw.recv(1 << 16).startswith(b"HTTP/1.1 413")


def test_bodies_of_all_requests_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BodyBudget.__init__, "__defaults__", (1 << 20,))
    with serving(tmp_path / "data") as rest:
        assert rest.http.post(MESSAGES, content=bytes(1 << 19)).status_code == 201
        full = rest.http.post(MESSAGES, content=bytes((1 << 20) + 1))
        assert (full.status_code, full.headers["retry-after"]) == (503, "1")
        assert rest.http.post(MESSAGES, content=bytes(1 << 20)).status_code == 201


def test_a_foreign_page_and_a_foreign_name_are_kept_out(rest: Rest) -> None:
    assert rest.http.post(MESSAGES, headers={"origin": "https://evil.example"}).status_code == 403
    assert rest.get("/v1/ping", headers={"host": "evil.example"}).status_code == 403


def test_with_tokens_nobody_comes_in_without_one(tmp_path: Path) -> None:
    with serving(tmp_path / "data", http_access="tokens") as rest:
        refused = rest.get("/v1/ping")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        for namespace, status in (("shop", 403), ("*", 200)):
            secret = rest.broker.call(CreateToken(namespace)).secret
            headers = {"authorization": f"Bearer {secret}"}
            assert rest.get("/v1/ping", headers=headers).status_code == status
        refused = rest.get("/v1/ping", params={"token": secret})
        assert (refused.status_code, secret in refused.text) == (401, False)


# -- its description ---------------------------------------------------------------------------------------------------


def test_every_operation_is_offered_or_internal(rest: Rest) -> None:
    offered = {resource.kind for resource in resources()} | ELSEWHERE
    assert offered | INTERNAL == set(OPERATIONS)
    assert not offered & INTERNAL


def test_a_new_operation_appears_by_itself() -> None:
    class Fresh(OPERATIONS[0]):  # type: ignore[misc, valid-type]
        pass

    fresh = [resource for resource in resources((*OPERATIONS, Fresh)) if resource.kind is Fresh]
    assert [(resource.method, resource.path) for resource in fresh] == [("POST", "/v1/operations/cancel")]


def test_the_description_fits_together(rest: Rest) -> None:
    document = rest.get("/openapi.json").json()
    text = json.dumps(document)
    for ref in set(re.findall(r'"\$ref": "#/([^"]+)"', text)):
        at: Any = document
        for part in ref.split("/"):
            at = at[part]
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            in_path = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path))
    assert ":class:" not in text
    assert "``" not in text


def test_the_page_needs_nothing_from_elsewhere(rest: Rest) -> None:
    page = rest.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"<script|\sstyle=|\son\w+=|\ssrc=|https?://", page.text)
    assert rest.get("/docs/style.css").headers["content-type"].startswith("text/css")
    for path in rest.get("/openapi.json").json()["paths"]:
        assert path in page.text
    tag = page.headers["etag"]
    assert rest.get("/docs", headers={"if-none-match": tag}).status_code == 304
