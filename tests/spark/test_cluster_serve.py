"""``tarry serve`` with its pipeline on a cluster of two workers, as who has one starts it; run by ``make
spark-cluster``. Executors know the broker by another address than the driver (``flight_advertised``), and nothing of
this process: neither its directory nor its environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.client import Client

from ..sources import PYTHON_PATH
from .cluster import cluster, executor_of, executors, worker_of
from .cluster_serving import (
    HOUR_MS,
    Waves,
    environment,
    lines,
    pipeline,
    serving,
    wait_committed,
)
from .exactness import LONG
from .forwarder import Forwarder

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG, pytest.mark.timeout(900)]


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    with cluster(tmp_path, cores=2) as url:
        yield url


def test_an_executor_a_worker_and_the_driver_are_killed(standalone: str, tmp_path: Path) -> None:
    """Each in the middle of a batch, while its tasks wait for the broker. The driver's second life has one worker."""
    here = tmp_path / "here"
    here.mkdir()
    with Forwarder() as forwarder:
        settings = {"spark_master": standalone, "spark_conf": lines(), "flight_advertised": forwarder.address}
        with serving(here, settings) as address, Client(address, timeout=60) as client:
            forwarder.forward_to(address)
            survive(client, forwarder, tmp_path)


def survive(client: Client, forwarder: Forwarder, directory: Path) -> None:
    waves = Waves(client)
    waves.send()
    wait_committed(client, waves.rows)
    assert forwarder.connections, "tasks reach the broker by the address that is told them"
    assert [len(executors(directory / name)) for name in ("one", "two")] == [1, 1]
    driver = pipeline(client)["pid"]

    with forwarder.holding():
        waves.send()
        executor_of(forwarder.held_task()).kill()
    wait_committed(client, waves.rows)

    with forwarder.holding():
        waves.send()
        executor = executor_of(forwarder.held_task())
        name = Path(executor.cwd()).relative_to(directory).parts[0]
        worker_of(directory, name).kill()  # as if the machine were gone
        executor.kill()
    wait_committed(client, waves.rows)
    assert (pipeline(client)["pid"], pipeline(client)["supervisor"]["restarts"]) == (driver, 0)

    with forwarder.holding():
        waves.send()
        forwarder.held_task()
        os.kill(driver, signal.SIGKILL)
    wait_committed(client, waves.rows)
    assert pipeline(client)["supervisor"]["restarts"] == 1
    waves.check()


def test_a_second_application_and_an_environment_that_is_sent_along(standalone: str, tmp_path: Path) -> None:
    """The recipe of docs/spark-clusters.md with ``spark.archives``; and a report on the cluster while the pipeline is
    there, which does not take all of it.
    """
    here = tmp_path / "here"
    here.mkdir()
    environment(here / "environment", tmp_path / "environment.tar.gz")
    conf = lines(**{"spark.archives": f"{tmp_path}/environment.tar.gz#environment", "spark.executorEnv.PYTHONPATH": ""})
    settings = {"spark_master": standalone, "spark_conf": conf}
    with (
        serving(here, settings, PYSPARK_PYTHON="./environment/bin/python") as address,
        Client(address, timeout=60) as client,
    ):
        waves = Waves(client, HOUR_MS)
        waves.send()
        wait_committed(client, waves.rows)
        [executor] = executors(tmp_path / "one")
        assert (Path(executor.cwd()) / "environment" / "bin" / "python").exists()
        report = command(standalone, address, here, "forecast", "--report", "f.html", "--within", "3d")
        assert report["rows"] == waves.rows
        assert "deleted_files" in command(standalone, address, here, "compact")


def command(master: str, address: str, cwd: Path, *arguments: str) -> dict[str, Any]:
    """What a command of Tarry's answers that has its work done by the cluster, with the Python of this process."""
    line = [sys.executable, "-m", "tarry", *arguments, "--json", "-e", address, "--spark-master", master]
    for text in ("--spark-memory=512m", *(f"--spark-conf={conf}" for conf in lines().splitlines())):
        line.append(text)
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONPATH": PYTHON_PATH}
    done = subprocess.run(line, cwd=cwd, env=variables, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))
