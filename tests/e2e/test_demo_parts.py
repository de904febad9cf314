"""The demo's data, its plan, what it prints, and its picture; without a broker."""

from __future__ import annotations

import json
from datetime import datetime
from io import StringIO
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tarry.base.errors import InvalidArgumentError
from tarry_demo import picture, report
from tarry_demo.account import account_of, first_hand_outs
from tarry_demo.consumer_main import DELIVERED, TopicConsumer
from tarry_demo.facts import wrong_with
from tarry_demo.flights import NEW_YORK, TOPICS, Flights, load
from tarry_demo.main import run
from tarry_demo.replay import Plan
from tarry_demo.screen import Screen

from .test_account import STORE, T, accepted, delivered, facts


@pytest.fixture(scope="module")
def year() -> Flights:
    return load()


def test_the_year_is_all_there(year: Flights) -> None:
    assert len(year) == 336_776
    assert set(year.messages.column("topic").unique().to_pylist()) == set(TOPICS)
    assert year.messages.column("id")[77].as_py() == "77"
    assert (np.diff(year.instant_ms) >= 0).all()


def test_local_times_are_instants_of_new_york(year: Flights) -> None:
    for row in (0, 100_000, 170_000, 336_775):
        body = json.loads(year.messages.column("body")[row].as_py())
        local = datetime.fromisoformat(body["scheduled"]).replace(tzinfo=NEW_YORK)
        assert year.instant_ms[row] == local.timestamp() * 1000
    offsets = {
        datetime.fromtimestamp(year.instant_ms[row] / 1000, NEW_YORK).utcoffset() for row in (0, 170_000, 336_775)
    }
    assert len(offsets) == 2  # summer time and winter time


def test_a_message_tells_of_its_flight(year: Flights) -> None:
    [row] = year.messages.slice(0, 1).to_pylist()
    assert row["topic"] == "departures.EWR"
    assert row["tag"] == "UA"
    assert dict(row["properties"]) == {"dest": "IAH", "tail": "N14228"}
    assert json.loads(row["body"]) == {
        "flight": "UA1545",
        "from": "EWR",
        "to": "IAH",
        "scheduled": "2013-01-01T05:15",
        "miles": 1400,
    }


def test_herds_stay_herds_in_the_replay(year: Flights) -> None:
    due = year.due_after_ms(120)
    assert (due[0], due[-1]) == (0, 120_000)
    assert (np.diff(due) >= 0).all()
    same = np.diff(year.instant_ms) == 0
    assert same.sum() > 100_000
    assert (np.diff(due)[same] == 0).all()


@pytest.mark.rest
def test_a_part_is_taken_from_the_whole_year() -> None:
    part = load(500)
    assert len(part) == 500
    months = np.unique(part.instant_ms.astype("datetime64[ms]").astype("datetime64[M]"))
    assert len(months) == 12 + 1  # the last night of 2013 is in 2014 by UTC


def test_each_row_goes_one_way() -> None:
    plan = Plan.of(10_000, 120.0)
    rows = np.concatenate([plan.bulk, plan.single, plan.late])
    assert np.array_equal(np.sort(rows), np.arange(10_000))
    assert len(plan.lead_ms) == len(plan.late) == len(plan.single) == 250
    assert plan.lead_ms.min() >= 1000
    assert plan.lead_ms.max() <= 15_000


@pytest.mark.parametrize("options", [{"rows": 5}, {"seconds": 1.0}])
def test_options_that_are_refused(tmp_path: Path, options: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError):
        run(tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_data_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear")
    with pytest.raises(InvalidArgumentError, match="not empty"):
        run(tmp_path / "out", keep=tmp_path)
    assert (tmp_path / "mine").read_text() == "dear"


def test_the_report_says_what_was_wrong_and_where_duplicates_come_from() -> None:
    got = delivered((0, 1.0), (0, 20.0), (1, -1.0))
    result = facts()
    assert result.kill is not None
    account = account_of(accepted(0, 1, 2), got, rows=3, outage=result.kill.outage)
    wrong = wrong_with(account, result)
    text = StringIO()
    report.print_report(Console(file=text), report.show(account, result, wrong, []))
    lines = text.getvalue().splitlines()
    assert any(line.startswith("lost") and " 1 " in line for line in lines)
    assert any(line.startswith("duplicated") and "acknowledgement was not durable yet" in line for line in lines)
    assert any(f"{STORE.rows}" in line and "Delta table" in line for line in lines)
    assert [line.split(":")[0] for line in lines[-2:]] == ["WRONG", "WRONG"]
    assert json.loads(json.dumps(report.as_json(account, result, wrong)))["good"] is False


def test_the_picture_can_be_drawn_of_anything(tmp_path: Path) -> None:
    for got in (delivered(), delivered((0, 1.0), (1, -5.0))):
        path = tmp_path / "p.png"
        picture.draw(
            path,
            firsts=first_hand_outs(accepted(0, 1), got),
            delivered=got,
            looks=[],
            start_ms=T,
            seconds=5.0,
            instant_ms=np.array([T, T + 10]),
            outage=None,
        )
        assert path.read_bytes().startswith(b"\x89PNG")


def test_without_a_terminal_there_are_plain_lines() -> None:
    text = StringIO()
    with Screen(Console(file=text)).step("working", 10) as step:
        step.update(5, "[half] of it")
        step.done = "worked"
    lines = text.getvalue().splitlines()
    assert lines[0] == "… working"
    assert lines[-1].startswith("✓ worked (")
    assert "\x1b" not in text.getvalue()


def test_with_a_terminal_there_is_a_bar() -> None:
    text = StringIO()
    with Screen(Console(file=text, force_terminal=True)).step("working", 10) as step:
        step.update(5, "[half] of it")
    assert "[half] of it" in text.getvalue()


class Endless:
    """A client, and its consumer: messages without end, until it is closed."""

    is_closed = False

    def consume(self, topic: str, *, group: str) -> Any:
        for number in count():
            if self.is_closed:
                return
            yield SimpleNamespace(id=str(number), seq=number, due_ms=0, attempt=1, ack=lambda: None)


def test_hand_outs_are_read_while_the_consumer_goes_on() -> None:
    client: Any = Endless()
    watch = TopicConsumer(client, "a", "g")
    watch.start()
    seen = 0
    while seen < 50_000 and watch.is_alive():
        batch = watch.delivered()
        assert batch.schema == DELIVERED
        assert batch["row"][-1:].to_pylist() in ([], [batch.num_rows - 1])
        seen = batch.num_rows
    client.is_closed = True
    watch.join()
    assert watch.error is None
