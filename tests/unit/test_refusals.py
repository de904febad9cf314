"""Refusals are written within bounds, and all of them are counted."""

from __future__ import annotations

from typing import Any

from tarry.api.audit import AskedBy, Reloaded
from tarry.base.errors import LoginRefusal
from tarry.identity.refusals import BURST, KEYS_MAX, LOGINS_MAX, RIGHTS_MS, Refusals


class Noted:
    """Refusals with a clock that is set."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.lines: list[Any] = []
        self.refusals = Refusals(lambda: self.now_ms, self.lines.append)

    def login(self, peer: str) -> None:
        self.refusals.login("http", peer, LoginRefusal("not_known"))

    def right(self, who: str, topic: str) -> None:
        self.refusals.right(AskedBy(who, "c1", "link", "10.0.0.1"), "produce", topic, None, "right")


def test_logins_of_an_address_are_ten_a_second_and_then_counted() -> None:
    noted = Noted()
    for _ in range(LOGINS_MAX + 7):
        noted.login("10.0.0.1")
    noted.login("10.0.0.2")
    assert len(noted.lines) == LOGINS_MAX + 1
    assert noted.lines[0] == {
        "outcome": "refused", "operation": "login", "front": "http", "peer": "10.0.0.1", "code": "not_known"
    }  # fmt: skip
    noted.refusals.flush()
    assert len(noted.lines) == LOGINS_MAX + 1
    noted.now_ms += 1000
    noted.refusals.flush()
    assert noted.lines[-1]["more"] == 7
    noted.login("10.0.0.1")
    assert "more" not in noted.lines[-1]
    assert noted.refusals.counts["not_known"] == LOGINS_MAX + 9


def test_a_right_is_written_once_a_minute() -> None:
    noted = Noted()
    for topic in ("a", "a", "a", "b"):
        noted.right("billing", topic)
    assert [line["details"] for line in noted.lines] == [
        {"right": "produce", "topic": "a"},
        {"right": "produce", "topic": "b"},
    ]
    noted.now_ms += RIGHTS_MS
    noted.right("billing", "a")
    assert [line.get("more") for line in noted.lines] == [None, None, 2, None]
    assert noted.refusals.counts["right"] == 5


def test_a_flood_is_bounded_and_its_number_written() -> None:
    noted = Noted()
    for number in range(KEYS_MAX + 100):
        noted.login(f"peer-{number}")
    assert len(noted.lines) == BURST
    noted.now_ms += 2000
    noted.refusals.flush()
    assert noted.lines[-1] == {
        "outcome": "refused", "operation": "refusals", "code": "left_out", "more": KEYS_MAX + 100 - BURST
    }  # fmt: skip
    assert noted.refusals.counts["not_known"] == KEYS_MAX + 100


def test_a_clock_that_is_set_back_ends_the_time() -> None:
    noted = Noted()
    noted.right("billing", "a")
    noted.now_ms -= 500_000
    noted.right("billing", "a")
    assert len(noted.lines) == 2


def test_texts_of_strangers_are_cut() -> None:
    noted = Noted()
    noted.right("billing", "x" * 1000)
    assert len(noted.lines[0]["details"]["topic"]) == 300


def test_a_worker_s_refusals_are_taken() -> None:
    noted = Noted()
    noted.refusals.take({"lines": [{"operation": "login", "peer": "p" * 999}], "counts": {"signature": 3, "new": 1}})
    assert len(noted.lines[0]["peer"]) == 300
    assert (noted.refusals.counts["signature"], noted.refusals.counts["other"]) == (3, 1)


def test_files_that_were_read_again_are_told_once_of_all_listeners_and_workers() -> None:
    noted, worker = Noted(), Noted()
    one, two = Reloaded("a.pem", {"sha256": "1"}), Reloaded("a.pem", {"sha256": "2"})
    broken = Reloaded("a.pem", {}, "no certificate")
    for each in (one, one, two, broken, two):
        noted.refusals.reloaded("http", each)
        noted.refusals.reloaded("mqtt", each)
        worker.refusals.reloaded("http", each)
    noted.refusals.take({"lines": worker.lines[-1:], "counts": {}})
    told = [(line["front"], line["outcome"], line["details"].get("sha256")) for line in noted.lines]
    assert told == [("http", "done", "1"), ("http", "done", "2"), ("http", "failed", None), ("http", "done", "2")]
    assert noted.lines[2]["details"]["text"] == "no certificate"
    elsewhere = {**worker.lines[-1], "details": {**worker.lines[-1]["details"], "host": "another"}}
    noted.refusals.take({"lines": [elsewhere], "counts": {}})
    assert noted.lines[-1]["details"]["host"] == "another"


def test_a_flood_of_strangers_hides_no_files_that_were_read_again() -> None:
    noted = Noted()
    for number in range(BURST + 1):
        noted.login(f"peer {number}")
    noted.refusals.reloaded("http", Reloaded("a.pem", {"sha256": "1"}))
    assert noted.lines[-1]["operation"] == "reload"
