"""A consumer of a relay's target, in a process of its own: ``ADDRESS TOPIC COUNT PATH SECONDS``.

Saves an array of (number in the value, due time, moment at which it was seen; both in ms). Ends when COUNT different
records were seen and nothing came for a second, or after SECONDS.
"""

from __future__ import annotations

import struct
import sys
import time

import numpy as np
from confluent_kafka import Consumer


def main(address: str, topic: str, count: str, path: str, seconds: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"bench-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.subscribe([topic])
    seen: list[tuple[int, int, int]] = []
    numbers: set[int] = set()
    end, quiet = time.monotonic() + float(seconds), time.monotonic()
    print("ready", flush=True)
    while time.monotonic() < end:
        batch = [m for m in consumer.consume(5000, 0.02) if m.error() is None]
        now_ms = time.time_ns() // 1_000_000
        for message in batch:
            # Number and due time, which the producer put there: to look through the headers costs more than the rest.
            number, due = struct.unpack_from("<qq", message.value())
            seen.append((number, due, now_ms))
            numbers.add(number)
        if batch:
            quiet = time.monotonic()
        elif len(numbers) >= int(count) and time.monotonic() - quiet > 1:
            break
    consumer.close()
    np.save(path, np.array(seen, np.int64).reshape(-1, 3).T)


main(*sys.argv[1:])
