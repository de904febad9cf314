"""``make fuzz``: nearly valid calls on every front of a broker, for as long as asked.

The broker has to answer or to refuse each, to go on, and to serve a good client beside it; its log must show no bug. A
run prints its seed, and every failure the last calls; the same seed sends the same calls again.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from tests.fuzz.calls import FlightCalls, RawFlight, RocketMQ
from tests.fuzz.http import Http
from tests.fuzz.link import LinkBytes
from tests.fuzz.running import Kind, Run, run_command
from tests.fuzz.sockets import Classic, Http2, MqttBytes
from tests.fuzz.target import Target

CHECK_EVERY = 25
"""Calls between two looks at the broker."""


def fuzz(run: Run, directory: Path) -> Counter[str]:
    """Send calls; how often each kind was sent, and how it was answered.

    Raises:
        AssertionError: something does not hold.
    """
    with (
        Target(directory) as target,
        closing(FlightCalls(target.address("flight"))) as flight,
        closing(RawFlight(target.address("flight"))) as raw,
        closing(RocketMQ(target.address("rocketmq"))) as rocketmq,
    ):
        http2, classic = Http2(target.address("rocketmq")), Classic(target.address("remoting"))
        http = Http(target.address("http"), target.address("http admin"), target.secret)
        mqtt, link = MqttBytes(target.address("mqtt")), LinkBytes(target.address("link"))
        kinds: list[Kind] = [
            *(flight.action, flight.action, flight.ticket, flight.put),
            *(raw.stream, raw.stream, raw.unary, rocketmq.call, rocketmq.call, http2.frames),
            *(classic.command, classic.command, classic.conversation, http.request, http.request, mqtt.conversation),
            *(link.conversation, link.conversation),
        ]
        return run.send(kinds, lambda _: target.check(), CHECK_EVERY)


if __name__ == "__main__":
    sys.exit(run_command(fuzz, "fuzz", __doc__))
