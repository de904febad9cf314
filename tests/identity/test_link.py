"""The native wire asks who its clients are: by a token in the greeting, or by the user of a Unix socket."""

from __future__ import annotations

import asyncio
import json
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.identity.conftest import BILLING, Known
from tests.identity.http_place import forget
from tests.link.raw_client import RawClient, RefusedError
from tests.waiting import wait_until

from tarry.api.outcome import Outcome
from tarry.base.errors import ForbiddenError, TarryError, UnauthenticatedError
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.client import AsyncClient, Client
from tarry.errors import InvalidArgumentError
from tarry.fronts.link.front import LinkFront
from tarry.fronts.link.receives import Receives
from tarry.link.credentials import find_token, keep_token, keeps_token
from tarry.link.frames import CLIENT, VERSION, FrameKind, Poll, SettleFrame, SettleOp

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def front(known: Known) -> Iterator[LinkFront]:
    front = LinkFront.start(known.broker, "127.0.0.1:0")
    yield front
    front.stop(0.2)


def test_without_a_token_or_with_a_wrong_one_nothing_is_done(known: Known, front: LinkFront) -> None:
    for token in (None, "", "tarry_wrong", known.billing[:-1]):
        with Client(front.address, token=token, timeout=5) as client:
            for call in (client.ping, client.pending, lambda c=client: c.schedule("orders.a", b"x", delay=1)):
                with pytest.raises(UnauthenticatedError, match="token"):
                    call()
            with pytest.raises(UnauthenticatedError):
                client.receive("orders.a", group="billing")
            with pytest.raises(UnauthenticatedError):
                next(iter(client.consume("orders.a", group="billing")))
    assert known.broker.pending() == []


@pytest.mark.parametrize(
    "topics",
    [
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["orders.a"])),
        pa.array([["orders.a"]] * 2),
        pa.array([{"a": 1}] * 2),
        pa.array([b"orders.a"] * 2, pa.binary()),
        pa.nulls(2),
    ],
    ids=lambda topics: str(topics.type),
)
def test_topics_of_another_type_are_refused(known: Known, front: LinkFront, topics: pa.Array[Any]) -> None:
    rows = pa.record_batch({"topic": topics, "body": pa.array([b"x"] * 2), "delay_ms": pa.array([1000] * 2)})
    with Client(front.address, token=known.billing) as client, pytest.raises(InvalidArgumentError, match="topic"):
        client.schedule_batch(rows)
    assert known.broker.pending() == []


def test_a_client_does_what_its_identity_may(known: Known, front: LinkFront) -> None:
    with Client(front.address, token=known.billing) as client:
        assert client.whoami().identity == "billing"
        client.schedule("orders.a", b"x", delay=0.05)
        [message] = client.receive("orders.a", group="billing", wait=10)
        message.ack()
        receipt = known.broker.schedule("secret", b"s", delay=60)
        refused: list[Any] = [
            lambda: client.schedule("orders.cards", b"x", delay=1),
            lambda: client.schedule_many([{"topic": "orders.a", "body": b"", "delay": 1}, {"topic": "b", "body": b""}]),
            lambda: client.receive("orders.a", group="other"),
            lambda: client.receive("secret", group="billing"),
            lambda: next(iter(client.consume("secret", group="billing"))),
            lambda: client.peek("orders.a"),
            lambda: client.set_group("orders.a", "billing", tries=3),
            lambda: client.create_token(),
            lambda: client.set_identity("billing", ["admin"]),
            lambda: client.add_credential("admin"),
            lambda: client.read_queue("orders.a", 0, 10),
            client.status,
        ]
        for call in refused:
            with pytest.raises(ForbiddenError, match="billing has not the right"):
                call()
        assert client.cancel(receipt.handle) is Outcome.UNKNOWN
        assert [each.topic for each in client.groups()] == ["orders.a"]
    assert [each.topic for each in known.broker.pending() if each.pending] == ["secret"]


def test_the_asyncio_client(known: Known, front: LinkFront) -> None:
    async def run() -> None:
        async with AsyncClient(front.address, token=known.billing) as client:
            await client.schedule("orders.a", b"x", delay=0.01)
            with pytest.raises(ForbiddenError):
                await client.schedule("secret", b"x", delay=1)
            [message] = await client.receive("orders.a", group="billing", wait=10)
            message.ack()
            found = await asyncio.gather(*(client.whoami() for _ in range(20)))
            assert {each.identity for each in found} == {"billing"}
        async with AsyncClient(front.address) as client:
            with pytest.raises(UnauthenticatedError):
                await client.schedule("orders.a", b"x", delay=1)

    asyncio.run(run())


def raw(front: LinkFront, token: Any) -> RawClient:
    return RawClient(front.address, hello=json.dumps({"version": VERSION, "as": CLIENT, "token": token}).encode())


def test_a_group_of_another_is_not_reached_by_its_number(known: Known, front: LinkFront) -> None:
    """Numbers of groups are those of the port: one client learns nothing by guessing another's."""
    admin, billing = raw(front, known.admin), raw(front, known.billing)
    assert (admin.welcome["identity"], billing.welcome["identity"]) == ("admin", "billing")
    known.broker.schedule("secret", b"s", delay=0)
    number = admin.group("secret", "g")
    unknown = f"there is no group number {number + 1}"
    for asked in (number, number + 1):
        billing.send(FrameKind.POLL, asked, Poll(asked, 10, 0, 10).encode())
        answer = billing.read(FrameKind.POLLED, asked).decode()
        assert unknown in answer.replace(f"number {number} ", f"number {number + 1} ")
        assert "secret" not in answer
    batch = known.broker.receive("secret", "g", wait_ms=10_000)
    leases, offsets = batch["lease"].to_numpy(), batch["offset"].to_numpy()
    with pytest.raises(RefusedError, match=f"there is no group number {number}"):
        billing.ask(FrameKind.SETTLE, FrameKind.SETTLED, SettleFrame(SettleOp.ACK, number, 0, leases, offsets).encode())
    assert known.broker.ack("secret", "g", leases, offsets) == 1
    admin.close()
    billing.close()


def test_a_client_does_not_consume_for_the_account_of_another(known: Known, front: LinkFront) -> None:
    billing = raw(front, known.billing)
    number = billing.group("orders.a", "billing")
    billing.send(FrameKind.POLL, 1, Poll(number, 10, 0, 10, "admin").encode())
    assert "a POLL names an identity" in billing.read(FrameKind.POLLED, 1).decode()
    billing.close()


def test_a_token_that_is_no_text(front: LinkFront) -> None:
    with pytest.raises(RefusedError, match="token is a list"):
        raw(front, ["a"])


def test_a_removed_credential_ends_its_connections(known: Known, front: LinkFront) -> None:
    [credential] = next(each for each in known.broker.list_identities() if each.name == "billing").credentials
    errors: list[TarryError] = []
    got = threading.Event()

    def consume() -> None:
        try:
            for message in client.consume("orders.a", group="billing"):
                message.ack()
                got.set()
        except TarryError as error:
            errors.append(error)

    with Client(front.address, token=known.billing, timeout=5) as client:
        client.schedule("orders.a", b"x", delay=0)
        thread = threading.Thread(target=consume)
        thread.start()
        assert got.wait(20)
        known.broker.remove_credential(credential.id)
        wait_until(lambda: errors)
        thread.join(10)
        assert isinstance(errors[0], UnauthenticatedError)
        with pytest.raises(UnauthenticatedError):
            client.ping()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the broker has been asked for messages by a RECEIVE."""
    asked, receive = threading.Event(), Receives.receive

    def note(receives: Receives, number: int, payload: memoryview) -> None:
        receive(receives, number, payload)
        asked.set()

    monkeypatch.setattr(Receives, "receive", note)
    return asked


def test_a_receive_that_waits_is_told_that_its_token_was_revoked(
    known: Known, front: LinkFront, asked: threading.Event
) -> None:
    with Client(front.address, token=known.billing, timeout=30) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.receive, "orders.a", group="billing", wait=30)
        assert asked.wait(20)
        forget(known.broker, "billing")
        with pytest.raises(UnauthenticatedError, match="was removed or has expired"):
            waiting.result(20)


def test_tarry_receive_ends_with_its_token(
    known: Known,
    front: LinkFront,
    asked: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TARRY_TOKEN", known.billing)
    command = ["receive", "orders.a", "--group", "billing", "--wait", "20s", "--endpoint", front.address]
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(run, command)
        assert asked.wait(20)
        forget(known.broker, "billing")
        assert ending.result(20) == ExitCode.FORBIDDEN
    assert "was removed or has expired" in capsys.readouterr().err


def test_a_connection_whose_token_is_good_still_is_told_to_come_again(known: Known, front: LinkFront) -> None:
    client = raw(front, known.billing)
    known.broker.set_identity("billing", ["produce orders.*"])
    ended = client.ended()
    assert ended is not None and (ended["code"], "rights" in ended["message"]) == ("unavailable", True)
    client = raw(front, known.billing)
    forget(known.broker, "billing")
    ended = client.ended()
    assert ended is not None and ended["code"] == "unauthenticated"


def test_a_consumer_goes_on_with_the_new_token_of_its_file(
    known: Known, front: LinkFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(known.billing)
    monkeypatch.setenv("TARRY_TOKEN_FILE", str(file))
    with Client(front.address, timeout=30) as client:
        consumed = iter(client.consume("orders.a", group="billing", auto_ack=True))
        known.broker.schedule("orders.a", b"by the old one")
        assert next(consumed).body == b"by the old one"
        [old] = next(each for each in known.broker.list_identities() if each.name == "billing").credentials
        new = known.broker.add_credential("billing")
        file.write_text(new.secret)
        known.broker.remove_credential(old.id)
        wait_until(lambda: new.id in known.broker.credential_uses.take())
        known.broker.schedule("orders.a", b"by the new one")
        assert b"by the new one" in {next(consumed).body, next(consumed).body}  # that it had came again


def test_changed_rights_hold_for_connections_that_stand(known: Known, front: LinkFront) -> None:
    with Client(front.address, token=known.billing) as client:
        client.schedule("orders.a", b"x", delay=60)
        known.broker.set_identity("billing", ["produce other"])

        def is_refused() -> bool:
            try:
                client.schedule("orders.a", b"x", delay=60)
            except ForbiddenError:
                return True
            except TarryError:  # the connection that stood has just been ended
                pass
            return False

        wait_until(is_refused)
        known.broker.set_identity("billing", BILLING)


def test_rights_that_only_grow_hold_for_connections_that_stand_and_end_none(known: Known, front: LinkFront) -> None:
    client = raw(front, known.billing)

    def is_open() -> bool:
        try:
            client.group("secret", "g")
        except RefusedError:
            return False
        return True

    assert not is_open()
    known.broker.set_identity("billing", [*BILLING, "consume secret group:g"])
    wait_until(is_open)
    client.close()


def test_clients_that_were_not_asked_are_asked_from_the_first_credential_on(tmp_path: Path) -> None:
    from tarry.testing import open_broker

    with open_broker(tmp_path / "data") as broker:
        front = LinkFront.start(broker, "127.0.0.1:0")
        try:
            with Client(front.address) as client:
                assert client.whoami().identity == "local"
                client.set_identity("admin", ["admin"])
                issued = client.add_credential("admin")

                def is_asked() -> bool:
                    try:
                        client.ping()
                    except UnauthenticatedError:
                        return True
                    except TarryError:
                        pass
                    return False

                wait_until(is_asked)
            with Client(front.address, token=issued.secret) as client:
                assert client.whoami().identity == "admin"
        finally:
            front.stop(0.2)


def test_a_unix_socket_of_the_own_user_needs_no_token(known: Known, tmp_path: Path) -> None:
    front = LinkFront.start(known.broker, f"unix:{tmp_path / 's'}")
    try:
        with Client(front.address) as client:
            assert client.whoami().identity == "local-admin"
        with Client(front.address, token=known.billing) as client:
            assert client.whoami().identity == "billing"
    finally:
        front.stop(0.2)


def test_an_administrator_of_this_machine_is_not_shown_to_another(
    known: Known, front: LinkFront, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_DATA", str(known.broker.config.data))
    assert find_token(f"localhost:7611,{front.address}") == find_token(front.address) is not None
    assert find_token(f"{front.address},elsewhere:7611") is None


def test_a_kept_token_is_that_of_each_address(own_home: Path) -> None:
    assert not keeps_token("a:1,b:1")
    keep_token("tls://a:1?ca=x, b:1", "tarry_t")
    assert keeps_token("c:1,b:1")
    assert [find_token(each) for each in ("a:1", "b:1", "c:1", "c:1,a:1")] == ["tarry_t", "tarry_t", None, "tarry_t"]


def test_where_a_client_finds_its_token(
    known: Known, front: LinkFront, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def who() -> str:
        with Client(front.address) as client:
            return client.whoami().identity

    monkeypatch.setenv("TARRY_DATA", str(known.broker.config.data))
    assert who() == "local-admin", "the token in the data directory"
    path = keep_token(front.address, known.billing)
    keep_token("elsewhere:7611", "tarry_other")
    assert (path.stat().st_mode & 0o777, path.parent) == (0o600, own_home / "tarry")
    assert who() == "billing", "the entry of the address"
    assert find_token("elsewhere:7611") == "tarry_other"
    assert find_token("unknown.example:7611") is None
    assert find_token(f"unknown.example:7611,elsewhere:7611,{front.address}") == "tarry_other", "the first that has one"
    with Client(f"127.0.0.1:1,{front.address}") as client:
        assert client.whoami().identity == "billing", "an entry is that of all addresses of a list"
    with Client(f"{front.address},unknown.example:7611") as client:
        assert client.whoami().identity == "billing"
    path.write_text(f'["{front.address}"]\ntoken_file = "{known.broker.config.data / "admin.token"}"\n')
    assert who() == "local-admin"
    (own_home / "billing").write_text(known.billing + "\n")
    monkeypatch.setenv("TARRY_TOKEN_FILE", str(own_home / "billing"))
    assert who() == "billing"
    monkeypatch.setenv("TARRY_TOKEN", known.admin)
    assert who() == "admin"
    monkeypatch.delenv("TARRY_TOKEN")
    monkeypatch.setenv("TARRY_TOKEN_FILE", str(own_home / "missing"))
    with pytest.raises(InvalidArgumentError, match="missing cannot be read"):
        who()
    monkeypatch.delenv("TARRY_TOKEN_FILE")
    path.write_text("no toml")
    with pytest.raises(InvalidArgumentError, match=r"credentials\.toml cannot be read"):
        who()


def test_a_program_is_told_once_that_it_has_taken_a_token_of_an_administrator(
    known: Known,
    front: LinkFront,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def told(**given: str) -> list[str]:
        caplog.clear()
        with Client(front.address, **given) as client:  # type: ignore[arg-type]
            client.whoami()
            client.ping()
            with client.consume("orders.a", group="billing", timeout=0.1) as consumer:
                list(consumer)
        return [record.message for record in caplog.records if "token" in record.message]

    monkeypatch.setenv("TARRY_DATA", str(known.broker.config.data))
    [line] = told()
    assert f"{known.broker.config.data / 'admin.token'}" in line
    path = keep_token(front.address, known.admin)
    [line] = told()
    assert "no token was given" in line and str(path) in line
    assert told(token=known.admin) == [], "it was given"
    assert run(["whoami", "--endpoint", front.address]) == 0
    assert not [record for record in caplog.records if "token" in record.message], "people type nothing"
    path.write_text(f'["{front.address}"]\ntoken = "{known.admin}"\n')
    assert told() == [], "an entry that somebody has written"


def test_a_kept_token_is_for_each_name_of_this_machine(own_home: Path) -> None:
    keep_token("127.0.0.1:7611", "one")
    assert [find_token(f"{host}:7611") for host in ("localhost", "127.0.0.1", "[::1]")] == ["one"] * 3
    assert [find_token(address) for address in ("localhost:7612", "broker.example:7611")] == [None, None]
    keep_token("localhost:7611", "two")
    assert [find_token(f"{host}:7611") for host in ("localhost", "127.0.0.1")] == ["two", "one"]


@pytest.mark.parametrize(
    ("flight", "options", "kept"),
    [
        (None, [], "127.0.0.1:7611"),
        ("0.0.0.0:7733", [], "127.0.0.1:7733"),
        ("0.0.0.0:7733", ["--endpoint", "broker.example:7611"], "broker.example:7611"),
        ("0.0.0.0:7733", ["--endpoint", "127.0.0.1:7611"], "127.0.0.1:7611"),
        ("", [], None),
        ("127.0.0.1:0", [], None),
    ],
)
def test_the_token_of_a_stopped_broker_is_kept_for_the_address_of_its_settings(
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flight: str | None,
    options: list[str],
    kept: str | None,
) -> None:
    monkeypatch.delenv("TARRY_ENDPOINT", raising=False)
    if flight is not None:
        monkeypatch.setenv("TARRY_FLIGHT", flight)
    assert run(["identity", "create", "admin", "--all", "--data", "data", *options]) == 0
    path = own_home / "tarry" / "credentials.toml"
    told = capsys.readouterr()
    if kept is None:
        assert "the token was not kept" in told.err and not path.exists()
    else:
        assert tomllib.loads(path.read_text()) == {kept: {"token": told.out.strip(), "admin": True}}


def test_a_token_as_it_is_read_from_a_file(known: Known, front: LinkFront, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(front.address, token=f"{known.billing}\n") as client:
        assert client.whoami().identity == "billing"
    monkeypatch.setenv("TARRY_TOKEN", f" {known.billing}\n")
    with Client(front.address) as client:
        assert client.whoami().identity == "billing"
    with pytest.raises(InvalidArgumentError, match="token is of type bytes; allowed: a text"):
        Client(front.address, token=known.billing.encode())  # type: ignore[arg-type]


def test_status_says_who_is_asked(known: Known) -> None:
    assert known.broker.status()["insecure_open"] == {}
