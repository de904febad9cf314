"""RocketMQ's official Java clients as a measuring tool: :func:`send`, :func:`herd`, :func:`paced`, of any endpoint.

Each runs ``client/src/Bench.java`` in a process of its own and gives back its one line of JSON. All of them know
``inflight`` (sends without an answer), ``body`` (bytes) and ``warm_s``; those that consume know ``threads``, ``cache``
(messages without an acknowledgement), ``patience_s`` (without a message until the rest is lost) and ``linger_s`` (for
duplicates). With ``classic=1`` the client is the classic one, and the endpoint a name server.
``python -m benchmarks.peers.rocketmq.client send HOST:PORT TOPIC count=1000`` does the same by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.marks import Meter, watch
from benchmarks.peers.rocketmq.maven import class_path
from tarry.spark.runtime.java import find_java_home

PROJECT = Path(__file__).with_name("client")
JAVA_OPTIONS = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC")
RUN_S_MAX = 1800


def send(
    endpoint: str,
    topic: str,
    *,
    count: int = 200_000,
    delay_s: float = 3600,
    timeout_s: float = RUN_S_MAX,
    meter: Meter | None = None,
    **more: float,
) -> dict[str, Any]:
    """Single messages that are due much later: ``sends_per_s``, and ``ack_p50_ms`` to ``ack_max_ms`` of the answers."""
    return run("send", endpoint, topic, timeout_s=timeout_s, meter=meter, count=count, delay_s=delay_s, **more)


def herd(
    endpoint: str,
    topic: str,
    group: str,
    *,
    count: int = 200_000,
    lead_s: float = 0,
    timeout_s: float = RUN_S_MAX,
    meter: Meter | None = None,
    **more: float,
) -> dict[str, Any]:
    """All due in one instant, with a consumer that waits: ``last_s`` is when the last one came after that instant.

    ``lead_s`` is from the warm-up to that instant; 0 is half as long again as sending takes by the warm-up, which is
    much too long where either end is cold. ``acked_late`` counts what was not acknowledged before the instant: where it
    is not 0, ``lead_s`` was too short. Besides: ``late_*_ms``, ``early``, ``lost``, ``duplicates``, and what
    :func:`send` tells.
    """
    return run("herd", endpoint, topic, group, timeout_s=timeout_s, meter=meter, count=count, lead_s=lead_s, **more)


def paced(
    endpoint: str,
    topic: str,
    group: str,
    *,
    rate: float = 2000,
    seconds: float = 30,
    timeout_s: float = RUN_S_MAX,
    meter: Meter | None = None,
    **more: float,
) -> dict[str, Any]:
    """Sent at a rate with delays of 1 to 10 s: ``late_p50_ms``, ``late_p99_ms``, ``late_p999_ms``, ``late_max_ms``.

    Besides: ``early``, ``lost``, ``duplicates``, and what :func:`send` tells; where ``sends_per_s`` is below the rate,
    the server did not take it.
    """
    return run("paced", endpoint, topic, group, timeout_s=timeout_s, meter=meter, rate=rate, seconds=seconds, **more)


def run(
    mode: str, *words: str, timeout_s: float = RUN_S_MAX, meter: Meter | None = None, **options: float
) -> dict[str, Any]:
    """Run a mode and read its result.

    Args:
        meter: what the server has spent until now; ``spent`` in the result is by how much it went up while the messages
            were sent and received, without the start and the warm-up.

    Raises:
        RuntimeError: it failed; says what it wrote.
    """
    named = [f"{name}={value}" for name, value in options.items()]
    found = watch([*command(), mode, *words, *named], meter or (lambda: 0.0), timeout_s=timeout_s)
    result: dict[str, Any] = json.loads(found.lines[-1])
    return result if meter is None else {**result, "spent": found.spent}


def command() -> list[str]:
    """What starts ``Bench``, built by Maven when it is not built yet."""
    java = find_java_home(Path(tempfile.gettempdir())) / "bin" / "java"
    return [str(java), *JAVA_OPTIONS, "-cp", class_path(PROJECT, "rocketmq-bench-client"), "Bench"]


if __name__ == "__main__":
    raise SystemExit(subprocess.run([*command(), *sys.argv[1:]]).returncode)
