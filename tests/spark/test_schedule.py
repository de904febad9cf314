"""The schedule job: batches, replays, and a crash at every step; in the end every message is stored exactly once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarry.spark.broker_client import BrokerClient
from tarry.spark.pipeline.checkpoint import reconcile
from tarry.spark.pipeline.job import Reporter
from tarry.spark.pipeline.plan import Trigger
from tarry.spark.pipeline.schedule import ScheduleBatch, start_query
from tarry.spark.pipeline.stage_task import RangeResult, StageTask
from tarry.spark.pipeline.supervisor import PipelineSupervisor
from tarry.spark.runtime.process import alive, kill_session, session_members
from tarry.store import StaleCommitError, Store
from tests.waiting import wait_until

from .conftest import NOW_MS, FakeIntake, expected, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BYTES_MIN = 300 * 100
"""The fake intake counts 300 bytes a message: a batch starts with 100."""


@contextmanager
def running(spark: SparkSession, intake: FakeIntake, checkpoint: Path, *, rows_max: int = 10**6) -> Iterator[Any]:
    """The job's query, started as the job does it, in the shared session."""
    store = Store.open(intake.store_uri)
    committed_seq = store.snapshot().committed_seq
    intake.committed_seq = committed_seq
    reconcile(checkpoint, committed_seq)
    with BrokerClient(intake.address) as client:
        batch = ScheduleBatch(store, client, Reporter.of_job(client, "schedule"), intake.address)
        query = start_query(
            spark,
            batch,
            flight=intake.address,
            start_seq=committed_seq,
            trigger=Trigger(BYTES_MIN, 10**9, rows_max),
            checkpoint=checkpoint,
            poll_ms=100,
        )
        try:
            yield query
        finally:
            query.stop()


def wait_done(checkpoint: Path, batch: int) -> None:
    """Wait until Spark, too, knows that the batch is done: it writes that after the store has it."""
    wait_until((checkpoint / "commits" / str(batch)).exists)


def failed(query: Any) -> str:
    """Wait for the query to fail; the text of its error."""
    with pytest.raises(Exception) as raised:  # whatever Spark makes of it
        query.awaitTermination(60)
    return str(raised.value)


def test_batches_until_all_is_stored(spark: SparkSession, intake: FakeIntake, tmp_path: Path) -> None:
    intake.add(70_000)
    with running(spark, intake, tmp_path / "c", rows_max=50_000):
        intake.wait_committed(70_000)
        intake.add(99)
        polls = intake.states
        intake.wait_until(lambda: intake.states > polls + 3)
        assert intake.committed_seq == 70_000  # too little for a batch
        intake.add(1)
        intake.wait_committed(70_100)
        intake.wait_until(lambda: bool(intake.reports) and intake.reports[-1]["batches"] == 3)
    assert stored(intake.store_uri) == expected(0, 70_100)
    report = intake.reports[-1]
    assert (report["job"], report["state"], report["committed_seq"], report["error"]) == (
        "schedule",
        "idle",
        70_100,
        None,
    )
    last = report["last_batch"]
    assert (last["rows"], last["stored_rows"], last["start_seq"], last["end_seq"]) == (100, 100, 70_000, 70_100)
    assert last["files"] >= 1
    assert last["seconds"] > 0


def test_what_has_fired_is_left_out_and_may_be_deleted(spark: SparkSession, intake: FakeIntake, tmp_path: Path) -> None:
    intake.add(5_000)
    intake.fired = (NOW_MS + 60_000 + 40_000_000, 4_000)
    del intake.frames[0]
    intake.first_seq = 1_000
    with running(spark, intake, tmp_path / "c"):
        intake.wait_committed(5_000)
    kept = [row for row in expected(1_000, 5_000) if not (row[1] < intake.fired[0] and row[0] < intake.fired[1])]
    assert stored(intake.store_uri) == kept
    assert 0 < len(kept) < 4_000


@pytest.mark.rest
def test_deletion_in_the_middle_of_reading(spark: SparkSession, intake: FakeIntake, tmp_path: Path) -> None:
    intake.add(5_000)
    deleted = threading.Event()

    def delete(frame: int) -> None:
        if frame == 2 and not deleted.is_set():
            deleted.set()
            intake.fired, intake.first_seq = (NOW_MS + 10**9, 4_000), 4_000
            raise OSError("the segment is not there any more")

    intake.during_read, intake.frames_max = delete, 2
    with running(spark, intake, tmp_path / "c"):
        intake.wait_committed(5_000)
    # Two frames had been read before they fired: they are stored, and the loader leaves them out.
    assert stored(intake.store_uri) == expected(0, 2_000) + expected(4_000, 5_000)


@pytest.mark.rest
@pytest.mark.parametrize("done", [True, False], ids=["after the Delta commit", "before it"])
def test_a_batch_that_spark_replays(
    spark: SparkSession, intake: FakeIntake, tmp_path: Path, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies with batch 1 planned and staged, committed to the store or not; Spark runs it again."""
    checkpoint = tmp_path / "c"
    intake.add(1_000)
    with running(spark, intake, checkpoint):
        intake.wait_committed(1_000)
        wait_done(checkpoint, 0)
    commit = ScheduleBatch.commit

    def dies(self: ScheduleBatch, results: list[RangeResult]) -> None:
        if done:
            commit(self, results)
        raise RuntimeError("the driver dies here")

    with monkeypatch.context() as patch:
        patch.setattr(ScheduleBatch, "commit", dies)
        intake.add(1_000)
        with running(spark, intake, checkpoint) as query:
            assert "the driver dies here" in failed(query)
    assert intake.reports[-1]["state"] == "failed"
    assert "the driver dies here" in intake.reports[-1]["error"]
    assert sorted(p.name for p in (checkpoint / "offsets").glob("[0-9]")) == ["0", "1"]
    assert [p.name for p in (checkpoint / "commits").glob("[0-9]")] == ["0"]
    assert Store.open(intake.store_uri).snapshot().committed_seq == (2_000 if done else 1_000)
    with running(spark, intake, checkpoint):
        intake.add(1_000)
        intake.wait_committed(3_000)
    assert stored(intake.store_uri) == expected(0, 3_000)
    if not done:  # what the dead attempt staged is on the disk, and in nobody's way
        staged = {str(p.relative_to(intake.store_uri)) for p in Path(intake.store_uri).glob("shard=*/*/*.parquet")}
        assert staged > set(Store.open(intake.store_uri).snapshot().files.path)


@pytest.mark.rest
def test_a_replayed_batch_that_has_nothing_new(spark: SparkSession, intake: FakeIntake, tmp_path: Path) -> None:
    """The very first batch, whose start Spark does not record: it died after the Delta commit."""
    checkpoint = tmp_path / "c"
    intake.add(1_000)
    with running(spark, intake, checkpoint):
        intake.wait_committed(1_000)
        wait_done(checkpoint, 0)
    shutil.rmtree(checkpoint / "commits")
    with running(spark, intake, checkpoint):
        intake.add(1_000)
        intake.wait_committed(2_000)
    assert stored(intake.store_uri) == expected(0, 2_000)


def lost(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def older(checkpoint: Path) -> None:
    for name in ("offsets/1", "commits/1"):
        (checkpoint / name).unlink()


def newer(checkpoint: Path) -> None:
    for name in ("offsets", "commits"):
        shutil.copy(checkpoint / name / "1", checkpoint / name / "2")
    path = checkpoint / "offsets" / "2"
    path.write_text(path.read_text().replace('{"seq": 2000}', '{"seq": 2500}'))
    assert "2500" in path.read_text()


@pytest.mark.parametrize("damage", [lost, *(pytest.param(damage, marks=pytest.mark.rest) for damage in (older, newer))])
def test_a_checkpoint_that_disagrees_with_the_store(
    spark: SparkSession, intake: FakeIntake, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    checkpoint = tmp_path / "c"
    with running(spark, intake, checkpoint):
        for seq in (1_000, 2_000):
            intake.add(1_000)
            intake.wait_committed(seq)
        wait_done(checkpoint, 1)
    damage(checkpoint)
    with running(spark, intake, checkpoint):
        intake.add(1_000)
        intake.wait_committed(3_000)
    assert stored(intake.store_uri) == expected(0, 3_000)


@pytest.mark.rest
def test_a_stale_driver_cannot_commit(spark: SparkSession, intake: FakeIntake, tmp_path: Path) -> None:
    """A driver plans and stages, is held up, and meanwhile another one goes on."""
    intake.add(1_000)
    store = Store.open(intake.store_uri)
    with BrokerClient(intake.address) as client:
        stale = ScheduleBatch(store, client, Reporter.of_job(client, "schedule"), intake.address)
        task = StageTask(intake.address, store.root, store.table_id, 0)
        planned_same = [task.stage_range(client, 0, 1_000)]
        planned_further = [task.stage_range(client, 0, 500), task.stage_range(client, 500, 1_000)]
        with running(spark, intake, tmp_path / "c"):
            intake.wait_committed(1_000)
            intake.add(1_000)
            planned_further.append(task.stage_range(client, 1_000, 2_000))
            intake.wait_committed(2_000)
        for results in (planned_same, planned_further):
            stale.commit(results)  # a replay: nothing is written
        intake.add(1_000)
        with pytest.raises(StaleCommitError):
            stale.commit([*planned_further[-1:], task.stage_range(client, 2_000, 3_000)])
    assert stored(intake.store_uri) == expected(0, 2_000)


@pytest.mark.rest
def test_a_stale_query_fails_and_its_successor_goes_on(spark: SparkSession, intake: FakeIntake, tmp_path: Path) -> None:
    intake.add(1_000)
    with running(spark, intake, tmp_path / "stale") as stale:
        intake.wait_committed(1_000)
        intake.wait_until(lambda: intake.reports[-1]["state"] == "idle")
        other = Store.open(intake.store_uri)  # another driver, which has committed part of what comes
        intake.add(50)
        with BrokerClient(intake.address) as client:
            files = StageTask(intake.address, other.root, other.table_id, 0).stage_range(client, 1_000, 1_050).files
        other.commit(files, 1_000, 1_050)
        intake.add(950)
        assert "is at seq 1050" in failed(stale)
    with running(spark, intake, tmp_path / "stale"):
        intake.wait_committed(2_000)
    assert stored(intake.store_uri) == expected(0, 2_000)


# -- the process -------------------------------------------------------------------------------------------------------


@contextmanager
def supervised(intake: FakeIntake, tmp_path: Path, *, bytes_min: int = BYTES_MIN) -> Iterator[PipelineSupervisor]:
    command = [
        sys.executable,
        "-m",
        "tarry.spark.pipeline.schedule",
        "--flight",
        intake.address,
        "--master",
        "local[1]",
    ]
    command += ["--checkpoint", str(tmp_path / "c"), "--memory", "512m", "--poll-ms", "100"]
    command += ["--schedule-bytes", str(bytes_min)]
    supervisor = PipelineSupervisor(command, tmp_path / "pipeline.log", backoff_s_min=0.1)
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()


@pytest.mark.long
def test_kill_9_of_the_driver_at_each_step(intake: FakeIntake, tmp_path: Path) -> None:
    """Killed while its task reads, killed between Delta's commit and Spark's; then it goes on, and stops when told."""
    killed: list[int] = []

    def kill(*_: object) -> None:
        pid = supervisor.status()["pid"]
        if len(killed) < 2 and pid is not None and pid not in killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    intake.during_read = kill
    intake.add(3_000)
    with supervised(intake, tmp_path) as supervisor:
        intake.wait_until(lambda: len(killed) == 1)
        intake.during_read = lambda frame: None
        intake.on_committed = kill
        intake.wait_until(lambda: len(killed) == 2)
        intake.wait_committed(3_000)
        intake.add(1_000)
        intake.wait_committed(4_000)
        status = supervisor.status()
        assert (status["state"], status["restarts"]) == ("running", 2)
        assert len(session_members(status["pid"])) >= 2  # it and its JVM
    assert stored(intake.store_uri) == expected(0, 4_000)
    for pid in (*killed, status["pid"]):
        assert not alive(pid)
        assert not session_members(pid)


@pytest.mark.rest
def test_a_python_without_tarry_is_named(intake: FakeIntake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake of a first day: what is missing, where, and what to do, in the status as in the log's last line."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    with supervised(intake, tmp_path) as supervisor:
        intake.wait_until(lambda: any(report["error"] for report in intake.reports))
        wait_until(lambda: supervisor.status()["last_error"])
    reported = next(report["error"] for report in intake.reports if report["error"])
    for told in (reported, supervisor.status()["last_error"]):
        assert "ModuleNotFoundError: No module named '" in told
        assert bare in told
        assert "pip install --find-links dist 'tarry[spark]'" in told


@pytest.mark.rest
def test_the_job_ends_with_its_broker(intake: FakeIntake, tmp_path: Path) -> None:
    """The broker is killed: driver, JVM and workers go, without being told."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tarry.spark.pipeline.supervisor import PipelineSupervisor\n"
        "PipelineSupervisor(sys.argv[2:], Path(sys.argv[1])).start()\ntime.sleep(600)\n"
    )
    job = [sys.executable, "-m", "tarry.spark.pipeline.schedule", "--flight", intake.address, "--master", "local[1]"]
    job += ["--checkpoint", str(tmp_path / "c"), "--memory", "512m", "--schedule-bytes", str(BYTES_MIN)]
    intake.add(1_000)
    broker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log"), *job])
    pid = None
    try:
        intake.wait_committed(1_000)
        pid = intake.reports[-1]["pid"]
        assert len(session_members(pid)) >= 2
        broker.kill()
        broker.wait()
        wait_until(lambda: not session_members(pid), what=lambda: session_members(pid))
    finally:
        broker.kill()
        broker.wait()
        if pid is not None:
            kill_session(pid)


def test_without_a_broker_the_job_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tarry.base.errors import UnavailableError
    from tarry.spark.pipeline import job, schedule

    monkeypatch.setattr(job, "BROKER_WAIT_S", 0.1)
    options = schedule.parse(["--flight", "127.0.0.1:1", "--checkpoint", str(tmp_path / "c")])
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"):
        schedule.run(options, threading.Event())
