"""A standalone cluster of a master and two workers, each a process of its own; run by ``make spark-cluster``."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tarry.spark.runtime.java import find_java_home

from ..contract.conftest import Served
from .exactness import LONG, Account

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG]

ROOT = Path(__file__).parents[2]
OPENED = ("java.lang", "java.nio", "java.util", "sun.nio.ch")


@contextmanager
def java(directory: Path, name: str, main: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's own processes; its log."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = directory / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",  # which its launcher guesses from a source tree otherwise
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [str(find_java_home(directory) / "bin" / "java"), "-Xmx256m"]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command += ["-cp", f"{home}/jars/*", main, "--host", "127.0.0.1", *arguments]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=directory)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said(log: Path, pattern: str) -> str:
    """What a log says, once it does."""
    end = time.monotonic() + 60
    while (match := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.05)
    return match[1]


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """Its address."""
    master, worker = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
    with java(directory, "master", master, "--port", "0", "--webui-port", "0") as log:
        url = said(log, r"Starting Spark master at (spark://\S+)")
        some = ("--cores", "1", "--memory", "700m", "--webui-port", "0")
        with (
            java(directory, "one", worker, *some, "--work-dir", str(directory / "one"), url) as one,
            java(directory, "two", worker, *some, "--work-dir", str(directory / "two"), url) as two,
        ):
            for each in (one, two):
                said(each, r"(Successfully registered) with master")
            yield url


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path / "data", checkpoint_interval_ms=20)
    yield place
    place.stop()


def drive(module: str, *arguments: object) -> str:
    """What a driver prints, which is a process of its own: a JVM has one master."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    settings = {
        "spark.executorEnv.PYTHONPATH": paths,
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
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


def executors(work: Path) -> list[psutil.Process]:
    """Of one worker, which is a child of this process."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.name() == "java" and Path(process.cwd()).is_relative_to(work)
    ]
