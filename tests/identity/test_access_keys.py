"""Access keys: credentials whose secret the broker keeps sealed, and tells nobody after it was made."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.identity.conftest import Known

from tarry.base.config import Config
from tarry.base.errors import CorruptError, InvalidArgumentError, UnauthenticatedError
from tarry.broker import Broker
from tarry.identity.authenticator import Authenticator
from tarry.identity.seen import SeenBroker

SECRET = "s3cret-of-the-shop"


def test_a_key_is_shown_once_and_in_no_list(known: Known) -> None:
    issued = known.broker.add_credential("billing", kind="access_key", description="shop")
    assert issued.access_key is not None
    assert len(issued.secret) == 40
    changed = known.broker.set_identity("billing", description="x")
    listed = json.dumps([asdict(identity) for identity in (*known.broker.list_identities(), changed)])
    assert issued.access_key in listed
    sealed = json.loads((known.broker.config.data / "identities.json").read_text())["sealed"]
    for hidden in (issued.secret, known.billing, *sealed.values()):
        assert hidden not in listed
    assert all(credential.digest == "" for each in known.broker.list_identities() for credential in each.credentials)


def test_the_file_has_the_secret_sealed(known: Known) -> None:
    issued = known.broker.add_credential("billing", kind="access_key", access_key="shop", secret=SECRET)
    content = (known.broker.config.data / "identities.json").read_bytes()
    assert SECRET.encode() not in content
    sealed = base64.b64decode(json.loads(content)["sealed"][issued.id])
    assert SECRET.encode() not in sealed
    assert "secret" not in repr(known.broker.identities)


def test_a_key_is_found_by_its_name_until_it_is_removed(known: Known) -> None:
    authenticator = Authenticator(known.broker)
    issued = known.broker.add_credential("billing", kind="access_key", access_key="shop", secret=SECRET)
    found = authenticator.by_access_key("shop")
    assert found is not None
    assert (found.principal.name, found.secret) == ("billing", SECRET.encode())
    assert SECRET not in repr(found)
    assert authenticator.by_access_key("other") is None
    with pytest.raises(UnauthenticatedError):
        authenticator.by_token(SECRET)
    known.broker.remove_credential(issued.id)
    assert authenticator.by_access_key("shop") is None
    assert known.broker.access_secret(issued.id) is None
    assert not authenticator.is_known(found.principal)


def test_callers_get_no_secrets_from_the_broker_as_they_see_it(known: Known) -> None:
    issued = known.broker.add_credential("billing", kind="access_key")
    assert SeenBroker(known.broker, Authenticator(known.broker).by_token(known.admin)).access_secret(issued.id) is None


def test_keys_are_known_after_a_restart(tmp_path: Path) -> None:
    config = Config(data=tmp_path, pipeline="off")
    with Broker.open(config) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        broker.add_credential("admin", kind="access_key", access_key="ak", secret=SECRET)
    with Broker.open(config) as broker:
        found = Authenticator(broker).by_access_key("ak")
        assert found is not None
        assert found.secret == SECRET.encode()


def test_with_another_secret_key_the_start_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker.open(Config(data=data, pipeline="off")) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        broker.add_credential("admin", kind="access_key")
    with Broker.open(Config(data=tmp_path / "other", pipeline="off")):
        pass
    shutil.copy(tmp_path / "other" / "secret.key", data / "secret.key")
    with pytest.raises(CorruptError, match=r"was not sealed by .*secret\.key"):
        Broker.open(Config(data=data, pipeline="off"))


def test_a_key_has_one_owner(known: Known) -> None:
    known.broker.add_credential("billing", kind="access_key", access_key="shop")
    with pytest.raises(InvalidArgumentError, match="billing has the access key 'shop' already"):
        known.broker.add_credential("admin", kind="access_key", access_key="shop")
    assert [len(each.credentials) for each in known.broker.list_identities()] == [1, 2]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kind": "access_key", "access_key": "a b"}, "access key 'a b'; allowed: 1 to 100"),
        ({"kind": "access_key", "access_key": ""}, "access key ''; allowed: 1 to 100"),
        ({"kind": "access_key", "secret": "shorter"}, "has 7 characters; allowed: 8 to 256"),
        ({"kind": "access_key", "secret": "with a blank"}, "has 12 characters; allowed: 8 to 256"),
        ({"kind": "password"}, "kind is 'password'; allowed: token, access_key"),
        ({"secret": "of-a-token-0"}, "allowed for a token: neither"),
    ],
)
def test_what_is_no_key_is_refused_without_repeating_it(known: Known, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as refused:
        known.broker.add_credential("billing", **more)  # type: ignore[arg-type]  # strings, as they come by a wire
    assert more.get("secret", "?") not in str(refused.value)


def test_an_expired_key_is_refused(known: Known) -> None:
    soon_ms = known.broker.clock.now_ms() + 60_000
    known.broker.add_credential("billing", kind="access_key", access_key="shop", expires_ms=soon_ms)
    found = Authenticator(known.broker).by_access_key("shop")
    assert found is not None
    assert found.expires_ms == soon_ms
