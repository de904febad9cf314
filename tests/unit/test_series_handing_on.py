"""A change of an occurrence of a series that is about to be handed on: it is delivered, or changed, never both.

Its successor is decided, and durable, before it is in the ready log. What is asked in between finds it taken.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tools import World

from tarry.api.operations import DiscardMessage, GetHandles
from tarry.api.outcome import Outcome
from tarry.broker.commands.advance_series import AdvanceSeries
from tarry.broker.commands.cancel import CancelCommand, CancelTarget
from tarry.intake import NO_ROWS, Submission
from tarry.message.receipt import Receipt
from tarry.repeat import Repeat
from tarry.testing import TestBroker, open_broker

Change = Callable[[TestBroker, Receipt], str]

CHANGES: dict[str, tuple[Change, str]] = {
    "cancel": (lambda broker, last: broker.cancel(last.handle).value, "delivered"),
    "cancel by key": (lambda broker, _: broker.cancel_key("t", "k").value, "delivered"),
    "move": (lambda broker, last: broker.reschedule(last.handle, delay=3600).outcome.value, "delivered"),
    "move by key": (lambda broker, _: broker.reschedule_key("t", "k", delay=3600).outcome.value, "delivered"),
    "replace": (lambda broker, _: broker.schedule("t", "y", delay=3600, key="k").outcome, "scheduled"),
    "keep": (lambda broker, _: broker.schedule("t", "y", delay=3600, key="k", on_key="keep").outcome, "scheduled"),
    "replace what is pending": (
        lambda broker, _: broker.schedule("t", "y", delay=3600, key="k", on_key="if_pending").outcome,
        "not_pending",
    ),
    "discard": (lambda broker, last: str(broker.call(DiscardMessage("t", "g", last.seq, last.due_ms))), "False"),
}
"""Each with its answer: the last occurrence was taken."""


def before_the_hand_on(broker: TestBroker, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], None]) -> None:
    """Call ``ask`` each time that occurrences are decided, and not in the ready log yet."""
    series = broker.components.series
    whole = series._append  # noqa: SLF001 - the moment before it is meant

    def append(*given: Any) -> None:
        ask()
        whole(*given)

    monkeypatch.setattr(series, "_append", append)


def delivered(broker: TestBroker) -> list[bytes]:
    return [row["body"] for batch in broker.components.ready.rows_after(0, 0) for row in batch.to_pylist()]


def check_counts(broker: TestBroker) -> None:
    """What is counted is what is listed; not less than none, either."""
    listed = broker.list_pending(limit=100).rows.num_rows
    assert sum(entry.pending for entry in broker.pending()) == listed
    broker.schedule("t", "z", delay="1d")
    assert sum(entry.pending for entry in broker.pending()) == listed + 1


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    change, expected = CHANGES[name]
    with open_broker(tmp_path) as broker:
        last = broker.schedule("t", "x", delay=1, key="k", repeat=Repeat.every("1s", times=1))
        outcomes: list[str] = []
        before_the_hand_on(broker, monkeypatch, lambda: outcomes.append(change(broker, last)))
        broker.advance(5)
        assert outcomes == [expected]
        assert delivered(broker) == [b"x"]
        check_counts(broker)


def test_a_change_of_one_that_has_a_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own handle, made of a list, names it alone; that of the first one, what comes next."""
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s", times=9))
        broker.advance(1.5)
        [row] = broker.list_pending(limit=9).rows.to_pylist()
        [own] = broker.call(GetHandles([row["seq"]], [row["due_ms"]]))
        outcomes: list[Outcome] = []
        before_the_hand_on(
            broker, monkeypatch, lambda: outcomes.extend([broker.cancel(own), broker.cancel(first.handle)])
        )
        broker.advance(5)
        assert outcomes == [Outcome.DELIVERED, Outcome.DONE]
        assert delivered(broker) == [b"x", b"x"]
        check_counts(broker)


def test_a_cancellation_in_the_same_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_broker(tmp_path) as broker:
        last = broker.schedule("t", "x", delay=1, repeat=Repeat.every("1s", times=1))
        series, outcomes = broker.components.series, []

        def submit(command: Any) -> None:
            assert isinstance(command, AdvanceSeries)
            cancel = CancelCommand([CancelTarget(last.seq, last.due_ms, "t")], outcomes.append)
            broker.components.writer.commit([Submission(NO_ROWS, print, each) for each in (command, cancel)])

        monkeypatch.setattr(series, "_submit", submit)
        broker.advance(5)
        assert outcomes == [[Outcome.DELIVERED]]
        assert delivered(broker) == [b"x"]
        check_counts(broker)


def test_a_commit_that_is_refused_leaves_it_to_be_cancelled(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.open()
    first = w.b.schedule("t", "x", delay=1, repeat=Repeat.every("10s", times=3))
    w.files.full = True
    w.clock.advance_ms(1000)
    w.b.step()
    assert w.b.components.wheel.advancing
    assert not w.b.components.wheel.leaving
    w.files.full = False
    assert w.b.cancel(first.handle) is Outcome.DONE
    w.b.advance(60)
    assert delivered(w.b) == []
    check_counts(w.b)
    w.b.close()
