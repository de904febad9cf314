"""A standalone cluster of a master and two workers, each a process of its own; run by ``make spark-cluster``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarry.pipeline.java import find_java_home

from ..contract.conftest import Served

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("SPARK_CLUSTER_TEST") != "1", reason="slow: make spark-cluster"),
]

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
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.05)
    return found[1]


def test_two_workers(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", checkpoint_interval_ms=20)
    master, worker = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
    try:
        with java(tmp_path, "master", master, "--port", "0", "--webui-port", "0") as log:
            url = said(log, r"Starting Spark master at (spark://\S+)")
            some = ("--cores", "1", "--memory", "700m", "--webui-port", "0")
            with (
                java(tmp_path, "one", worker, *some, "--work-dir", str(tmp_path / "one"), url) as one,
                java(tmp_path, "two", worker, *some, "--work-dir", str(tmp_path / "two"), url) as two,
            ):
                for each in (one, two):
                    said(each, r"(Successfully registered) with master")
                drive(url, served.address, tmp_path)
            used = [list((tmp_path / name).glob("app-*")) for name in ("one", "two")]
            assert all(used), "both workers had executors"
    finally:
        served.stop()


def drive(url: str, endpoint: str, directory: Path) -> None:
    """The driver, in a process of its own: a JVM has one master."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    settings = {
        "spark.executorEnv.PYTHONPATH": paths,
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
    }
    arguments = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "PYSPARK_SUBMIT_ARGS": f"{arguments} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "tests.spark.cluster_driver", url, endpoint, str(directory)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "all is well" in done.stdout
