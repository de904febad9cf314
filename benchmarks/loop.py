"""The measure of a machine's speed that costs are divided by: its best hour and its worst differ threefold."""

from __future__ import annotations

import time

STEPS = 20_000_000
SHARE = 5
_STEPS = compile("x = 0\nfor i in range(n): x += i", "steps", "exec")
"""As a program's own lines, whose names are looked up, not a function's."""


def loop_s() -> float:
    """How many seconds of CPU 20 million steps take, going by a fifth of them."""
    names = {"n": STEPS // SHARE}
    began = time.process_time()
    exec(_STEPS, names)
    return (time.process_time() - began) * SHARE
