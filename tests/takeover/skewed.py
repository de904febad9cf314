"""``tarry`` on a machine whose clock is wrong: ``SKEW_MS=2000 python -m tests.takeover.skewed serve …``."""

from __future__ import annotations

import os
import sys

from tarry.base.clock import SystemClock
from tarry.cli.main import run

VARIABLE = "SKEW_MS"


def skew(by_ms: int) -> None:
    """Have the machine's clock be ahead by so much, in this process; negative: behind."""
    now_ms, start_ms, seconds_until = SystemClock.now_ms, SystemClock.start_ms, SystemClock.seconds_until
    SystemClock.now_ms = lambda self: now_ms(self) + by_ms  # type: ignore[method-assign]
    SystemClock.start_ms = lambda self: start_ms(self) + by_ms  # type: ignore[method-assign]
    SystemClock.seconds_until = lambda self, due_ms: seconds_until(self, due_ms - by_ms)  # type: ignore[method-assign]


if __name__ == "__main__":
    skew(int(os.environ[VARIABLE]))
    sys.exit(run())
