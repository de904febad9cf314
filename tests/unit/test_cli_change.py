"""``tarry cancel``, ``reschedule``, ``find-key``, and what ``send`` says of keys and recurrence; a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of, stdin_is

from tarry.api.outcome import Outcome
from tarry.base.config import Config
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront


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


def send(capsys: Captured, *arguments: str) -> dict[str, object]:
    [sent] = data_of(capsys, "send", "orders", *arguments)
    return dict(sent)


def handle_of(capsys: Captured, body: str = "x") -> str:
    return str(send(capsys, body, "--delay", "1h")["handle"])


def test_cancel(broker: Broker, capsys: Captured) -> None:
    one, two = handle_of(capsys), handle_of(capsys)
    assert out_of(capsys, "cancel", one) == f"done       {one}\n"
    assert data_of(capsys, "cancel", one, two, code=ExitCode.NOT_DONE) == [
        {"handle": one, "outcome": "cancelled"},
        {"handle": two, "outcome": "done"},
    ]
    assert broker.pending()[0].pending == 0


def test_cancel_what_was_delivered(broker: Broker, capsys: Captured) -> None:
    sent = send(capsys, "x")
    assert len(data_of(capsys, "receive", "orders", "--group", "cli", "--wait", "10s")) == 1
    assert out_of(capsys, "cancel", str(sent["handle"]), code=ExitCode.NOT_DONE).startswith("delivered  ")


@pytest.mark.parametrize("way", ["-", "--file=-", "file"])
def test_handles_from_a_file(
    way: str, broker: Broker, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [handle_of(capsys) for _ in range(3)]
    content = "\n".join([handles[0], "", f" {handles[1]}\r", handles[2]]).encode()
    (tmp_path / "handles").write_bytes(content)
    stdin_is(monkeypatch, content)
    source = f"--file={tmp_path / 'handles'}" if way == "file" else way
    assert [answer["outcome"] for answer in data_of(capsys, "cancel", source)] == ["done"] * 3
    stdin_is(monkeypatch, b"")
    assert out_of(capsys, "cancel", "-") == ""


def test_a_bad_line_is_named_and_nothing_is_cancelled(
    broker: Broker, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = handle_of(capsys)
    for bad, problem in (
        (b"nonsense", "not a handle: 'nonsense'"),
        (b"\xff\xfe", "not a handle"),
        (b"x" * 2000, "1000 bytes"),
    ):
        stdin_is(monkeypatch, good.encode() + b"\n\n" + bad + b"\n")
        code, text = error_of(capsys, "cancel", "-")
        assert code == ExitCode.USAGE
        assert text.startswith("invalid_argument: line 3")
        assert problem in text
    code, text = error_of(capsys, "cancel", good, "nonsense")
    assert text.startswith("invalid_argument: not a handle: 'nonsense'")
    assert text.endswith("nothing was cancelled")
    code, text = error_of(capsys, "cancel", "-f", str(tmp_path / "no"))
    assert (code, text) == (ExitCode.FAILED, f"os_error: {tmp_path / 'no'}: No such file or directory")
    assert broker.pending()[0].pending == 1


def test_a_handle_of_another_broker(broker: Broker, capsys: Captured, tmp_path: Path) -> None:
    with Broker.open(Config(data=tmp_path / "other", pipeline="off", disk_free_bytes_min=0)) as other:
        foreign = other.schedule("orders", b"", delay=60).handle
    code, text = error_of(capsys, "cancel", foreign)
    assert code == ExitCode.USAGE
    assert text.startswith("forged_handle: ")


def test_keys(broker: Broker, capsys: Captured) -> None:
    first = send(capsys, "a", "--delay", "1h", "--key", "k")
    assert first["outcome"] == "scheduled"
    second = send(capsys, "b", "--delay", "2h", "--key", "k")
    assert second["outcome"] == "replaced"
    kept = send(capsys, "c", "--key", "k", "--on-key", "keep")
    assert (kept["outcome"], kept["seq"], kept["due_ms"]) == ("kept", second["seq"], second["due_ms"])
    code, text = error_of(capsys, "send", "orders", "d", "--key", "k", "--on-key", "refuse")
    assert code == ExitCode.NOT_DONE
    assert text.startswith("key_exists: ")
    conditions = (("k", "--if-seq", str(first["seq"]), "changed"), ("x", "--on-key", "if_pending", "not_pending"))
    for key, option, value, outcome in conditions:
        sending = ("send", "orders", "e", "--key", key, option, value)
        assert [each["outcome"] for each in data_of(capsys, *sending, code=ExitCode.NOT_DONE)] == [outcome]
    [found] = data_of(capsys, "find-key", "orders", "k")
    assert (found["seq"], found["due_ms"], found["id"]) == (second["seq"], second["due_ms"], second["id"])
    assert str(found["handle"]) in out_of(capsys, "find-key", "orders", "k")
    assert data_of(capsys, "cancel", "--key", "orders", "k") == [{"topic": "orders", "key": "k", "outcome": "done"}]
    assert out_of(capsys, "cancel", "--key", "orders", "k", code=ExitCode.NOT_DONE) == "cancelled  orders k\n"
    assert out_of(capsys, "cancel", "--key", "orders", "?", code=ExitCode.NOT_DONE) == "unknown    orders ?\n"
    code, text = error_of(capsys, "find-key", "orders", "k")
    assert (code, text) == (ExitCode.NOT_DONE, "not_found: nothing is pending under key 'k' in topic 'orders'")


def test_all_of_a_topic(broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.cli.topic_cancelling.PAGE_ROWS", 2)
    for _ in range(5):
        handle_of(capsys)
    [other] = data_of(capsys, "send", "others", "x", "--delay", "1h")
    said = out_of(capsys, "cancel", "--topic", "orders", "--all")
    assert said == "done       orders  5 of 5 messages\n"
    [left] = data_of(capsys, "list")
    assert left["id"] == other["id"]
    [again] = data_of(capsys, "cancel", "--topic", "orders", "--all")
    assert again == {"topic": "orders", "outcome": "done", "cancelled": 0, "messages": 0}
    code, text = error_of(capsys, "cancel", "--topic", "order", "--all")
    assert (code, text.startswith("not_found: there is no topic 'order'")) == (ExitCode.FAILED, True)


def test_what_is_delivered_while_a_topic_is_cancelled_is_counted(
    broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = handle_of(capsys), handle_of(capsys)
    cancel_many = Client.cancel_many

    def somebody_was_faster(client: Client, handles: list[str]) -> list[Outcome]:
        broker.cancel(first)
        return cancel_many(client, handles)

    monkeypatch.setattr(Client, "cancel_many", somebody_was_faster)
    said = out_of(capsys, "cancel", "--topic", "orders", "--all", code=ExitCode.NOT_DONE)
    assert said == "cancelled  orders  1 of 2 messages\n"


def test_a_topic_narrows_handles_and_keys(
    broker: Broker, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, [foreign] = handle_of(capsys), data_of(capsys, "send", "others", "x", "--delay", "1h")
    code, text = error_of(capsys, "cancel", "--topic", "orders", one, str(foreign["handle"]))
    assert code == ExitCode.USAGE
    assert text == (
        f"invalid_argument: handle {foreign['handle']} is of a message in topic 'others'; allowed: of topic 'orders'; "
        "nothing was cancelled"
    )
    stdin_is(monkeypatch, f"{one}\n\n{foreign['handle']}\n".encode())
    assert "line 3: " in error_of(capsys, "cancel", "--topic", "orders", "-")[1]
    assert sum(each.pending for each in broker.pending()) == 2
    assert out_of(capsys, "cancel", "--topic", "orders", one) == f"done       {one}\n"
    send(capsys, "x", "--delay", "1h", "--key", "k")
    code, text = error_of(capsys, "cancel", "--topic", "others", "--key", "orders", "k")
    assert (code, "--key is of topic 'orders', and --topic is 'others'" in text) == (ExitCode.USAGE, True)
    assert out_of(capsys, "cancel", "-t", "orders", "--key", "orders", "k") == "done       orders k\n"


def test_a_second_sending_is_known_by_its_id(broker: Broker, capsys: Captured) -> None:
    first = send(capsys, "a", "--delay", "1h", "--id", "i")
    second = send(capsys, "a", "--delay", "1h", "--id", "i")
    assert second == {**first, "outcome": "duplicate"}


def test_reschedule(broker: Broker, capsys: Captured) -> None:
    old = handle_of(capsys)
    [moved] = data_of(capsys, "reschedule", old, "--due", "2030-01-01T00:00:00Z")
    assert (moved["outcome"], moved["due"]) == ("done", "2030-01-01T00:00:00.000Z")
    assert data_of(capsys, "reschedule", old, "--delay", "1m", code=ExitCode.NOT_DONE) == [{"outcome": "cancelled"}]
    assert out_of(capsys, "reschedule", old, "--delay", "1m", code=ExitCode.NOT_DONE) == "cancelled\n"
    [again] = data_of(capsys, "reschedule", moved["handle"], "--delay", "90.5")
    [third] = data_of(capsys, "reschedule", again["handle"], "--level", "18")
    assert 7_000_000 < third["due_ms"] - again["due_ms"] <= 7_200_000
    send(capsys, "x", "--delay", "1h", "--key", "k")
    shown = out_of(capsys, "reschedule", "--key", "orders", "k", "--due", "1893456000000")
    assert " due 2030-01-01T00:00:00.000Z done AQ" in shown
    assert out_of(capsys, "reschedule", "--key", "orders", "?", "--delay", "1", code=ExitCode.NOT_DONE) == "unknown\n"


def test_recurrence(broker: Broker, capsys: Captured) -> None:
    sent = send(capsys, "x", "--every", "1h", "--times", "3", "--delay", "1h")
    assert data_of(capsys, "cancel", str(sent["handle"]))[0]["outcome"] == "done"
    cron = send(capsys, "x", "--cron", "30 6 1 1 *", "--zone", "Europe/Berlin", "--until", "2040-01-01T00:00:00Z")
    assert str(cron["due"]).endswith("-01-01T05:30:00.000Z")
    rule = json.dumps({"every": "1s", "factor": 2, "times": 2})
    send(capsys, "again", "--repeat", rule, "--delay", "100ms")
    got = [data_of(capsys, "receive", "orders", "--group", "cli", "--wait", "20s")[0] for _ in range(2)]
    assert [g["body"] for g in got] == ["again", "again"]
    assert got[1]["due_ms"] - got[0]["due_ms"] == 1000
    assert got[0]["seq"] != got[1]["seq"]


def test_a_level_is_the_broker_s(broker: Broker, capsys: Captured) -> None:
    before = broker.clock.now_ms()
    assert 600_000 <= int(str(send(capsys, "x", "--level", "14")["due_ms"])) - before < 660_000


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--every", "1m", "--cron", "* * * * *"], "both of every and cron"),
        (["--repeat", '{"every": 60}', "--times", "3"], "--repeat and --times are both given"),
        (["--times", "3"], "--times without --every or --cron"),
        (["--zone", "Europe/Berlin", "--every", "1m"], "zone"),
        (["--every", "soon"], "--every: not a duration"),
        (["--every", "1ms"], "every"),
        (["--cron", "61 * * * *"], "61"),
        (["--cron", "* * * * *", "--zone", "Europe/Atlantis"], "Atlantis"),
        (["--cron", "* * * * *", "--until", "soon"], "--until 'soon' is not an instant"),
        (["--repeat", "soon"], "repeat"),
        (["--level", "3", "--delay", "1s"], "--delay 1s and --level 3 are both given"),
        (["--on-key", "keep"], "--on-key keep without --key"),
        (["--key", "k", "--on-key", "drop"], "on_key is 'drop'; allowed: replace, keep, refuse"),
        (["--late", "never"], "late is 'never'; allowed: deliver, drop, dead"),
        (["--order-key", "x" * 256], "256 bytes"),
        (["-p", "tarry.late=drop"], "reserved"),
    ],
)
def test_what_send_refuses(arguments: list[str], problem: str, common: Broker, capsys: Captured) -> None:
    code, text = error_of(capsys, "send", "orders", "x", *arguments)
    assert code == ExitCode.USAGE
    assert problem in text
    assert "row 0" not in text
    assert common.pending() == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cancel"], "exactly one of them"),
        (["cancel", "h", "--key", "t", "k"], "exactly one of them"),
        (["cancel", "h", "--file", "f"], "exactly one of them"),
        (["cancel", "--topic", "t"], "allowed: handles, or --file, or --key TOPIC KEY, or --all"),
        (["cancel", "--all"], "--all is given without --topic"),
        (["cancel", "--topic", "", "--all"], "--topic is empty"),
        (["cancel", "--topic", "t t", "--all"], "'t t' is not a topic name"),
        (["cancel", "--topic", "t", "--all", "h"], "exactly one of them"),
        (["cancel", "--topic", "t", "h"], "A-Z a-z 0-9 - _; nothing was cancelled"),
        (["cancel", "--topic", "t", "--job", "j"], "--job and --topic are both given"),
        (["cancel", "--key", "t"], "requires 2 arguments"),
        (["cancel", "--key", "t t", "k"], "'t t' is not a topic name"),
        (["cancel", "--key", "t", ""], "allowed: a text of 1 to 255 bytes"),
        (["reschedule", "--delay", "1"], "exactly one of them"),
        (["reschedule", "h", "--key", "t", "k", "--delay", "1"], "exactly one of them"),
        (["reschedule", "h"], "no new time; allowed"),
        (["reschedule", "h", "--delay", "1"], "not a handle: 'h'"),
        (["reschedule", "h", "--delay", "1", "--due", "5"], "are both given"),
        (["reschedule", "--key", "t", "k", "--delay", "50000d"], "limit"),
        (["find-key", "t"], "Missing argument"),
        (["find-key", "t t", "k"], "'t t' is not a topic name"),
    ],
)
def test_wrong_usage(arguments: list[str], problem: str, common: Broker, capsys: Captured) -> None:
    code, text = error_of(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert problem in text


def test_a_bulk_job(broker: Broker, capsys: Captured) -> None:
    assert out_of(capsys, "jobs") == ""
    attempt = broker.components.bulk.begin("nightly")
    due = pa.array([broker.clock.now_ms() + 3_600_000] * 3)
    rows = pa.record_batch({"topic": ["a", "a", "b"], "due_ms": due, "body": [b"x"] * 3})
    broker.components.bulk.commit(attempt.number, *broker.components.bulk.stage(attempt.number, [rows]))
    assert out_of(capsys, "jobs") == "committed              3  nightly  a, b\n"
    assert data_of(capsys, "jobs", "nightly")[0]["topics"] == {"a": 2, "b": 1}
    assert out_of(capsys, "cancel", "--job", "nightly") == "done       nightly  3 of 3 messages\n"
    again = data_of(capsys, "cancel", "--job", "nightly", code=ExitCode.NOT_DONE)
    assert again == [{"job": "nightly", "outcome": "cancelled", "cancelled": 0, "rows": 3}]
    assert "nothing is known of job 'other'" in error_of(capsys, "jobs", "other")[1]
