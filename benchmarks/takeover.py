"""A takeover: the owner of logs in an object store is killed, and a standby that follows goes on.

Requests take 60 ms longer, as to S3, or 8 ms, as to S3 Express. Clients know the addresses of both. The store is
versitygw (``make object-stores`` builds it) behind a proxy that delays; all of it shares the machine. Opt-in, since it
has to be built. ``TAKEOVERS`` in the environment says how many; ``KEEP`` names a directory that stays, with a file of
requests for each machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.engines.versitygw import BUCKET, environment_at, served
from tests.waiting import wait_until

from benchmarks.harness import Result, benchmark, free_endpoint, messages, now_ms, workspace
from benchmarks.store_proxy import delayed
from tarry import Client
from tarry.base.errors import TarryError
from tarry.log.objects.role import read_role

TAKEOVERS = int(os.environ.get("TAKEOVERS", "20"))
HOUR_MS = 3_600_000
EVERY_MS, AHEAD_MS = 50, 15_000
"""Messages are due so often, over the next 15 s, when the owner is killed."""
FOLLOWS_S = 4.0
"""A standby has followed for so long then."""


@benchmark(opt_in=True)
def takeover() -> list[Result]:
    """Kill -9 of the owner to the first accepted send and the first hand-out, with a standby."""
    return [result for delay_ms in (60, 8) for result in _measured(delay_ms)]


@dataclass(eq=False)
class Machine:
    """A broker that stands by or serves, with a way to the store of its own."""

    data: Path
    proxy: str
    trace: Path
    address: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | environment_at(self.proxy)
        command = [sys.executable, "-m", "tarry", "serve", "--data", str(self.data), "--flight", self.address]
        command += ["--pipeline", "off", "--set", "disk_free_bytes_min=0", "--standby"]
        command += ["--log", f"s3://{BUCKET}/log", "--store", f"s3://{BUCKET}/store"]
        with self.data.with_suffix(".log").open("a") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def requests(self, since_ms: float, until_ms: float) -> int:
        """Number of its requests in a span of time."""
        times = (float(line.split(" ", 1)[0]) for line in self.trace.read_text().splitlines())
        return sum(since_ms <= each < until_ms for each in times)

    def serves(self) -> bool:
        role = read_role(self.data) or {}
        return role.get("role") == "owner" and role.get("serving_ms") is not None

    def follows(self) -> bool:
        role = read_role(self.data) or {}
        return role.get("role") == "standby" and role.get("behind") is not None and role["behind"]["rounds"] == 0


@contextmanager
def _machines(directory: Path, delay_ms: int) -> Iterator[tuple[Machine, Machine]]:
    first, second = directory / "a.requests", directory / "b.requests"
    with (
        served(directory / "bucket") as endpoint,
        delayed(endpoint, delay_ms, first) as a,
        delayed(endpoint, delay_ms, second) as b,
    ):
        machines = (
            Machine(directory / "a", a, first, free_endpoint()),
            Machine(directory / "b", b, second, free_endpoint()),
        )
        try:
            yield machines
        finally:
            for each in machines:
                each.kill()


def _measured(delay_ms: int) -> list[Result]:
    keep = os.environ.get("KEEP")
    with nullcontext(Path(keep) / str(delay_ms)) if keep else workspace() as directory:
        directory.mkdir(parents=True, exist_ok=True)
        with _machines(directory, delay_ms) as (owner, standby):
            owner.start()
            wait_until(owner.serves, timeout_s=60)
            figures = []
            for _ in range(TAKEOVERS):
                standby.start()
                wait_until(standby.follows, timeout_s=60)
                time.sleep(FOLLOWS_S)
                figures.append(_killed(owner, standby))
                print(
                    "sent after {:.2f} s, handed out after {:.2f} s, {:.0f} requests".format(*figures[-1]), flush=True
                )
                owner, standby = standby, owner
    sends, hand_outs, requests = np.array(figures).T
    name = f"takeover, {delay_ms} ms a request"
    return [
        Result(f"{name}: kill -9 to the first accepted send, worst of {TAKEOVERS}", float(sends.max()), "s", "≤ 3"),
        Result(f"{name}: in the median", float(np.median(sends)), "s"),
        Result(f"{name}: to the first hand-out, worst", float(hand_outs.max()), "s", "≤ 5"),
        Result(f"{name}: in the median", float(np.median(hand_outs)), "s"),
        Result(f"{name}: requests of the standby up to the first send", float(np.median(requests)), ""),
    ]


def _killed(owner: Machine, standby: Machine) -> tuple[float, float, float]:
    """Kill the owner; return the seconds to the first accepted send and hand-out, and requests until the first."""
    addresses = f"{owner.address},{standby.address}"
    with Client(addresses) as client:
        due_ms = now_ms() + np.arange(1000, AHEAD_MS, EVERY_MS)
        client.schedule_batch(messages(len(due_ms), due_ms))
        killed_ms, first_ms = 0.0, 0.0
        is_handed = threading.Event()

        def consume() -> None:
            nonlocal first_ms
            while not is_handed.is_set():
                with suppress(TarryError), client.consume("bench", group="bench") as consumer:
                    for message in consumer:
                        message.ack()
                        # Due later than the kill: it is not the former owner that has handed it out.
                        if killed_ms and message.due_ms > killed_ms:
                            first_ms = time.time_ns() / 1e6
                            is_handed.set()
                            return

        consumer = threading.Thread(target=consume)
        consumer.start()
        time.sleep(1.5)
        killed_ms = time.time_ns() / 1e6
        owner.kill()
        while True:
            with suppress(TarryError):
                client.schedule("later", b"first", due=now_ms() + HOUR_MS)
                break
        sent_ms = time.time_ns() / 1e6
        consumer.join(60)
        assert is_handed.is_set(), "nothing was handed out within a minute"
    return (sent_ms - killed_ms) / 1000, (first_ms - killed_ms) / 1000, standby.requests(killed_ms, sent_ms)
