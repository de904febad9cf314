"""Lines that strangers can cause."""

from __future__ import annotations

import logging

import pytest

from tarry.base.log_limiter import LINES_MAX, PERIOD_S, LogLimiter


def test_a_flood_of_lines_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    limiter = LogLimiter(logging.getLogger("flood"), logging.WARNING, lambda: now_s)
    for number in range(1000):
        limiter.say("closed: %d", number)
    assert [record.message for record in caplog.records] == [f"closed: {number}" for number in range(LINES_MAX)]
    caplog.clear()
    now_s = PERIOD_S
    limiter.say("closed: %s", "again")
    assert [record.message for record in caplog.records] == [
        f"{1000 - LINES_MAX} more lines like the last ones were left out",
        "closed: again",
    ]
