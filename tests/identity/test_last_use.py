"""The day of a credential's last use: noted where it is checked, shown to administrators, kept across restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.identity.conftest import Known
from tests.identity.http_place import serving

from tarry.api.credential_uses import WORKERS_KEY, CredentialUses
from tarry.base.config import Config
from tarry.base.errors import UnauthenticatedError
from tarry.broker import Broker
from tarry.identity.authenticator import Authenticator
from tarry.testing import TestClock, open_broker

DAY_MS = 86_400_000
START_MS = 1_795_000_000_000  # 2026-11-18


def used(broker: Broker, name: str) -> list[str | None]:
    [found] = [each for each in broker.list_identities() if each.name == name]
    return [each.last_used for each in found.credentials]


def test_a_use_is_shown_at_once(known: Known) -> None:
    assert used(known.broker, "billing") == [None]
    with serving(known.broker) as place:
        assert place.status("GET", "/v1/groups", known.billing[:-1]) == 401
        assert used(known.broker, "billing") == [None]
        assert place.status("GET", "/v1/groups", known.billing) == 200
    assert used(known.broker, "billing") != [None]
    assert used(known.broker, "admin") == [None]


def test_a_name_that_is_only_said_is_no_use(known: Known) -> None:
    known.broker.add_credential("billing", kind="access_key", access_key="shop", secret="s3cret-of-the-shop")
    authenticator = Authenticator(known.broker)
    found = authenticator.by_access_key("shop")
    assert found is not None
    assert used(known.broker, "billing") == [None, None]
    authenticator.note_use(found.id)
    assert used(known.broker, "billing")[1] is not None


def test_the_days_are_kept_and_written_once_a_minute_at_most(tmp_path: Path) -> None:
    clock, file = TestClock(START_MS), tmp_path / "credential-uses.json"
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_identity("admin", ["admin"])
        made = broker.add_credential("admin")
        authenticator = Authenticator(broker)
        authenticator.by_token(made.secret)
        clock.advance_ms(59_000)
        broker.step()
        assert not file.exists()
        clock.advance_ms(2_000)
        broker.step()
        assert json.loads(file.read_text())["days"] == {made.id: "2026-11-18"}
        written = file.stat().st_mtime_ns
        for _ in range(3):
            authenticator.by_token(made.secret)
            clock.advance_ms(61_000)
            broker.step()
        assert file.stat().st_mtime_ns == written, "the day is the same"
        clock.advance_ms(DAY_MS)
        authenticator.by_token(made.secret)
    assert json.loads(file.read_text())["days"] == {made.id: "2026-11-19"}, "written at the end"
    with open_broker(tmp_path, clock=clock) as broker:
        assert used(broker, "admin") == ["2026-11-19"]
        other = broker.add_credential("admin")
        broker.remove_credential(made.id)
        with pytest.raises(UnauthenticatedError):
            Authenticator(broker).by_token(made.secret)
        Authenticator(broker).by_token(other.secret)
    assert list(json.loads(file.read_text())["days"]) == [other.id], "removed ones are forgotten"


@pytest.mark.parametrize("content", ["", "{", '{"version": 1, "days": 3, "crc": 1}', "[]"])
def test_a_damaged_file_keeps_nobody_out(tmp_path: Path, content: str) -> None:
    with Broker.open(Config(data=tmp_path, pipeline="off")) as broker:
        broker.set_identity("admin", ["admin"])
        secret = broker.add_credential("admin").secret
        Authenticator(broker).by_token(secret)
    (tmp_path / "credential-uses.json").write_text(content)
    with Broker.open(Config(data=tmp_path, pipeline="off")) as broker:
        assert used(broker, "admin") == [None]
        assert Authenticator(broker).by_token(secret).name == "admin"


def test_connections_that_stand_count_as_uses() -> None:
    uses, standing = CredentialUses(), ["a"]
    stop = uses.watch(lambda: standing)
    uses.note("b")
    assert uses.take() == {"a", "b"}
    assert uses.take() == {"a"}
    stop()
    assert uses.take() == set()


def test_workers_tell_of_uses(known: Known) -> None:
    [billing] = [each for each in known.broker.list_identities() if each.name == "billing"]
    member = known.broker.join("http", lambda _, message: None)
    member.post(WORKERS_KEY, {"credentials": [billing.credentials[0].id, "unknown"]})
    assert used(known.broker, "billing") != [None]
