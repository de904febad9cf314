"""The Spark session of a command that makes a report: quiet, and ended with it.

Output of the JVM and the workers goes to a file beside Spark's temporary ones, whose errors are shown on a failure.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tarry.base.errors import TarryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION_BYTES = 8 << 20
PARTITIONS_MIN, PARTITIONS_ELSEWHERE = 4, 200
"""Partitions of a shuffle: many are slow for little input, few for much.

Elsewhere: for files that are not on this machine, so that their sizes are unknown.
"""
LOG_LINES = 5


@contextmanager
def report_session(
    name: str, *, master: str, memory: str, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Open a session; it and its JVM end with this context. ``conf``: the user's settings for Spark.

    Raises:
        NotFoundError: PySpark or Java is missing; says what to install. TarryError: Spark failed; says how.
    """
    from tarry.spark.runtime.executors import warn_of_missing
    from tarry.spark.runtime.session import build_session, end_jvm, jvm_end

    place = Path(tempfile.mkdtemp(prefix="tarry-report-"))
    output = place / "spark.log"
    try:
        # SIGTERM, too, leaves nothing behind.
        _interrupt_on_sigterm()
        with _stderr_to(output):
            spark = build_session(name=name, master=master, memory=memory, work=place / "work", conf=conf)
        ended = threading.Event()
        warn_of_missing(spark, ended)
        try:
            with _spark_errors(output):
                yield spark
        finally:
            ended.set()
            # A session that has ended cannot be stopped, and the reason of its end is to be shown.
            with suppress(Exception) if jvm_end() else nullcontext():
                spark.stop()
            _disconnect()
            end_jvm()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _interrupt_on_sigterm() -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # In another thread, or if a handler is set already, signals are somebody else's affair.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)


def shuffle_partitions(*inputs: DataFrame) -> int:
    """Return the number of partitions that a shuffle of so much input should have."""
    files = [urlsplit(uri) for rows in inputs for uri in rows.inputFiles()]
    if any(file.scheme not in ("", "file") for file in files):
        return PARTITIONS_ELSEWHERE
    return max(PARTITIONS_MIN, sum(Path(unquote(file.path)).stat().st_size for file in files) // PARTITION_BYTES)


def _disconnect() -> None:
    """Disconnect from the JVM before it is ended.

    Otherwise Python's proxies of its objects print errors when they are freed.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no other name for it
    gc.collect()
    if gateway is not None:
        gateway.shutdown()


@contextmanager
def _spark_errors(output: Path) -> Iterator[None]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from tarry.spark.runtime.failures import one_line
    from tarry.spark.runtime.session import lost_jvm

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if (ended := lost_jvm(error)) is not None:
            raise TarryError(f"Spark failed: {ended}") from error
        if isinstance(error, ConnectionError):
            raise
        lines = output.read_text(errors="replace").splitlines() if output.exists() else []
        last = "; ".join(line.strip() for line in lines[-LOG_LINES:] if "ERROR" in line)
        raise TarryError(f"Spark failed: {one_line(error)}{f' ({last:.500})' if last else ''}") from error


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Give this file as stderr to processes that are started meanwhile."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
