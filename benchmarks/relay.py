"""Cluster mode: a relay, its Kafka, producers and consumers, all on this machine.

TARRY_BENCH_RELAY_SECONDS and TARRY_BENCH_RELAY_HERD make the runs shorter or longer, TARRY_BENCH_RELAY_LEAD_MS sends a
herd sooner, for a slow machine.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.server import Kafka, kafka

from benchmarks.harness import BODY_BYTES, Result, benchmark, child, now_ms, percentiles, workspace
from tarry.spark.runtime.process import kill_session

SECONDS = int(os.environ.get("TARRY_BENCH_RELAY_SECONDS", "60"))
HERD = int(os.environ.get("TARRY_BENCH_RELAY_HERD", "200000"))
LEAD_MS = int(os.environ.get("TARRY_BENCH_RELAY_LEAD_MS", "20000"))
"""How long before it is due a herd is sent, and the same again for each 200,000."""
PARTITIONS = 4
FILL = os.urandom(BODY_BYTES - 16)


@dataclass
class World:
    """A relay that runs, and its Kafka."""

    server: Kafka
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, ready=lambda now: now["schedule"]["batches"] > 0) -> None:
        """Start the relay. When it takes up its topics that is a batch; when it is started again, there is none."""
        command = [sys.executable, "-m", "tarry", "relay", "--kafka", self.server.address, "--topics", "bench"]
        command += ["--store", str(self.directory / "store"), "--checkpoint", str(self.directory / "checkpoint")]
        with (self.directory / "out").open("wb") as out, (self.directory / "err").open("ab") as err:
            more = ["--set", "status_interval_ms=250"]
            self.process = subprocess.Popen([*command, *more], stdout=out, stderr=err, start_new_session=True)
        self.wait(ready)

    def status(self) -> dict:
        lines = (self.directory / "out").read_bytes().splitlines()
        return json.loads(lines[-1]) if lines else {}

    def wait(self, done, timeout_s: float = 180) -> dict:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            now = self.status()
            if now and done(now):
                return now
            time.sleep(0.1)
        raise RuntimeError(f"it did not happen; the last status: {self.status()}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(60)
        kill_session(self.process.pid)

    def cpu_s(self) -> dict[str, float]:
        """CPU time until now, by who used it: Spark's tasks (Python workers), the driver, its JVM, and the rest (the
        query's source). Processes that have ended are not in it: the long ones live."""
        assert self.process is not None
        used = dict.fromkeys(("tasks", "driver", "jvm", "rest"), 0.0)
        driver = psutil.Process(self.process.pid)
        for process in (driver, *driver.children(recursive=True)):
            try:
                line, times = " ".join(process.cmdline()), process.cpu_times()
            except psutil.Error:
                continue
            if process == driver:
                who = "driver"
            else:
                who = "jvm" if "SparkSubmit" in line else "tasks" if ".daemon" in line else "rest"
            used[who] += times.user + times.system
        return used

    def consumer(self, rows: int, seconds: float) -> tuple[subprocess.Popen[str], Path]:
        path = self.directory / "seen.npy"
        process = child("relay_consume", self.server.address, "bench-due", str(rows), str(path), str(seconds))
        assert process.stdout is not None
        process.stdout.readline()
        return process, path

    def produce(self, rows: int, per_second: float, due) -> None:
        """Send ``rows``, at a rate; ``due(i)`` is when row i is due."""
        # A herd is sent at once: more than librdkafka's 100,000 may wait.
        waiting = {"queue.buffering.max.messages": 1_000_000}
        producer = Producer({"bootstrap.servers": self.server.address, "linger.ms": 5, **waiting})
        begun, sent = time.perf_counter(), 0
        while sent < rows:
            until = min(rows, int((time.perf_counter() - begun) * per_second) + 1)
            for i in range(sent, until):
                due_ms = due(i)
                headers = [("tarry-due-ms", b"%d" % due_ms)]
                producer.produce("bench", struct.pack("<qq", i, due_ms) + FILL, b"k%d" % (i % 1000), headers=headers)
            sent = until
            producer.poll(0.001)
        producer.flush()


@contextmanager
def world() -> Iterator[World]:
    with kafka() as server, workspace() as directory:
        admin = AdminClient({"bootstrap.servers": server.address})
        for future in admin.create_topics([NewTopic(t, PARTITIONS) for t in ("bench", "bench-due")]).values():
            future.result(30)
        found = World(server, directory)
        found.start()
        try:
            yield found
        finally:
            found.kill(signal.SIGTERM)


def _lost_and_twice(seen: np.ndarray, rows: int) -> tuple[int, int]:
    different = len(np.unique(seen[0]))
    return rows - different, seen.shape[1] - different


def _shares(what: str, before: dict[str, float], after: dict[str, float]) -> list[Result]:
    used = {who: after[who] - before[who] for who in after}
    python = used["tasks"] + used["driver"]
    return [
        Result(f"{what}: CPU of tasks", used["tasks"], "s"),
        Result(f"{what}: CPU of the driver", used["driver"], "s"),
        Result(f"{what}: CPU of Spark's JVM, and of the query's source", used["jvm"] + used["rest"], "s"),
        Result(f"{what}: the tasks' part of what Python does", 100 * used["tasks"] / max(python, 0.01), "%"),
    ]


@benchmark
def relay_rate() -> list[Result]:
    """25,000 msg/s come in, due 3 to 6 s later: the rates at which they are read, and handed on."""
    rows = 25_000 * SECONDS
    rng = np.random.default_rng(1)
    delays = rng.integers(3_000, 6_000, rows).tolist()
    with world() as relay:
        consumer, path = relay.consumer(rows, SECONDS * 4 + 60)
        begun, before = time.perf_counter(), relay.cpu_s()
        relay.produce(rows, 25_000, lambda i: now_ms() + delays[i])
        relay.wait(lambda now: now["counts"].get("read", 0) >= rows)
        read_s = time.perf_counter() - begun
        consumer.wait()
        seen, after = np.load(path), relay.cpu_s()
    lost, twice = _lost_and_twice(seen, rows)
    out_s = (seen[2].max() - seen[2].min()) / 1000
    late = seen[2] - seen[1]
    return [
        Result("relay: in, from the first record sent to the last read", rows / read_s, "msg/s", "≥ 20000"),
        Result("relay: out, from the first record seen to the last", rows / out_s, "msg/s", "≥ 20000"),
        Result("relay: lateness p99 at 25,000 msg/s", percentiles(late, 99)[0], "ms"),
        Result("relay at 25,000 msg/s: lost or twice", float(lost + twice), "messages", "≤ 0"),
        *_shares("relay at 25,000 msg/s", before, after),
    ]


@benchmark
def relay_lateness() -> list[Result]:
    """2,000 msg/s, delays of 1 to 10 s, until a consumer of committed records has seen them."""
    rows = 2_000 * SECONDS
    delays = np.random.default_rng(2).integers(1_000, 10_000, rows).tolist()
    with world() as relay:
        consumer, path = relay.consumer(rows, SECONDS + 90)
        before = relay.cpu_s()
        relay.produce(rows, 2_000, lambda i: now_ms() + delays[i])
        consumer.wait()
        seen, after = np.load(path), relay.cpu_s()
    late = seen[2] - seen[1]
    p50, p99 = percentiles(late, 50, 99)
    lost, twice = _lost_and_twice(seen, rows)
    return [
        Result("relay at 2,000 msg/s: lateness p50", p50, "ms"),
        Result("relay: lateness p99", p99, "ms", "≤ 400"),
        Result("relay: lateness max", float(late.max()), "ms"),
        Result("relay: early", float((late < 0).sum()), "messages", "≤ 0"),
        Result("relay: lost or twice", float(lost + twice), "messages", "≤ 0"),
        *_shares("relay at 2,000 msg/s", before, after),
    ]


@benchmark
def relay_herd() -> list[Result]:
    """A herd, due within one second: when the last was seen, after that second."""
    with world() as relay:
        consumer, path = relay.consumer(HERD, 180)
        due = now_ms() + LEAD_MS + HERD // 10
        before = relay.cpu_s()
        relay.produce(HERD, 1e9, lambda i: due + i % 1000)
        relay.wait(lambda now: now["counts"].get("stored", 0) >= HERD)
        assert now_ms() < due - 1_000, "scheduling took too long for this machine"
        consumer.wait()
        seen, after = np.load(path), relay.cpu_s()
    lost, twice = _lost_and_twice(seen, HERD)
    return [
        Result(f"relay: herd of {HERD:,}, last", (seen[2].max() - due) / 1000 - 1, "s", "≤ 1"),
        Result("relay: herd, early", float((seen[2] < seen[1]).sum()), "messages", "≤ 0"),
        Result("relay: herd, lost or twice", float(lost + twice), "messages", "≤ 0"),
        *_shares("relay: herd", before, after),
    ]


@benchmark
def relay_kill() -> list[Result]:
    """kill -9 of the driver, and then of Kafka, inside of a herd."""
    results = []
    for what in ("driver", "Kafka"):
        with world() as relay:
            due = now_ms() + 20_000 + HERD // 10
            relay.produce(HERD, 1e9, lambda i, due=due: due + i % 1000)
            relay.wait(lambda now: now["counts"].get("stored", 0) >= HERD)
            time.sleep(max(0, due + 300 - now_ms()) / 1000)
            killed = time.monotonic()
            if what == "driver":
                relay.kill()
                relay.start(lambda now: now["counts"].get("delivered", 0) > 0)
                now = relay.status()
                ready = now.get("delivers_ms") and now["delivers_ms"] - now["session_ms"]
            else:
                relay.server.kill()
                relay.server.start()
            consumer, path = relay.consumer(HERD, 180)
            consumer.wait()
            seconds = time.monotonic() - killed
            lost, twice = _lost_and_twice(np.load(path), HERD)
        results += [
            Result(f"relay: kill -9 of {what} in a herd, lost", float(lost), "messages", "≤ 0"),
            Result(f"relay: kill -9 of {what} in a herd, twice", float(twice), "messages", "≤ 0"),
            Result(f"relay: kill -9 of {what}, until all were seen", seconds, "s"),
        ]
        if what == "driver" and ready:
            results.append(Result("relay: from Spark's session to deliveries by all shards", ready / 1000, "s", "≤ 3"))
    return results
