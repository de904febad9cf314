"""Who may ask: secrets in a request, tokens of namespaces, and what an open front trusts."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.broker import Broker
from tarry.fronts.http.access import Access, mode_of, secret_of
from tarry.fronts.http.foreign import AccessRefusal, own_origin
from tarry.identity.principal import LOCAL, Principal
from tarry.testing import open_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with open_broker(tmp_path) as broker:
        yield broker


def request(method: str = "GET", query: str = "", **headers: str) -> dict[str, Any]:
    given = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "method": method, "query_string": query.encode(), "headers": given}


def test_where_a_secret_may_be(broker: Broker) -> None:
    access = Access(broker, "tokens")
    made = broker.create_token("orders", secret="a+b=c&d%5Fe/f.ghijklmnop")
    shown = [
        request(x_token=made.secret),
        request(authorization=f"Bearer {made.secret}"),
        request(authorization=f"bearer  {made.secret} "),
    ]
    for scope in shown:
        secret = secret_of(scope["headers"])
        assert secret is not None
        identity = access.identify(secret)
        assert identity is not None
        assert identity.token_for("orders") is not None
        assert identity.token_for("other") is None
    for scope in (
        request(),
        request(x_token="x" * 24),
        request(x_token=made.secret + "x"),
        request(x_token="\xff\xfe" * 20),
        request(authorization=f"Basic {made.secret}"),
        request(query=f"tokens={made.secret}"),
        request(x_token=broker.access_tokens[0].digest),
        request(x_token=made.id),
    ):
        secret = secret_of(scope["headers"])
        assert secret is None or access.identify(secret) is None
        assert isinstance(access.admit(scope), AccessRefusal)


def test_a_secret_in_the_query_is_for_event_streams(broker: Broker) -> None:
    access = Access(broker, "tokens")
    broker.create_token("*", secret="a+b=c&d%5Fe/f.ghijklmnop")
    query = "ttl=1&token=a%2Bb%3Dc%26d%255Fe%2Ff.ghijklmnop"
    assert isinstance(access.admit(request(query=query, accept="text/event-stream")), Principal)
    for scope in (
        request(query=query),
        request(query=query, accept="application/json"),
        request("POST", query=query, accept="text/event-stream"),
    ):
        refused = access.admit(scope)
        assert isinstance(refused, AccessRefusal)
        assert (refused.status, refused.code) == (401, "unauthorized")
        assert "the token is in the query" in refused.text
        assert "ghijklmnop" not in refused.text


def test_another_sites_form_is_refused_with_a_password_that_the_browser_has_kept(broker: Broker) -> None:
    access, made = Access(broker, "tokens"), broker.create_token()
    basic = "Basic " + base64.b64encode(f"x:{made.secret}".encode()).decode()
    for headers, allowed in (
        ({}, True),
        ({"host": "a.example", "origin": "https://a.example"}, True),
        ({"host": "a.example", "origin": "https://evil.example"}, False),
        ({"sec_fetch_site": "cross-site"}, False),
    ):
        for authorization, is_allowed in ((basic, allowed), (f"Bearer {made.secret}", True)):
            admitted = access.admit(request("POST", authorization=authorization, **headers))
            assert isinstance(admitted, Principal) == is_allowed


def test_a_change_holds_for_the_next_request(broker: Broker) -> None:
    access = Access(broker, "tokens")
    secret = "s" * 30
    assert access.identify(secret) is None
    made = broker.create_token("a", secret=secret)
    everything = broker.create_token("*", secret=secret)
    identity = access.identify(secret)
    assert identity is not None
    assert identity.for_everything
    assert {token.id for token in identity.tokens.values()} == {made.id, everything.id}
    own = identity.token_for("a")
    assert own is not None
    assert own.id == made.id, "a namespace's own limits before those of *"
    broker.delete_token(everything.id)
    identity = access.identify(secret)
    assert identity is not None
    assert not identity.for_everything
    broker.delete_token(made.id)
    assert access.identify(secret) is None


def test_tokens_are_needed(broker: Broker) -> None:
    access = Access(broker, "tokens")
    one, everything = broker.create_token("a"), broker.create_token()
    admitted = access.admit(request(x_token=everything.secret))
    assert isinstance(admitted, Principal)
    assert admitted.rights.is_unlimited
    none, narrow = access.admit(request()), access.admit(request(x_token=one.secret))
    assert isinstance(none, AccessRefusal)
    assert isinstance(narrow, AccessRefusal)
    assert (none.status, narrow.status) == (401, 403)
    assert one.secret not in narrow.text


@pytest.mark.parametrize(
    ("method", "headers", "allowed"),
    [
        ("GET", {"host": "127.0.0.1:7777"}, True),
        ("GET", {"host": "localhost"}, True),
        ("GET", {"host": "[::1]:7777"}, True),
        ("GET", {"host": "app.localhost:1"}, True),
        ("GET", {"host": "evil.example:7777"}, False),  # whose name server says 127.0.0.1
        ("GET", {"host": "127.0.0.1.evil.example"}, False),
        ("GET", {"host": "192.168.1.1"}, False),
        ("GET", {}, False),
        ("GET", {"host": "localhost", "origin": "http://evil.example"}, True),  # cannot read the answer
        ("POST", {"host": "localhost:7777"}, True),  # curl
        ("POST", {"host": "localhost:7777", "origin": "http://localhost:7777"}, True),
        ("POST", {"host": "localhost:7777", "origin": "http://localhost:80"}, False),
        ("POST", {"host": "localhost:7777", "origin": "http://evil.example"}, False),
        ("PUT", {"host": "localhost:7777", "origin": "null"}, False),
        ("DELETE", {"host": "localhost:7777", "sec_fetch_site": "cross-site"}, False),
        ("DELETE", {"host": "localhost:7777", "sec_fetch_site": "same-origin"}, True),
    ],
)
def test_an_open_front(method: str, headers: dict[str, str], allowed: bool, broker: Broker) -> None:
    admitted = Access(broker, "open").admit(request(method, **headers))
    assert (admitted is LOCAL) is allowed
    if isinstance(admitted, AccessRefusal):
        assert admitted.status == 403


@pytest.mark.parametrize(
    "header", ["forwarded", "x_forwarded_for", "x_forwarded_proto", "x_forwarded_host", "x_real_ip", "via"]
)
def test_an_open_front_lets_no_proxy_in(header: str, broker: Broker) -> None:
    given = request(host="127.0.0.1:7777", **{header: "203.0.113.7"})
    refusal = Access(broker, "open").admit(given)
    assert isinstance(refusal, AccessRefusal)
    assert refusal.status == 403
    assert header.replace("_", "-") in refusal.text
    assert "http_access=tokens" in refusal.text
    token = broker.create_token()
    given = request(host="127.0.0.1:7777", x_token=token.secret, **{header: "203.0.113.7"})
    assert isinstance(Access(broker, "tokens").admit(given), Principal)


def test_the_mode() -> None:
    assert mode_of("auto", "127.0.0.1:0") == mode_of("auto", "[::1]:1") == mode_of("auto", "localhost:1") == "open"
    assert mode_of("auto", "0.0.0.0:1") == mode_of("auto", "10.0.0.1:1") == mode_of("auto", "[::]:1") == "tokens"
    assert mode_of("open", "0.0.0.0:1") == "open"
    assert mode_of("tokens", "127.0.0.1:1") == "tokens"


@pytest.mark.parametrize(
    ("scheme", "headers", "origin"),
    [
        ("http", {"host": "127.0.0.1:7777"}, "http://127.0.0.1:7777"),
        ("https", {"host": "localhost"}, "https://localhost"),
        ("http", {"host": "[::1]:80"}, "http://[::1]:80"),
        ("http", {"host": "192.0.2.1:7777"}, None),
        ("http", {"host": "localhost.example"}, None),
        ("http", {"host": "localhost:7777@evil.example"}, None),
        ("http", {"host": "localhost:/"}, None),
        ("http", {"host": "localhost/x"}, None),
        ("http", {"host": ""}, None),
        ("http", {}, None),
        ("http", {"host": "localhost", "via": "1.1 proxy"}, None),
    ],
)
def test_the_origin_that_is_believed(scheme: str, headers: dict[str, str], origin: str | None) -> None:
    assert own_origin({**request(**headers), "scheme": scheme}) == origin
