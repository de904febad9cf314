"""A real broker, a process of its own, that is killed in the middle of a bulk job, or is out of disk: nothing is
half committed, and the same job run again neither loses nor doubles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import ANY

import pytest

from tarry import Client
from tarry.spark.runtime.process import kill_session

from ..disks import mounted, resize
from ..sources import PYTHON_PATH
from .exactness import LONG, PATIENCE_S, Account, failing, listed
from .failing_broker import FailingBroker
from .other_driver import driver, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingBroker]:
    monkeypatch.setenv("PYTHONPATH", PYTHON_PATH)
    with failing(tmp_path) as failing_broker:
        yield failing_broker


def attempt(account: Account, spark: SparkSession, broker: FailingBroker, **how: object) -> str:
    """Run the job; the text of its error, or nothing."""
    try:
        account.write(spark, broker.address, **how)  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001  whatever Spark makes of it
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("mode", "point", "time"),
    [
        pytest.param("bulk", "reserved", 1, marks=LONG),
        pytest.param("bulk", "reserved", 2, marks=pytest.mark.rest),
        pytest.param("flight", "staged", 2, marks=LONG),
    ],
)
def test_killed_while_tasks_stage(spark: SparkSession, broker: FailingBroker, mode: str, point: str, time: int) -> None:
    account = Account(3000)
    broker.set(f"die-{point}", time)
    with broker.restarted():
        text = attempt(account, spark, broker, mode=mode, job="j")
    assert f"the broker at {broker.address} cannot be reached" in text
    account.nothing(broker.address)
    assert listed(broker.address, "j") != [("committed", 3000)]
    account.write(spark, broker.address, mode=mode, job="j")
    account.exact_over_a_kill(broker, "j")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("asked", marks=LONG),
        pytest.param("committing", marks=LONG),
        "published",
        pytest.param("announced", marks=LONG),
        pytest.param("committed", marks=LONG),
    ],
)
@pytest.mark.rest
def test_killed_within_the_commit(spark: SparkSession, broker: FailingBroker, point: str) -> None:
    account = Account(3000)
    broker.set(f"die-{point}")
    with broker.restarted():
        text = attempt(account, spark, broker, job="j")
    # The driver asks again; only where the broker takes longer to come back than it has patience, it says so.
    assert not text or "run it again with the same job id: it is loaded once" in text
    account.write(spark, broker.address, job="j")
    account.exact_over_a_kill(broker, "j")


@LONG
def test_killed_after_the_answer(spark: SparkSession, broker: FailingBroker) -> None:
    account = Account(3000)
    account.write(spark, broker.address, job="j")
    broker.kill()
    broker.start()
    account.write(spark, broker.address, job="j")
    account.exact_over_a_kill(broker, "j")


@LONG
def test_a_broker_that_stays_away_at_the_commit(spark: SparkSession, broker: FailingBroker) -> None:
    account = Account(3000)
    broker.set("die-published")
    text = attempt(account, spark, broker, job="j")
    assert re.search(r"the commit of job 'j' was not answered, and may have taken place: the broker at .* cannot", text)
    assert "run it again with the same job id: it is loaded once" in text
    assert "cannot be reached" in attempt(account, spark, broker, job="j")
    broker.start()
    account.write(spark, broker.address, job="j")
    account.exact_over_a_kill(broker, "j")


@LONG
def test_jobs_at_once(spark: SparkSession, broker: FailingBroker, tmp_path: Path) -> None:
    """Of two threads of one Spark, and of another one; all are at their commit at the same moment."""
    accounts = [Account(3000, topic) for topic in ("one", "two", "three")]
    broker.set("meet", len(accounts))
    with ThreadPoolExecutor(len(accounts)) as threads:
        writes = [threads.submit(in_thread, account, spark, broker.address) for account in accounts[:2]]
        other = threads.submit(in_process, accounts[2], broker.address, tmp_path)
        assert [write.result() for write in writes] == [None, None]
        assert other.result() == "written"
    assert len(list(broker.faults.glob("here-*"))) == len(accounts)
    for account in accounts:
        account.write(spark, broker.address, job=account.topic)
    for account in accounts:
        account.exact(broker.address, account.topic)


def in_thread(account: Account, spark: SparkSession, address: str) -> None:
    spark.createDataFrame([(1,)], "n int")  # makes the session this thread's, too: else Spark finds no source
    account.write(spark, address, job=account.topic)


def in_process(account: Account, address: str, directory: Path) -> str:
    with driver(account, address, directory, job=account.topic) as process:
        output, _ = process.communicate(timeout=PATIENCE_S)
    return output.strip()


# -- the driver --------------------------------------------------------------------------------------------------------


@LONG
@pytest.mark.parametrize("moment", ["writing", "before the commit", "after the commit"])
def test_a_driver_that_is_killed(spark: SparkSession, broker: FailingBroker, tmp_path: Path, moment: str) -> None:
    """All of it at once: its Python, its JVM and its workers."""
    account = Account(3000)
    with driver(account, broker.address, tmp_path, job="j", hold=moment) as process:
        wait_for(tmp_path / "held", process)
        kill_session(process.pid)
    if moment != "after the commit":
        account.nothing(broker.address)
    assert listed(broker.address, "j") == [("committed" if moment == "after the commit" else "open", ANY)]
    account.write(spark, broker.address, job="j")
    account.exact_over_a_kill(broker, "j")


# -- the disk ----------------------------------------------------------------------------------------------------------


@LONG
def test_a_broker_that_cannot_write_files(spark: SparkSession, broker: FailingBroker) -> None:
    account = Account(3000)
    broker.set("full")
    text = attempt(account, spark, broker, mode="flight", job="j")
    check_full(text, account, broker)
    broker.unset("full")
    account.write(spark, broker.address, mode="flight", job="j")
    account.exact_over_a_kill(broker, "j")


@pytest.mark.rest
@pytest.mark.parametrize("mode", ["bulk", pytest.param("flight", marks=LONG)])
def test_a_disk_that_fills_up(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """A real one: messages of 30 MB do not fit into 24 MiB."""
    monkeypatch.setenv("PYTHONPATH", PYTHON_PATH)
    with mounted(tmp_path / "disk", "24m") as disk, failing(disk) as broker:
        account = Account(30_000)
        text = attempt(account, spark, broker, mode=mode, job="j", more=1024, partitions=6)
        check_full(text, account, broker)
        # What it wrote is gone: it must not keep the broker from working. A task that was killed may leave a file.
        with Client(broker.address) as client:
            client.schedule("other", b"x", delay=0)
            [message] = client.receive("other", group="g", wait=PATIENCE_S)
            message.ack()
        resize(disk, "256m")
        account.write(spark, broker.address, mode=mode, job="j", more=1024, partitions=6)
        account.exact_over_a_kill(broker, "j")


def check_full(text: str, account: Account, broker: FailingBroker) -> None:
    assert "is full" in text
    assert "make room, then run it again with the same job id" in text
    account.nothing(broker.address)
    assert listed(broker.address, "j") in ([("open", 0)], [("aborted", 0)])
