"""A standalone cluster of a master and two workers: processes of their own, each in a directory of its own, with an
environment that knows nothing of this one: no virtual environment, no PYTHONPATH, no TARRY_ variables.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tarry.spark.runtime.java import find_java_home

MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
OPENED = ("java.lang", "java.nio", "java.util", "sun.nio.ch")
NAMES = ("one", "two")


@contextmanager
def java(directory: Path, name: str, main: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's own processes; its log."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log, own = directory / f"{name}.log", directory / name
    own.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(own),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",  # which its launcher guesses from a source tree otherwise
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": os.environ.get("JDK_JAVA_OPTIONS", ""),
    }
    command = [str(find_java_home(directory) / "bin" / "java"), "-Xmx256m"]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command += ["-cp", f"{home}/jars/*", main, "--host", "127.0.0.1", *arguments]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=own)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said(log: Path, pattern: str, timeout_s: float = 300) -> str:
    """What a log says, once it does."""
    end = time.monotonic() + timeout_s
    while (match := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.05)
    return match[1]


@contextmanager
def cluster(directory: Path, *, cores: int = 1) -> Iterator[str]:
    """Its address. ``cores``: of each worker; what it does for an application is in ``directory/NAME/app-…``."""
    with java(directory, "master", MASTER, "--port", "0", "--webui-port", "0") as log:
        url = said(log, r"Starting Spark master at (spark://\S+)")
        some = ("--cores", str(cores), "--memory", f"{700 * cores}m", "--webui-port", "0")
        with (
            java(directory, "one", WORKER, *some, "--work-dir", str(directory / "one"), url) as one,
            java(directory, "two", WORKER, *some, "--work-dir", str(directory / "two"), url) as two,
        ):
            for each in (one, two):
                said(each, r"(Successfully registered) with master")
            yield url


def worker_of(directory: Path, name: str) -> psutil.Process:
    """The worker, which is a child of this process."""
    [found] = [p for p in psutil.Process().children() if p.is_running() and _is_in(p, directory / name)]
    return found


def executors(work: Path) -> list[psutil.Process]:
    """Of one worker, whose directory this is."""
    children = psutil.Process().children(recursive=True)
    return [p for p in children if _is_in(p, work) and Path(p.cwd()) != work]


def executor_of(task: psutil.Process) -> psutil.Process:
    """The executor that a Python worker works for."""
    return next(parent for parent in task.parents() if parent.name() == "java")


def _is_in(process: psutil.Process, work: Path) -> bool:
    try:
        return process.name() == "java" and Path(process.cwd()).is_relative_to(work)
    except psutil.Error:  # it has just ended
        return False
