"""``tarry`` on a machine of a campaign: ``SKEW_MS=2000 BASE_S=5 python -m tests.takeover.broker serve …``.

Its clock is ahead by ``SKEW_MS`` milliseconds, or behind; and it makes a base of its logs each ``BASE_S`` seconds.
"""

from __future__ import annotations

import os
import sys
from functools import partialmethod

from tarry.base.clock import SystemClock
from tarry.broker.progress import Checkpointer
from tarry.cli.main import run

SKEW, BASE = "SKEW_MS", "BASE_S"
"""Variables of the environment."""


def skew(by_ms: int) -> None:
    """Have the machine's clock be ahead by so much, in this process; negative: behind."""
    now_ms, start_ms, seconds_until = SystemClock.now_ms, SystemClock.start_ms, SystemClock.seconds_until
    SystemClock.now_ms = lambda self: now_ms(self) + by_ms  # type: ignore[method-assign]
    SystemClock.start_ms = lambda self: start_ms(self) + by_ms  # type: ignore[method-assign]
    SystemClock.seconds_until = lambda self, due_ms: seconds_until(self, due_ms - by_ms)  # type: ignore[method-assign]


if __name__ == "__main__":
    skew(int(os.environ[SKEW]))
    Checkpointer.__init__ = partialmethod(Checkpointer.__init__, base_s=float(os.environ[BASE]))  # type: ignore[assignment]
    sys.exit(run())
