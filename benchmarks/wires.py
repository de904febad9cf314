"""The two native wires beside each other, in turn: single messages by the link and by Arrow Flight.

For each number of messages in flight the median of some rounds, in each of which both are measured: rate, CPU of the
client and of the broker a message. Some two minutes; ``TARRY_WIRES_ROUNDS`` (3) and ``TARRY_WIRES_S`` (3).
"""

from __future__ import annotations

import json
import os
from statistics import median

from benchmarks.harness import Result, benchmark, child, server

ROUNDS = int(os.environ.get("TARRY_WIRES_ROUNDS", "3"))
SECONDS = os.environ.get("TARRY_WIRES_S", "3")
IN_FLIGHT = (1, 64, 256, 1024)
WIRES = ("link", "flight")


@benchmark
def wires() -> list[Result]:
    """Rates and costs by wire."""
    rows = []
    for in_flight in IN_FLIGHT:
        found: dict[str, list[tuple[float, float, float]]] = {wire: [] for wire in WIRES}
        for _ in range(ROUNDS):
            for wire in WIRES:
                found[wire].append(_measure(wire, in_flight))
        for place, (name, unit) in enumerate((("rate", "/s"), ("client", "µs"), ("broker", "µs"))):
            link, flight = (median(each[place] for each in found[wire]) for wire in WIRES)
            rows.append(Result(f"wires: {in_flight} in flight: {name}, by the link", link, unit))
            rows.append(Result(f"wires: {in_flight} in flight: {name}, by Flight", flight, unit))
    return rows


def _measure(wire: str, in_flight: int) -> tuple[float, float, float]:
    with server() as broker:
        spent_s = broker.cpu_s()
        client = child("wires_clients", wire, broker.address, str(in_flight), SECONDS)
        said, _ = client.communicate()
        found = json.loads(said)
        messages = found["per_s"] * float(SECONDS)
        return found["per_s"], found["cpu_us"], (broker.cpu_s() - spent_s) / messages * 1e6
