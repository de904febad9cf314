"""The campaign: what it reads in a history, and a short one with brokers that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tarry_demo.broker_process import BrokerProcess
from tests.engines.versitygw import program
from tests.sources import ROOT
from tests.takeover.events import Cancel, Claim, Delivery, Event, Send, load
from tests.takeover.owners import Life, Machine, area
from tests.takeover.proxy import Request
from tests.takeover.result import former_owners, times


def life(number: int, fault_ms: float, served_ms: float, why: str = "kill") -> Life:
    process = BrokerProcess(Path(), Path(), {})
    return Life(number, Machine("m", Path()), process, why, fault_ms, claimed_ms=(fault_ms, served_ms))


def sent(life: int, begin_ms: float, end_ms: float, answer: str) -> Send:
    return Send(begin_ms=begin_ms, end_ms=end_ms, answer=answer, life=life, name="m", due_ms=0)


LIVES = [life(0, 0, 10, "start"), life(1, 1000, 2000)]


def test_a_former_owner_must_not_answer_what_it_was_asked_later() -> None:
    right: list[Event] = [
        *(sent(0, 1, 2, "scheduled"), sent(0, 1999, 9000, "scheduled"), sent(0, 3000, 4000, "?")),
        *(sent(1, 3000, 3001, "scheduled"), Delivery(at_ms=3000, name="m", due_ms=0, seq=1, life=0)),
    ]
    assert list(former_owners(right, LIVES)) == []
    wrong = Cancel(begin_ms=2001, end_ms=2002, answer="unknown", life=0, key="k")
    assert len(list(former_owners([*right, wrong], LIVES))) == 1


def test_times_from_a_fault() -> None:
    events: list[Event] = [
        *(sent(0, 1, 2, "scheduled"), sent(1, 1900, 2100, "duplicate"), sent(1, 1900, 2500, "replaced")),
        *(sent(1, 2600, 2700, "scheduled"), Claim(begin_ms=1000, end_ms=2000, life=1)),
        Delivery(at_ms=4000, name="m", due_ms=0, seq=1, life=1),
    ]
    assert times(events, LIVES) == {("send", "kill"): [1.5], ("hand-out", "kill"): [3.0]}


@pytest.mark.parametrize(
    ("of", "method", "target", "body"),
    [
        ("log", "PUT", "/bucket/logs/shard=0/log/1/2", b""),
        ("log", "GET", "/bucket?list-type=2&prefix=logs%2Fshard%3D0%2Fepoch%2F", b""),
        ("log", "POST", "/bucket?delete", b"<Key>logs/shard=0/log/1/2</Key>"),
        ("store", "GET", "/bucket/store/_delta_log/0.json", b""),
        ("store", "PUT", "/bucket/store/shard=0/part.parquet", b"logs/shard=0"),
    ],
)
def test_requests_are_of_the_log_or_of_the_store(of: str, method: str, target: str, body: bytes) -> None:
    assert area(Request(method, target, b"", body)) == of


def campaign(directory: Path, *arguments: str) -> list[Event]:
    """Run one; its history."""
    command = [sys.executable, "-m", "tests.takeover.campaign", "--seed", "1", "--directory", directory, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, early 0, after_done 0" in done.stdout
    return load(directory / "history.jsonl")


@pytest.mark.rest
def test_machines_that_take_over_from_one_another(tmp_path: Path) -> None:
    program()
    events = campaign(tmp_path / "d", "--takeovers", "2", "--standbys", "0", "--kinds", "kill", "stop")
    claims = [event for event in events if isinstance(event, Claim)]
    assert [claim.why for claim in claims] == ["start", "kill", "stop", "end"]
    assert {event.life for event in events if isinstance(event, Delivery)} >= {0, 3}


@pytest.mark.rest
def test_a_campaign_on_one_directory(tmp_path: Path) -> None:
    events = campaign(tmp_path / "d", "--plain", "--takeovers", "2")
    assert [event.why for event in events if isinstance(event, Claim)] == ["start", "kill", "clean", "end"]
    assert {each.answer for each in events if isinstance(each, Cancel)} >= {"done", "delivered"}
