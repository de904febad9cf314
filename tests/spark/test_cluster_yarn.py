"""``tarry serve`` with its pipeline on YARN: two node managers and an HDFS in one process, fetched by Maven. Run by
``make spark-cluster``, where there is a JDK and Maven.
"""

from __future__ import annotations

import os
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.base.errors import NotFoundError
from tarry.client import Client
from tarry.spark.runtime.java import find_java_home
from tests.jars import fetched

from .cluster import executor_of, said
from .cluster_serving import Waves, environment, lines, pipeline, serving, wait_committed
from .exactness import LONG
from .forwarder import Forwarder

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG, pytest.mark.timeout(900)]

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
