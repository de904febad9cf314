"""``tarry group``, ``topic`` and ``dead``; a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of

from tarry.base.config import Config
from tarry.broker import Broker
from tarry.cli import dead
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront

OLD_MS = 946_684_801_000
"""A second into 2000: long ago, and allowed."""


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        yield broker


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """One broker for all that is refused, since nothing of it is kept, and its address."""
    config = Config(data=tmp_path_factory.mktemp("common") / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        yield broker, front.address


@pytest.fixture
def common(served: tuple[Broker, str], monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setenv("TARRY_ENDPOINT", served[1])
    return served[0]


def make_dead(broker: Broker, bodies: list[bytes]) -> None:
    """Let group g of topic t fail on messages, with one try each."""
    broker.set_group("t", "g", tries=1)
    for number, body in enumerate(bodies):
        broker.schedule("t", body, properties={"n": str(number)}, due=OLD_MS + number)
        batch = broker.receive("t", "g", wait_ms=20_000)
        broker.nack("t", "g", batch.column("lease").to_numpy(), batch.column("offset").to_numpy())
    while broker.group_info("t", "g").dead < len(bodies):
        pass  # the copies are made after the answer


def test_groups(broker: Broker, capsys: Captured) -> None:
    retry = "exponential 1s max 10m jitter 0.2"
    [made] = data_of(
        *(capsys, "group", "set", "t", "g", "--tries", "5", "--retry", retry, "--filter", "a || b", "--ordered"),
        *("--inflight-max", "7", "--lease", "90"),
    )
    expected = {"tries": 5, "retry": retry, "filter": "a || b", "ordered": True, "inflight_max": 7, "lease_ms": 90_000}
    assert expected.items() <= made.items()
    assert data_of(capsys, "group", "show", "t", "g") == [made]
    [changed] = data_of(capsys, "group", "set", "t", "g", "--not-ordered", "--filter", "", "--lease", "0")
    assert {"tries": 5, "ordered": False, "filter": "*", "lease_ms": 30_000}.items() <= changed.items()
    shown = out_of(capsys, "group", "show", "t", "g")
    assert f"retry: {retry}" in shown
    assert "oldest_due_ms: -" in shown
    out_of(capsys, "group", "set", "u", "h", "--start", "latest")
    assert [(g["topic"], g["group"]) for g in data_of(capsys, "group", "list")] == [("t", "g"), ("u", "h")]
    assert [g["group"] for g in data_of(capsys, "group", "list", "u")] == ["h"]
    assert error_of(capsys, "group", "list", "none")[0] == ExitCode.FAILED
    assert out_of(capsys, "group", "delete", "t", "g") == ""
    assert len(data_of(capsys, "group", "list")) == 1


def test_the_list_of_groups(broker: Broker, capsys: Captured) -> None:
    broker.schedule("t", b"", due=OLD_MS)
    broker.receive("t", "g", wait_ms=20_000)
    broker.schedule("t", b"", due=OLD_MS + 1000)
    out_of(capsys, "group", "pause", "t", "g")
    while broker.group_info("t", "g").lag < 2:
        pass  # the second is on its way from the wheel
    head, line = out_of(capsys, "group", "list").splitlines()
    assert head.split() == ["TOPIC", "GROUP", "STATE", "LAG", "LEASED", "WAITING", "DEAD", "OLDEST", "DUE"]
    assert line.split() == ["t", "g", "paused", "2", "1", "0", "0", "2000-01-01T00:00:01.000Z"]
    assert data_of(capsys, "group", "list")[0]["oldest_due"] == "2000-01-01T00:00:01.000Z"


def test_pause_and_resume(broker: Broker, capsys: Captured) -> None:
    broker.set_group("t", "g")
    assert out_of(capsys, "group", "pause", "t", "g") == "g of t is paused; lag 0\n"
    assert data_of(capsys, "group", "pause", "t", "g")[0]["paused"] is True
    assert out_of(capsys, "group", "resume", "t", "g") == "g of t runs; lag 0\n"
    assert broker.group_info("t", "g").paused is False


def test_seek(broker: Broker, capsys: Captured) -> None:
    for number in range(3):
        broker.schedule("t", b"%d" % number, due=OLD_MS + 1000 * number)
    out_of(capsys, "receive", "t", "--group", "g", "--max", "3", "--wait", "20s")
    assert out_of(capsys, "group", "seek", "t", "g", "2000-01-01T00:00:02Z") == "2 ready messages are ahead\n"
    assert [m["body"] for m in data_of(capsys, "receive", "t", "-g", "g", "--max", "3")] == ["1", "2"]
    assert data_of(capsys, "group", "seek", "t", "g", "earliest") == [{"topic": "t", "group": "g", "ahead": 3}]
    assert data_of(capsys, "group", "seek", "t", "g", str(OLD_MS + 2000))[0]["ahead"] == 1
    assert data_of(capsys, "group", "seek", "t", "g", "latest")[0]["ahead"] == 0


def test_where_a_new_group_begins(broker: Broker, capsys: Captured) -> None:
    broker.schedule("t", b"x", due=OLD_MS)
    out_of(capsys, "receive", "t", "--group", "first", "--wait", "20s")
    assert data_of(capsys, "receive", "t", "--group", "late", "--start", "latest") == []
    assert data_of(capsys, "receive", "t", "--group", "late") == []
    assert data_of(capsys, "receive", "t", "--group", "all", "--broadcast", "me") == []
    [got] = data_of(capsys, "receive", "t", "--group", "all", "--broadcast", "you", "--start", "earliest")
    assert got["body"] == "x"
    assert [g["group"] for g in data_of(capsys, "group", "list", "t")] == ["all@me", "all@you", "first", "late"]
    assert broker.group_info("t", "all@you").lag == 0


def test_topics(broker: Broker, capsys: Captured) -> None:
    broker.schedule("t", b"x", delay="1h")
    assert data_of(capsys, "topic", "show", "t") == [
        {"topic": "t", "late": "drop", "lateness_ms_max": None, "ordered": False, "declared": False}
        | {"max_per_second": 0, "queues": 0}
    ]
    [changed] = data_of(capsys, "topic", "set", "t", "--late", "dead", "--lateness-max", "10m")
    assert changed == {
        "topic": "t",
        "late": "dead",
        "lateness_ms_max": 600_000,
        "ordered": False,
        "declared": False,
        "max_per_second": 0,
        "queues": 0,
    }
    shown = (
        "topic: t\nlate: dead\nlateness_ms_max: 600000\nordered: False\ndeclared: False\nmax_per_second: 0\nqueues: 0\n"
    )
    assert out_of(capsys, "topic", "show", "t") == shown
    assert data_of(capsys, "topic", "set", "t", "--ordered", "--declared")[0]["ordered"] is True
    assert data_of(capsys, "topic", "set", "t", "--lateness-max", "none")[0]["lateness_ms_max"] is None


def test_a_topic_tells_what_is_late_at_all(broker: Broker, capsys: Captured) -> None:
    broker.schedule("t", b"x", delay="1h")
    shown = out_of(capsys, "topic", "show", "t").splitlines()
    assert shown[1:3] == ["late: drop, once its ttl has passed; without a ttl it is delivered", "lateness_ms_max: none"]
    changed = out_of(capsys, "topic", "set", "t", "--late", "dead").splitlines()
    assert changed[1] == "late: dead, once its ttl has passed; without a ttl it is delivered"
    assert out_of(capsys, "topic", "set", "t", "--late", "deliver").splitlines()[1] == "late: deliver"
    assert out_of(capsys, "topic", "set", "t", "--late", "drop", "--lateness-max", "0").splitlines()[1] == "late: drop"


def test_dead_letters(broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "PAGE_ROWS", 2)
    make_dead(broker, [b"zero", b"one", b"\xff", b"three", b"four"])
    dead_letters = data_of(capsys, "dead", "list", "t", "g")
    assert [dead_letter.get("body") for dead_letter in dead_letters] == ["zero", "one", None, "three", "four"]
    first = dead_letters[0]
    assert (first["cause"], first["attempt"], first["due_ms"], first["id"]) == ("tries", 1, OLD_MS, "0" * 16)
    assert first["properties"] == {"n": "0"}
    assert first["died_ms"] > OLD_MS
    assert dead_letters[2]["body_base64"] == "/w=="
    lines = out_of(capsys, "dead", "list", "t", "g", "--limit", "3").splitlines()
    assert [line.split("  ")[0] for line in lines] == [str(dead_letter["offset"]) for dead_letter in dead_letters[:3]]
    assert lines[0].split("  ")[1:] == [first["died"], "tries", "1", "0" * 16, "zero"]
    assert lines[2].endswith("b'\\xff'")
    offsets = [str(dead_letter["offset"]) for dead_letter in dead_letters]
    assert len(data_of(capsys, "dead", "list", "t", "g", "--after", offsets[3])) == 1
    assert out_of(capsys, "dead", "purge", "t", "g", "--offset", offsets[0]) == "1 purged\n"
    broker.set_group("t", "g", tries=0)
    chosen = ("--offset", offsets[1], "--offset", offsets[3])
    assert data_of(capsys, "dead", "respawn", "t", "g", *chosen) == [{"respawned": 2}]
    got = data_of(capsys, "receive", "t", "--group", "g", "--max", "2", "--wait", "20s")
    assert [(m["body"], m["attempt"]) for m in got] == [("one", 1), ("three", 1)]
    assert out_of(capsys, "dead", "respawn", "t", "g", "--limit", "1", "--per-second", "100") == "1 respawned\n"
    assert data_of(capsys, "dead", "purge", "t", "g", "--all") == [{"purged": 1}]
    assert out_of(capsys, "dead", "list", "t", "g") == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["group", "set", "t", "g", "--retry", "soon"], "soon"),
        (["group", "set", "t", "g", "--tries", "-1"], "tries is -1; allowed: 0 (no limit) to "),
        (["group", "set", "t", "g", "--lease", "soon"], "--lease: not a duration"),
        (["group", "set", "t", "g", "--filter", "sql: a >"], "a >"),
        (["group", "set", "t", "g", "--start", "middle"], "start is 'middle'"),
        (["group", "set", "t t", "g"], "'t t' is not a topic name"),
        (["group", "set", "t"], "Missing argument"),
        (["group", "seek", "t", "g", "middle"], "seek to 'middle'; allowed"),
        (["group", "seek", "t", "g", "2026-01-01"], "is not an instant"),
        (["group", "seek", "t", "g", "12 o'clock"], 'TO "12 o\'clock" is not an instant'),
        (["group", "renew"], "No such command 'renew'"),
        (["topic", "set", "t", "--late", "never"], "late is 'never'"),
        (["topic", "set", "t", "--lateness-max", "soon"], "--lateness-max: not a duration"),
        (["topic", "set", "%DLQ%t/g", "--late", "drop"], "dead letters"),
        (["dead", "respawn", "t", "g"], "allowed: one of --all, --offset, --limit"),
        (["dead", "respawn", "t", "g", "--all", "--limit", "1"], "allowed: one of --all, --offset, --limit"),
        (["dead", "respawn", "t", "g", "--all", "--per-second", "0"], "per_second is 0"),
        (["dead", "respawn", "t", "g", "--all", "--per-second", "nan"], "cannot be sent"),
        (["dead", "purge", "t", "g"], "allowed: one of --all, --offset, --limit"),
        (["dead", "list", "t", "g", "--limit", "0"], "Invalid value"),
        (["receive", "t", "--start", "middle"], "start is 'middle'"),
        (["receive", "t", "--broadcast", "a@b"], "'@'"),
    ],
)
def test_wrong_usage(arguments: list[str], problem: str, common: Broker, capsys: Captured) -> None:
    common.set_group("t", "g")
    code, text = error_of(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert problem in text


@pytest.mark.parametrize("command", ["show", "pause", "resume", "delete"])
def test_a_group_that_is_not_there(command: str, broker: Broker, capsys: Captured) -> None:
    code, text = error_of(capsys, "group", command, "t", "g")
    assert code == ExitCode.FAILED
    assert text.startswith("not_found: topic 't' has no group 'g'")


PARTS = {
    "group": ("list", "show", "set", "pause", "resume", "seek", "delete"),
    "topic": ("show", "set"),
    "dead": ("list", "respawn", "purge"),
}


@pytest.mark.parametrize(("part", "command"), [(part, command) for part, all in PARTS.items() for command in all])
def test_help_shows_examples(part: str, command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run([part, command, "--help"]) == 0
    assert f"tarry {part} {command}" in capsys.readouterr().out.split("Options")[0].split("Usage", 1)[1]
