"""Moving from RocketMQ to Tarry and back, as docs/rocketmq.md says it, while both run: ``--language moving``.

The classic Java program sends to two topics, moves one after the other, and back, while consumers listen to both; each
message must come once, wherever it was pending when its topic moved.
"""

from __future__ import annotations

import sys
import time

from benchmarks.peers.rocketmq.server import RocketMQ, rocketmq_server

from .programs import build, cache
from .running import run
from .scenarios import Scenario
from .servers import GivenServer, tarry_server

LIMIT_S = 480


class _Tarry(GivenServer):
    """Beside a RocketMQ, which wants its topics and groups made first."""

    def __init__(self, tarry: GivenServer, original: RocketMQ) -> None:
        super().__init__(tarry.endpoint, tarry.flight, tarry.classic_endpoint)
        self._original = original

    def prepare(self, topic: str, group: str, scenario: Scenario) -> None:
        for name in (topic, f"{topic}-second"):
            self._original.create_topic(name)
            self._original.create_group(f"{group}-{name}")


def main() -> int:
    """Run it; 0: each message came once."""
    directory = cache() / "runs" / time.strftime("%Y%m%d-%H%M%S")
    command = build("classic-java")
    with rocketmq_server(heap="512m", proxy=False) as original, tarry_server(directory) as tarry:
        scenario = Scenario("classic-moving", LIMIT_S, extra=(original.name_server,))
        result = run("classic-java", command, scenario, _Tarry(tarry, original), directory / "moving")
    print(f"moving: {result.outcome}, {result.seconds:.1f} s, {result.reason or result.facts}")
    print(f"\nwhat it said: {directory}", file=sys.stderr)
    return 0 if result.outcome == "ok" else 1
