"""The SparkSession of a job: quiet, UTC, no UI, small, with this Python and a Java that fits.

The user can change all of it but UTC (``conf.py``).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tarry.base.errors import NotFoundError
from tarry.base.extras import missing_extra
from tarry.base.supervision import end_of_process
from tarry.spark.runtime.conf import machine_conf, merged, set_python
from tarry.spark.runtime.java import find_java_home
from tarry.spark.runtime.launch import start_jvm
from tarry.spark.runtime.versions import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The JVM plans and waits; bytes move in Python. A serial collector and one compiler tier make it small, quick to start.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

JVM_END_S = 5.0
"""Seconds that a JVM that does not answer any more may take to end."""


def build_session(
    *,
    name: str,
    master: str,
    memory: str,
    work: Path,
    settings: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark.

    ``work`` is a directory of this job alone, for Spark's temporary files; it is emptied first. ``settings`` override
    those that all jobs have; ``conf``, the user's, overrides everything.

    Raises:
        NotFoundError: PySpark or Java is missing, or too old; says what to install. InvalidArgumentError: the Python of
        the workers is not there for the driver.
    """
    work = work.absolute()
    chosen = merged(master, _settings(master, memory, work) | dict(settings or {}), machine_conf(), conf or {})
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NotFoundError(missing_extra("the pipeline", "spark", error)) from error
    check_pyspark(pyspark.__version__)
    os.environ["JAVA_HOME"] = str(find_java_home(work.parent))
    set_python(chosen)
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # A killed driver leaves its temporary files: the next one removes them.
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    chosen = {"spark.app.name": name, "spark.master": master} | chosen
    start_jvm(chosen, work / "spark.properties")
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def end_jvm() -> None:
    """End the JVM that this process started, if any, by its id.

    One has been seen to outlive its driver by minutes.
    """
    jvm = _jvm()
    if jvm is not None:
        jvm.kill()
        jvm.wait()


def _jvm() -> subprocess.Popen[bytes] | None:
    context = sys.modules.get("pyspark.core.context")
    gateway = getattr(getattr(context, "SparkContext", None), "_gateway", None)
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return jvm


def jvm_end(wait_s: float = 0.0) -> str | None:
    """Return a text on the end of this process's JVM, waiting up to ``wait_s`` for it.

    Returns None if it lives, or was never there.
    """
    jvm = _jvm()
    if jvm is None:
        return None
    try:
        code = jvm.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
    how = f"has ended with {end_of_process(code)}" if code >= 0 else f"was {end_of_process(code)}"
    why = "; the system may have been out of memory: its log says so" if code == -signal.SIGKILL else ""
    return f"Spark's JVM (process {jvm.pid}) {how}{why}"


def lost_jvm(error: object) -> str | None:
    """Return a text on the end of the JVM, if an error is that it does not answer.

    Its connection ends before it does.
    """
    lost = isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError"
    lost = lost or "Answer from Java side is empty" in str(error) or "Error while sending or receiving" in str(error)
    return jvm_end(JVM_END_S if lost else 0.0)


def _settings(master: str, memory: str, work: Path) -> dict[str, str]:
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join([*_JVM_OPTIONS, f'"-Djava.io.tmpdir={work}"']),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.streaming.minBatchesToRetain": "4",
        "spark.sql.streaming.numRecentProgressUpdates": "4",
        # Compaction has a pool of its own beside the schedule query's: neither waits for all tasks of the other.
        "spark.scheduler.mode": "FAIR",
        # Starts workers from installed, compiled modules instead of Spark's zip: less CPU for each start (daemon.py).
        "spark.python.daemon.module": "tarry.spark.runtime.daemon",
        "spark.local.dir": str(work),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings
