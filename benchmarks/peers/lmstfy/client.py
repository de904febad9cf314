"""lmstfy's own Go client as a measuring tool, for any server of its API: :func:`run` has it do one measurement.

What there is to measure, and the options, are in ``client/main.go``.
``LMSTFY_HOST=… LMSTFY_PORT=… LMSTFY_TOKEN=… LMSTFY_NAMESPACE=… python -m benchmarks.peers.lmstfy.client publish QUEUE``
does the same by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from benchmarks.marks import Meter, watch
from benchmarks.peers.lmstfy.source import built

RUN_S_MAX = 1800


class Place(NamedTuple):
    """Where a server is, and the namespace that a token opens."""

    host: str
    port: int
    namespace: str
    token: str

    @property
    def environment(self) -> dict[str, str]:
        """For ``bench``."""
        return {f"LMSTFY_{name.upper()}": str(value) for name, value in self._asdict().items()}


def run(mode: str, place: Place, queue: str, meter: Meter | None = None, **options: float) -> dict[str, Any]:
    """Run a mode and read its result.

    Args:
        meter: what the server has spent until now; ``spent`` in the result is by how much it went up during the calls
            that count.

    Raises:
        RuntimeError: it failed; says what it wrote.
    """
    if meter is None:
        return result_of(start(mode, place, queue, **options))
    command, environment = _command(mode, place, queue, options)
    watched = watch(command, meter, timeout_s=RUN_S_MAX, environment=environment)
    found: dict[str, Any] = json.loads(watched.lines[-1])
    return {**found, "spent": watched.spent}


def start(mode: str, place: Place, queue: str, **options: float) -> subprocess.Popen[str]:
    """Begin a mode; :func:`result_of` waits for it."""
    command, environment = _command(mode, place, queue, options)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def _command(mode: str, place: Place, queue: str, options: dict[str, float]) -> tuple[list[str], dict[str, str]]:
    words = [f"{name}={value}" for name, value in options.items()]
    return [str(built() / "bench"), mode, queue, *words], {**os.environ, **place.environment}


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it has found, at its end.

    Raises:
        RuntimeError: it failed; says what it wrote.
    """
    out, errors = process.communicate(timeout=RUN_S_MAX)
    if process.returncode:
        raise RuntimeError(f"{process.args} failed: {errors[-3000:]}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


if __name__ == "__main__":
    raise SystemExit(subprocess.run([str(built() / "bench"), *sys.argv[1:]]).returncode)
