"""The upkeep on Spark: beside a schedule query, killed at each step, and two at once; no message is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarry.base.errors import CorruptError, UnavailableError
from tarry.spark.broker_client import BrokerClient
from tarry.spark.pipeline import compact
from tarry.spark.pipeline.compact import Upkeep, beside, in_process
from tarry.spark.pipeline.job import Reporter
from tarry.spark.pipeline.upkeep import UpkeepSettings, loop, on_spark
from tarry.store import Store, stage

from .conftest import NOW_MS, FakeIntake, expected, messages, stored
from .test_schedule import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SETTINGS = UpkeepSettings(interval_ms=100, file_bytes_max=4 << 20)


def fill(uri: str, commits: int, rows: int = 500) -> Store:
    """So many small files, all over the day."""
    import pyarrow as pa

    store = Store.open(uri)
    for start in range(0, commits * rows, rows):
        table = pa.Table.from_batches([messages(start, start + rows)])
        store.commit(stage(table, store.root, "intake-x", NOW_MS), start, start + rows)
    return store


def upkeep_of(intake: FakeIntake, client: BrokerClient, run: Any = in_process, **settings: Any) -> Upkeep:
    store = Store.open(intake.store_uri)
    return Upkeep(store, client, Reporter(client, "compact"), UpkeepSettings(file_bytes_max=4 << 20, **settings), run)


def until_done(upkeep: Upkeep) -> None:
    while upkeep.round(threading.Event()):
        pass


def compact_reports(intake: FakeIntake) -> list[dict[str, Any]]:
    return [report["compact"] for report in intake.reports if "compact" in report]


def test_tasks_rewrite_and_the_driver_commits(spark: SparkSession, intake: FakeIntake) -> None:
    store = fill(intake.store_uri, 6)
    with BrokerClient(intake.address) as client:
        until_done(upkeep_of(intake, client, on_spark(spark), tasks=2))
    assert stored(intake.store_uri) == expected(0, 3000)
    assert len(store.snapshot().files) == 1
    last = compact_reports(intake)[-1]
    assert (last["state"], last["error"], last["files"]) == ("idle", None, 1)
    assert last["totals"]["files_removed"] == 6
    assert last["totals"]["rows_written"] == 3000
    assert intake.committed_seq == 3000, "the broker was told"


@pytest.mark.rest
def test_beside_the_schedule_query(spark: SparkSession, intake: FakeIntake, tmp_path: Path) -> None:
    intake.add(1_000)
    with running(spark, intake, tmp_path / "c"), BrokerClient(intake.address) as client:
        store = Store.open(intake.store_uri)
        with beside(spark, store, client, SETTINGS) as thread:
            for end in range(1_000, 8_001, 1_000):
                intake.wait_committed(end)
                if end < 8_000:
                    intake.add(1_000)
            intake.wait_until(lambda: compact_reports(intake)[-1].get("totals", {}).get("works", 0) >= 1)
            assert len(store.snapshot().files) < 8
        assert thread is not None
        assert not thread.is_alive()
    assert stored(intake.store_uri) == expected(0, 8_000)
    # Each reports under its own name, and none hides the other.
    assert all(report["job"] == "schedule" for report in intake.reports if "compact" not in report)


def test_it_is_off_when_told(spark: SparkSession, intake: FakeIntake) -> None:
    with (
        BrokerClient(intake.address) as client,
        beside(spark, Store.open(intake.store_uri), client, UpkeepSettings(interval_ms=0)) as thread,
    ):
        assert thread is None


def test_a_round_that_fails_is_said_and_the_next_one_works(intake: FakeIntake) -> None:
    fill(intake.store_uri, 6)
    failures: list[int] = []
    stop = threading.Event()

    def fails_once(works: list[Any]) -> list[Any]:
        if not failures:
            failures.append(1)
            raise UnavailableError("no task can be run")
        return in_process(works)

    with BrokerClient(intake.address) as client:
        upkeep = upkeep_of(intake, client, fails_once)
        thread = threading.Thread(target=loop, args=(upkeep, stop, 0.01))
        thread.start()
        intake.wait_until(lambda: any(r.get("totals", {}).get("works") for r in compact_reports(intake)))
        stop.set()
        thread.join()
    assert "no task can be run" in next(r["error"] for r in compact_reports(intake) if r["state"] == "failed")
    assert compact_reports(intake)[-1]["error"] is None
    assert stored(intake.store_uri) == expected(0, 3000)


def test_a_damaged_file_keeps_its_work_alone(intake: FakeIntake, caplog: pytest.LogCaptureFixture) -> None:
    check_a_damaged_file_keeps_its_work_alone(in_process, intake, caplog)


def test_a_damaged_file_keeps_its_work_alone_in_tasks(
    spark: SparkSession, intake: FakeIntake, caplog: pytest.LogCaptureFixture
) -> None:
    check_a_damaged_file_keeps_its_work_alone(on_spark(spark), intake, caplog)


def check_a_damaged_file_keeps_its_work_alone(run: Any, intake: FakeIntake, caplog: pytest.LogCaptureFixture) -> None:
    store = fill(intake.store_uri, 4)
    far = fill_far(store, 4)
    all_rows = stored(intake.store_uri)
    damaged = Path(store.root) / min(far)
    sound = damaged.read_bytes()
    damaged.write_bytes(b"not what was written" * 10)
    with BrokerClient(intake.address) as client:
        upkeep = upkeep_of(intake, client, run, tasks=2)
        until_done(upkeep)
        report = compact_reports(intake)[-1]
        assert (report["state"], report["damaged"]) == ("idle", 1)
        assert min(far) in report["error"], "and not what else was to be done"
        assert report["totals"]["files_removed"] == 4
        # Neither read again nor said again, until it has changed; what was to be merged with it is not enough without.
        for _ in range(3):
            assert upkeep.round(threading.Event()) == 0
        assert report["totals"]["damaged_works"] == upkeep.totals["damaged_works"] == 1
        assert sum("stay as they are" in record.getMessage() for record in caplog.records) == 1
        with pytest.raises(CorruptError, match=Path(min(far)).stem):
            compact.once(client, intake.store_uri, UpkeepSettings(file_bytes_max=4 << 20), run, threading.Event())
        damaged.write_bytes(sound)
        until_done(upkeep)
        last = compact_reports(intake)[-1]
    assert (last["error"], last["damaged"], last["totals"]["files_removed"]) == (None, 0, 8)
    assert stored(intake.store_uri) == all_rows


def fill_far(store: Store, commits: int) -> set[str]:
    """So many files more, in a day that is months away; their paths."""
    import pyarrow as pa

    before = store.snapshot()
    for start in range(before.committed_seq, before.committed_seq + commits * 500, 500):
        batch = messages(start, start + 500)
        far = pa.array(batch["due_ms"].to_numpy() + 100 * 86_400_000)
        table = pa.Table.from_batches([batch.set_column(batch.schema.get_field_index("due_ms"), "due_ms", far)])
        store.commit(stage(table, store.root, "intake-x", NOW_MS), start, start + 500)
    return {*store.snapshot().files.path} - {*before.files.path}


def test_what_has_fired_durably_goes(intake: FakeIntake) -> None:
    store = fill(intake.store_uri, 6)
    middle = NOW_MS + 60_000 + 40_000_000
    with BrokerClient(intake.address) as client:
        # Some of what the store has was accepted after the checkpoint: it may have been late, and not fired.
        intake.fired = (middle, 2_999)
        upkeep = upkeep_of(intake, client)
        until_done(upkeep)
        assert stored(intake.store_uri) == expected(0, 3000)
        intake.fired = (middle, 3_000)
        intake.add(10)
        fill_more(store, 3000)
        until_done(upkeep)
        intake.fired = (middle, 3_100)
        fill_more(store, 3001)
        fill_more(store, 3002)
        until_done(upkeep)
        intake.fired = (NOW_MS + 10**9, 10**6)
        until_done(upkeep)
    assert stored(intake.store_uri) == []
    assert upkeep.totals["expired_files"] >= 1


def test_a_late_message_that_is_stored_while_it_plans_stays(intake: FakeIntake) -> None:
    """It was due before all that has fired, came after the broker's answer, and did not fire yet."""
    store = fill(intake.store_uri, 6)
    intake.fired = (NOW_MS + 60_000 + 40_000_000, 3_000)

    class Raced(BrokerClient):
        def state(self) -> Any:
            answer = super().state()
            if store.snapshot().committed_seq == 3_000:
                fill_more(store, 3_000)
            return answer

    with Raced(intake.address) as client:
        upkeep_of(intake, client).round(threading.Event())
    (late,) = expected(3_000, 3_001)
    assert late[1] < intake.fired[0]
    assert late in stored(intake.store_uri)


def fill_more(store: Store, start: int) -> None:
    import pyarrow as pa

    table = pa.Table.from_batches([messages(start, start + 1)])
    store.commit(stage(table, store.root, "intake-x", NOW_MS), start, start + 1)


def test_two_at_once_lose_and_double_nothing(intake: FakeIntake) -> None:
    """Both plan the same works from the same snapshot; for each, one of them comes second."""
    fill(intake.store_uri, 12)
    meet = threading.Barrier(2, timeout=60)
    first: set[int] = set()

    def together(works: list[Any]) -> list[Any]:
        results = in_process(works)
        if threading.get_ident() not in first:
            first.add(threading.get_ident())
            meet.wait()
        return results

    with BrokerClient(intake.address) as client:
        both = [upkeep_of(intake, client, together) for _ in range(2)]
        threads = [threading.Thread(target=until_done, args=(upkeep,)) for upkeep in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(first) == 2
    assert stored(intake.store_uri) == expected(0, 6000)
    assert sorted(upkeep.totals["works"] for upkeep in both)[0] < sum(upkeep.totals["works"] for upkeep in both)


# -- a process that is killed ------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from tarry.spark.pipeline import compact
from tarry.store import Store
import tarry.spark.pipeline.compact as module

def die(*a, **k):
    os.kill(os.getpid(), signal.SIGKILL)

step = sys.argv.pop(1)
if step == "before the rewriting":
    compact.in_process = die
if step == "in the middle of a file":
    import tarry.store.stage as stage_module
    from tarry.store import run
    run.put = die
if step == "between rewriting and commit":
    Store.replace = die
if step == "in the commit":
    from deltalake import DeltaTable
    from tarry.store import Publisher
    real = Publisher.write
    def exchange(self, *a):
        real(self, *a)
        die()
    Publisher.write = exchange
if step == "between commit and telling":
    compact.Upkeep._notify = die
if step == "in the deletion":
    import tarry.store.place as place
    place.Place.remove = die
sys.exit(compact.main(sys.argv[1:]))
"""
STEPS = {
    "before the rewriting": False,
    "in the middle of a file": False,
    "between rewriting and commit": False,
    "in the commit": True,
    "between commit and telling": True,
}


def once(intake: FakeIntake, *, step: str = "none") -> int:
    command = [sys.executable, "-c", KILLED, step, "--flight", intake.address, "--master", "none", "--once"]
    return subprocess.run(command, timeout=60, check=False, capture_output=True).returncode


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step == "in the commit" else pytest.mark.rest) for step in STEPS]
)
def test_killed_at_each_step(intake: FakeIntake, step: str) -> None:
    store = fill(intake.store_uri, 5)
    assert once(intake, step=step) == -signal.SIGKILL
    assert stored(intake.store_uri) == expected(0, 2500)
    assert (len(store.snapshot().files) == 1) == STEPS[step]
    assert once(intake) == 0
    assert stored(intake.store_uri) == expected(0, 2500)
    assert len(store.snapshot().files) == 1
    assert store.snapshot().committed_seq == 2500
    # What the dead left is named by nothing, and goes when it is old.
    on_disk = {str(p.relative_to(intake.store_uri)) for p in Path(intake.store_uri).glob("shard=*/*/*.parquet")}
    orphans = {path for path in on_disk if "/run-" in path} - set(store.snapshot().files.path)
    assert bool(orphans) == (step == "between rewriting and commit")


def test_killed_while_it_deletes(intake: FakeIntake) -> None:
    store = fill(intake.store_uri, 5)
    assert once(intake) == 0
    # An orphan of long ago is to be deleted: then it dies.
    orphan = Path(intake.store_uri, "shard=0/bucket=all", f"run-x-{'0' * 32}-00000000.parquet")
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"x")
    os.utime(orphan, (0, 0))
    assert once(intake, step="in the deletion") == -signal.SIGKILL
    assert orphan.exists()
    assert once(intake) == 0
    assert not orphan.exists()
    assert stored(store.root) == expected(0, 2500)


def test_by_itself_until_it_is_told_to_stop(intake: FakeIntake, tmp_path: Path) -> None:
    fill(intake.store_uri, 5)
    command = [sys.executable, "-m", "tarry.spark.pipeline.compact", "--flight", intake.address, "--master", "none"]
    job = subprocess.Popen([*command, "--compact-interval-ms", "100"], stderr=subprocess.PIPE)
    try:
        intake.wait_until(lambda: any(r["state"] == "idle" for r in compact_reports(intake)))
        job.terminate()
        _, errors = job.communicate(timeout=30)
    finally:
        job.kill()
    assert job.returncode == 0, errors
    assert stored(intake.store_uri) == expected(0, 2500)


def test_the_commands(intake: FakeIntake, capsys: pytest.CaptureFixture[str]) -> None:
    from tarry.cli.main import run

    store = fill(intake.store_uri, 5)
    intake.fired = (NOW_MS + 60_000, 2_500)
    assert run(["expire", "-e", intake.address, "--json"]) == 0
    assert len(store.snapshot().files) == 5
    assert run(["compact", "-e", intake.address, "--json"]) == 0
    assert len(store.snapshot().files) == 1
    intake.fired = (NOW_MS + 10**9, 2_500)
    assert run(["expire", "-e", intake.address, "--json"]) == 0
    assert len(store.snapshot().files) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [p.get("works", 0) for p in printed] == [0, 1, 0]
    assert [p.get("expired_files", 0) for p in printed] == [0, 0, 1]


@pytest.mark.rest
def test_by_itself_on_spark(intake: FakeIntake) -> None:
    store = fill(intake.store_uri, 5)
    command = [sys.executable, "-m", "tarry.spark.pipeline.compact", "--flight", intake.address, "--master", "local[1]"]
    done = subprocess.run([*command, "--memory", "512m", "--once"], timeout=120, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert stored(intake.store_uri) == expected(0, 2500)
    assert len(store.snapshot().files) == 1


def test_without_a_broker_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from tarry.spark.pipeline import job

    monkeypatch.setattr(job, "BROKER_WAIT_S", 0.1)
    options = compact.parse(["--flight", "127.0.0.1:1", "--master", "none", "--once"])
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"):
        compact.run(options, threading.Event())
