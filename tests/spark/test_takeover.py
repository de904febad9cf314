"""With a real Spark: what an old owner's driver has planned is not committed; it ends, and says why."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tarry.base.errors import OwnershipLostError
from tarry.fronts.flight.front import FlightFront
from tarry.spark.broker_client import BrokerClient
from tarry.spark.broker_store import open_store
from tarry.spark.pipeline.compact import Upkeep
from tarry.spark.pipeline.job import EXIT_OWNERSHIP_LOST, Reporter
from tarry.spark.pipeline.upkeep import Result, UpkeepSettings, on_spark
from tarry.spark.runtime.process import kill_session
from tarry.store import Owner, Store, Work
from tests.engines.test_broker import Machines

from .conftest import FakeIntake, expected, stored
from .test_compact import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

US = Owner("0" * 32, "here", "/data")


def claim(intake: FakeIntake, epoch: int) -> None:
    """A broker takes the store over; ``intake``, the old one, has not seen it yet."""
    Store.open(intake.store_uri, owner=US, epoch=epoch)


def test_what_tasks_have_rewritten_for_an_old_owner_is_not_committed(spark: SparkSession, intake: FakeIntake) -> None:
    fill(intake.store_uri, 6)
    intake.epoch = 5
    claim(intake, 5)
    before = Store.open(intake.store_uri).snapshot().files.path
    run = on_spark(spark)

    def taken_over(works: list[Work]) -> list[Result]:
        results = run(works)
        claim(intake, 6)
        return results

    with BrokerClient(intake.address) as client:
        settings = UpkeepSettings(file_bytes_max=4 << 20)
        upkeep = Upkeep(open_store(client.join()), client, Reporter(client, "compact"), settings, taken_over)
        with pytest.raises(OwnershipLostError):
            upkeep.round(threading.Event())
    assert Store.open(intake.store_uri).snapshot().files.path == before
    assert stored(intake.store_uri) == expected(0, 3_000)


def test_a_job_that_an_old_owner_is_to_commit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Two brokers with a log that machines share; tasks write the files, the broker of the other machine commits."""
    machines = Machines(tmp_path, "objects")
    old = machines.broker()
    front = FlightFront.start(old, "127.0.0.1:0")

    def load(job: str) -> None:
        rows = spark.range(100).selectExpr("'t' AS topic", "3600000 AS delay_ms", f"'{job}' AS body")
        writer = rows.write.format("tarry").mode("append").option("endpoint", front.address).option("mode", "bulk")
        writer.option("job", job).save()

    try:
        load("before")
        new = machines.broker()
        with pytest.raises(Exception, match=r"epoch 1 has ended|is epoch 2's"):  # whatever Spark makes of it
            load("behind")
        machines.wait_for_leases()
        new.advance("1h")
        assert new.receive("t", "g", max_messages=200)["body"].to_pylist() == [b"before"] * 100
        new.close()
    finally:
        front.stop()
        machines.close()


@contextmanager
def driver(intake: FakeIntake, tmp_path: Path, compact_interval_ms: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A schedule job of an operator's own, in a session of its own; nothing starts it again."""
    command = [sys.executable, "-m", "tarry.spark.pipeline.schedule", "--flight", intake.address, "--master"]
    command += ["local[1]", "--checkpoint", str(tmp_path / "c"), "--memory", "512m", "--poll-ms", "100"]
    command += ["--schedule-bytes", "30000", "--compact-interval-ms", str(compact_interval_ms)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.communicate()


@pytest.mark.parametrize(
    "when",
    [
        pytest.param("tasks read", marks=pytest.mark.long),
        pytest.param("it plans", marks=pytest.mark.rest),
        pytest.param("it has nothing to do", marks=pytest.mark.long),
    ],
)
def test_the_schedule_job_ends_with_its_owner(intake: FakeIntake, tmp_path: Path, when: str) -> None:
    """And the next one works for the new owner."""
    intake.epoch = 5
    claim(intake, 5)
    intake.add(1_000)

    def taken_over(*_: object) -> None:
        intake.before_read = lambda start, end: None
        claim(intake, 6)

    # The upkeep alone looks at the store where there is nothing to do, and would be the first everywhere.
    with driver(intake, tmp_path, compact_interval_ms=100 if when == "it has nothing to do" else 0) as old:
        intake.wait_committed(1_000)
        intake.wait_until(lambda: intake.reports[-1].get("state") == "idle")
        match when:
            case "tasks read":
                intake.before_read = taken_over
                intake.add(1_000)
            case "it plans":  # the new owner has the address of the old one
                intake.epoch = 6
                intake.add(1_000)
            case _:
                claim(intake, 6)
        _, said = old.communicate(timeout=120)
    assert old.returncode == EXIT_OWNERSHIP_LOST, said
    # Not the last line for certain: Spark's threads may have something to say about the query that failed.
    assert [line for line in said.splitlines() if " ERROR " in line and "epoch 6" in line and "epoch 5" in line], said
    assert stored(intake.store_uri) == expected(0, 1_000)
    if when != "tasks read":
        return  # the next one would do the same
    intake.epoch = 6
    intake.add(1_000)
    with driver(intake, tmp_path):
        intake.wait_committed(intake.durable_seq)
    assert stored(intake.store_uri) == expected(0, intake.durable_seq)
