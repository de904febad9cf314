"""Identities as they are kept: credentials, the token of the directory, damage; nobody locks all others out."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.identity.conftest import Known

from tarry.api.identities import is_token, new_token
from tarry.base.config import Config
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.broker import Broker
from tarry.identity.authenticator import Authenticator
from tarry.identity.file import asks_callers
from tarry.testing import TestClock, open_broker


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_has_a_checksum() -> None:
    token = new_token()
    assert is_token(token)
    assert len(token) == 44
    swapped = token[:10] + ("a" if token[10] != "a" else "b") + token[11:]
    assert not is_token(swapped)
    assert not is_token(token[:-1])
    assert new_token() != token


def test_the_secret_is_kept_nowhere(known: Known) -> None:
    data = known.broker.config.data
    content = (data / "identities.json").read_text()
    assert known.admin not in content
    assert known.billing not in content
    assert mode(data / "identities.json") == 0o600
    assert mode(data / "admin.token") == 0o600


def test_identities_are_there_after_a_restart_with_another_token_of_the_directory(tmp_path: Path) -> None:
    config = Config(data=tmp_path, pipeline="off")
    assert not asks_callers(tmp_path)
    with Broker.open(config) as broker:
        assert not (tmp_path / "admin.token").exists()
        broker.set_identity("admin", ["admin"], description="the operators")
        token = broker.add_credential("admin").secret
        own = (tmp_path / "admin.token").read_text().strip()
        assert Authenticator(broker).by_token(own).name == "local-admin"
    assert asks_callers(tmp_path)
    assert not (tmp_path / "admin.token").exists()
    with Broker.open(config) as broker:
        [kept] = broker.list_identities()
        assert (kept.name, kept.grants, kept.description) == ("admin", ["admin"], "the operators")
        authenticator = Authenticator(broker)
        assert authenticator.by_token(token).name == "admin"
        again = (tmp_path / "admin.token").read_text().strip()
        assert again != own
        assert authenticator.by_token(again).rights.is_unlimited


def test_the_first_credential_is_an_administrators(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_identity("billing", ["produce orders"])
        with pytest.raises(InvalidArgumentError, match="nobody who has a credential would have the right admin"):
            broker.add_credential("billing")
        assert broker.identities == ()
        broker.set_identity("admin", ["admin"])
        assert broker.identities == (), "nobody is asked before somebody can answer"
        admin = broker.add_credential("admin")
        billing = broker.add_credential("billing")
        for lock_out in (
            lambda: broker.set_identity("admin", ["manage *"]),
            lambda: broker.set_identity("admin", ["admin", "deny admin"]),
            lambda: broker.delete_identity("admin"),
            lambda: broker.remove_credential(admin.id),
        ):
            with pytest.raises(InvalidArgumentError, match="right admin"):
                lock_out()
        broker.remove_credential(billing.id)
        broker.remove_credential(admin.id)
        assert broker.identities == ()


def test_what_is_not_allowed(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        for name in ("", "a b", "-a", "x" * 101, "local", "local-admin", "a\n"):
            with pytest.raises(InvalidArgumentError, match="identity"):
                broker.set_identity(name, ["admin"])
        with pytest.raises(InvalidArgumentError, match="grant 'everything'"):
            broker.set_identity("a", ["everything"])
        with pytest.raises(NotFoundError, match="no identity 'a'"):
            broker.add_credential("a")
        with pytest.raises(NotFoundError, match="no identity 'a'"):
            broker.check_access("produce", "t", identity="a")
        with pytest.raises(NotFoundError, match="no credential"):
            broker.remove_credential("a")
        with pytest.raises(InvalidArgumentError, match="right is 'write'"):
            broker.check_access("write", "t")
        assert broker.list_identities() == []


def test_a_credential_ends_at_its_time(tmp_path: Path) -> None:
    clock = TestClock(1_000_000)
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        with pytest.raises(InvalidArgumentError, match="expires_ms"):
            broker.add_credential("admin", expires_ms=1_000_000)
        short = broker.add_credential("admin", expires_ms=1_005_000)
        authenticator = Authenticator(broker)
        principal = authenticator.by_token(short.secret)
        assert authenticator.is_known(principal)
        assert authenticator.next_expiry_ms == 1_005_000
        clock.set_ms(1_005_000)
        assert not authenticator.is_known(principal)
        with pytest.raises(Exception, match="expired at 1005000"):
            authenticator.by_token(short.secret)


def test_a_lost_or_damaged_file_opens_no_door(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        broker.checkpoint()
    path = tmp_path / "identities.json"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(CorruptError, match="is missing"), open_broker(tmp_path):
        pass
    path.write_bytes(content.replace(b'"admin"', b'"adnim"', 1))
    with pytest.raises(CorruptError, match="damaged"), open_broker(tmp_path):
        pass
    path.write_bytes(content)
    with open_broker(tmp_path) as broker:
        assert [each.name for each in broker.list_identities()] == ["admin"]
