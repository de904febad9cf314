"""``tarry serve`` with its pipeline, and ``tarry relay``, on YARN: two node managers and an HDFS in one process,
fetched by Maven. Run by ``make spark-cluster``, where there is a JDK and Maven.
"""

from __future__ import annotations

import os
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tarry.base.errors import NotFoundError
from tarry.client import Client
from tarry.spark.runtime.java import find_java_home
from tests.jars import fetched
from tests.kafka.conftest import World, kafka, now_ms, world
from tests.kafka.relay_process import process, reads
from tests.kafka.test_faults import send

from . import test_cluster_relay as relay_tests
from .cluster import executor_of, said
from .cluster_serving import Waves, environment, lines, pipeline, serving, wait_committed
from .exactness import LONG
from .forwarder import Forwarder

__all__ = ["kafka", "world"]

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG, pytest.mark.timeout(1800)]

HERE = Path(__file__).with_name("yarn")
VERSION = "3.5.0"


@pytest.fixture
def hadoop_conf(tmp_path: Path) -> Iterator[Path]:
    """What HADOOP_CONF_DIR is to be."""
    try:
        jars = fetched(HERE / "pom.xml", f"hadoop-{VERSION}", "hadoop-client-minicluster-*.jar")
        java = find_java_home(tmp_path) / "bin" / "java"
        modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
        if "jdk.compiler" not in modules.stdout:
            raise NotFoundError(f"{java} has no compiler; install a JDK")
    except NotFoundError as error:
        warnings.warn(f"NOT TESTED ON YARN: {error}", stacklevel=1)
        pytest.skip(str(error))
    directory, log = tmp_path / "hadoop", tmp_path / "hadoop.log"
    directory.mkdir()
    command = [str(java), "-Xmx700m", "-cp", f"{jars}/*", str(HERE / "MiniCluster.java"), str(directory)]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, cwd=directory)
    try:
        said(log, "(?m)^(ready)$")
        yield directory / "conf"
    finally:
        process.kill()
        process.communicate()


def test_an_executor_and_the_driver_are_killed(hadoop_conf: Path, tmp_path: Path) -> None:
    """In the middle of a batch each; with an environment that is sent along by way of HDFS."""
    import pyspark

    here = tmp_path / "here"
    here.mkdir()
    environment(here / "environment", tmp_path / "environment.tar.gz")
    conf = {
        "spark.archives": f"{tmp_path}/environment.tar.gz#environment",
        "spark.executorEnv.PYTHONPATH": "",
        "spark.executor.instances": "2",
        "spark.yarn.am.memory": "384m",
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
    }
    variables = {"PYSPARK_PYTHON": "./environment/bin/python", "HADOOP_CONF_DIR": str(hadoop_conf)}
    with Forwarder() as forwarder:
        settings = {"spark_master": "yarn", "spark_conf": lines(**conf), "flight_advertised": forwarder.address}
        with serving(here, settings, **variables) as address, Client(address, timeout=60) as client:
            forwarder.forward_to(address)
            waves = Waves(client)
            for killed in ("nothing", "an executor", "the driver"):
                with forwarder.holding():
                    waves.send()
                    executor = executor_of(forwarder.held_task())
                    assert Path(executor.cwd()).is_relative_to(tmp_path / "hadoop")
                    if killed == "an executor":
                        executor.kill()
                    elif killed == "the driver":
                        os.kill(pipeline(client)["pid"], signal.SIGKILL)
                wait_committed(client, waves.rows)
            assert pipeline(client)["supervisor"]["restarts"] == 1
            waves.check()


@pytest.mark.kafka
def test_the_relay_and_its_executors_are_killed(
    hadoop_conf: Path, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of deliveries; then the driver."""
    import pyspark

    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop_conf))
    options = [*relay_tests.options("yarn"), "--spark-conf", "spark.yarn.am.memory=384m"]
    options += ["--spark-conf", f"spark.yarn.jars=local:{Path(pyspark.__file__).parent}/jars/*"]
    rows, patience_s = 0, relay_tests.PATIENCE_S
    with process(world, *options) as relay:
        relay.wait(reads, patience_s)
        for killed in ("nothing", "executors", "the driver"):
            delivered = relay.status()["counts"].get("delivered", 0)
            send(world, rows, relay_tests.WAVE, now_ms() + 1_000, 6_000)
            rows += relay_tests.WAVE
            relay.wait(lambda now, least=delivered + 100: now["counts"].get("delivered", 0) >= least, patience_s)
            if killed == "executors":
                for executor in executors_of(tmp_path / "hadoop"):
                    executor.kill()
            elif killed == "the driver":
                relay.kill()
                relay.start()
        relay_tests.check(world, rows)
        relay.wait(reads, patience_s)
        assert relay.stop() == 0


def executors_of(directory: Path) -> list[psutil.Process]:
    """Spark's executors that the node managers run below a directory."""
    java = [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]
    found = [p for p in java if any("ExecutorBackend" in word for word in p.cmdline())]
    assert found
    assert all(Path(p.cwd()).is_relative_to(directory) for p in found)
    return found
