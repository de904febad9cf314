"""JSON Web Tokens of a provider as credentials: what is taken, on which ports, and for how long."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet, OctKey, OKPKey, RSAKey
from tests.identity.authority import dns
from tests.identity.doors import LET_IN, Doors, RefusedError, open_doors
from tests.waiting import wait_until

from tarry.api.identities import IssuedCredential
from tarry.api.issuers import TokenEvidence
from tarry.api.operations import ReadAuditLog
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, LoginRefusal, UnauthenticatedError, UnavailableError
from tarry.base.redaction import without_tokens
from tarry.broker import Broker
from tarry.client import Client, ClientTls
from tarry.identity.authenticator import Authenticator
from tarry.identity.jwt import LEEWAY_S
from tarry.testing import TestClock, open_broker

ISSUER, AUDIENCE = "https://login.example/realm", "tarry"
PORTS = ("link", "flight", "http", "lmstfy", "http admin", "metrics", "rocketmq")
START_MS = 1_795_000_000_000
REFUSED = (RefusedError, UnauthenticatedError)


class Provider:
    """Signs tokens, and has its public keys in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.key: Key = ECKey.generate_key("P-256", {"kid": "first"})
        self.publish(self.key)

    def publish(self, *keys: Key) -> None:
        self.file.write_text(json.dumps(KeySet([*keys]).as_dict(private=False)))

    def settings(self) -> dict[str, str]:
        return {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_keys_file": str(self.file)}

    def sign(self, now_s: float, key: Key | None = None, alg: str = "ES256", kid: str = "first", **more: Any) -> str:
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "42", "groups": ["a", "tarry-shop"], "exp": int(now_s) + 300}
        whole = {name: value for name, value in {**claims, **more}.items() if value is not None}
        return jwt.encode({"alg": alg, "kid": kid}, whole, key or self.key, algorithms=[alg])


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(tmp_path_factory.mktemp("provider") / "jwks.json")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Doors]:
    with open_doors(tmp_path_factory.mktemp("doors"), **provider.settings()) as doors:
        yield doors


def add(broker: Broker, claim: str = "groups=tarry-shop", name: str = "shop") -> IssuedCredential:
    return broker.add_credential(name, kind="jwt", claim=claim)


@pytest.mark.parametrize("port", PORTS)
def test_a_token_is_taken_until_its_claim_is_removed(doors: Doors, provider: Provider, port: str) -> None:
    shown, token = doors.authority.sign(dns("nobody.example")), provider.sign(time.time())
    made = add(doors.broker)
    assert doors.enter(port, shown, token) in ("shop", LET_IN)
    doors.broker.remove_credential(made.id)
    with pytest.raises(REFUSED, match=r"is good, with claims which no identity has|invalid token"):
        doors.enter(port, shown, token)


@pytest.mark.parametrize("port", PORTS)
def test_an_expired_one_or_one_of_another_key_is_refused(doors: Doors, provider: Provider, port: str) -> None:
    shown, made = doors.authority.sign(dns("nobody.example")), add(doors.broker)
    stranger = ECKey.generate_key("P-256", {"kid": "first"})
    try:
        for bad in (provider.sign(time.time() - 1000), provider.sign(time.time(), stranger)):
            with pytest.raises(REFUSED, match=r"JSON Web Token that was shown is not taken|invalid token"):
                doors.enter(port, shown, bad)
    finally:
        doors.broker.remove_credential(made.id)


@pytest.mark.rest
def test_connections_end_with_their_token(doors: Doors, provider: Provider) -> None:
    made, shown = add(doors.broker), doors.authority.sign(dns("nobody.example"))
    tls = ClientTls(str(doors.ca), str(shown.certificate), str(shown.key))
    token = provider.sign(0, exp=time.time() - LEEWAY_S + 1.0)
    with doors.socket("http", shown) as http, Client(f"localhost:{doors.port('link')}", tls=tls, token=token) as link:
        assert link.whoami().identity == "shop"
        head = f"host: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
        http.sendall(f"GET /v1/topics/orders.idle/groups/g/events HTTP/1.1\r\n{head}".encode())
        assert http.recv(4096).startswith(b"HTTP/1.1 200")
        while http.recv(1 << 16):
            pass
        with pytest.raises(UnauthenticatedError, match="expired"):
            for _ in range(1000):
                with suppress(UnavailableError):  # of a call that was under way when its connection ended
                    link.topic_info("orders.new")
    doors.broker.remove_credential(made.id)


@pytest.mark.parametrize("how", ["key", "claim"])
def test_connections_end_with_what_has_verified_their_token(tmp_path: Path, how: str) -> None:
    provider = Provider(tmp_path / "jwks.json")
    with open_doors(tmp_path, **provider.settings()) as doors:
        add(doors.broker)
        shown = doors.authority.sign(dns("nobody.example"))
        tls = ClientTls(str(doors.ca), str(shown.certificate), str(shown.key))
        token = provider.sign(time.time())
        with (
            doors.socket("http", shown) as http,
            Client(f"localhost:{doors.port('link')}", tls=tls, token=token) as link,
        ):
            assert link.whoami().identity == "shop"
            head = f"host: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
            http.sendall(f"GET /v1/topics/orders.idle/groups/g/events HTTP/1.1\r\n{head}".encode())
            assert http.recv(4096).startswith(b"HTTP/1.1 200")
            if how == "key":
                provider.publish(ECKey.generate_key("P-256", {"kid": "second"}))
                # Nobody shows a token meanwhile: the broker looks by itself.
            else:
                add(doors.broker, "sub=42", "root")
            while http.recv(1 << 16):
                pass
            with pytest.raises(UnauthenticatedError, match=r"is not taken|of several identities"):
                for _ in range(1000):
                    with suppress(UnavailableError):  # of a call that was under way when its connection ended
                        link.topic_info("orders.new")


# -- what is taken -----------------------------------------------------------------------------------------------------


class Place:
    """A broker whose clock stands, and an identity "shop" that is known by its group."""

    def __init__(self, broker: Any, clock: TestClock, provider: Provider) -> None:
        self.broker, self.clock, self.provider = broker, clock, provider
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        broker.set_identity("shop", ["produce *"])
        self.made = add(broker)
        self.authenticator = Authenticator(broker)
        self._refused: UnauthenticatedError | None = None

    def sign(self, *key: Key, **more: Any) -> str:
        return self.provider.sign(self.clock.now_ms() / 1000, *key, **more)

    def refused(self, token: str) -> str:
        with pytest.raises(UnauthenticatedError) as refused:
            self.authenticator.by_token(token)
        self._refused = refused.value
        return str(refused.value)

    def refusal(self) -> LoginRefusal:
        """Return what the audit log has of the last refusal."""
        assert self._refused is not None
        return self._refused.refusal


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    clock, provider = TestClock(START_MS), Provider(tmp_path / "jwks.json")
    with open_broker(tmp_path / "data", clock=clock, **provider.settings()) as broker:
        yield Place(broker, clock, provider)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"iss": "https://other.example"}, "issuer"),
        ({"iss": "https://other.example", "kid": "unknown"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": ["other"]}, "audience"),
        ({"exp": None}, "other"),
        ({"exp": START_MS // 1000 - 31}, "expired"),
        ({"exp": "never"}, "other"),
        ({"exp": True}, "other"),
        ({"exp": 1e300}, "other"),
        ({"nbf": START_MS // 1000 + 100}, "other"),
        ({"kid": "unknown"}, "signature"),
    ],
)
def test_a_token_that_is_not_right_is_refused(place: Place, more: dict[str, Any], reason: str) -> None:
    said = place.refused(place.sign(**more))
    assert "is not taken" in said
    assert "tarry-shop" not in said
    assert place.refusal().reason == reason
    known = {} if "kid" in more else {"issuer": ISSUER, "sub": "42"}
    assert place.refusal().details == known, "only what the provider has signed"


@pytest.mark.parametrize(
    "more", [{}, {"aud": ["x", AUDIENCE]}, {"groups": "tarry-shop"}, {"exp": START_MS // 1000 - 9}]
)
def test_a_token_that_is_right_is_taken(place: Place, more: dict[str, Any]) -> None:
    assert place.authenticator.by_token(place.sign(**more)).name == "shop"


def test_only_signatures_by_public_keys_are_taken(place: Place) -> None:
    keys = {
        "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
        "PS512": RSAKey.generate_key(2048, {"kid": "pss"}),
        "ES384": ECKey.generate_key("P-384", {"kid": "ec"}),
        "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
    }
    place.provider.publish(*keys.values(), place.provider.key)
    place.clock.advance_ms(2000)
    for alg, key in keys.items():
        assert place.authenticator.by_token(place.sign(key, alg=alg, kid=str(key.kid))).name == "shop", alg
    public = json.dumps(place.provider.key.as_dict(private=False)).encode()
    assert "is not taken" in place.refused(place.sign(OctKey.import_key(public), alg="HS256"))
    head = base64.urlsafe_b64encode(b'{"alg":"none","kid":"first"}').rstrip(b"=").decode()
    for end in ("", "x"):
        assert "is not taken" in place.refused(f"{head}.{place.sign().split('.')[1]}.{end}")


@pytest.mark.parametrize(
    "bad", ["eyJ..", "eyJ.a.b", "eyJhbGciOiJFUzI1NiJ9..", "eyJ" + "W" * 9000 + ".a.b", "eyJ.\xff.x"]
)
def test_what_is_no_token_is_refused(place: Place, bad: str) -> None:
    assert "is not taken" in place.refused(bad)
    nested = base64.urlsafe_b64encode(b'{"a":' + b"[" * 9000).rstrip(b"=").decode()
    assert "is not taken" in place.refused(f"{nested}.a.b")
    assert "and 16384 are allowed" in place.refused("eyJ" + "W" * 20000 + ".a.b")


def test_a_caller_is_known_until_its_token_ends(place: Place) -> None:
    token = place.sign()
    principal = place.authenticator.by_token(token)
    assert place.authenticator.by_token(token) is principal, "it is verified once"
    assert place.authenticator.is_known(principal)
    place.broker.set_identity("other", ["look *"])
    assert place.authenticator.is_known(principal)
    place.clock.advance_ms(329_999)
    assert place.authenticator.is_known(principal)
    place.clock.advance_ms(1)
    assert not place.authenticator.is_known(principal)
    assert "is expired" in place.refused(token)
    assert place.refusal().reason == "expired"


def test_a_caller_is_known_as_long_as_its_key_is_published(place: Place) -> None:
    """Whatever ``exp`` it has: with a key that was stolen, it has any."""
    principal = place.authenticator.by_token(place.sign(exp=START_MS // 1000 + 10**9))
    second = ECKey.generate_key("P-256", {"kid": "second"})
    place.provider.publish(second, place.provider.key)
    place.clock.advance_ms(2000)
    assert place.authenticator.is_known(principal), "there is one more"
    place.provider.publish(second)
    place.clock.advance_ms(2000)
    assert not place.authenticator.is_known(principal)
    assert not place.authenticator.has_credential(principal), "it has to show another token"
    place.provider.publish(ECKey.generate_key("P-256", {"kid": "first"}))
    place.clock.advance_ms(2000)
    assert not place.authenticator.is_known(principal), "another key of the same name"
    place.provider.publish(place.provider.key)
    place.clock.advance_ms(2000)
    assert place.authenticator.is_known(principal)


def test_a_caller_is_known_as_long_as_its_claims_are_of_one_identity(place: Place) -> None:
    principal = place.authenticator.by_token(place.sign())
    add(place.broker, "groups=b", "root")
    assert place.authenticator.is_known(principal), "a claim that it has not"
    second = add(place.broker, "groups=a", "shop")
    assert place.authenticator.is_known(principal), "one more of the same identity"
    place.broker.remove_credential(second.id)
    second = add(place.broker, "groups=a", "root")
    assert not place.authenticator.is_known(principal)
    assert not place.authenticator.has_credential(principal)
    place.broker.remove_credential(second.id)
    assert place.authenticator.is_known(principal)


def test_who_is_asked_again_is_compared_once_for_each_change(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of a worker are looked at each second."""
    read: list[TokenEvidence] = []
    whole = TokenEvidence.read
    monkeypatch.setattr(TokenEvidence, "read", lambda mine: read.append(mine) or whole(mine))
    principal = place.authenticator.by_token(place.sign())
    assert all(place.authenticator.is_known(principal) for _ in range(5))
    assert len(read) == 0
    place.broker.set_identity("other", ["look *"])
    assert all(place.authenticator.is_known(principal) for _ in range(5))
    assert len(read) == 1


def test_nothing_of_a_token_is_shown_with_its_caller(place: Place) -> None:
    token = place.sign()
    shown = repr(place.authenticator.by_token(token))
    assert "tarry-shop" not in shown and not any(part in shown for part in token.split("."))


def test_more_rights_hold_for_a_caller_that_is_known(place: Place) -> None:
    principal = place.authenticator.by_token(place.sign())
    before = [str(each) for each in principal.rights.grants]
    place.broker.set_identity("shop", [*before, "look *"])
    assert place.authenticator.is_known(principal)
    assert [str(each) for each in principal.rights.grants] == [*before, "look *"]


def test_other_rights_hold_at_once(place: Place) -> None:
    principal = place.authenticator.by_token(place.sign())
    place.broker.set_identity("shop", ["look *"])
    assert not place.authenticator.is_known(principal)
    assert [str(each) for each in place.authenticator.by_token(place.sign()).rights.grants] == ["look *"]


def test_keys_are_read_again_when_they_change(place: Place) -> None:
    old, new = place.sign(), ECKey.generate_key("P-256", {"kid": "second"})
    place.authenticator.by_token(old)
    place.provider.file.write_text("{")
    place.clock.advance_ms(2000)
    assert place.authenticator.by_token(old).name == "shop", "the last good keys stay"
    place.provider.publish(new)
    place.clock.advance_ms(2000)
    assert "is not taken" in place.refused(old)
    assert place.authenticator.by_token(place.sign(new, kid="second")).name == "shop"


def test_a_token_of_two_identities_is_of_neither(place: Place) -> None:
    add(place.broker, "sub=42", "root")
    assert "of several identities: 'sub=42', 'groups=a', 'groups=tarry-shop';" in place.refused(place.sign())
    assert place.refusal().reason == "claims"
    assert place.authenticator.by_token(place.sign(groups=None)).name == "root"


def test_a_good_one_of_nobody_is_refused_with_the_claims_that_might_be_granted(place: Place) -> None:
    said = place.refused(
        place.sign(sub="7", groups=["a", "b"], email="ann@example.com", jti="x1", nonce="y", admin=True, azp="z")
    )
    assert "which no identity has: 'sub=7', 'groups=a', 'groups=b', 'email=ann@example.com'; allowed: one of" in said
    assert place.refusal() == LoginRefusal("claims", details={"issuer": ISSUER, "sub": "7"})


def test_many_claims_are_cut(place: Place) -> None:
    said = place.refused(place.sign(sub="s" * 5000, groups=[f"g{number}" for number in range(100)]))
    assert "'groups=g6' and 93 more; allowed" in said
    assert len(said) < 1000


def test_reasons_are_in_the_audit_log_and_no_token_is(tmp_path: Path) -> None:
    provider = Provider(tmp_path / "jwks.json")
    stranger = ECKey.generate_key("P-256", {"kid": "first"})
    with Broker.open(Config(data=tmp_path / "data", pipeline="off", **provider.settings()), audited=True) as broker:
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        authenticator, now_s = Authenticator(broker, "http"), time.time()
        tokens = [
            provider.sign(now_s - 1000),
            provider.sign(now_s, aud="other"),
            provider.sign(now_s, stranger),
            provider.sign(now_s),
            provider.sign(now_s, iss="https://other.example"),
        ]
        for token in tokens:
            with pytest.raises(UnauthenticatedError):
                authenticator.by_token(token, peer="10.0.0.1")

        def told() -> Any:
            return broker.components.audit.read(ReadAuditLog(operation="login"))

        wait_until(lambda: len(told()) == len(tokens))
        reasons = ["expired", "audience", "signature", "claims", "issuer"]
        assert [each.code for each in told()] == reasons
        known = {"issuer": ISSUER, "sub": "42"}
        assert [each.details for each in told()] == [known, known, {}, known, known]
        counts = broker.status()["audit"]["refused"]
        assert {reason: counts[reason] for reason in reasons} == dict.fromkeys(reasons, 1)
        assert not any(part in str(told()) for token in tokens for part in token.split("."))


def test_a_claim_is_of_the_provider_that_was_set_when_it_was_made(tmp_path: Path) -> None:
    clock, provider = TestClock(START_MS), Provider(tmp_path / "jwks.json")
    with open_broker(tmp_path / "data", clock=clock, **provider.settings()) as broker:
        assert Place(broker, clock, provider).made.issuer == ISSUER
    other = {**provider.settings(), "jwt_issuer": "https://other.example"}
    with open_broker(tmp_path / "data", clock=clock, **other) as broker:
        token = provider.sign(clock.now_ms() / 1000, iss="https://other.example")
        with pytest.raises(UnauthenticatedError, match="no identity has"):
            Authenticator(broker).by_token(token)


@pytest.mark.parametrize("claim", ["", "groups", "groups=", "=x", "iss=x", "aud=x", "a=\n"])
def test_what_is_no_claim_is_refused(place: Place, claim: str) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed: NAME=VALUE"):
        add(place.broker, claim)


def test_a_claim_has_one_owner(place: Place) -> None:
    with pytest.raises(InvalidArgumentError, match="shop has the claim 'groups=tarry-shop' already"):
        add(place.broker, name="root")


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("{}", {}, "has no keys"),
        ('{"keys": []}', {}, "has no keys"),
        ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', {}, "has no keys"),
        (None, {}, "No such file"),
        ("{}", {"jwt_audience": None}, "allowed: jwt_issuer and jwt_audience, with any of the others"),
    ],
)
def test_settings_that_are_not_right_refuse_the_start(
    tmp_path: Path, content: str | None, more: dict[str, Any], said: str
) -> None:
    file = tmp_path / "jwks.json"
    if content is not None:
        file.write_text(content)
    settings = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_keys_file": str(file), **more}
    with pytest.raises(InvalidArgumentError, match=said):
        Broker.open(Config(data=tmp_path / "data", pipeline="off", **settings))
    assert not (tmp_path / "data").exists()


def test_without_a_provider_there_are_no_claims(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        with pytest.raises(InvalidArgumentError, match="takes no JSON Web Tokens"):
            add(broker, name="root")
        with pytest.raises(UnauthenticatedError, match="is no token"):
            Authenticator(broker).by_token("eyJa.b.c")


def test_a_token_in_the_wrong_place_is_not_repeated(place: Place) -> None:
    token = place.sign()
    for shown in (token, token[:40], f"x{token}x"):
        assert token[:20] not in without_tokens(f"the user name is {shown!r}; allowed: another")
    assert without_tokens("eyJ") == "eyJ"


def test_new_keys_of_a_provider_are_in_the_audit_log(tmp_path: Path) -> None:
    provider = Provider(tmp_path / "jwks.json")
    with Broker.open(Config(data=tmp_path / "data", pipeline="off", **provider.settings()), audited=True) as broker:
        provider.publish(RSAKey.generate_key(2048, {"kid": "second"}))

        def told() -> list[str]:
            broker.token_issuers[0].look()
            found = broker.components.audit.read(ReadAuditLog(operation="reload"))
            return [each.details["file"] for each in found]

        wait_until(told)
        assert told() == [ISSUER]
