"""Keys of a provider by URL: fetched at the start, now and then, and for an unknown key; providers that misbehave."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey
from tests.cli_tools import error_of
from tests.identity.provider import DISCOVERY, KEYS, OidcProvider, providing
from tests.loopgrpc.certificates import make_certificate
from tests.waiting import wait_until

from tarry.base.errors import InvalidArgumentError, UnauthenticatedError
from tarry.identity import issuers as issuers_module
from tarry.identity.authenticator import Authenticator
from tarry.identity.jwt_fetching import AGAIN_MS, FIRST_MS, REFRESH_MS
from tarry.identity.provider_requests import ANSWER_BYTES_MAX
from tarry.testing import TestClock, open_broker

START_MS = 1_795_000_000_000


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with providing() as provider:
        yield provider


class Place:
    """A broker whose clock stands, with "shop", who is known by a claim."""

    def __init__(self, broker: Any, clock: TestClock, provider: OidcProvider) -> None:
        self.broker, self.clock, self.provider = broker, clock, provider
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        broker.set_identity("shop", ["produce *"])
        broker.add_credential("shop", kind="jwt", claim="groups=tarry-shop")
        self.authenticator = Authenticator(broker)

    def sign(self, **more: Any) -> str:
        return self.provider.sign(self.clock.now_ms() / 1000, **more)

    def refusal(self, token: str) -> str | None:
        try:
            assert self.authenticator.by_token(token).name == "shop"
        except UnauthenticatedError as error:
            return str(error)
        return None

    def wait_taken(self, token: str) -> None:
        wait_until(lambda: self.refusal(token) is None)


@pytest.fixture
def start(tmp_path: Path, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from contextlib import ExitStack

    with ExitStack() as stack:

        def begin(wait_s: float = 60, **more: Any) -> Place:
            monkeypatch.setattr(issuers_module, "START_S", wait_s)
            clock = TestClock(START_MS)
            settings = {**provider.settings(), **more}
            return Place(stack.enter_context(open_broker(tmp_path / "data", clock=clock, **settings)), clock, provider)

        yield begin


@pytest.mark.parametrize("by_url", [False, True])
def test_keys_are_fetched_at_the_start(start: Any, provider: OidcProvider, by_url: bool) -> None:
    place = start(**({"jwt_keys_url": provider.url + KEYS} if by_url else {}))
    assert place.refusal(place.sign()) is None
    assert provider.asked == {KEYS: 1} if by_url else {DISCOVERY: 1, KEYS: 1}


def test_an_unknown_key_has_them_fetched_once_a_minute(start: Any, provider: OidcProvider) -> None:
    place = start()
    provider.rotate("second")
    token, stranger = place.sign(), ECKey.generate_key("P-256", {"kid": "none"})
    for _ in range(50):
        assert "names a key that is not among" in str(place.refusal(token))
        assert place.refusal(provider.sign(START_MS / 1000, ECKey.generate_key("P-256", {"kid": "none"}))) is not None
    assert provider.asked[KEYS] == 1, "the start was less than a minute ago"
    place.clock.advance_ms(AGAIN_MS)
    place.wait_taken(token)
    for number in range(200):
        flood = provider.sign(START_MS / 1000 + 60, stranger, groups=str(number))
        assert place.refusal(flood) is not None
    assert provider.asked[KEYS] == 2
    assert place.refusal(token) is None


def test_they_are_fetched_now_and_then(start: Any, provider: OidcProvider) -> None:
    place = start()
    token = place.sign()
    principal = place.authenticator.by_token(token)
    place.clock.advance_ms(REFRESH_MS)
    wait_until(lambda: place.broker.step() or provider.asked[KEYS] == 2)
    place.clock.advance_ms(1)
    again = place.sign(exp=START_MS // 1000 + 2 * REFRESH_MS // 1000)
    kept = place.authenticator.by_token(again)
    assert place.authenticator.by_token(again) is kept, "the same keys, so nothing is verified anew"
    assert principal.name == "shop"
    provider.published = [ECKey.generate_key("P-256", {"kid": "other"})]
    place.clock.advance_ms(REFRESH_MS)
    wait_until(lambda: "not among the provider" in str(place.refusal(again)))


def test_a_provider_that_is_down_leaves_the_last_good_keys(
    start: Any, provider: OidcProvider, caplog: pytest.LogCaptureFixture
) -> None:
    place = start()
    for wrong in (
        lambda: (500, {}, b""),
        lambda: (200, {}, b"no JSON"),
        lambda: (200, {}, b'{"keys": []}'),
        lambda: (200, {}, json.dumps({"keys": [OctKey.generate_key().as_dict()]}).encode()),
        lambda: (302, {"location": provider.url + "/elsewhere"}, b""),
        lambda: (200, {}, b" " * ANSWER_BYTES_MAX),
        lambda: (200, {"content-length": str(100 << 20)}, b'{"keys": [' + b" " * (2 << 20)),
    ):
        provider.instead[KEYS] = wrong
        before = provider.asked[KEYS]
        caplog.clear()
        place.clock.advance_ms(REFRESH_MS)
        wait_until(lambda: place.broker.step() or "the last good keys stay in use" in caplog.text)
        assert provider.asked[KEYS] == before + 1
        assert place.refusal(place.sign()) is None
    assert provider.asked["/elsewhere"] == 0
    del provider.instead[KEYS]
    provider.rotate("second")
    place.clock.advance_ms(AGAIN_MS)
    place.wait_taken(place.sign())


def test_a_hanging_provider_does_not_refuse_the_start(
    start: Any, provider: OidcProvider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.instead[KEYS] = provider.hang
    began_s = time.monotonic()
    with caplog.at_level(logging.WARNING):
        place = start(wait_s=0.3)
    assert "its tokens are refused until they do" in caplog.text
    for _ in range(20):
        assert "have not come yet" in str(place.refusal(place.sign()))
    place.clock.advance_ms(FIRST_MS)
    assert place.refusal(place.sign()) is not None
    wait_until(lambda: provider.asked[KEYS])
    assert provider.asked[KEYS] == 1, "one at a time"
    assert time.monotonic() - began_s < 5, "no caller waits for it"
    del provider.instead[KEYS]
    provider.hangs.set()  # it answers nonsense
    wait_until(lambda: "has no keys" in caplog.text)
    assert f"the provider {provider.url}: its tokens are refused: " in caplog.text
    place.clock.advance_ms(FIRST_MS)
    place.wait_taken(place.sign())


def test_a_broker_that_is_closed_waits_for_no_provider(start: Any, provider: OidcProvider) -> None:
    provider.instead[KEYS] = provider.hang
    place = start(wait_s=0.3)
    began_s = time.monotonic()
    place.broker.close()
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize(
    ("discovered", "said"),
    [
        ({"issuer": "https://other.example"}, "is of the issuer 'https://other.example'"),
        ({"issuer": None}, "is of the issuer None"),
        ({"jwks_uri": "http://login.example/jwks"}, "http:// of this machine alone"),
        ({"jwks_uri": None}, "jwks_uri is 'None'"),
        ({"jwks_uri": "file:///etc/passwd"}, "allowed: https://HOST"),
        ({"jwks_uri": "https://169.254.169.254/jwks"}, "not a public address; allowed by the setting jwt_private"),
    ],
)
def test_discovery_that_is_not_taken(
    start: Any, provider: OidcProvider, caplog: pytest.LogCaptureFixture, discovered: dict[str, Any], said: str
) -> None:
    provider.discovered = discovered
    place = start()
    assert said in caplog.text
    assert "have not come yet" in str(place.refusal(place.sign()))
    assert provider.asked[KEYS] == 0


def test_addresses_of_this_machine_are_asked_only_if_a_setting_says_so(
    start: Any, provider: OidcProvider, caplog: pytest.LogCaptureFixture
) -> None:
    start(jwt_private_addresses="off")
    assert "127.0.0.1 is not a public address; allowed by the setting jwt_private_addresses" in caplog.text
    assert not provider.asked


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"jwt_keys_url": "http://login.example/jwks"}, "http:// of this machine alone"),
        ({"jwt_issuer": "http://login.example"}, "http:// of this machine alone"),
        ({"jwt_issuer": "kubernetes/serviceaccount"}, "whose keys have no file or URL"),
        ({"jwt_keys_url": "https://a:b@login.example/jwks"}, "without a user"),
        ({"jwt_keys_url": "https://login.example/jwks", "jwt_keys_file": "x"}, "allowed: one of them, or none"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, provider: OidcProvider, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said), open_broker(tmp_path, **{**provider.settings(), **more}):
        pass


def test_a_private_key_that_is_published_signs_nothing_more(start: Any, provider: OidcProvider) -> None:
    """Told to workers, and kept, is the public part alone."""
    provider.instead[KEYS] = lambda: (200, {}, json.dumps({"keys": [provider.key.as_dict(private=True)]}).encode())
    place = start()
    assert place.refusal(place.sign()) is None
    [issuer] = place.broker.components.identities.issuers.published
    assert issuer.keys is not None and "d" not in issuer.keys["keys"][0]


def test_keys_by_tls_of_an_authority_of_the_operators(start: Any, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with providing(certificate.server_context()) as provider:
        place = start(**provider.settings(jwt_ca_file=str(certificate.certificate)))
        token = provider.sign(START_MS / 1000)
        assert provider.url.startswith("https://")
        assert place.refusal(token) is None


def test_a_provider_of_an_authority_that_is_not_trusted_is_not_believed(
    start: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with providing(make_certificate(tmp_path).server_context()) as provider:
        place = start(**provider.settings())
        wait_until(lambda: "certificate verify failed" in caplog.text)
        assert "have not come yet" in str(place.refusal(provider.sign(START_MS / 1000)))
        assert not provider.asked


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"", "it has no certificate, or a broken one"),
        (b"no PEM", "it has no certificate, or a broken one"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "it has no certificate, or a broken one"),
    ],
)
def test_a_file_without_authorities_refuses_the_start(
    tmp_path: Path, provider: OidcProvider, capsys: pytest.CaptureFixture[str], content: bytes | None, why: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    settings = provider.settings(jwt_ca_file=str(file), pipeline="off")
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    code, said = error_of(capsys, "serve", "--data", str(tmp_path / "data"), *options)
    assert (code, said) == (2, f"invalid_argument: jwt_ca_file {file}: {why}; allowed: a PEM file of certificates")
    assert not provider.asked
