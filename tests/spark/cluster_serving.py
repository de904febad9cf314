"""A broker with its pipeline on a cluster, and what is sent through it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tarry.client import Client
from tests.sources import PYTHON_PATH, SOURCE_ROOTS
from tests.waiting import wait_until

from .exactness import now_ms

WAVE = 70_000
"""Rows enough for two ranges, so for two tasks."""
DUE_IN_MS = 90_000
"""Of what is to be delivered: from the store, where the pipeline is quick enough."""
HOUR_MS = 3_600_000
PATIENCE_S = 240.0
SETTINGS: dict[str, str | int] = {
    "schedule_interval_ms": 500,
    "horizon_ms": 1000,
    "checkpoint_interval_ms": 50,
    "compact_interval_ms": 1000,
    "spark_memory": "512m",
    "disk_free_bytes_min": 0,
}


def lines(**conf: str) -> str:
    """As the setting ``spark_conf`` takes them."""
    ours = {
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": PYTHON_PATH,
    }
    return "\n".join(f"{name}={value}" for name, value in (ours | conf).items())


def wait_committed(client: Client, seq: int) -> None:
    wait_until(
        lambda: client.status()["store"]["committed_seq"] >= seq, PATIENCE_S, lambda: client.status()["pipeline"]
    )


class Waves:
    """What was scheduled, in waves of :data:`WAVE`; every second one is due soon."""

    def __init__(self, client: Client, due_in_ms: int = DUE_IN_MS) -> None:
        self._client, self._due_in_ms = client, due_in_ms
        self.rows = 0
        self.due: dict[int, int] = {}

    def send(self) -> None:
        numbers = range(self.rows, self.rows + WAVE)
        soon = now_ms() + self._due_in_ms
        self.due |= {n: soon + n % 2000 for n in numbers if n % 2}
        due = [self.due.get(n, soon + 86_400_000 + n) for n in numbers]
        bodies = [b"%d" % n for n in numbers]
        self._client.schedule_batch(pa.table({"topic": ["t"] * WAVE, "due_ms": due, "body": bodies}))
        self.rows += WAVE

    def check(self) -> None:
        """Each that is due comes once and not early; all others are pending."""
        got: list[int] = []
        with self._client.consume("t", group="g", timeout=1) as consumer:
            end = time.monotonic() + PATIENCE_S
            while len(got) < len(self.due):
                assert time.monotonic() < end, f"{len(got)} of {len(self.due)} came"
                for batch in consumer.batches():
                    now, numbers = now_ms(), [int(body) for body in batch.data["body"].to_pylist()]
                    assert all(self.due[number] <= now for number in numbers), "early"
                    got += numbers
                    batch.ack()
            consumer.flush()
        assert sorted(got) == sorted(self.due)
        assert [(t.pending, t.ready) for t in self._client.pending() if t.topic == "t"] == [(self.rows - len(got), 0)]


def pipeline(client: Client) -> dict[str, Any]:
    return dict(client.status()["pipeline"])


def environment(directory: Path, archive: Path) -> None:
    """What ``venv-pack`` makes, with links in the place of copies."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", directory], check=True, timeout=60)
    [packages] = directory.glob("lib/python*/site-packages")
    sources = [*map(str, SOURCE_ROOTS), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "those.pth").write_text("\n".join(sources))
    with tarfile.open(archive, "w:gz") as packed:
        for each in directory.iterdir():
            packed.add(each, each.name)


@contextmanager
def serving(cwd: Path, settings: Mapping[str, str | int], **variables: str) -> Iterator[str]:
    """``tarry serve`` as from a shell that knows nothing of this environment; its address."""
    command = [sys.executable, "-m", "tarry", "serve", "--data", "data", "--flight", "127.0.0.1:0"]
    for name, value in (SETTINGS | dict(settings)).items():
        command += ["--set", f"{name}={value}"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONPATH": PYTHON_PATH, **variables}
    with (cwd / "broker.log").open("wb") as log:
        broker = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert broker.stdout is not None
        yield broker.stdout.readline().split("flight on ")[1].split(",")[0]
    finally:
        broker.terminate()
        broker.wait(60)
