"""Identities as they are kept: credentials, the token of the directory, damage; nobody locks all others out."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.identity.conftest import Known

from tarry.api import operations as ops
from tarry.api.access import digest_of
from tarry.api.identities import is_token, new_token
from tarry.api.needs import OF_THE_BROKER, Right
from tarry.base.config import Config
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError, UnauthenticatedError
from tarry.broker import Broker
from tarry.cli.main import run
from tarry.fronts.kit.exposure import relying_on_identities
from tarry.fronts.registry import ServerConfig
from tarry.identity.authenticator import Authenticator
from tarry.identity.file import asks_callers
from tarry.identity.principal import LOCAL
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


def test_digests_are_for_ports_and_not_for_clients(known: Known) -> None:
    broker = known.broker
    kept = {credential.digest for identity in broker.identities for credential in identity.credentials}
    assert digest_of(known.billing) in kept
    answers = [broker.call(ops.ListIdentities()), [broker.call(ops.SetIdentity("billing", description="the shop"))]]
    for identities in answers:
        said = ops.ListIdentities.wire.codec.encode(identities)
        assert [each["credentials"][0]["digest"] for each in said] == [""] * len(said)
    assert Authenticator(broker).by_token(known.billing).name == "billing"


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


def test_what_keeps_the_last_administrator_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A credential that has expired lets nobody in, and an access key changes no identities."""
    clock = TestClock(1_000_000)
    with open_broker(tmp_path, clock=clock) as broker:
        ways_in = broker.components.identities.ways_in
        broker.set_identity("admin", ["admin"])
        ways_in.takes_certificates = False
        for useless in ({"kind": "access_key"}, {"kind": "certificate", "san": "spiffe://a/b"}):
            with pytest.raises(InvalidArgumentError, match="right admin"):
                broker.add_credential("admin", **useless)
        short = broker.add_credential("admin", expires_ms=1_005_000)
        assert "expires at 1970-01-01T00:16:45.000Z; make another" in caplog.text
        caplog.clear()
        lasting = broker.add_credential("admin")
        broker.add_credential("admin", kind="access_key")
        broker.set_identity("other", ["produce a"])
        assert caplog.text == ""
        clock.set_ms(1_005_000)
        with pytest.raises(InvalidArgumentError, match="right admin"):
            broker.remove_credential(lasting.id)
        ways_in.takes_certificates = True
        named = broker.add_credential("admin", kind="certificate", san="spiffe://a/b")
        broker.remove_credential(lasting.id)
        with pytest.raises(InvalidArgumentError, match="right admin"):
            broker.remove_credential(named.id)
        ways_in.takes_certificates = False  # as after a start without tls_client_ca
        broker.set_identity("other", ["produce b"])  # it is not this change that locks anybody out
        assert "admin.token in the data directory is" in caplog.text
        broker.remove_credential(short.id)


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


def test_the_broker_s_own_identities_can_be_asked_about(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        for name, right, topic, allowed in (
            ("local", "admin", None, True),
            ("local-admin", "produce", "orders", True),
            ("local-pipeline", "pipeline", None, True),
            ("local-pipeline", "produce", "orders", False),
        ):
            decision = broker.check_access(right, topic, identity=name)
            assert (decision.identity, decision.allowed) == (name, allowed)


@pytest.mark.parametrize(
    ("grants", "is_known"),
    [
        (["deny browse a.x", "browse a.*", "produce a.*"], True),
        (["browse a.*", "deny browse a.x"], True),
        (["browse a.*", "deny browse a.x", "admin"], True),
        (["browse a.*"], True),
        (["browse a.*", "deny browse a.x", "deny produce a.*"], False),
        (["browse a.*", "deny browse a.*"], False),
        (["browse *", "deny browse a.x"], False),
        (["deny browse a.x"], False),
        ([], False),
    ],
)
def test_a_caller_is_known_as_long_as_its_rights_only_grow(tmp_path: Path, grants: list[str], is_known: bool) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        broker.set_identity("some", ["browse a.*", "deny browse a.x"])
        authenticator = Authenticator(broker)
        secret = broker.add_credential("some").secret
        principal = authenticator.by_token(secret)
        broker.set_identity("some", grants)
        assert authenticator.is_known(principal) == is_known
        told = [str(grant) for grant in principal.rights.grants]
        assert told == (grants if is_known else ["browse a.*", "deny browse a.x"])
        broker.set_identity("some", ["browse b"])
        assert not authenticator.is_known(principal)


def test_a_credential_ends_at_its_time(tmp_path: Path) -> None:
    clock = TestClock(1_000_000)
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        with pytest.raises(InvalidArgumentError, match=r"\(1970-01-01T00:16:40.000Z\); allowed: later than now, 1970"):
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


@pytest.mark.parametrize("lost", ["identities.json", "secret.key"])
def test_a_start_that_is_refused_for_a_lost_file_changes_nothing_and_says_so_again(
    tmp_path: Path, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        broker.add_credential("admin", kind="access_key")
        broker.schedule("t", b"x", delay=60)
        broker.checkpoint()
    (tmp_path / lost).unlink()
    (tmp_path / "broker.id").unlink()
    shutil.rmtree(tmp_path / "store")

    def there() -> dict[str, bytes]:
        paths = (path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock")
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}

    before = there()
    for _ in range(2):
        caplog.clear()
        with pytest.raises(CorruptError, match=f"{lost} is missing"), open_broker(tmp_path):
            pass
        [line] = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert f"{lost}: missing. A start without it is refused" in line or "With access keys the start is" in line
        assert there() == before


def test_without_a_copy_of_the_key_identities_are_made_again(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        broker.add_credential("admin", kind="access_key")
        broker.checkpoint()
    for name in ("secret.key", "identities.json"):
        (tmp_path / name).unlink()
    assert run(["identity", "create", "admin", "--all", "--no-keep", "--data", str(tmp_path)]) == 0
    with open_broker(tmp_path) as broker:
        assert [each.name for each in broker.list_identities()] == ["admin"]


@pytest.mark.parametrize("sign", ["admin.token", "credential-uses.json", "the audit log"])
def test_the_file_is_missed_without_the_checkpoint(tmp_path: Path, sign: str, caplog: pytest.LogCaptureFixture) -> None:
    """Lost together with what lists it: other files tell that callers were asked."""
    config = Config(data=tmp_path, pipeline="off")
    with Broker.open(config, audited=True) as broker:
        broker.set_identity("admin", ["admin"])
        Authenticator(broker).by_token(broker.add_credential("admin").secret)
        broker.schedule("t", b"x", delay=60)
    others = {"admin.token", "credential-uses.json"} - {sign}
    for name in ("checkpoint.json", "identities.json", *others):
        (tmp_path / name).unlink(missing_ok=True)
    if sign != "the audit log":
        shutil.rmtree(tmp_path / "audit")
    if sign == "admin.token":  # as after a crash
        (tmp_path / sign).write_text("tarry_x\n")
    with pytest.raises(CorruptError, match=f"which had been there \\({sign} tells so\\)"):
        Broker.open(config)
    assert "checkpoint.json is missing, and there are messages" in caplog.text


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "overwritten": overwrite,
    "truncated": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "without its head": lambda path: path.unlink() if path.name == "head.json" else overwrite(path),
    "without its lines": lambda path: None if path.name == "head.json" else path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_audit_log_that_cannot_be_read_opens_no_door(tmp_path: Path, damage: str) -> None:
    """Lost together with all that tells of identities, it would have told."""
    config = Config(data=tmp_path, pipeline="off")
    with Broker.open(config, audited=True) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
    for name in ("checkpoint.json", "identities.json", "admin.token", "credential-uses.json"):
        (tmp_path / name).unlink(missing_ok=True)
    for path in (tmp_path / "audit").iterdir():
        DAMAGES[damage](path)
    for _ in range(2):
        with pytest.raises(CorruptError, match=r"audit log.* is damaged.*move .*audit away.*identity create --data"):
            Broker.open(config, audited=True)
    (tmp_path / "audit").rename(tmp_path / "audit-damaged")
    Broker.open(config, audited=True).close()


def test_a_sound_audit_log_without_identities_refuses_nothing(tmp_path: Path) -> None:
    config = Config(data=tmp_path, pipeline="off")
    with Broker.open(config, audited=True) as broker:
        broker.set_group("t", "g", tries=3)
    [lines] = (path for path in (tmp_path / "audit").iterdir() if path.name != "head.json")
    with lines.open("ab") as file:
        file.write(b"TFRM torn")  # as a crash leaves it
    (tmp_path / "checkpoint.json").unlink()
    Broker.open(config, audited=True).close()


def test_a_lost_checkpoint_is_told_and_nothing_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_broker(tmp_path) as broker:
        assert caplog.text == ""
        broker.schedule("t", b"x", delay=60)
    (tmp_path / "checkpoint.json").unlink()
    with open_broker(tmp_path) as broker:
        assert [each.pending for each in broker.pending()] == [1]
        assert "checkpoint.json is missing, and there are messages" in caplog.text


def test_the_pipeline_is_known_by_a_token_of_each_start(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        identities = broker.components.identities
        token, heard = identities.pipeline_token(), []
        assert broker.identities == (), "with nobody asked, it changes nothing"
        assert Authenticator(broker).by_token(token).name == "local"
        stop = broker.listen_to_identities(lambda: heard.append(broker.identities))
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        principal = Authenticator(broker).by_token(token)
        assert (principal.name, [str(grant) for grant in principal.rights.grants]) == ("local-pipeline", ["pipeline"])
        assert principal.rights.allow(Right.PIPELINE)
        for right in (Right.ADMIN, Right.BULK, Right.FRONT):
            assert not principal.rights.allow(right)
        again = identities.pipeline_token()
        assert heard[-1] is broker.identities
        stop()
        with pytest.raises(UnauthenticatedError, match="is not known"):
            Authenticator(broker).by_token(token)
        assert Authenticator(broker).by_token(again).name == "local-pipeline"
        assert [each.name for each in broker.list_identities()] == ["admin"]
        assert again not in (tmp_path / "identities.json").read_text()
        with pytest.raises(InvalidArgumentError, match="the broker's own"):
            broker.set_identity("local-pipeline", ["admin"])


def test_access_tokens_are_credentials_while_callers_are_asked(known: Known) -> None:
    authenticator = Authenticator(known.broker)
    whole, narrow = known.broker.create_token("*"), known.broker.create_token("shop", secret="chosen-by-somebody-else")
    everything, shop = authenticator.by_token(whole.secret), authenticator.by_token(narrow.secret)
    assert everything.rights.is_unlimited
    assert shop.name == f"token:{narrow.id}"
    for right in (Right.PRODUCE, Right.CONSUME, Right.LOOK, Right.BROWSE, Right.MANAGE):
        allowed = right in (Right.PRODUCE, Right.CONSUME, Right.LOOK)
        assert shop.rights.allow(right, "shop/q", "any") == allowed
        assert not any(shop.rights.allow(right, topic) for topic in ("shop", "shopq", "shop2/q", "other/q", None))
    assert not any(shop.rights.allow(right) for right in OF_THE_BROKER)
    known.broker.create_token("other")
    assert authenticator.is_known(shop)
    assert authenticator.by_token(narrow.secret) is shop, "what has not changed is the same caller"
    known.broker.create_token("more", secret="chosen-by-somebody-else")
    assert not authenticator.is_known(shop), "it has more rights now"
    known.broker.delete_token(whole.id)
    assert not authenticator.is_known(everything)
    with pytest.raises(UnauthenticatedError):
        authenticator.by_token(whole.secret)


def test_without_identities_access_tokens_are_known_to_who_asks_for_them(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        authenticator, made = Authenticator(broker), broker.create_token("*")
        assert authenticator.by_token(made.secret) is LOCAL, "nobody is asked"
        owner = authenticator.by_secret(made.secret)
        assert owner is not None
        assert authenticator.is_known(owner)
        assert authenticator.by_secret("x" * 24) is None
        broker.delete_token(made.id)
        assert not authenticator.is_known(owner)


def test_the_last_credential_stays_while_other_machines_reach_a_port(tmp_path: Path) -> None:
    config = ServerConfig(data=tmp_path / "data", pipeline="off", flight="0.0.0.0:7611")
    assert relying_on_identities(config) == {"flight": "0.0.0.0:7611"}
    assert relying_on_identities(config.model_copy(update={"insecure_open": "flight"})) == {}
    assert relying_on_identities(ServerConfig(data=tmp_path, flight="127.0.0.1:7611")) == {}
    with Broker.open(config) as broker:
        broker.components.identities.exposed = relying_on_identities(config)
        broker.set_identity("admin", ["admin"])
        broker.set_identity("other", ["produce a"])
        tokens = [broker.add_credential(name).id for name in ("admin", "other")]
        broker.remove_credential(tokens[1])
        for change in (lambda: broker.remove_credential(tokens[0]), lambda: broker.delete_identity("admin")):
            with pytest.raises(InvalidArgumentError, match=r"other machines reach flight on 0\.0\.0\.0:7611; allowed"):
                change()
        assert broker.identities
        broker.components.identities.exposed = {}
        broker.remove_credential(tokens[0])
        assert not broker.identities
