"""``make fuzz``: nearly valid calls on every front of a broker, for as long as asked.

The broker has to answer or to refuse each, to go on, and to serve a good client beside it; its log must show no bug. A
run prints its seed, and every failure the last calls; the same seed sends the same calls again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from tests.faults import fast_directory
from tests.fuzz.calls import FlightCalls, RawFlight, RocketMQ
from tests.fuzz.http import Http
from tests.fuzz.link import LinkBytes
from tests.fuzz.sockets import Classic, Http2, MqttBytes
from tests.fuzz.target import Target

CHECK_EVERY = 25
"""Calls between two looks at the broker."""


def fuzz(seed: int, directory: Path, *, calls: int | None = None, seconds: float | None = None) -> Counter[str]:
    """Send so many calls, or for so long; how often each kind was sent, and how it was answered.

    Raises:
        AssertionError: something does not hold.
    """
    rng, outcomes = random.Random(seed), Counter[str]()
    last: deque[str] = deque(maxlen=CHECK_EVERY)
    end = None if seconds is None else time.monotonic() + seconds
    with Target(directory) as target:
        clients = FlightCalls(target.flight), RawFlight(target.flight), RocketMQ(target.rocketmq)
        flight, raw, rocketmq = clients
        http2, classic = Http2(target.rocketmq), Classic(target.remoting)
        http, mqtt = Http(target.http, target.http_admin, target.secret), MqttBytes(target.mqtt)
        link = LinkBytes(target.link)
        kinds: list[Callable[[random.Random], str]] = [
            *(flight.action, flight.action, flight.ticket, flight.put),
            *(raw.stream, raw.stream, raw.unary, rocketmq.call, rocketmq.call, http2.frames),
            *(classic.command, classic.command, classic.conversation, http.request, http.request, mqtt.conversation),
            *(link.conversation, link.conversation),
        ]
        sent = 0
        try:
            while (calls is None or sent < calls) and (end is None or time.monotonic() < end):
                kind = rng.choice(kinds)
                last.append(f"{kind.__qualname__} was called")
                last[-1] = kind(random.Random(rng.random()))
                outcomes[f"{kind.__qualname__}: {last[-1].rpartition(': ')[2]}"] += 1
                sent += 1
                if sent % CHECK_EVERY == 0:
                    target.check()
            target.check()
        except BaseException as error:
            error.add_note(f"seed {seed}, call {sent}; the last calls:\n" + "\n".join(each[:3000] for each in last))
            raise
        finally:
            for client in clients:
                client.close()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, metavar="N", help="how long (default: %(default)g)")
    parser.add_argument("--calls", type=int, metavar="N", help="how many at most")
    parser.add_argument("--seed", type=int, metavar="N", help="of a former run, to send the same calls again")
    given = parser.parse_args()
    seed = random.randrange(1 << 30) if given.seed is None else given.seed
    print(f'seed {seed}: make fuzz ARGS="--seed {seed}" sends the same', flush=True)
    directory = fast_directory()
    try:
        outcomes = fuzz(seed, directory, calls=given.calls, seconds=given.seconds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:>9,}  {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
