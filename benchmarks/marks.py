"""What a server spends while a client measures it, and not while that warms up, connects, or starts.

The client prints a line at the first and at the last moment of what it measures; the meter is read then.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

BEGIN, END = "measured: begin", "measured: end"
Meter = Callable[[], float]


class Watched(NamedTuple):
    """What a client printed, and how much the meter went up between the two lines; None: it has not printed both."""

    lines: list[str]
    spent: float | None


def watch(
    command: Sequence[str], meter: Meter, *, timeout_s: float, environment: Mapping[str, str] | None = None
) -> Watched:
    """Run a client to its end.

    Raises:
        RuntimeError: it failed, or took longer than ``timeout_s``; says what it wrote.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        limit = threading.Timer(timeout_s, process.kill)
        limit.start()
        lines, begun, spent = [], None, None
        try:
            assert process.stdout is not None
            for line in map(str.rstrip, process.stdout):
                lines.append(line)
                if line == BEGIN:
                    begun = meter()
                elif line == END and begun is not None:
                    spent = meter() - begun
            code = process.wait()
        finally:
            limit.cancel()
            process.kill()
            process.wait()
        if code:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command[-6:])} failed, or took {timeout_s:g} s: {errors.read()[-3000:]}")
    return Watched(lines, spent)
