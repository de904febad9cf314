"""What a command does not keep to itself: a name that nobody knows, an empty body or name, whose the messages are."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli_tools import Captured, error_of, out_of
from tests.waiting import wait_until

from tarry.base.config import Config
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        broker.schedule("orders", b"x")
        yield broker


@pytest.mark.parametrize(
    "command",
    [["list", "ordesr"], ["peek", "ordesr"], ["forecast", "ordesr"], ["group", "list", "ordesr"]],
    ids=" ".join,
)
@pytest.mark.parametrize("json", [False, True])
def test_a_topic_that_nobody_knows(command: list[str], json: bool, broker: Broker, capsys: Captured) -> None:
    code, text = error_of(capsys, *command, *(["--json"] if json else []))
    assert code == ExitCode.FAILED
    assert text == "not_found: there is no topic 'ordesr'; tarry pending and tarry group list show those that are"


def test_dead_letters_of_a_group_that_nobody_knows(broker: Broker, capsys: Captured) -> None:
    for names in (["orders", "bilings"], ["ordesr", "g"]):
        code, text = error_of(capsys, "dead", "list", *names)
        assert code == ExitCode.FAILED
        assert text == f"not_found: topic {names[0]!r} has no group {names[1]!r}"


def test_a_key_under_which_nothing_is_pending_has_one_exit_code(broker: Broker, capsys: Captured) -> None:
    code, text = error_of(capsys, "find-key", "orders", "none")
    assert (code, text) == (ExitCode.NOT_DONE, "not_found: nothing is pending under key 'none' in topic 'orders'")
    assert "unknown" in out_of(capsys, "cancel", "--key", "orders", "none", code=ExitCode.NOT_DONE)
    broker.schedule("orders", b"x", delay=60, key="k")
    assert "due" in out_of(capsys, "find-key", "orders", "k")


def test_what_is_known_and_empty_prints_nothing(broker: Broker, capsys: Captured) -> None:
    broker.set_group("orders", "billing", tries=5)
    wait_until(lambda: not any(topic.pending for topic in broker.pending()))
    assert out_of(capsys, "list", "orders") == ""
    assert out_of(capsys, "dead", "list", "orders", "billing") == ""


def test_an_empty_body_is_sent_only_if_it_is_asked_for(
    broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stdin() -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b""), isatty=lambda: False))

    stdin()
    assert error_of(capsys, "send", "t") == (
        ExitCode.USAGE,
        "invalid_argument: stdin is empty, so there is no body; allowed: one, or --empty",
    )
    (empty := tmp_path / "empty").touch()
    code, text = error_of(capsys, "send", "t", "--file", str(empty))
    assert (code, str(empty) in text) == (ExitCode.USAGE, True)
    assert not broker.has_topic("t")
    stdin()
    assert run(["send", "t", "--empty"]) == ExitCode.OK
    assert run(["send", "t", ""]) == ExitCode.OK, "it was written"
    assert broker.receive("t", "g", max_messages=5, wait_ms=5000).num_rows >= 1


@pytest.mark.parametrize("option", ["--key", "--id", "--order-key"])
def test_an_empty_name_is_refused(option: str, broker: Broker, capsys: Captured) -> None:
    code, text = error_of(capsys, "send", "t", "body", option, "")
    assert code == ExitCode.USAGE
    assert text == f"invalid_argument: {option} is empty; allowed: a name, or none of it"
    assert not broker.has_topic("t")


def test_an_empty_name_is_no_filter_either(broker: Broker, capsys: Captured) -> None:
    assert error_of(capsys, "list", "orders", "--key", "")[0] == ExitCode.USAGE


def test_who_names_no_group_is_told_whose_the_messages_are(broker: Broker, capsys: Captured) -> None:
    capsys.readouterr()
    assert run(["receive", "orders", "--wait", "20s"]) == ExitCode.OK
    said = capsys.readouterr()
    assert said.out.endswith("  x\n")
    assert said.err == "no --group: messages are acknowledged as group 'cli'; tarry peek orders looks without taking\n"
    assert run(["receive", "orders", "--group", "billing", "--wait", "20s"]) == ExitCode.OK
    said = capsys.readouterr()
    assert (said.out[-2:], said.err) == ("x\n", "")


@pytest.mark.parametrize("json", [False, True])
def test_settings_of_a_topic_that_nobody_knows(json: bool, broker: Broker, capsys: Captured) -> None:
    more = ["--json"] if json else []
    assert error_of(capsys, "topic", "show", "ordesr", *more) == (
        ExitCode.FAILED,
        "not_found: there is no topic 'ordesr'; tarry pending and tarry group list show those that are",
    )
    assert not broker.has_topic("ordesr")
    broker.set_topic("ordesr", late="dead")
    assert "ordesr" in out_of(capsys, "topic", "show", "ordesr", *more)


def test_who_waits_for_a_topic_that_nobody_knows_is_told_once(broker: Broker, capsys: Captured) -> None:
    said = "there is no topic 'ordesr' yet; tarry pending and tarry group list show those that are\n"
    waits = ["receive", "ordesr", "--group", "g", "--max", "2", "--wait", "10s"]
    threading.Thread(target=lambda: [wait_until(lambda: broker.has_topic("ordesr")), send_two(broker)]).start()
    assert run(waits) == ExitCode.OK
    got = capsys.readouterr()
    assert got.out.count("  x\n") == 2, "it waits, as ever"
    assert got.err == said
    assert run([*waits[:4], "--json"]) == ExitCode.OK
    assert capsys.readouterr().err == "", "it is known now"


def send_two(broker: Broker) -> None:
    for _ in range(2):
        broker.schedule("ordesr", b"x")
