"""A consumer process: reads ``count`` messages of a topic as a user does, acknowledges each, prints what it saw.

``python -m benchmarks.consume ADDRESS TOPIC COUNT FILE``: FILE gets an int64 array of (seq, due_ms, seen_us) rows.
"""

from __future__ import annotations

import gc
import sys
import time

import numpy as np

from tarry import Client


def main(address: str, topic: str, count: int, path: str) -> None:
    seqs, dues, seen = [], [], []
    sys.setswitchinterval(0.0005)
    gc.freeze()
    gc.disable()
    with Client(address) as client, client.consume(topic, group="bench", prefetch=50_000) as consumer:
        print("ready", flush=True)
        for message in consumer:
            seen.append(time.time_ns())
            dues.append(message.due_ms)
            seqs.append(message.seq)
            message.ack()
            if len(seen) == count:
                break
        consumer.flush()
    np.save(path, np.array([seqs, dues, [s // 1000 for s in seen]], np.int64))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
