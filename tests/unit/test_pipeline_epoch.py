"""A driver works for one owner of its broker's log: what it plans, stages, commits and removes, and how it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.spark.conftest import NOW_MS, FakeIntake, expected, messages, stored
from tests.waiting import wait_until

from tarry.base.clock import SystemClock
from tarry.base.errors import OwnershipLostError
from tarry.cli.exits import ExitCode
from tarry.spark.broker_client import BrokerClient
from tarry.spark.broker_store import open_store
from tarry.spark.pipeline import upkeep as upkeep_module
from tarry.spark.pipeline.compact import Upkeep, in_process, once
from tarry.spark.pipeline.job import EXIT_OWNERSHIP_LOST, Reporter
from tarry.spark.pipeline.schedule import ScheduleBatch
from tarry.spark.pipeline.stage_task import StageTask
from tarry.spark.pipeline.supervisor import PipelineSupervisor
from tarry.spark.pipeline.upkeep import Result, UpkeepSettings, in_thread
from tarry.spark.runtime.failures import one_line, ownership_lost
from tarry.store import Owner, Store, Work, stage

US = Owner("0" * 32, "here", "/data")
STORED, ACCEPTED = 3_000, 4_000
SETTINGS = UpkeepSettings(file_bytes_max=4 << 20)


def claim(intake: FakeIntake, epoch: int) -> None:
    """A broker takes the store over; ``intake``, the old one, has not seen it yet."""
    Store.open(intake.store_uri, owner=US, epoch=epoch)


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[FakeIntake]:
    """A broker of epoch 5, whose store has six small files."""
    intake = FakeIntake(str(tmp_path / "store"))
    intake.epoch = 5
    claim(intake, 5)
    intake.add(ACCEPTED)
    store = Store.open(intake.store_uri, create=False, epoch=5)
    for start in range(0, STORED, 500):
        table = pa.Table.from_batches([messages(start, start + 500)])
        store.commit(stage(table, store.root, "intake-x", NOW_MS), start, start + 500)
    intake.committed_seq = STORED
    yield intake
    intake.shutdown()


def upkeep_of(client: BrokerClient, run: Callable[[list[Work]], list[Result]] = in_process) -> Upkeep:
    store = open_store(client.join())
    return Upkeep(store, client, Reporter(client, "compact"), SETTINGS, run)


def reported(intake: FakeIntake) -> list[Any]:
    return [report["compact"]["error"] for report in intake.reports if "compact" in report]


# -- for whom it works -------------------------------------------------------------------------------------------------


def test_a_driver_takes_answers_of_one_owner_alone(owned: FakeIntake) -> None:
    with BrokerClient(owned.address) as driver, BrokerClient(owned.address) as reader:
        assert (driver.join().epoch, reader.state().epoch) == (5, 5)
        owned.epoch = 6  # a new owner at the same address
        with pytest.raises(OwnershipLostError, match=r"owner of epoch 6; this works for the one of epoch 5"):
            driver.state()
        with pytest.raises(OwnershipLostError):
            driver.join()
        assert reader.state().epoch == 6


def test_a_broker_that_has_no_epoch_or_does_not_say_one_may_be_started_again(owned: FakeIntake) -> None:
    owned.epoch = None
    with BrokerClient(owned.address) as driver:
        assert driver.join().epoch is None
        owned.leaves_out = {"epoch"}
        assert driver.state().epoch is None
        assert open_store(driver.state()).epoch is None


def test_what_was_planned_is_committed_under_its_own_epoch_or_not_at_all(owned: FakeIntake) -> None:
    """The old driver's batch is whole, and the broker at its address is the new owner."""
    with BrokerClient(owned.address) as driver:
        store = open_store(driver.join())
        batch = ScheduleBatch(store, driver, Reporter.of_job(driver, "schedule"), owned.address)
        task = StageTask(owned.address, store.root, store.table_id, 0, epoch=store.epoch)
        results = [task.stage_range(driver, STORED, ACCEPTED)]
        claim(owned, 6)
        owned.epoch = 6
        with pytest.raises(OwnershipLostError):
            batch.commit(results)
    assert stored(owned.store_uri) == expected(0, STORED)


def test_tasks_stage_what_their_drivers_owner_has(owned: FakeIntake) -> None:
    store = Store.open(owned.store_uri, create=False, epoch=5)
    task = StageTask(owned.address, store.root, store.table_id, 0, epoch=store.epoch)
    ranges = pa.RecordBatch.from_pydict({"start_seq": [STORED], "end_seq": [ACCEPTED]})
    owned.epoch = 6
    before = sorted(Path(store.root).rglob("*.parquet"))
    with pytest.raises(OwnershipLostError):
        list(task(iter([ranges])))
    assert sorted(Path(store.root).rglob("*.parquet")) == before
    assert owned.reads == []


def test_the_query_plans_with_its_drivers_owner(owned: FakeIntake) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from tarry.spark.pipeline.intake_source import IntakeReader

    options = {"flight": owned.address, "start_seq": "0", "cores": "1"}
    options |= {"bytes_min": "1", "interval_ms": "1", "rows_max": "10000"}
    driver, other = IntakeReader({**options, "epoch": "5"}), IntakeReader(options)
    assert driver.latestOffset({"seq": STORED}, ReadAllAvailable()) == {"seq": ACCEPTED}
    owned.epoch = 6
    with pytest.raises(OwnershipLostError):
        driver.latestOffset({"seq": STORED}, ReadAllAvailable())
    assert other.latestOffset({"seq": STORED}, ReadAllAvailable()) == {"seq": ACCEPTED}
    driver.stop()
    other.stop()


# -- the upkeep --------------------------------------------------------------------------------------------------------


def test_files_that_were_rewritten_for_an_old_owner_are_not_committed(owned: FakeIntake) -> None:
    def taken_over(works: list[Work]) -> list[Result]:
        results = in_process(works)
        claim(owned, 6)
        return results

    before = Store.open(owned.store_uri).snapshot().files.path
    with BrokerClient(owned.address) as client, pytest.raises(OwnershipLostError, match="is epoch 6's"):
        once(client, None, SETTINGS, taken_over, threading.Event())
    assert Store.open(owned.store_uri).snapshot().files.path == before
    with BrokerClient(owned.address) as client, pytest.raises(OwnershipLostError):
        once(client, None, SETTINGS, in_process, threading.Event())
    owned.epoch = 6
    with BrokerClient(owned.address) as client:
        assert once(client, None, SETTINGS, in_process, threading.Event())["works"] == 1
    assert stored(owned.store_uri) == expected(0, STORED)


def test_what_has_fired_for_an_old_owner_is_not_removed(owned: FakeIntake) -> None:
    with BrokerClient(owned.address) as client:
        upkeep = upkeep_of(client)
        state = client.state

        def taken_over() -> Any:
            claim(owned, 6)
            return state()

        owned.fired = (NOW_MS + 10**9, ACCEPTED)
        client.state = taken_over  # type: ignore[method-assign]
        with pytest.raises(OwnershipLostError):
            upkeep.round(threading.Event())
    assert stored(owned.store_uri) == expected(0, STORED)


@pytest.mark.parametrize("how", ["the store was claimed", "another owner answers"])
def test_a_driver_that_has_nothing_to_do_ends_too(owned: FakeIntake, how: str) -> None:
    """In a thread beside the schedule query, which is told; a round that only failed would be tried again."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=lambda _: None))
    lost: list[OwnershipLostError] = []
    with BrokerClient(owned.address) as client:
        upkeep = upkeep_of(client)
        while upkeep.round(threading.Event()):
            pass
        with in_thread(cast("Any", spark), upkeep, 10, lost.append) as thread:
            rounds = len(reported(owned))
            wait_until(lambda: len(reported(owned)) > rounds + 1)
            assert lost == []
            if how == "the store was claimed":
                claim(owned, 6)
            else:
                owned.epoch = 6
            wait_until(lambda: lost)
            assert thread is not None
            thread.join()
    assert "epoch 6" in str(lost[0])
    assert "epoch 6" in reported(owned)[-1]


def test_an_old_owner_deletes_no_files(owned: FakeIntake, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fence holds a deletion, so it does not begin one; ``orphans.py`` says what holds where it has begun."""
    deleting: list[str] = []
    for name in ("remove_replaced", "remove_orphans"):
        monkeypatch.setattr(upkeep_module, name, lambda *_, name=name, **__: deleting.append(name) or [])
    with BrokerClient(owned.address) as client:
        rewriter = upkeep_module.StoreRewriter(open_store(client.join()), SETTINGS, in_process)
        claim(owned, 6)
        with pytest.raises(OwnershipLostError):
            rewriter.tidy()
        assert deleting == []
        owned.epoch = 6
    with BrokerClient(owned.address) as client:
        upkeep_module.StoreRewriter(open_store(client.join()), SETTINGS, in_process).tidy()
    assert deleting == ["remove_replaced", "remove_orphans"]


# -- the process -------------------------------------------------------------------------------------------------------


def test_the_process_says_why_it_ends(owned: FakeIntake) -> None:
    claim(owned, 6)
    command = [sys.executable, "-m", "tarry.spark.pipeline.compact", "--flight", owned.address, "--master", "none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == EXIT_OWNERSHIP_LOST == ExitCode.OWNERSHIP_LOST
    last = done.stderr.strip().splitlines()[-1]
    assert "is epoch 6's, not epoch 5's: another owner has taken it over" in last


def test_an_error_of_another_process_is_known_again() -> None:
    error = OwnershipLostError("the broker is another's")
    line = one_line(
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in latestOffset\n'
        f"    raise it\n{type(error).__module__}.{type(error).__name__}: {error}\n"
    )
    assert str(ownership_lost(line)) == "the broker is another's"
    assert ownership_lost("tarry.base.errors.StaleCommitError: another") is None


def test_its_broker_does_not_start_it_again_at_once(tmp_path: Path) -> None:
    """Its own look at who owns its log is about to end it."""
    command = [sys.executable, "-c", f"import sys; print('not ours'); sys.exit({EXIT_OWNERSHIP_LOST})"]
    supervisor = PipelineSupervisor(command, tmp_path / "log", backoff_s_min=0.01, backoff_s_max=3600)
    supervisor.start()
    wait_until(lambda: supervisor.status()["restarts"] == 1)
    status = supervisor.status()
    supervisor.stop()
    assert status["last_error"] == "not ours"
    assert status["next_try_ms"] > SystemClock().now_ms() + 60_000, "it is started again after the shortest pause"
