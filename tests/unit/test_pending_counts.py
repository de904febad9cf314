"""Counts of pending messages: never too small, whatever happens while they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.queue import ReadyLog
from tarry.testing import TestBroker, open_broker


def pending(broker: TestBroker) -> dict[str, int]:
    return {each.topic: each.pending for each in broker.pending()}


def after_ends(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen between the two looks."""
    look = ReadyLog.ends

    def ends(self: ReadyLog) -> dict[str, int]:
        found = look(self)
        monkeypatch.setattr(ReadyLog, "ends", look)
        happens()
        return found

    monkeypatch.setattr(ReadyLog, "ends", ends)


def test_a_message_that_comes_and_goes_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "x", delay=1000)

        def come_and_go() -> None:
            broker.schedule("t", "fires", delay=1)
            broker.cancel(broker.schedule("t", "cancelled", delay=1).handle)
            broker.advance(2)

        after_ends(monkeypatch, come_and_go)
        assert pending(broker)["t"] in (1, 2)
        assert pending(broker) == {"t": 1}


def test_a_topic_that_is_forgotten_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("u", "x", delay=1000)
        broker.schedule("t", "x", delay=1)
        broker.advance(2)
        parts = broker.components

        def forget() -> None:
            # As a checkpoint does, when the segments that have its messages are gone.
            parts.intake.accepted.pop("t")
            parts.ready.topics.pop("t")

        after_ends(monkeypatch, forget)
        assert pending(broker) == {"t": 0, "u": 1}
        assert pending(broker) == {"u": 1}
