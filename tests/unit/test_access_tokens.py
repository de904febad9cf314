"""Access tokens: what is kept and told, and what is refused; and ``tarry token``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of, stdin_is

from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.fronts.flight.front import FlightFront
from tarry.testing import open_broker

SECRET = "correct-horse-battery-staple"


def test_a_token_survives_and_its_secret_is_nowhere(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        made = broker.create_token("orders", "billing")
        other = broker.create_token("orders", secret=SECRET)
        assert len(made.secret) >= 32
        assert (other.secret, other.namespace, other.description) == (SECRET, "orders", "")
        limited = broker.limit_token(other.id, reads_max=5, interval_ms=2000)
        assert (limited.reads_max, limited.writes_max, limited.interval_ms) == (5, 0, 2000)
    with open_broker(tmp_path, clock=clock) as broker:
        first, second = broker.tokens()
        assert (first.id, first.namespace, first.description) == (made.id, "orders", "billing")
        assert [each.digest for each in (first, second, limited)] == ["", "", ""]
        assert broker.access_tokens[0].digest == hashlib.sha256(made.secret.encode()).hexdigest()
        assert (first.created_ms, first.interval_ms) == (clock.now_ms(), 0)
        assert second == limited
        before = broker.access_tokens
        broker.delete_token(made.id)
        assert broker.access_tokens is not before
        assert broker.tokens() == [limited]
        assert broker.limit_token(other.id).interval_ms == 0
    with open_broker(tmp_path, clock=clock) as broker:
        assert [t.id for t in broker.tokens()] == [other.id]
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert made.secret.encode() not in everything
    assert SECRET.encode() not in everything


def test_the_same_secret_in_two_namespaces(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        a = broker.create_token("a", secret=SECRET)
        b = broker.create_token("b", secret=SECRET)
        assert a.id != b.id
        with pytest.raises(InvalidArgumentError, match="has a token of this secret"):
            broker.create_token("a", secret=SECRET)
        broker.delete_token(a.id)
        assert [t.namespace for t in broker.tokens()] == ["b"]
        assert broker.tokens("a") == []
        assert [t.id for t in broker.tokens("b")] == [b.id]


@pytest.mark.parametrize(
    ("namespace", "description", "secret"),
    [
        ("", "", None),
        ("a/b", "", None),
        ("a" * 256, "", None),
        ("a", "x" * 256, None),
        ("a", "two\nlines", None),
        ("a", "", "x" * 19),
        ("a", "", "x" * 256),
        ("a", "", "with a space in between"),
        ("a", "", "with-ümlauts-in-between"),
    ],
)
def test_what_is_refused(namespace: str, description: str, secret: str | None, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        with pytest.raises(InvalidArgumentError, match="allowed") as refused:
            broker.create_token(namespace, description, secret)
        assert secret is None or secret not in str(refused.value)
        assert broker.tokens() == []


def test_limits_that_are_refused(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        made = broker.create_token()
        for limits in ({"reads_max": -1}, {"writes_max": 1 << 54}, {"reads_max": 1, "interval_ms": 0}):
            with pytest.raises(InvalidArgumentError, match="allowed"):
                broker.limit_token(made.id, **limits)
        for call in (broker.limit_token, broker.delete_token):
            with pytest.raises(NotFoundError, match="no access token 'none'"):
                call("none")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.create_token()
    path = tmp_path / "tokens.json"
    content = json.loads(path.read_text())
    content["tokens"][0]["namespace"] = "other"
    path.write_text(json.dumps(content))
    with pytest.raises(CorruptError, match=r"tokens\.json"), open_broker(tmp_path):
        pass


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        yield broker


def test_the_command(broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    [made] = data_of(capsys, "token", "create", "orders", "--description", "billing service")
    assert made["namespace"] == "orders"
    stdin_is(monkeypatch, SECRET.encode() + b"\n")
    assert out_of(capsys, "token", "create", "--secret", "-").strip() == SECRET
    assert [(t["namespace"], t["description"]) for t in data_of(capsys, "token", "list")] == [
        ("orders", "billing service"),
        ("*", ""),
    ]
    limit = ("token", "limit", made["id"], "--reads", "100", "--writes", "1000", "--interval", "5s")
    assert out_of(capsys, *limit) == f"{made['id']} of orders: 100 reads, 1,000 writes in 5,000 ms\n"
    shown = out_of(capsys, "token", "list", "orders")
    assert "100 reads, 1,000 writes in 5,000 ms" in shown
    assert made["secret"] not in shown
    assert broker.access_tokens[0].digest not in shown + out_of(capsys, "token", "list", "--json")
    assert out_of(capsys, "token", "delete", made["id"]) == ""
    assert error_of(capsys, "token", "delete", made["id"])[0] == ExitCode.FAILED
    assert error_of(capsys, "token", "create", "--secret", SECRET)[0] == ExitCode.USAGE
    assert error_of(capsys, "token", "create", "no/namespace")[0] == ExitCode.USAGE
