"""Several providers of JSON Web Tokens at one broker: whose claims count for whose tokens, and who is locked out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.worker_places import http_workers
from tests.identity.provider import OidcProvider, providing
from tests.waiting import wait_until

from tarry.base.errors import InvalidArgumentError, UnauthenticatedError
from tarry.cli.main import run
from tarry.fronts.gateway.remote.issuers import ASK_MS, RemoteIssuers
from tarry.fronts.link.front import LinkFront
from tarry.identity.authenticator import Authenticator
from tarry.testing import TestClock, open_broker

CLAIM = "groups=tarry-shop"


@pytest.fixture
def providers() -> Iterator[tuple[OidcProvider, OidcProvider]]:
    with providing() as one, providing() as two:
        yield one, two


def settings(one: OidcProvider, two: OidcProvider) -> dict[str, str]:
    """The first by the settings for one, the second by the table."""
    table = f'{{ second = {{ issuer = "{two.url}", audience = "tarry-two" }} }}'
    return {**one.settings(), "jwt_issuers": table}


@pytest.fixture
def broker(tmp_path: Path, providers: tuple[OidcProvider, OidcProvider]) -> Iterator[Any]:
    with open_broker(tmp_path / "data", clock=TestClock(int(time.time() * 1000)), **settings(*providers)) as broker:
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        for name in ("shop", "stock"):
            broker.set_identity(name, ["produce *"])
        yield broker


def test_a_claim_counts_for_its_own_provider_alone(broker: Any, providers: tuple[OidcProvider, OidcProvider]) -> None:
    one, two = providers
    broker.add_credential("shop", kind="jwt", claim=CLAIM, issuer=one.url)
    authenticator = Authenticator(broker)
    assert authenticator.by_token(one.sign()).name == "shop"
    with pytest.raises(UnauthenticatedError, match="no identity has"):
        authenticator.by_token(two.sign(aud="tarry-two"))
    broker.add_credential("stock", kind="jwt", claim=CLAIM, issuer="second")
    assert authenticator.by_token(two.sign(aud="tarry-two")).name == "stock"
    assert authenticator.by_token(one.sign()).name == "shop"
    for wrong in (two.sign(), two.sign(aud="tarry-two", key=one.key), one.sign(aud="tarry-two"), one.sign(iss=two.url)):
        with pytest.raises(UnauthenticatedError, match="is not taken"):
            authenticator.by_token(wrong)
    with pytest.raises(UnauthenticatedError, match="of no provider"):
        authenticator.by_token(one.sign(iss="https://third.example"))


def test_which_provider_has_to_be_said(broker: Any, providers: tuple[OidcProvider, OidcProvider]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is not given.*allowed: 127\.0\.0\.1 \(http.*, second \(http"):
        broker.add_credential("shop", kind="jwt", claim=CLAIM)
    with pytest.raises(InvalidArgumentError, match="issuer is 'third'; allowed: 127"):
        broker.add_credential("shop", kind="jwt", claim=CLAIM, issuer="third")
    with pytest.raises(InvalidArgumentError, match="issuer is for the kind jwt"):
        broker.add_credential("shop", issuer="second")
    assert broker.add_credential("shop", kind="jwt", claim=CLAIM, issuer="second").issuer == providers[1].url
    with pytest.raises(InvalidArgumentError, match="shop has the claim"):
        broker.add_credential("stock", kind="jwt", claim=CLAIM, issuer=providers[1].url)


def test_the_only_one_may_be_said_too(tmp_path: Path, providers: tuple[OidcProvider, OidcProvider]) -> None:
    with open_broker(tmp_path / "data", **providers[0].settings()) as broker:
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        for claim, named in (("sub=1", None), ("sub=2", "127.0.0.1"), ("sub=3", providers[0].url)):
            made = broker.add_credential("root", kind="jwt", claim=claim, issuer=named)
            assert made.issuer == providers[0].url


def test_an_administrator_of_any_provider_is_no_lock_out(
    tmp_path: Path, providers: tuple[OidcProvider, OidcProvider]
) -> None:
    one, two = providers
    with open_broker(tmp_path / "data", **settings(one, two)) as broker:
        broker.set_identity("root", ["admin"])
        token = broker.add_credential("root")
        claim = broker.add_credential("root", kind="jwt", claim="sub=42", issuer="second")
        broker.remove_credential(token.id)
        assert Authenticator(broker).by_token(two.sign(aud="tarry-two")).name == "root"
        broker.set_identity("shop", ["produce *"])
        broker.add_credential("shop")
        with pytest.raises(InvalidArgumentError, match="nobody who has a credential would have the right admin"):
            broker.remove_credential(claim.id)
        token = broker.add_credential("root")
    said = "nobody who has a credential would have the right admin"
    with open_broker(tmp_path / "data", **one.settings()) as broker, pytest.raises(InvalidArgumentError, match=said):
        broker.remove_credential(token.id)  # the claim is of a provider that is not set any more


def test_the_command(
    broker: Any,
    providers: tuple[OidcProvider, OidcProvider],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TARRY_TOKEN", broker.add_credential("root").secret)
    front = LinkFront.start(broker, "127.0.0.1:0")
    place = ["--endpoint", front.address]
    try:
        assert run(["identity", "add-jwt", "shop", "--claim", CLAIM, *place]) == 2
        assert "issuer is not given" in capsys.readouterr().err
        assert run(["identity", "add-jwt", "shop", "--claim", CLAIM, "--issuer", "second", *place]) == 0
        assert capsys.readouterr().out.endswith(f": {CLAIM} of {providers[1].url}\n")
        assert run(["identity", "show", "shop", *place]) == 0
        assert f"{CLAIM} of {providers[1].url}" in capsys.readouterr().out
    finally:
        front.stop()


def test_workers_take_those_of_each(tmp_path: Path, providers: tuple[OidcProvider, OidcProvider]) -> None:
    one, two = providers
    with http_workers(tmp_path / "data", 1, **settings(one, two)) as workers:
        broker = workers.broker
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        for name, provider in (("shop", one), ("stock", two)):
            broker.set_identity(name, ["produce *"])
            broker.add_credential(name, kind="jwt", claim=CLAIM, issuer=provider.url)
        with httpx.Client(base_url=f"http://{workers.fronts[0].address}", timeout=60) as http:

            def send(token: str) -> int:
                headers = {"authorization": f"Bearer {token}"}
                return http.post("/v1/topics/orders/messages", content=b"x", headers=headers).status_code

            for token in (one.sign(), two.sign(aud="tarry-two")):
                wait_until(lambda token=token: send(token) == 201)
            assert send(two.sign()) == 401


def test_a_worker_asks_for_the_keys_of_each_provider() -> None:
    """Who shows unknown keys in the name of one provider keeps no other's from being asked for."""
    asked: list[str] = []
    clock = TestClock(1_000_000)
    issuers = RemoteIssuers(clock, asked.append)
    issuers.on_told([{"url": url, "audience": "x", "keys": None} for url in ("a", "b")])
    for _ in range(3):
        for each in issuers.all:
            each.ask_again()
    assert asked == ["a", "b"]
    clock.advance_ms(ASK_MS)
    issuers.all[1].ask_again()
    assert asked == ["a", "b", "b"]
