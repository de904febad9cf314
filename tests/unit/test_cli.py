"""The commands that talk to a broker: a real one, in this process."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of, stdin_is

from tarry.base.config import Config
from tarry.base.errors import CorruptError
from tarry.broker import Broker
from tarry.cli import send as send_module
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0, body_bytes_max=1000)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        yield broker


def test_a_message_there_and_back(broker: Broker, capsys: Captured) -> None:
    arguments = ("--key", "k", "--tag", "t", "-p", "a=1", "-p", "b=x=y", "--ttl", "1h", "--id", "me")
    [sent] = data_of(capsys, "send", "orders", "hällo", *arguments)
    assert (sent["id"], sent["seq"]) == ("me", 0)
    assert len(sent["handle"]) == 50
    [got] = data_of(capsys, "receive", "orders", "--group", "cli", "--wait", "10s")
    assert got["lateness_ms"] >= 0
    expected = {"body": "hällo", "id": "me", "key": "k", "tag": "t", "properties": {"a": "1", "b": "x=y"}, "attempt": 1}
    assert expected.items() <= got.items()
    assert got["due_ms"] == sent["due_ms"]
    assert data_of(capsys, "receive", "orders", "--group", "cli") == []


def test_text_output(broker: Broker, capsys: Captured) -> None:
    assert out_of(capsys, "send", "orders", "x", "--due", "946684801000").startswith(
        "0000000000000000 due 2000-01-01T00:00:01.000Z scheduled AQ"
    )
    assert out_of(capsys, "receive", "orders", "--group", "cli", "--wait", "10s").endswith(" ms  0000000000000000  x\n")
    out_of(capsys, "send", "orders", "y", "--due", "2030-01-01T00:00:00Z")
    lines = out_of(capsys, "pending").splitlines()
    assert lines[0].split() == ["TOPIC", "PENDING", "NEXT", "DUE", "READY"]
    assert lines[1].split() == ["orders", "1", "2030-01-01T00:00:00.000Z", "0"]
    assert "state: serving" in out_of(capsys, "status")


def test_a_body_from_file_and_stdin(
    broker: Broker, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00 two\nlines\n")
    out_of(capsys, "send", "orders", "--file", str(tmp_path / "body"))
    for option in ([], ["--file", "-"]):
        stdin_is(monkeypatch, b"from stdin\n")
        out_of(capsys, "send", "orders", *option)
    got = data_of(capsys, "receive", "orders", "--group", "cli", "--max", "3", "--wait", "10s")
    assert base64.b64decode(got[0]["body_base64"]) == b"\xff\x00 two\nlines\n"
    assert [g["body"] for g in got[1:]] == ["from stdin\n"] * 2


def test_each_line_a_message(broker: Broker, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_module, "READ_BYTES", 7)
    lines = [b"a", b"", b"a long one that takes several reads", b"\xff", b"crlf\r", b"last"]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    arguments = ("send", "orders", "--lines", "--file", str(tmp_path / "lines"), "--tag", "k")
    assert data_of(capsys, *arguments) == [{"accepted": 6, "first_seq": 0, "last_seq": 5}]
    assert out_of(capsys, *arguments) == "6 messages scheduled\n"
    got = data_of(capsys, "receive", "orders", "--group", "cli", "--max", "6", "--wait", "10s")
    bodies = [base64.b64decode(g["body_base64"]) if "body_base64" in g else g["body"].encode() for g in got]
    assert bodies == [b"a", b"", lines[2], b"\xff", b"crlf", b"last"]
    assert {g["tag"] for g in got} == {"k"}
    stdin_is(monkeypatch, b"")
    assert error_of(capsys, "send", "orders", "--lines")[0] == ExitCode.USAGE
    stdin_is(monkeypatch, b"")
    nothing = {"accepted": 0, "first_seq": None, "last_seq": None}
    assert data_of(capsys, "send", "orders", "--lines", "--empty") == [nothing]


def test_a_refused_line_is_named_with_what_was_accepted(
    broker: Broker, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_module, "READ_BYTES", 4)
    (tmp_path / "lines").write_bytes(b"a\nb\nc\n" + b"x" * 1001 + b"\nd\n")
    capsys.readouterr()
    assert run(["send", "orders", "--lines", "--file", str(tmp_path / "lines")]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err
        == "tarry: message_too_large: line 4: body has 1001 bytes; allowed: 1000; accepted: the first 3 lines\n"
    )


def test_a_refused_message(broker: Broker, capsys: Captured) -> None:
    assert run(["send", "orders", "x" * 1001]) == ExitCode.USAGE
    assert capsys.readouterr().err == "tarry: message_too_large: body has 1001 bytes; allowed: 1000\n"
    assert run(["send", "orders", "x", "--id", "i" * 256]) == ExitCode.USAGE
    assert capsys.readouterr().err == "tarry: message_too_large: id has 256 bytes; allowed: 255\n"


def test_without_ack_it_comes_again(broker: Broker, capsys: Captured) -> None:
    out_of(capsys, "send", "orders", "x")
    [first] = data_of(capsys, "receive", "orders", "--group", "cli", "--no-ack", "--wait", "10s")
    assert data_of(capsys, "receive", "orders", "--group", "cli") == []  # its lease holds
    [other] = data_of(capsys, "receive", "orders", "--group", "other")
    assert first["seq"] == other["seq"]


def test_pending_of_some_topics(broker: Broker, capsys: Captured) -> None:
    for topic, due in (("a", "2030-01-01T00:00:00Z"), ("b", "2031-01-01T00:00:00+01:00")):
        out_of(capsys, "send", topic, "x", "--due", due)
    assert [t["topic"] for t in data_of(capsys, "pending")] == ["a", "b"]
    assert data_of(capsys, "pending", "b") == [
        {"topic": "b", "pending": 1, "next_due_ms": 1924988400000, "ready": 0, "next_due": "2030-12-31T23:00:00.000Z"}
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(5, "Input/output error"), ExitCode.FATAL),
        (CorruptError("1.log at offset 32: no valid frame header"), ExitCode.CORRUPT),
    ],
)
def test_status_says_by_its_exit_code_whether_the_broker_serves(
    error: Exception, code: ExitCode, broker: Broker, capsys: Captured
) -> None:
    [status] = data_of(capsys, "status")
    assert status["state"] == "serving"
    broker.components.health.fail(error)
    capsys.readouterr()
    assert run(["status", "--json"]) == code
    assert str(error) in json.loads(capsys.readouterr().out)["fatal"]
    assert run(["send", "orders", "x"]) == code
    assert capsys.readouterr().err.startswith(f"tarry: {code.name.lower()}: ")


def test_dump_shows_a_data_directory(broker: Broker, capsys: Captured) -> None:
    out_of(capsys, "send", "orders", "find me", "--due", "2030-01-01T00:00:00Z")
    data = broker.config.data
    broker.close()
    entries = data_of(capsys, "dump", str(data))
    assert {"file", "frame", "row"} <= {e["what"] for e in entries}
    assert [e["body"] for e in entries if e["what"] == "row" and "body" in e] == ["find me"]
    assert "body=find me" in out_of(capsys, "dump", str(data))
    assert "find me" not in out_of(capsys, "dump", "--no-rows", str(data))


def test_dump_of_a_damaged_file_is_exit_code_4(broker: Broker, capsys: Captured) -> None:
    out_of(capsys, "send", "orders", "x", "--due", "2030-01-01T00:00:00Z")
    broker.close()
    [path] = (broker.config.data / "intake").glob("*.log")
    content = bytearray(path.read_bytes())
    content[-20] ^= 0xFF
    path.write_bytes(content)
    assert "damage" in out_of(capsys, "dump", str(path), code=ExitCode.CORRUPT)


def test_dump_of_nothing(tmp_path: Path, capsys: Captured) -> None:
    for path in (tmp_path, tmp_path / "no.log"):
        assert run(["dump", str(path)]) == ExitCode.FAILED
        assert capsys.readouterr().err.startswith("tarry: not_found: no ")
