"""``tarry list``, ``peek``, ``forecast`` and ``top``: with a real broker in this process, and frames by themselves."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.waiting import wait_until

from tarry.base.config import Config
from tarry.base.delay import format_ms
from tarry.base.errors import CorruptError, UnavailableError
from tarry.base.histogram import Histogram
from tarry.broker import Broker
from tarry.cli import top as top_module
from tarry.cli.exits import ExitCode
from tarry.cli.frame import frame, lost, rate, since, size, span
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        yield broker


def out_of(capsys: Captured, *arguments: str, err: str = "") -> str:
    capsys.readouterr()
    assert run(arguments) == 0
    said = capsys.readouterr()
    assert re.fullmatch(err, said.err), said.err
    return said.out


def data_of(capsys: Captured, *arguments: str, err: str = "") -> list[Any]:
    return [json.loads(line) for line in out_of(capsys, *arguments, "--json", err=err).splitlines()]


def test_history(broker: Broker, capsys: Captured) -> None:
    receipt = broker.schedule("orders", b"x", delay=3600, id="m")
    lines = out_of(capsys, "history", receipt.handle).splitlines()
    assert [line.split()[2] for line in lines] == ["accepted", "pending"]
    assert lines[1].startswith(format_ms(receipt.due_ms))
    [history] = data_of(capsys, "history", "m", "--topic", "orders")
    assert [e["event"] for e in history["events"]] == ["accepted", "pending"]
    assert history["events"][1]["at"] == format_ms(receipt.due_ms)
    assert run(["history", "never", "--topic", "orders"]) == ExitCode.NOT_DONE
    assert "not known: Nothing is known of it" in capsys.readouterr().err
    assert run(["history", "never", "--accepted", "a.jsonl"]) == ExitCode.USAGE


def test_list(broker: Broker, capsys: Captured) -> None:
    for n in range(5):
        broker.schedule("orders", f"body {n}", delay=3600 + n, id=f"i{n}", key=f"k{n}", properties={"n": str(n)})
    broker.schedule("other", b"\xff", delay=7200, tag="vip")
    rows = data_of(capsys, "list")
    assert [r["id"] for r in rows[:5]] == [f"i{n}" for n in range(5)]
    assert rows[0]["body"] == "body 0"
    assert rows[0]["properties"] == {"n": "0"}
    assert rows[5]["body_base64"] == "/w=="
    assert rows[5]["id"] == f"{5:016x}"
    assert [r["id"] for r in data_of(capsys, "list", "orders", "--key", "k3")] == ["i3"]
    assert [r["id"] for r in data_of(capsys, "list", "--id", "i4")] == ["i4"]
    assert [r["topic"] for r in data_of(capsys, "list", "--tag", "vip")] == ["other"]
    assert len(data_of(capsys, "list", "--within", "1h30m")) == 5
    middle = rows[2]["due"]
    assert [r["id"] for r in data_of(capsys, "list", "--until", middle)] == ["i0", "i1"]
    assert [r["id"] for r in data_of(capsys, "list", "orders", "--after", middle)] == ["i2", "i3", "i4"]
    assert "body" not in data_of(capsys, "list", "--no-bodies")[0]
    assert out_of(capsys, "list", "other", "--tag", "none") == ""
    first, *_ = out_of(capsys, "list", "orders").splitlines()
    assert first == f"{rows[0]['due']}  orders  i0  k0  -  body 0"


def test_a_list_goes_on_where_it_ended(broker: Broker, capsys: Captured) -> None:
    for n in range(7):
        broker.schedule("orders", b"", delay=3600 + n, id=f"i{n}")
    found: list[str] = []
    cursor: tuple[str, ...] = ()
    for _ in range(3):
        capsys.readouterr()
        assert run(["list", "--limit", "3", "--json", *cursor]) == 0
        said = capsys.readouterr()
        found += [json.loads(line)["id"] for line in said.out.splitlines()]
        more = re.fullmatch(r"there may be more: --cursor (\S+)\n", said.err)
        cursor = ("--cursor", more[1]) if more else ()
    assert found == [f"i{n}" for n in range(7)]
    assert cursor == ()
    assert run(["list", "--cursor", "nonsense"]) == ExitCode.USAGE


def test_peek(broker: Broker, capsys: Captured) -> None:
    broker.schedule("orders", b"now", id="me")
    while not broker.peek("orders").num_rows:
        pass
    [row] = data_of(capsys, "peek", "orders")
    assert (row["id"], row["body"], row["offset"]) == ("me", "now", 0)
    broker.group("orders", "billing")
    assert out_of(capsys, "peek", "orders", "--group", "billing") == f"0  {row['due']}  me  now\n"
    assert run(["peek", "orders", "--group", "nobody"]) == ExitCode.FAILED
    assert capsys.readouterr().err.startswith("tarry: not_found: topic 'orders' has no group 'nobody'")


def test_forecast(broker: Broker, capsys: Captured) -> None:
    for n in range(200):
        broker.schedule("orders", b"", due=broker.clock.now_ms() // 86_400_000 * 86_400_000 + 2 * 86_400_000 + n // 150)
    [found] = data_of(capsys, "forecast", "--unit", "day", "--within", "10d")
    assert found["rows"] == 200
    assert [load["rows"] for load in found["loads"] if load["rows"]] == [200]
    assert found["herd"]["rows"] == 150
    lines = out_of(capsys, "forecast", "orders", "--unit", "day").splitlines()
    assert lines[0].split() == ["FROM", "MESSAGES", "UNSURE"]
    assert lines[1].split() == [found["loads"][2]["from"], "200", "0", "#" * 40]
    assert lines[2].startswith("the largest herd: 150 at ")
    assert run(["forecast", "--unit", "week"]) == ExitCode.USAGE
    assert "unit is 'week'; allowed: minute, hour, day" in capsys.readouterr().err


def test_one_frame(broker: Broker, capsys: Captured) -> None:
    broker.schedule("orders", b"", delay=5400)
    broker.group("orders", "billing")
    text = out_of(capsys, "top", "--once")
    assert re.search(r"^tarry \S+  serving  up \S+", text)
    assert re.search(r"^orders +1 +in 1h \d+m +0 +- +- +-$", text, re.MULTILINE)
    assert re.search(r"^billing +orders +0 +0 +0 +0 +-$", text, re.MULTILINE)
    assert re.search(r"^pipeline +off$", text, re.MULTILINE)
    [figures] = data_of(capsys, "top", "--once")
    assert figures["topics"]["sums"]["pending"] == 1


def test_damage_is_shown(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker:
        broker.schedule("orders", b"to be damaged")
        wait_until(lambda: bool(broker.peek("orders").num_rows))
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        assert "damage" not in out_of(capsys, "top", "--once")
        [segment] = (config.data / "ready").glob("*.log")
        segment.write_bytes(segment.read_bytes().replace(b"to be damaged", b"now damaged.."))
        with pytest.raises(CorruptError):
            broker.receive("orders", "billing")
        text = out_of(capsys, "top", "--once")
        assert re.search(r"^damage +1 place, 0 messages due soon or before cannot be read$", text, re.MULTILINE)
        assert f"{segment} at offset 32" in re.sub(r"\n", "", text)
        [figures] = data_of(capsys, "top", "--once")
        assert figures["damage"] == broker.status()["damage"]


def damaged(overview: dict[str, Any], *places: str) -> dict[str, Any]:
    return {**overview, "damage": {"places": places, "unreadable_messages": 1_234}}


def test_of_many_damaged_places_the_first_are_named(broker: Broker) -> None:
    text = shown(frame(damaged(broker.overview(), *(f"data/intake/{n}.log" for n in range(8))), None))
    assert "damage    8 places, 1,234 messages due soon or before cannot be read" in text
    assert "data/intake/4.log" in text
    assert "data/intake/5.log" not in text
    assert "and 3 more: tarry status" in text


def test_logs_in_a_store_are_shown_with_their_costs(broker: Broker) -> None:
    now = broker.overview()
    assert now["log"] is None and "log  " not in shown(frame(now, None))
    requests = {"put": 3600, "get": 3600, "list": 0, "delete": 0}
    logs = {"uri": "s3://b/l/shard=0", "epoch": 7, "rounds": 3600, "leased": True, "requests": requests}
    logs |= {"state": "handing out", "away_since_ms": None}
    text = shown(frame({**now, "uptime_ms": 3_600_000, "log": logs}, None))
    assert "epoch 7, 3,600 rounds, about $14 a month of requests" in text
    without = shown(frame({**now, "uptime_ms": 3_600_000, "log": {**logs, "leased": False, "state": "no lease"}}, None))
    assert "nothing is handed out: no lease" in without


def test_live_damage_leaves_the_tables_less_room(
    broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(50):
        broker.schedule(f"topic-{n}", b"", delay=3600)
    found = damaged(broker.overview(), f"data/intake/1.log: {'damaged ' * 100}its end")
    stop_after(monkeypatch, 2)
    monkeypatch.setattr(top_module, "connect", lambda _: nullcontext(SimpleNamespace(overview=lambda **_: found)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    text = out_of(capsys, "top")
    assert "topic-" in text
    assert "its end" in text, "it is below the end of the screen"


def stop_after(monkeypatch: pytest.MonkeyPatch, frames: int) -> None:
    """Ctrl-C while it sleeps after so many frames."""
    left = iter(range(frames - 1))

    def sleep(seconds: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    # Its name alone: every other thread of the process sleeps by the same module.
    monkeypatch.setattr(top_module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))


def test_frame_after_frame_until_it_is_ended(broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(monkeypatch, 3)
    assert len(data_of(capsys, "top", "--interval", "0.1")) == 3
    stop_after(monkeypatch, 2)
    assert out_of(capsys, "top").count("serving") == 2


def test_live_it_waits_for_a_broker_that_went_away(
    broker: Broker, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = broker.overview()
    answers = iter([found, found, UnavailableError("no answer"), UnavailableError("no answer"), found, found])

    class Gone:
        def overview(self, **_: object) -> dict[str, Any]:
            answer = next(answers)
            if isinstance(answer, UnavailableError):
                raise answer
            return answer

    stop_after(monkeypatch, 5)
    monkeypatch.setattr(top_module, "connect", lambda _: nullcontext(Gone()))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(["top"]) == 0
    assert next(answers) is found, "it had gone on after the outage"


def shown(renderable: Any) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_rates_and_lateness_are_of_the_interval(tmp_path: Path) -> None:
    def figures(now_ms: int, accepted: int, fired: int, late_ms: list[int]) -> dict[str, Any]:
        late = Histogram()
        late.record(np.array(late_ms, np.int64))
        topic = {"topic": "a", "accepted": accepted, "cancelled": 0, "fired": fired, "pending": 1_234, "ready": 5}
        return {
            "version": "0", "state": "serving", "uptime_ms": 90_061_000, "now_ms": now_ms, "handed_out": fired,
            "topics": {"count": 3, "sums": {k: v for k, v in topic.items() if k != "topic"},
                       "listed": [{**topic, "next_due_ms": now_ms + 65_000}]},
            "groups": {"count": 1, "lag": 5, "listed": [
                {"topic": "a", "group": "g", "lag": 5, "leased": 2, "waiting": 1, "dead": 7, "paused": True,
                 "oldest_due_ms": now_ms - 3_600_000}]},
            "lateness": {"queued": late.to_json(), "delivered": late.to_json(), "topics": {"a": late.to_json()}},
            "wheel": {"rows": 3, "bytes": 5 << 20, "loaded_until_ms": now_ms + 60_000, "next_due_ms": None},
            "intake": {"bytes": 1000, "waiting_bytes": 10, "waiting_rows": 1},
            "store": {"version": 7, "files": 2, "bytes": 3 << 30, "rows": 10},
            "disk": {"free_bytes": 100, "free_bytes_min": 1 << 20},
            "pipeline": {"state": "waiting", "supervisor": {"restarts": 3}, "error": "no Java"},
        }  # fmt: skip

    t = 1_800_000_000_000
    before, now = figures(t, 100, 50, [500] * 99), figures(t + 2000, 300, 53, [500] * 99 + [1, 1, 9])
    text = shown(frame(now, before))
    assert "up 1d 1h" in text
    assert "accepted 100/s  due 1.5/s  handed out 1.5/s  pending 1,234  ready 5" in text
    assert "late into the queue 1/9 ms  to waiting consumers 1/9 ms" in text
    assert re.search(r"^a +1,234 +in 1m 5s +5 +100 +1.5 +1/9 ms$", text, re.MULTILINE)
    assert re.search(r"^g \(paused\) +a +5 +2 +1 +7 +1h$", text, re.MULTILINE)
    assert "and 2 more topics" in text
    assert "pipeline  waiting, restarted 3 times: no Java" in text
    assert "3 messages, 5.0 MiB, 1m ahead" in text
    # A broker that has begun anew counts from zero, and so do we.
    assert "1/9 ms" not in shown(frame(before, now))
    assert "500" in shown(frame(figures(t + 4000, 0, 0, [500]), now))
    assert shown(frame(now, before, rows_max=0)).count("\n") < text.count("\n")
    assert "trying again" in shown(lost("no answer"))


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (span(0), "0ms"), (span(999), "999ms"), (span(61_000), "1m 1s"), (span(3_600_000), "1h"),
        (span(90_000_000_000), "1041d 16h"), (span(-5), "0ms"),
        (rate(0, 1000), "0"), (rate(3, 2000), "1.5"), (rate(30_000, 1000), "30,000"), (rate(5, 0), "-"),
        (rate(-5, 9), "-"),
        (size(0), "0 B"), (size(1536), "1.5 KiB"), (size(5 << 40), "5.0 TiB"),
    ],
)  # fmt: skip
def test_figures_for_people(made: str, text: str) -> None:
    assert made == text


def test_a_histogram_that_is_not_there() -> None:
    assert since({}, None, ["topics", "a"]) is None
