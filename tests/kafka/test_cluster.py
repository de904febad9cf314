"""The relay on a standalone cluster of two workers: executors that share no directory with the driver, and are killed.

`make kafka` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from ..spark.test_datasource_cluster import java, said
from .conftest import World, now_ms
from .test_faults import check, process, reads, runs, send

pytestmark = [pytest.mark.kafka, pytest.mark.kafka_slow, pytest.mark.timeout(600)]


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A master and two workers with four slots each; the address."""
    master, worker = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
    with java(directory, "master", master, "--port", "0", "--webui-port", "0") as log:
        url = said(log, r"Starting Spark master at (spark://\S+)")
        some = ("--cores", "4", "--memory", "700m", "--webui-port", "0")
        with (
            java(directory, "one", worker, *some, "--work-dir", str(directory / "one"), url) as one,
            java(directory, "two", worker, *some, "--work-dir", str(directory / "two"), url) as two,
        ):
            for log in (one, two):
                said(log, r"(Successfully registered) with master")
            yield url


def executors(directory: Path) -> list[psutil.Process]:
    """The JVMs of the executors of this cluster."""
    found = []
    for one in psutil.process_iter(["cmdline", "cwd"]):
        line, cwd = one.info["cmdline"] or [], one.info["cwd"] or ""
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in line and cwd.startswith(str(directory)):
            found.append(one)
    return found


def test_an_executor_is_killed(world: World, tmp_path: Path) -> None:
    """In the middle of delivery, with whatever its tasks do: others take over, nothing is lost or twice."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    with (
        cluster(directory) as url,
        process(world, "--master", url, "--spark-conf", "spark.executor.memory=512m") as relay,
    ):
        relay.wait(reads)
        assert all(not Path(e.cwd()).is_relative_to(world.directory / "relay-cwd") for e in executors(directory))
        send(world, 0, 20_000, now_ms() + 1_000, 15_000)
        relay.wait(lambda now: now["counts"].get("delivered", 0) > 0)
        executors(directory)[0].kill()
        check(world, 20_000)
        status = relay.wait(lambda now: runs(now) and now["deliver"]["state"] == "running")
        assert status["lateness_ms"]["min"] >= 0
        assert relay.stop() == 0
