"""Push subscriptions where people look: the command line, the status, the metrics."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.metrics.front import MetricsFront
from tests.cli_tools import Captured, data_of, error_of, out_of
from tests.push.receiver import Got, Receiver, Reply
from tests.waiting import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def served(broker: Broker, monkeypatch: pytest.MonkeyPatch):
    with FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        yield broker


def fails_first(got: Got) -> Reply:
    return Reply(500, body=b"why not") if got.attempt == 1 else Reply()


def test_the_command(served: Broker, capsys: Captured, tmp_path: Path) -> None:
    with Receiver(fails_first) as receiver:
        [made] = data_of(capsys, "push", "add", "s", "t", receiver.url, "--retry", "fixed 1ms", "--timeout", "5s")
        assert made["secret"].startswith("whsec_")
        assert (made["timeout_ms"], made["group"], made["state"]) == (5000, "push-s", "running")
        file = tmp_path / "secrets"
        file.write_text(f"{SECRET}\n")
        [changed] = data_of(
            *(
                capsys,
                "push",
                "add",
                "s",
                "--secret-file",
                str(file),
                "--header",
                "Authorization: Bearer x",
                "-H",
                "A:b",
            ),
            *("--concurrency", "2", "--per-second", "100", "--breaker-failures", "5", "--tries", "3", "--filter", "a"),
        )
        assert (changed["secrets"], changed["headers"]) == (1, ["A", "Authorization"])
        assert (changed["concurrency"], changed["per_second"], changed["breaker_failures"]) == (2, 100.0, 5)
        assert "secret" not in changed
        served.schedule("t", b"x", id="m", tag="a")
        wait_until(lambda: served.push_info("s").pushed == 1)
        [shown] = data_of(capsys, "push", "show", "s")
        assert (shown["pushed"], shown["failed"], shown["group_info"]["tries"]) == (1, 1, 3)
        assert shown["duration_us"]["count"] == 2
        said = out_of(capsys, "push", "show", "s")
        assert SECRET not in said and "Bearer" not in said
        assert [i["name"] for i in data_of(capsys, "push", "list")] == ["s"]
        assert data_of(capsys, "push", "list", "other") == []
        assert "the answer was 500" in out_of(capsys, "push", "list")
        shown = data_of(capsys, "push", "attempts", "--id", "m")
        assert [(a["name"], a["attempt"], a["status"], a["answer"]) for a in shown] == [
            ("s", 2, 204, ""),
            ("s", 1, 500, "why not"),
        ]
        assert "the answer was 500" in out_of(capsys, "push", "attempts", "s", "--failed", "-n", "1")
        assert "s: paused (they move)" in out_of(capsys, "push", "pause", "s", "--reason", "they move")
        assert "s: running" in out_of(capsys, "push", "resume", "s")
        assert out_of(capsys, "push", "remove", "s") == ""
        code, text = error_of(capsys, "push", "show", "s")
        assert (code, text) == (ExitCode.FAILED, "not_found: there is no push subscription 's'")


def test_a_test_by_hand(served: Broker, capsys: Captured) -> None:
    with Receiver(lambda _: Reply(202, body=b"hello")) as receiver:
        data_of(capsys, "push", "add", "s", "t", receiver.url)
        assert "pushed: 202 after" in out_of(capsys, "push", "test", "s")
        receiver.behave = lambda _: Reply(500)
        [shown] = data_of(capsys, "push", "test", "s", code=ExitCode.NOT_DONE)
        assert (shown["status"], shown["attempt"]) == (500, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("s", "t", "ftp://x"),
        ("s", "t"),
        ("s", "t", "http://x", "--header", "no colon"),
        ("s", "t", "http://x", "--timeout", "soon"),
        ("s", "t", "http://x", "--secret", SECRET, "--secret-file", "x"),
        ("s", "t", "http://x", "--secret", "hunter2"),
    ],
)
def test_wrong_use(served: Broker, capsys: Captured, arguments: tuple[str, ...]) -> None:
    code, text = error_of(capsys, "push", "add", *arguments)
    assert code == ExitCode.USAGE
    assert "hunter2" not in text and SECRET not in text
    assert served.push_subscriptions() == []


def test_status_and_metrics(broker: Broker) -> None:
    with Receiver(fails_first) as receiver, MetricsFront.start(broker, "127.0.0.1:0") as metrics:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms")
        broker.set_push("p", topic="t", url=receiver.url)
        broker.pause_push("p")
        broker.schedule("t", b"x")
        wait_until(lambda: broker.push_info("s").pushed == 1)
        assert broker.status()["push"] == {"running": 1, "paused": 1}
        with urllib.request.urlopen(f"http://{metrics.address}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert 'tarry_push_requests_total{outcome="pushed",subscription="s"} 1.0' in text
        assert 'tarry_push_requests_total{outcome="failed",subscription="s"} 1.0' in text
        assert 'tarry_push_duration_seconds_count{subscription="s"} 2.0' in text
        assert 'tarry_push_state{state="paused",subscription="p"} 1.0' in text
