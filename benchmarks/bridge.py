"""The bridge beside RabbitMQ: how late messages come to a program, what of that the bridge adds, and what each costs.

A program publishes at a steady rate, each message due some seconds later, and another takes from the target queue. A
second group of Tarry's gets the same messages without the bridge: the difference is what the bridge and RabbitMQ add.
TARRY_BENCH_BRIDGE_RATE and TARRY_BENCH_BRIDGE_SECONDS change the load. It needs Debian's rabbitmq-server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from tests.rabbitmq.server import RabbitServer
from tests.waiting import wait_until

from benchmarks.harness import Result, benchmark, child, percentiles, server, workspace
from tarry import Client

RATE = int(os.environ.get("TARRY_BENCH_BRIDGE_RATE", "2000"))
SECONDS = int(os.environ.get("TARRY_BENCH_BRIDGE_SECONDS", "30"))
TOPIC, LOOK = "rabbitmq.delayed", "look"


@benchmark(opt_in=True)
def bridge() -> list[Result]:
    """Measure a steady load."""
    count = RATE * SECONDS
    with workspace() as directory, server(push="off") as tarry, _rabbit(directory / "rabbit") as rabbit:
        with Client(tarry.address) as client, _bridge(directory, tarry.address, rabbit.url) as bridge_process:
            client.set_group(TOPIC, LOOK)
            taker = child("bridge_clients", "take", rabbit.url, str(count), str(directory / "came.npy"))
            assert taker.stdout is not None and taker.stdout.readline()
            direct = np.zeros(count)
            looking = threading.Thread(target=_look, args=(client, direct))
            looking.start()
            processes = (psutil.Process(tarry.process.pid), bridge_process, rabbit.process)
            before = [_cpu_s(process) for process in processes]
            began = time.time()
            publisher = child(
                "bridge_clients", "publish", rabbit.url, str(count), str(RATE), str(directory / "due.npy")
            )
            published_s, taken_s = (_ended(each) - began for each in (publisher, taker))
            looking.join()
            cost_us = [(_cpu_s(process) - past) * 1e6 / count for process, past in zip(processes, before, strict=True)]
        due, came = (np.load(directory / f"{name}.npy") for name in ("due", "came"))
    late = (came - due) * 1000
    p50, p99 = percentiles(late, 50, 99)
    [own_p99] = percentiles((direct - due) * 1000, 99)
    [added_p99] = percentiles((came - direct) * 1000, 99)
    return [
        Result("bridge: messages published", count / published_s, "/s"),
        Result("bridge: messages through it", count / taken_s, "/s"),
        Result("bridge: lateness at the program, p50", p50, "ms"),
        Result("bridge: lateness at the program, p99", p99, "ms"),
        Result("bridge: lateness without it, p99", own_p99, "ms"),
        Result("bridge: lateness that it adds, p99", added_p99, "ms", "≤ 25"),
        *(
            Result(f"bridge: CPU of a message in {name}", cost, "µs")
            for name, cost in zip(("Tarry", "the bridge", "RabbitMQ"), cost_us, strict=True)
        ),
    ]


def _look(client: Client, direct: np.ndarray) -> None:
    left = len(direct)
    with client.consume(TOPIC, group=LOOK, prefetch=10_000) as consumer:
        for batch in consumer.batches():
            numbers = [int(body) for body in batch.data.column("body").to_pylist()]
            direct[numbers] = batch.arrived_ms / 1000
            batch.ack()
            left -= len(numbers)
            if not left:
                break


@contextmanager
def _rabbit(directory: Path) -> Iterator[RabbitServer]:
    rabbit = RabbitServer(directory)
    try:
        yield rabbit
    finally:
        rabbit.kill()


@contextmanager
def _bridge(directory: Path, endpoint: str, url: str) -> Iterator[psutil.Process]:
    words = ("bridge", "rabbitmq", "--url", url, "--endpoint", endpoint, "--exchange", "orders.delayed=orders")
    log = directory / "bridge.log"
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", "tarry", *words], stdout=file, stderr=file)
    try:
        wait_until(lambda: "connected to RabbitMQ" in log.read_text())
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _ended(process: subprocess.Popen[str]) -> float:
    """Wait for the end of a program; return when that was."""
    if process.wait():
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    return time.time()


def _cpu_s(process: psutil.Process) -> float:
    return sum(times.user + times.system for times in (process.cpu_times(), *_children(process)))


def _children(process: psutil.Process) -> Iterator[psutil._common.pcputimes]:
    for each in process.children(recursive=True):
        yield each.cpu_times()
