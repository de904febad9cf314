"""JSON Web Tokens in workers, and on MQTT: checked where they are shown, by public keys that the broker tells."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc.jwk import ECKey
from tests.gateway.places import GatewayPlace
from tests.gateway.worker_places import http_workers
from tests.identity.provider import KEYS, OidcProvider, providing
from tests.mqtt.place import VERSIONS, Mqtt, Raw
from tests.mqtt.place import serving as serving_mqtt
from tests.rocketmq.rpc import Code, Rpc
from tests.rocketmq_place import serving
from tests.waiting import wait_until

from tarry.broker import Broker
from tarry.fronts.http.passing import PassOn
from tarry.fronts.mqtt.wire import text_bytes
from tarry.identity import jwt_fetching
from tarry.identity.jwt import LEEWAY_S


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with providing() as provider:
        yield provider


def add(broker: Broker, claim: str = "groups=tarry-shop") -> str:
    broker.set_identity("root", ["admin"])
    broker.add_credential("root")
    broker.set_identity("shop", ["produce orders.*", "produce orders/*", "consume orders.*"])
    return broker.add_credential("shop", kind="jwt", claim=claim).id


@pytest.fixture
def v5(tmp_path: Path, provider: OidcProvider) -> Iterator[GatewayPlace]:
    with serving(GatewayPlace, tmp_path) as start:
        yield start(**provider.settings())


def bearer(place: GatewayPlace, token: str) -> Rpc:
    return place.client(headers={"authorization": f"Bearer {token}"})


def test_v5(v5: GatewayPlace, provider: OidcProvider) -> None:
    id = add(v5.broker)
    mine = bearer(v5, provider.sign())
    wait_until(lambda: mine.send("orders.new").status.code == Code.OK)
    assert mine.send("stock.new").status.code == Code.FORBIDDEN
    provider.claims = {}
    for wrong in (
        {"aud": "other"},
        {"exp": 1},
        {"iss": "https://other.example"},
        {"groups": "tarry-other"},
    ):
        assert bearer(v5, provider.sign(**wrong)).send("orders.new").status.code == Code.UNAUTHORIZED, wrong
    v5.broker.remove_credential(id)
    wait_until(lambda: mine.send("orders.new").status.code == Code.UNAUTHORIZED)


def test_v5_learns_of_new_keys(v5: GatewayPlace, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    add(v5.broker)
    mine = bearer(v5, provider.sign())
    wait_until(lambda: mine.send("orders.new").status.code == Code.OK)
    provider.rotate("second")
    after = bearer(v5, provider.sign())
    for _ in range(20):
        assert after.send("orders.new").status.code == Code.UNAUTHORIZED
    assert provider.asked[KEYS] == 1, "the start was less than a minute ago"
    monkeypatch.setattr(jwt_fetching, "AGAIN_MS", 0)
    wait_until(lambda: after.send("orders.new").status.code == Code.OK)


@pytest.mark.rest
def test_v5_streams_end_with_their_token(v5: GatewayPlace, provider: OidcProvider) -> None:
    add(v5.broker)
    token = provider.sign(exp=time.time() - LEEWAY_S + 2)
    mine = bearer(v5, token)
    wait_until(lambda: mine.send("orders.new").status.code == Code.OK)
    wait_until(lambda: mine.send("orders.new").status.code == Code.UNAUTHORIZED)


def test_http_workers_check_them_themselves(
    tmp_path: Path, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []
    whole = PassOn.__call__

    async def noted(pass_on: PassOn, scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["path"])
        await whole(pass_on, scope, receive, send)

    monkeypatch.setattr(PassOn, "__call__", noted)
    with http_workers(tmp_path / "data", 1, **provider.settings()) as workers, ExitStack() as stack:
        add(workers.broker)
        http = stack.enter_context(httpx.Client(base_url=f"http://{workers.fronts[0].address}", timeout=60))
        mine = {"authorization": f"Bearer {provider.sign()}"}

        def send(headers: dict[str, str], topic: str = "orders.new") -> int:
            return http.post(f"/v1/topics/{topic}/messages", content=b"x", headers=headers).status_code

        wait_until(lambda: send(mine) == 201)
        passed.clear()
        assert send(mine) == 201
        assert passed == [], "carried out in the worker"
        assert send(mine, "stock.new") == 403
        assert send({"authorization": f"Bearer {provider.sign(exp=1)}"}) == 401
        assert passed != [], "a refusal is the home's, which notes it"
        assert http.get("/v1/whoami", headers=mine).json()["identity"] == "shop"


@pytest.fixture
def mqtt(tmp_path: Path, provider: OidcProvider) -> Iterator[Mqtt]:
    with serving_mqtt(tmp_path, **provider.settings()) as mqtt:
        add(mqtt.broker)
        yield mqtt


def connect(mqtt: Mqtt, version: int, token: str, user: str = "") -> tuple[Raw, int]:
    raw = mqtt.raw()
    rest = text_bytes(user) + text_bytes(token)
    return raw, raw.connect(version, client_id="c", flags=0xC2, rest=rest)[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_mqtt_takes_one_as_the_password(mqtt: Mqtt, provider: OidcProvider, version: int) -> None:
    for user, token, is_taken in (
        ("", provider.sign(), True),
        ("shop", provider.sign(), True),
        ("other", provider.sign(), False),
        ("", provider.sign(aud="other"), False),
        ("", provider.sign(exp=1), False),
        ("", provider.sign(groups="x"), False),
    ):
        _, reason = connect(mqtt, version, token, user)
        assert (reason == 0) == is_taken, (user, reason)


@pytest.mark.rest
def test_an_mqtt_connection_ends_with_its_token(mqtt: Mqtt, provider: OidcProvider) -> None:
    raw, reason = connect(mqtt, VERSIONS[-1], provider.sign(exp=time.time() - LEEWAY_S + 2))
    assert reason == 0
    raw.socket.settimeout(30)
    while raw.socket.recv(4096):
        pass


def withdraw(provider: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish another key alone, and have it fetched soon."""
    provider.published = [ECKey.generate_key("P-256", {"kid": "second"})]
    monkeypatch.setattr(jwt_fetching, "REFRESH_MS", 0)


def test_an_mqtt_connection_ends_with_the_key_of_its_token(
    mqtt: Mqtt, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, reason = connect(mqtt, VERSIONS[-1], provider.sign())
    assert reason == 0
    withdraw(provider, monkeypatch)
    raw.socket.settimeout(30)
    while raw.socket.recv(4096):
        pass


@pytest.mark.parametrize("how", ["key", "claim"])
def test_streams_of_workers_end_with_what_has_verified_their_token(
    tmp_path: Path, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with http_workers(tmp_path / "data", 1, **provider.settings()) as workers:
        add(workers.broker)
        mine = {"authorization": f"Bearer {provider.sign()}"}
        with httpx.Client(base_url=f"http://{workers.fronts[0].address}", timeout=30) as http:
            wait_until(lambda: http.get("/v1/whoami", headers=mine).status_code == 200)
            with http.stream("GET", "/v1/topics/orders.idle/groups/g/events", headers=mine) as stream:
                assert stream.status_code == 200
                if how == "key":
                    withdraw(provider, monkeypatch)
                else:
                    workers.broker.add_credential("root", kind="jwt", claim="sub=42")
                for _ in stream.iter_raw():
                    pass
            assert http.get("/v1/whoami", headers=mine).status_code == 401
