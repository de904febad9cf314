"""A Spark process of its own that loads one account, for tests that kill it: ``python -m tests.spark.other_driver
ADDRESS DIRECTORY JOB HOLD TOPIC ROWS BASE_MS``. HOLD says where it stops, writes DIRECTORY/held, and waits for ever.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from tarry.spark.datasource.options import WriteOptions
from tarry.spark.datasource.source import TarryDataSource
from tarry.spark.datasource.writer import BulkWriter, TaskStaged
from tarry.spark.runtime.process import kill_session
from tarry.spark.runtime.session import build_session, end_jvm

from .exactness import PATIENCE_S, ROOT, Account

MOMENTS = ("never", "writing", "before the commit", "after the commit")


# -- what a test has of it ---------------------------------------------------------------------------------------------


@contextmanager
def driver(
    account: Account, address: str, directory: Path, *, job: str, hold: str = "never"
) -> Iterator[subprocess.Popen[str]]:
    """The process, which leads a session; whatever is left of that is ended."""
    what = (address, directory, job, hold, account.topic, account.rows, account.base_ms)
    command = [sys.executable, "-m", "tests.spark.other_driver", *map(str, what)]
    with (directory / "driver.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.communicate()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Until the file is there."""
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process.poll() is None, "the driver has ended"
        assert time.monotonic() < end, f"{path.name} never came"
        time.sleep(0.02)


# -- in the process ----------------------------------------------------------------------------------------------------


class Held(BulkWriter):
    """Stops where it is told to."""

    def __init__(self, directory: str, moment: str, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._directory, self._moment = Path(directory), moment

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStaged:
        staged = super().write(iterator)
        self._stop("writing")
        return staged

    def commit(self, messages: list[TaskStaged | None]) -> None:
        self._stop("before the commit")
        super().commit(messages)
        self._stop("after the commit")

    def _stop(self, moment: str) -> None:
        if self._moment == moment:
            (self._directory / "held").touch()
            threading.Event().wait()


def main(address: str, directory: str, job: str, hold: str, topic: str, rows: str, base_ms: str) -> None:
    """Load it; says so."""

    class Source(TarryDataSource):
        @classmethod
        def name(cls) -> str:
            return "held"

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            return Held(directory, hold, WriteOptions.of(self.options), schema)

    spark = build_session(name="other", master="local[2]", memory="512m", work=Path(directory) / "other")
    spark.dataSource.register(Source)
    account = Account(int(rows), topic)
    account.base_ms = int(base_ms)
    frame = account.frame(spark)
    frame.write.format("held").mode("append").option("endpoint", address).option("job", job).save()
    spark.stop()
    end_jvm()
    print("written", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
