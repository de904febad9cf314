"""What a message costs the broker behind a gateway: CPU in loop-µs (see :mod:`benchmarks.cost`), in full streams of
batches as gateways under load send them, and through RocketMQ's client for Java with one worker.

The first need nothing but Python; the last needs Java and Maven, and is ``gateway_java``. Some twenty seconds each.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.cost import Measured, Work, _broker, _end, measure
from benchmarks.cost_clients import BODY_BYTES, TOPIC
from benchmarks.gateway_clients import GROUP
from benchmarks.harness import Result, Server, benchmark, child, free_endpoint
from benchmarks.peers.rocketmq import client as java
from tarry import Client

LINKS = 2
SENDS = {32: 30_000, 256: 100_000}
"""How many are sent, by the rows of a batch."""
DELIVERED, RECEIVE_ROWS = 60_000, 32
JAVA_SENDS = 15_000
LEAD_S = 2.0


def _send(address: str, rows: int) -> Work:
    def work(_: Server) -> dict[str, dict[str, Any]]:
        links = [child("gateway_clients", "send", address, str(rows), str(SENDS[rows])) for _ in range(LINKS)]
        return {f"link {number}": _end(link) for number, link in enumerate(links)}

    return work


def _deliver(address: str) -> Work:
    def work(_: Server) -> dict[str, dict[str, Any]]:
        return {"link": _end(child("gateway_clients", "consume", address, str(RECEIVE_ROWS), str(DELIVERED)))}

    return work


def _fill(broker: Server) -> None:
    """So many messages that are due, and a group that has seen none of them."""
    ids = [f"{number:032x}" for number in range(DELIVERED)]
    due_ms = np.full(DELIVERED, time.time_ns() // 1_000_000, np.int64)
    with Client(broker.address) as client:
        client.set_group(TOPIC, GROUP, start="earliest")
        body = [b"x" * BODY_BYTES] * DELIVERED
        client.schedule_batch(pa.table({"topic": [TOPIC] * DELIVERED, "body": body, "due_ms": due_ms, "id": ids}))


def _row(name: str, measured: Measured, messages: int, bar: str = "") -> Result:
    print(f"  {name}: loop {measured.loop_s:.2f} s; {measured.threads}; {measured.found}", flush=True)
    return Result(
        f"gateway: {name}: broker, CPU a message", measured.cpu_s / messages * 1e6 / measured.loop_s, "loop-µs", bar
    )


@benchmark
def gateway() -> list[Result]:
    """Links alone."""
    rows = []
    for size, count in SENDS.items():
        with _broker({"gateway": "127.0.0.1:0"}) as broker:
            address = _address(broker)
            rows.append(_row(f"sends, {size} in a batch", measure(broker, _send(address, size)), LINKS * count))
    with _broker({"gateway": "127.0.0.1:0"}) as broker:
        _fill(broker)
        measured = measure(broker, _deliver(_address(broker)))
        rows.append(_row("delivered and acknowledged, 32 a poll", measured, DELIVERED, "≤ 10"))
    return rows


def _address(broker: Server) -> str:
    """Where gateways connect: the port that only this listens on, beside Flight's."""
    ports = {c.laddr.port for c in psutil.Process(broker.process.pid).net_connections() if c.status == "LISTEN"}
    [port] = ports - {int(broker.address.rpartition(":")[2])}
    return f"127.0.0.1:{port}"


@benchmark(opt_in=True)
def gateway_java() -> list[Result]:
    """RocketMQ's client: one connection, so one worker has all of it."""
    rows = []
    for workers in (0, 1):
        endpoint = free_endpoint()
        with _broker({"rocketmq": endpoint, "workers": workers}) as broker:

            def work(broker: Server, endpoint: str = endpoint) -> dict[str, dict[str, Any]]:
                return {"Java": java.send(endpoint, TOPIC, count=JAVA_SENDS, warm_s=LEAD_S, meter=broker.cpu_s)}

            measured = measure(broker, work)
            # Without what the client has sent to warm up.
            measured = replace(measured, cpu_s=measured.found["Java"]["spent"])
            rows.append(_row(f"Java v5, sends, 64 in flight, {workers} workers", measured, JAVA_SENDS))
    return rows
