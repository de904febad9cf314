"""``format("tarry")`` on a cluster of two workers, and with an executor killed; run by ``make spark-cluster``."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..contract.conftest import Served
from ..sources import PYTHON_PATH, ROOT
from .cluster import cluster, executors
from .exactness import LONG, Account

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path / "data", checkpoint_interval_ms=20)
    yield place
    place.stop()


def drive(module: str, *arguments: object) -> str:
    """What a driver prints, which is a process of its own: a JVM has one master."""
    settings = {
        "spark.executorEnv.PYTHONPATH": PYTHON_PATH,
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHON_PATH,
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", f"tests.spark.{module}", *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_two_workers(served: Served, tmp_path: Path) -> None:
    with cluster(tmp_path) as url:
        assert "all is well" in drive("cluster_driver", url, served.address, tmp_path)
    used = [list((tmp_path / name).glob("app-*")) for name in ("one", "two")]
    assert all(used), "both workers had executors"


@pytest.mark.parametrize("shape", ["plain", "sorted"])
def test_an_executor_is_killed(served: Served, tmp_path: Path, shape: str) -> None:
    """Both are in the middle of a task, after others: they ask for seqs, which comes after reading and before writing.
    What the dead one had of a shuffle is gone with it.
    """
    killed: list[int] = []

    def kill() -> None:
        [process] = executors(tmp_path / "one")
        killed.append(process.pid)
        process.kill()

    both, calls, reserve = (
        threading.Barrier(2, action=kill, timeout=120),
        itertools.count(1),
        served.broker.components.bulk.reserve,
    )

    def reserve_together(number: int, rows: int) -> int:
        if next(calls) in (3, 4):
            both.wait()
        return reserve(number, rows)

    served.broker.components.bulk.reserve = reserve_together  # type: ignore[method-assign]
    account = Account(8000)
    loading = (served.address, tmp_path, shape, account.topic, account.rows, account.base_ms)
    with cluster(tmp_path) as url:
        output = drive("cluster_fault_driver", url, *loading)
        assert killed
        if "written" not in output:
            # Spark may not be able to make up for what a shuffle lost. Then nothing is scheduled.
            assert shape == "sorted", output
            account.nothing(served.address)
            output = drive("cluster_fault_driver", url, *loading)
        assert "written" in output
    assert len(list(tmp_path.glob("*/app-*/*"))) >= 3, "another executor took its place"
    account.exact(served.address, account.topic)
