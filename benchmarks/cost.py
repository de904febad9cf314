"""What a message costs: CPU time (user and system) of the broker and of its clients a message, natively and through
RocketMQ's official v5 client for Java, in a full stream and at steady rates.

Machines differ, and one machine's speed by the hour, so it is given in **loop-µs**: microseconds, divided by the
seconds that 20 million steps of ``for i in range(n): x += i`` take in this Python (:mod:`benchmarks.loop`), measured
just before and just after, and averaged. What one thread of the broker takes is printed, not kept: see
:mod:`benchmarks.named_threads`.

About a minute. ``TARRY_COST_S`` is for how many seconds each rate is held (3), ``TARRY_COST_ONLY`` chooses workloads by
a part of their names (``native``, ``64 in flight``).
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cost_clients import TOPIC
from benchmarks.harness import Result, Server, benchmark, child, free_endpoint, server
from benchmarks.loop import loop_s
from benchmarks.peers.rocketmq import client as java
from tarry import Client

SECONDS = float(os.environ.get("TARRY_COST_S", "3"))
ONLY = os.environ.get("TARRY_COST_ONLY", "")
RATES = (200, 1000, 2000)
SENDS = 60_000
"""Of the native client; of Java's, a quarter."""
WARM = 200
LOOK_S = 0.2
TICKS_S = os.sysconf("SC_CLK_TCK")
THREAD_SHARE_MIN = 0.02


class Threads(threading.Thread):
    """Watches the threads of a process, as some end before the measurement does. End it with :meth:`stop`."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._tasks = Path(f"/proc/{pid}/task")
        self._before = self._look()
        self._latest = dict(self._before)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self._latest |= self._look()

    def stop(self) -> dict[str, float]:
        """CPU seconds since the beginning, by the name of the threads."""
        self._stopping.set()
        self.join()
        self._latest |= self._look()
        seconds = Counter[str]()
        for task, (name, ticks) in self._latest.items():
            seconds[name] += (ticks - self._before.get(task, ("", 0))[1]) / TICKS_S
        return dict(seconds)

    def _look(self) -> dict[str, tuple[str, int]]:
        seen = {}
        for task in self._tasks.iterdir():
            try:
                name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
            except OSError:
                continue  # it has ended
            fields = rest.split()
            seen[task.name] = name, int(fields[11]) + int(fields[12])
        return seen


@dataclass(frozen=True)
class Measured:
    """CPU seconds of the broker while ``messages`` were accepted, and what its clients found."""

    messages: int
    cpu_s: float
    loop_s: float
    threads: dict[str, float]
    found: dict[str, dict[str, Any]]

    def cost(self, cpu_s: float) -> float:
        """In loop-µs a message."""
        return cpu_s / self.messages * 1e6 / self.loop_s


Work = Callable[[Server], dict[str, dict[str, Any]]]
"""Puts messages through a broker; what each client found, by its name."""


def measure(broker: Server, work: Work) -> Measured:
    _warm(broker)
    before_loop_s, accepted, cpu_s = loop_s(), _accepted(broker), broker.cpu_s()
    threads = Threads(broker.process.pid)
    threads.start()
    found = work(broker)
    by_thread, cpu_s = threads.stop(), broker.cpu_s() - cpu_s
    accepted = _accepted(broker) - accepted
    return Measured(accepted, cpu_s, (before_loop_s + loop_s()) / 2, by_thread, found)


def _warm(broker: Server) -> None:
    """What is imported, made and begun with the first message is not the cost of the next one."""
    consumer = _client("consume", broker, WARM)
    _end(_client("paced", broker, WARM, WARM))
    _end(consumer)


def _accepted(broker: Server) -> int:
    with Client(broker.address) as client:
        return int(client.status()["accepted"])


# -- native ------------------------------------------------------------------------------------------------------------


def _native_sends(broker: Server) -> dict[str, dict[str, Any]]:
    return {"producer": _end(_client("send", broker, SENDS))}


def _native_paced(rate: int) -> Work:
    def work(broker: Server) -> dict[str, dict[str, Any]]:
        count = int(rate * SECONDS)
        consumer = _client("consume", broker, count)
        producer = _client("paced", broker, count, rate)
        return {"producer": _end(producer), "consumer": _end(consumer)}

    return work


def _client(mode: str, broker: Server, count: int, rate: int = 0) -> subprocess.Popen[str]:
    process = child("cost_clients", mode, broker.address, str(count), str(rate))
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _end(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=300)
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


# -- RocketMQ's client for Java ----------------------------------------------------------------------------------------


def _java_sends(endpoint: str) -> Work:
    return lambda _: {"Java": java.send(endpoint, TOPIC, count=SENDS // 4, warm_s=2)}


def _java_paced(endpoint: str, rate: int) -> Work:
    quick = {"warm_s": 1, "linger_s": 0.5}
    return lambda _: {"Java": java.paced(endpoint, TOPIC, f"{TOPIC}-{rate}", rate=rate, seconds=SECONDS, **quick)}


def _java_herd(endpoint: str) -> Work:
    def work(_: Server) -> dict[str, dict[str, Any]]:
        return {"Java": java.herd(endpoint, TOPIC, f"{TOPIC}-herd", count=SENDS // 4, warm_s=1, linger_s=0.5)}

    return work


# -- all of them -------------------------------------------------------------------------------------------------------


def workloads() -> Iterator[tuple[str, dict[str, Any], Work]]:
    """Name, settings of the broker, work."""
    yield "native, sends, 64 in flight", {}, _native_sends
    for rate in RATES:
        yield f"native, {rate:,}/s", {}, _native_paced(rate)
    endpoint = free_endpoint()
    settings = {"rocketmq": endpoint}
    yield "Java v5, sends, 64 in flight", settings, _java_sends(endpoint)
    yield "Java v5, herd", settings, _java_herd(endpoint)
    for rate in RATES:
        yield f"Java v5, {rate:,}/s", settings, _java_paced(endpoint, rate)


@contextmanager
def _broker(settings: dict[str, Any]) -> Iterator[Server]:
    with server(module="benchmarks.named_threads", **settings) as broker:
        yield broker


@benchmark
def cost() -> list[Result]:
    """A fresh broker for each workload."""
    rows = []
    for name, settings, work in workloads():
        if ONLY in name:
            with _broker(settings) as broker:
                rows += _rows(name, measure(broker, work))
    return rows


def _rows(name: str, measured: Measured) -> list[Result]:
    threads = sorted(measured.threads.items(), key=lambda each: -each[1])
    shown = [f"{n} {measured.cost(s):.1f}" for n, s in threads if s >= THREAD_SHARE_MIN * measured.cpu_s]
    print(f"  {name}: {measured.messages} messages; loop {measured.loop_s:.2f} s; {', '.join(shown)}", flush=True)
    rows = [
        Result(f"cost: {name}: broker, CPU a message", measured.cost(measured.cpu_s), "loop-µs"),
        Result(f"cost: {name}: broker, CPU a message as measured", measured.cpu_s / measured.messages * 1e6, "µs"),
    ]
    for client, found in measured.found.items():
        print(f"    {client}: {found}", flush=True)
        if "cpu_s" in found:
            rows.append(Result(f"cost: {name}: {client}, CPU a message", measured.cost(found["cpu_s"]), "loop-µs"))
    return rows
