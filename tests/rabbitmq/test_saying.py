"""Warnings of the same trouble of many messages."""

from __future__ import annotations

import logging

import pytest

from tarry.bridge.saying import CAUSES_MAX, SAY_S, Saying


def test_each_cause_is_told_again_after_a_while_and_not_too_many(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    saying = Saying(logging.getLogger("tarry.bridge.test"), now=lambda: now_s)
    for number in (1, 2, 1):
        saying.warn("message %s", number, cause=str(number))
    assert caplog.messages == ["message 1", "message 2"]
    now_s += SAY_S
    caplog.clear()
    for number in range(3 * CAUSES_MAX):
        saying.warn("message %s", number, cause=str(number))
    assert caplog.messages == [
        *(f"message {number}" for number in range(CAUSES_MAX)),
        f"more than {CAUSES_MAX} causes: the others are not told for a while",
    ]
    now_s += SAY_S
    caplog.clear()
    saying.warn("message %s", "last", cause="last")
    assert caplog.messages == ["message last"]
