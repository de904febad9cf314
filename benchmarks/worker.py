"""What a worker costs a message beside a bare ``async for`` of the same client: CPU time of the process, in turn.

All of a topic's messages are there from the start, or come at a steady rate; each client is a process of its own with a
group of its own, so that all get the same messages.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import pyarrow as pa

from benchmarks.harness import Result, Server, benchmark, messages, server
from tarry import Client

HERD = 100_000
PACED, PER_SECOND = 10_000, 2_000
ROUNDS = 3
MODES = ("consume", "worker", "threads")
OVERHEAD_US_MAX = 15


@benchmark
def worker() -> list[Result]:
    results = []
    with server() as broker:
        for load, rows in (("herd", HERD), (f"{PER_SECOND:,}/s", PACED)):
            cpu_us: dict[str, list[float]] = {mode: [] for mode in MODES}
            for number in range(ROUNDS):
                for mode in MODES:
                    cpu_us[mode].append(_run(broker, mode, load, rows, number))
            bare = statistics.median(cpu_us["consume"])
            results.append(Result(f"consume(), asyncio, {load}", bare, "CPU µs a message"))
            for mode in ("worker", "threads"):
                name = "an async handler" if mode == "worker" else "a plain function, in a thread"
                above = statistics.median(a - b for a, b in zip(cpu_us[mode], cpu_us["consume"], strict=True))
                results.append(
                    Result(f"worker above consume(), {name}, {load}", above, "CPU µs a message", f"≤ {OVERHEAD_US_MAX}")
                )
                results.append(Result(f"worker to consume(), {name}, {load}", 1 + above / bare, "ratio"))
    return results


def _run(broker: Server, mode: str, load: str, rows: int, number: int) -> float:
    """CPU µs a message of a client that handles all of a load."""
    topic = f"herd-{number}" if load == "herd" else f"paced-{number}-{mode}"
    command = [sys.executable, "-m", "benchmarks.worker_clients", mode, broker.address, topic, mode, str(rows)]
    with Client(broker.address) as client:
        if load == "herd" and mode == MODES[0]:
            for each in MODES:  # what all groups have settled is deleted, so all of them are there first
                client.set_group(topic, each, tries=0)
            client.schedule_batch(messages(rows, int(time.time() * 1000), topic))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        if load != "herd":
            _pace(client, topic, rows)
        [line] = process.stdout.read().splitlines()
        assert process.wait() == 0
    return float(json.loads(line)["cpu_s"]) / rows * 1e6


def _pace(client: Client, topic: str, rows: int) -> None:
    """Schedule messages, due at once, a few every 2 ms."""
    few = PER_SECOND // 500
    table = pa.Table.from_batches([messages(rows, 0, topic)]).drop_columns(["due_ms"])
    table = table.append_column("delay_ms", pa.array([0] * rows))
    began_s = time.perf_counter()
    for start in range(0, rows, few):
        client.schedule_batch(table.slice(start, few))
        time.sleep(max(0.0, began_s + start / PER_SECOND - time.perf_counter()))
