"""Bulk jobs: all of one at once or nothing, in time and once, also for what is due already; cancelled as a whole."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarry.api.jobs import JobState, StagedFile
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import (
    CorruptError,
    DiskFullError,
    InvalidArgumentError,
    InvalidMessageError,
    NotFoundError,
    TarryError,
    UnavailableError,
)
from tarry.broker import Broker
from tarry.broker.job_announcements import JobAnnouncements
from tarry.broker.jobs import Jobs
from tarry.broker.store_view import StoreFollower
from tarry.log.files import OsFiles
from tarry.message import handle
from tarry.message.admission import admit
from tarry.message.bulk import JobRow, first_seq, number_of
from tarry.message.schema import Kind
from tarry.store import StaleCommitError, Store, stage
from tarry.store.locallog import record_path
from tarry.wheel import loader

T0 = 1_795_264_000_000
HOUR = 3_600_000


class Bench:
    """A broker on a directory, whose clock the test moves, and what its consumers got."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.clock = TestClock(T0)
        self.config = Config(data=directory, pipeline="off", disk_free_bytes_min=0, **settings)
        self.got: Counter[bytes] = Counter()
        self.broker = self.open()

    def open(self) -> Broker:
        self.broker = Broker.open(self.config, clock=self.clock, threads=False)
        return self.broker

    def kill(self) -> Broker:
        """As after SIGKILL: nothing more is written, and the lock is gone."""
        for thing in (self.broker.components.journal, self.broker.components.ready, self.broker.components.intake):
            thing.close()
        self.broker.components.registry.close()
        self.broker.components.engine.release()
        return self.open()

    def load(self, job: str, dues: list[int], *, topic: str = "a", body: int = 0, commit: bool = True) -> int:
        attempt = self.broker.components.bulk.begin(job)
        rows = {
            "topic": pa.array([topic] * len(dues)),
            "due_ms": pa.array(dues, pa.int64()),
            "body": pa.array([b"%s-%d" % (job.encode(), i) + b"." * body for i in range(len(dues))]),
        }
        files, topics = self.broker.components.bulk.stage(attempt.number, [pa.record_batch(rows)] if dues else [])
        if commit:
            self.broker.components.bulk.commit(attempt.number, files, topics)
        return attempt.number

    def run(self, until_ms: int, *, step_ms: int = 300_000, topic: str = "a") -> None:
        """Move the clock on, in steps, and take what falls due."""
        while self.clock.now_ms() < until_ms:
            self.clock.advance_ms(min(step_ms, until_ms - self.clock.now_ms()))
            self.take(topic)

    def take(self, topic: str = "a") -> None:
        while True:
            self.broker.step()
            batch = self.broker.receive(topic, "g", max_messages=1000)
            if not batch.num_rows:
                return
            assert (batch["due_ms"].to_numpy() <= self.clock.now_ms()).all()
            self.got.update(b.rstrip(b".") for b in batch["body"].to_pylist())
            self.broker.ack(topic, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())

    def pending(self, topic: str = "a") -> int:
        return {e.topic: e.pending for e in self.broker.pending()}.get(topic, 0)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    bench = Bench(tmp_path / "data")
    yield bench
    bench.broker.close()


def names(job: str, *numbers: int) -> Counter[bytes]:
    return Counter(b"%s-%d" % (job.encode(), i) for i in numbers)


def test_a_job_arrives_in_time_and_once(bench: Bench) -> None:
    bench.load("j", [T0 - 5, T0, T0 + 1000, T0 + 30_000, T0 + HOUR])
    assert bench.pending() == 5
    bench.take()
    assert bench.got == names("j", 0, 1)
    bench.run(T0 + 1000, step_ms=1000)
    assert bench.got == names("j", 0, 1, 2)
    bench.run(T0 + 2 * HOUR)
    assert bench.got == names("j", *range(5))
    assert bench.pending() == 0


def test_before_the_commit_nothing_is_there(bench: Bench) -> None:
    number = bench.load("j", [T0, T0 + 10], commit=False)
    bench.run(T0 + HOUR)
    assert not bench.got
    assert bench.pending() == 0
    assert bench.broker.components.bulk.begin("j").number == number + 1
    with pytest.raises(StaleCommitError, match=r"attempt 0 of job 'j' is aborted; allowed: an open one"):
        bench.broker.components.bulk.commit(number, [], {})


def test_the_same_job_again_is_nothing_to_do(bench: Bench) -> None:
    number = bench.load("j", [T0 + HOUR])
    again = bench.broker.components.bulk.begin("j")
    assert (again.number, again.state, again.rows, again.topics) == (number, JobState.COMMITTED, 1, {"a": 1})
    assert bench.broker.components.bulk.commit(number, [], {})[0] == again, "its commit, too, may be repeated"
    bench.run(T0 + 2 * HOUR)
    assert bench.got == names("j", 0)


def test_an_empty_job_is_known_afterwards(bench: Bench) -> None:
    number = bench.load("j", [])
    assert bench.broker.components.bulk.begin("j").state is JobState.COMMITTED
    assert bench.broker.components.bulk.begin("j").number == number
    assert bench.broker.components.bulk.cancel("j").outcome == "done"


def test_two_jobs_and_single_messages_are_counted_apart(bench: Bench) -> None:
    bench.load("j", [T0 + HOUR] * 3)
    bench.load("k", [T0 + HOUR, T0 + 10], topic="b")
    bench.broker.schedule("a", b"single", delay=1)
    assert (bench.pending("a"), bench.pending("b")) == (4, 2)
    bench.run(T0 + 2 * HOUR)
    bench.take("b")
    assert bench.got == names("j", 0, 1, 2) + names("k", 0, 1) + Counter([b"single"])


@pytest.mark.parametrize("dues", [[T0 - 1] * 5000, [T0 + i for i in range(5000)], [T0 + 30_000] * 5000])
def test_more_than_the_wheel_has_room_for(dues: list[int], tmp_path: Path) -> None:
    bench = Bench(tmp_path / "data", wheel_bytes_max=100_000, horizon_ms=60_000)
    for i in range(50):
        bench.broker.schedule("a", b"single-%d" % i + b"." * 1000, delay=0.5 * i)
    bench.broker.step()
    bench.load("j", dues, body=100)
    bench.run(T0 + 120_000, step_ms=7_000)
    assert bench.got == names("j", *range(5000)) + names("single", *range(50))
    assert bench.pending() == 0
    bench.broker.close()


def test_a_job_and_its_messages_are_cancelled(bench: Bench) -> None:
    bench.load("j", [T0 + 10, T0 + 1000, T0 + 2000, T0 + HOUR, T0 + HOUR])
    bench.load("k", [T0 + 1500])
    bench.run(T0 + 500, step_ms=500)
    [seq] = [r["seq"] for r in bench.broker.list_pending(topic="a").rows.to_pylist() if r["due_ms"] == T0 + 2000]
    one = handle.encode(seq, T0 + 2000, seq, 1, handle.sign(bench.broker.components.secret, seq, 1))
    assert bench.broker.cancel(one) == "done"
    assert bench.pending() == 4
    cancelled = bench.broker.components.bulk.cancel("j")
    assert (cancelled.outcome, cancelled.cancelled, cancelled.rows) == ("done", 3, 5)
    assert bench.pending() == 1
    assert bench.broker.components.bulk.cancel("j").outcome == "cancelled"
    assert bench.broker.cancel(one) == "cancelled"
    assert bench.broker.list_pending(topic="a").rows["due_ms"].to_pylist() == [T0 + 1500]
    bench.run(T0 + 2 * HOUR)
    assert bench.got == names("j", 0) + names("k", 0)
    assert bench.broker.components.bulk.begin("j").state is JobState.CANCELLED, "it does not come again"


def test_a_job_that_was_delivered_cannot_be_cancelled(bench: Bench) -> None:
    bench.load("j", [T0 + 10])
    bench.run(T0 + 500)
    assert bench.broker.components.bulk.cancel("j").outcome == "delivered"
    assert bench.broker.components.bulk.cancel("never").outcome == "unknown"
    bench.load("open", [T0 + HOUR], commit=False)
    assert bench.broker.components.bulk.cancel("open").outcome == "done"
    assert bench.broker.components.bulk.begin("open").state is JobState.CANCELLED


@pytest.mark.parametrize("moment", [0, 400, 5000, 2 * HOUR])
def test_a_kill_after_the_commit(bench: Bench, moment: int) -> None:
    bench.load("j", [T0 - 5, T0 + 1000, T0 + HOUR])
    bench.run(T0 + moment, step_ms=max(400, moment // 20))
    bench.kill()
    bench.run(T0 + 3 * HOUR)
    assert bench.got == names("j", 0, 1, 2)
    assert bench.pending() == 0


def raising(error: TarryError) -> Callable[..., Any]:
    """What can only fail."""

    def fails(*_: object) -> None:
        raise error

    return fails


def has_no_answer(store: Any, monkeypatch: pytest.MonkeyPatch, *, took_place: bool) -> None:
    """Commits of bulk jobs fail, after they took place or before."""
    commit = store.commit_bulk

    def fails(*arguments: Any) -> None:
        if took_place:
            commit(*arguments)
        raise UnavailableError("no answer (injected)")

    monkeypatch.setattr(store, "commit_bulk", fails)


@pytest.mark.parametrize("took_place", [False, True])
@pytest.mark.parametrize("doubt", ["the store is away", "the disk is full"])
def test_a_commit_of_which_the_outcome_is_in_doubt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, doubt: str, took_place: bool
) -> None:
    """Nobody can say at once whether the store has it, or write that it has not. Nothing is told before."""
    parts = bench.broker.components
    has_no_answer(parts.store, monkeypatch, took_place=took_place)
    if doubt == "the disk is full":
        monkeypatch.setattr(parts.jobs, "reopen", raising(DiskFullError("the disk is full (injected)")))
    else:
        monkeypatch.setattr(parts.store, "bulk_number", raising(UnavailableError("away (injected)")))
    is_known = doubt == "the disk is full" and took_place
    if is_known:
        bench.load("j", [T0 + 5, T0 + 60_000])
    else:
        with pytest.raises((DiskFullError, UnavailableError)):
            bench.load("j", [T0 + 5, T0 + 60_000])
        bench.broker.components.bulk.announce_again()
        bench.run(T0 + 100, step_ms=50)
        assert bench.pending() == 0
        assert not bench.got
    monkeypatch.undo()
    bench.broker.components.bulk.announce_again()
    assert bench.pending() == (2 if took_place else 0)
    assert bench.broker.components.bulk.begin("j").state == (JobState.COMMITTED if took_place else JobState.OPEN)
    if not took_place:
        bench.load("j", [T0 + 5, T0 + 60_000])
    bench.run(T0 + HOUR)
    assert bench.got == names("j", 0, 1)


@pytest.mark.parametrize("took_place", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_a_commit_while_that_of_another_is_in_doubt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, took_place: bool, crash: bool
) -> None:
    store = bench.broker.components.store
    has_no_answer(store, monkeypatch, took_place=took_place)
    monkeypatch.setattr(store, "bulk_number", raising(UnavailableError("away (injected)")))
    with pytest.raises(UnavailableError):
        bench.load("j", [T0 + 5])
    monkeypatch.undo()
    if crash:
        bench.kill()
    bench.load("k", [T0 + 5, T0 + 6])
    assert bench.pending() == 2 + took_place
    bench.run(T0 + HOUR)
    assert bench.got == names("k", 0, 1) + (names("j", 0) if took_place else Counter())


def test_a_broker_starts_on_a_full_disk_with_a_commit_in_doubt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bench.broker.components.store
    for method in ("commit_bulk", "bulk_number"):
        monkeypatch.setattr(store, method, raising(UnavailableError("away (injected)")))
    with pytest.raises(UnavailableError):
        bench.load("j", [T0 + 5])
    monkeypatch.undo()
    monkeypatch.setattr(Jobs, "reopen", raising(DiskFullError("the disk is full (injected)")))
    bench.kill()
    assert bench.pending() == 0
    monkeypatch.undo()
    bench.broker.components.bulk.announce_again()
    bench.load("j", [T0 + 5])
    bench.run(T0 + HOUR)
    assert bench.got == names("j", 0)


def test_cancelling_what_was_not_committed_after_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = bench.broker.components

    def refuses(*_: object) -> None:
        raise UnavailableError("away (injected)")

    monkeypatch.setattr(parts.store, "commit_bulk", refuses)
    monkeypatch.setattr(parts.store, "bulk_number", refuses)
    with pytest.raises(UnavailableError):
        bench.load("j", [T0 + 5])
    monkeypatch.undo()
    assert bench.broker.components.bulk.cancel("j").cancelled == 0
    assert bench.broker.components.bulk.begin("j").state == JobState.CANCELLED


@pytest.mark.parametrize("point", ["before the store", "after the store", "in the log", "after the log"])
@pytest.mark.parametrize("late", [False, True])
def test_a_kill_within_the_commit(bench: Bench, monkeypatch: pytest.MonkeyPatch, point: str, late: bool) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    if late:  # what the checkpoint says has fired reaches beyond what the job brings
        bench.broker.schedule("a", b"first", delay=1)
        bench.run(T0 + 2000, step_ms=500)
        bench.broker.checkpoint()
    bulk, parts = bench.broker.components.bulk, bench.broker.components
    if point == "before the store":
        monkeypatch.setattr(parts.store, "commit_bulk", killed)
    elif point == "after the store":
        monkeypatch.setattr(bulk, "announce", killed)
    elif point == "in the log":  # it is durable there, and what is known of jobs does not have it yet
        monkeypatch.setattr(parts.jobs, "apply", killed)
    else:
        monkeypatch.setattr(JobAnnouncements, "announced", killed)
    with pytest.raises(Killed):
        bench.load("j", [T0 + 5, T0 + 60_000, T0 + HOUR])
    if point == "after the store":
        bench.broker.store_committed()
        bench.broker.step()  # the loader looks at the store meanwhile
        bench.run(bench.clock.now_ms() + 400, step_ms=400)
        assert not bench.got - Counter([b"first"]), "nothing fires that the log does not know of"
    bench.kill()
    there = point != "before the store"
    assert bench.broker.components.bulk.begin("j").state == (JobState.COMMITTED if there else JobState.OPEN)
    assert bench.pending() == (3 if there else 0)
    bench.take()
    bench.kill()
    bench.run(T0 + 2 * HOUR)
    assert bench.got - Counter([b"first"]) == (names("j", 0, 1, 2) if there else Counter())
    assert bench.pending() == 0


def test_a_cancelled_job_stays_so_after_a_kill(bench: Bench) -> None:
    bench.load("j", [T0 + 1000, T0 + HOUR])
    bench.broker.step()
    assert bench.broker.components.bulk.cancel("j").cancelled == 2
    bench.kill()
    assert bench.pending() == 0
    bench.run(T0 + 2 * HOUR)
    assert not bench.got


def test_a_cancellation_that_the_disk_refuses_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.load("j", [T0 + 10, T0 + 1000, T0 + HOUR])
    bench.broker.step()
    parts = bench.broker.components

    def refused(command: Any) -> None:
        # Meanwhile something falls due.
        bench.clock.advance_ms(500)
        bench.broker.step()
        assert not bench.broker.checkpoint(), "what is kept aside is in neither log"
        raise UnavailableError("no")

    monkeypatch.setattr(parts.scheduling, "carry_out", refused)
    with pytest.raises(UnavailableError):
        parts.bulk.cancel("j")
    assert bench.pending() == 3
    bench.run(T0 + 2 * HOUR)
    assert bench.got == names("j", 0, 1, 2)


def test_what_falls_due_while_a_job_is_cancelled_does_not_arrive(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.load("j", [T0 + 10, T0 + 1000])
    bench.broker.step()
    parts = bench.broker.components
    carry_out = parts.scheduling.carry_out

    def late(command: Any) -> None:
        bench.clock.advance_ms(500)
        bench.broker.step()
        carry_out(command)

    monkeypatch.setattr(parts.scheduling, "carry_out", late)
    assert parts.bulk.cancel("j").cancelled == 2
    bench.run(T0 + HOUR)
    assert not bench.got
    assert bench.pending() == 0


@pytest.mark.parametrize("aside", [False, True])
def test_a_job_is_cancelled_before_the_loader_has_come_to_what_fired(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, aside: bool
) -> None:
    """A kill between two checkpoints. What had fired by then is not counted as cancelled. What fell due while the job
    was being cancelled before, and was kept aside, had not fired; but later messages had, so after the kill nobody can
    tell: it is delivered.
    """

    class Killed(BaseException):
        pass

    bench.load("j", [T0 + 10, T0 + 20, T0 + 600, T0 + HOUR])
    bench.broker.schedule("a", b"single", due=T0 + 700)
    bench.broker.step()
    assert bench.broker.checkpoint()
    monkeypatch.setattr(bench.broker, "checkpoint", lambda: False)
    bench.run(T0 + 100, step_ms=50)
    assert bench.got == names("j", 0, 1)

    def killed(_: object) -> None:
        bench.run(T0 + 1000, step_ms=100)
        raise Killed

    if aside:
        monkeypatch.setattr(bench.broker.components.scheduling, "carry_out", killed)
        with pytest.raises(Killed):
            bench.broker.cancel_job("j")
    else:
        bench.run(T0 + 1000, step_ms=100)
    bench.kill()
    assert bench.pending() == (2 if aside else 1)
    assert bench.broker.cancel_job("j").cancelled == 1
    assert bench.pending() == (1 if aside else 0)
    for _ in range(2):
        bench.run(bench.clock.now_ms() + 2 * HOUR)
        bench.kill()
    assert set(bench.got) == {*names("j", 0, 1, 2), b"single"}
    assert bench.pending() == 0


def keyed(bench: Bench, job: str, keys: list[str | None], dues: list[int]) -> int:
    number = bench.broker.components.bulk.begin(job).number
    bodies = pa.array([b"%s-%d" % (job.encode(), i) for i in range(len(keys))])
    columns = {"topic": pa.array(["a"] * len(keys)), "due_ms": pa.array(dues), "body": bodies}
    rows = pa.record_batch({**columns, "key": pa.array(keys, pa.string())})
    bench.broker.components.bulk.commit(number, *bench.broker.components.bulk.stage(number, [rows]))
    return number


def test_a_key_replaces_what_was_pending(bench: Bench) -> None:
    bench.broker.schedule("a", b"former", delay=10, key="k")
    keyed(bench, "j", ["k", None, "l", "l", "m"], [T0 + 20_000, T0 + 20_000, T0 + 30_000, T0 + 25_000, T0 - 1])
    assert bench.broker.jobs("j")[0].keys == 4
    assert bench.pending() == 4
    receipt = bench.broker.find_key("a", "k")
    assert receipt is not None
    assert receipt.due_ms == T0 + 20_000
    assert bench.broker.cancel_key("a", "l") == "done"
    bench.broker.schedule("a", b"later", delay=40, key="k")
    bench.run(T0 + HOUR)
    assert bench.got == names("j", 1, 4) + Counter([b"later"])
    assert bench.pending() == 0


def test_what_was_scheduled_after_the_job_stays(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(bench.broker.components.key_backfill, "start", lambda: None)
        keyed(bench, "j", ["k", "l"], [T0 + 20_000, T0 + 20_000])
    assert bench.broker.jobs("j")[0].keys is None
    bench.clock.advance_ms(5)
    bench.broker.schedule("a", b"later", delay=40, key="k")
    bench.kill()  # the backfill of the keys is begun anew
    assert bench.broker.jobs("j")[0].keys == 2
    assert bench.pending() == 2
    bench.run(T0 + HOUR)
    assert bench.got == names("j", 1) + Counter([b"later"])


def test_the_keys_of_a_job_survive_the_loss_of_the_registry(bench: Bench) -> None:
    keyed(bench, "j", ["k", "l"], [T0 + 20_000, T0 + 20_000])
    bench.clock.advance_ms(5)
    bench.broker.schedule("a", b"later", delay=40, key="k")
    bench.broker.step()
    bench.broker.close()
    shutil.rmtree(bench.config.data / "registry")
    bench.open()
    assert bench.broker.cancel_key("a", "k") == "done"
    bench.run(T0 + HOUR)
    assert bench.got == names("j", 1)


def test_what_is_given_up_leaves_no_files(bench: Bench) -> None:
    kept = bench.load("kept", [T0 + HOUR])
    left = [bench.load(f"j{k}", [T0 + HOUR], commit=False) for k in range(11)]
    files = Path(bench.broker.components.store.root)
    for number in (left[0], left[0], kept):
        bench.broker.components.bulk.abort(number)
    there = sorted(int(path.name.split("-")[1]) for path in files.rglob("bulk-*.parquet"))
    assert there == [kept, *left[1:]], "neither what is committed, nor what another has staged"
    bench.run(T0 + 2 * HOUR)
    assert bench.got == names("kept", 0)


def test_a_full_disk_while_staging(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.broker.bulk.CHUNK_BYTES", 1)
    times = iter([False, False, True])

    def filling(*arguments: Any, **options: Any) -> list[StagedFile]:
        if next(times):
            raise OSError(errno.ENOSPC, "No space left on device")
        return stage(*arguments, **options)

    monkeypatch.setattr("tarry.broker.bulk.stage", filling)
    number = bench.broker.components.bulk.begin("j").number
    row = pa.record_batch({"topic": ["a"], "due_ms": pa.array([T0 + HOUR]), "body": [b"x"]})
    with pytest.raises(DiskFullError, match=r"No space left on device; nothing .* run it again with the same job id"):
        bench.broker.components.bulk.stage(number, [row] * 3)
    assert list(Path(bench.broker.components.store.root).rglob("bulk-*.parquet")) == []


def test_bulk_jobs_are_refused_below_the_watermark(tmp_path: Path) -> None:
    class Little(OsFiles):
        def free_bytes(self, path: Path) -> int:
            return 1 << 20

    config = Config(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=2 << 20)
    with closing(Broker.open(config, clock=TestClock(T0), threads=False, files=Little())) as broker:
        number = broker.components.bulk.begin("j").number
        with pytest.raises(DiskFullError, match=r"1 MiB .* below 2 MiB \(disk_free_bytes_min\)"):
            broker.components.bulk.reserve(number, 1)


def test_files_of_others_are_refused(bench: Bench) -> None:
    bulk = bench.broker.components.bulk
    number = bulk.begin("j").number
    rows = pa.record_batch({"topic": ["a"], "due_ms": pa.array([T0 + HOUR]), "body": [b"x"]})
    [file], topics = bulk.stage(number, [rows])
    other = bulk.begin("k").number
    with pytest.raises(InvalidArgumentError, match="allowed: 1 or more"):
        bulk.commit(other, [file], topics)
    with pytest.raises(InvalidArgumentError, match="2 messages by topic, but 1 in files"):
        bulk.commit(number, [file], {"a": 2})
    inside = f"shard=0/bucket={file.bucket}/"
    strays = ["../../x", "%2e%2e/%2E%2E/x", "%2e%2e%2fx", "a%2fb", ".", "./x", "/x", "a//b", ""]
    for path in ("shard=0/../../x", *(f"{inside}{stray}" for stray in strays)):
        with pytest.raises(InvalidArgumentError, match="path below shard=0/"):
            bulk.commit(number, [StagedFile(**{**_fields(file), "path": path})], topics)
    with pytest.raises(StaleCommitError, match="missing"):
        bulk.commit(number, [StagedFile(**{**_fields(file), "path": f"shard=0/bucket={file.bucket}/x"})], topics)
    with pytest.raises(InvalidArgumentError, match=r"bucket 'cancelled'; allowed: .* of a bucket of messages"):
        bulk.commit(
            number,
            [StagedFile(**{**_fields(file), "path": "shard=0/bucket=cancelled/x", "bucket": "cancelled"})],
            topics,
        )
    with pytest.raises(InvalidArgumentError, match=r"messages of topic 'a'; allowed: those counted, \['b'\]"):
        bulk.commit(number, [file], {"b": 1})
    with pytest.raises(InvalidArgumentError, match="a file is named twice"):
        bulk.commit(number, [file, file], {"a": 2})
    assert bulk.begin("k").number > other
    with pytest.raises(NotFoundError):
        bulk.commit(77, [file], topics)
    assert bulk.commit(number, [file], topics)[0].rows == 1, "a refusal leaves the attempt open"


CLAIMS = {
    "a row fewer": {"rows": -1},
    "a row more": {"rows": 1},
    "due later": {"due_min_ms": 500},
    "due until later": {"due_max_ms": 500},
    "due earlier": {"due_min_ms": -500},
    "due until earlier": {"due_max_ms": -500},
    "other seqs": {"seq_min": 1},
    "fewer seqs": {"seq_max": -1},
}


@pytest.mark.parametrize("wrong", CLAIMS)
def test_what_is_said_of_a_file_is_compared_with_its_footer(bench: Bench, wrong: str) -> None:
    bulk = bench.broker.components.bulk
    number = bulk.begin("j").number
    dues = pa.array([T0 + HOUR + i * 1000 for i in range(3)], pa.int64())
    files, topics = bulk.stage(
        number, [pa.record_batch({"topic": ["a"] * 3, "due_ms": dues, "body": [b"%d" % i for i in range(3)]})] * 2
    )
    [[name, by]] = CLAIMS[wrong].items()
    said = [*files[:-1], replace(files[-1], **{name: getattr(files[-1], name) + by})]
    claimed, value = getattr(said[-1], name), getattr(files[-1], name)
    counted = {"a": sum(file.rows for file in said)}
    refusal = rf"staged file {files[-1].path} is said to have {name} {claimed}, but its footer says {value}; nothing"
    with pytest.raises(InvalidArgumentError, match=refusal):
        bulk.commit(number, said, counted)
    assert bench.pending() == 0
    assert bulk.commit(number, files, topics)[0].rows == 6, "a refusal leaves the attempt open"


def test_other_topics_than_a_file_has(bench: Bench) -> None:
    bulk = bench.broker.components.bulk
    number = bulk.begin("j").number
    rows = pa.record_batch({"topic": ["a", "b", "c"], "due_ms": pa.array([T0 + HOUR] * 3), "body": [b"x"] * 3})
    [file], topics = bulk.stage(number, [rows])
    with pytest.raises(InvalidArgumentError, match="topic_max b, but its footer says c"):
        bulk.commit(number, [replace(file, topic_max="b")], topics)


@pytest.mark.parametrize("how", ["cut", "flipped", "of another table"])
def test_a_staged_file_that_is_damaged_is_not_committed(bench: Bench, how: str) -> None:
    bulk = bench.broker.components.bulk
    number = bulk.begin("j").number
    rows = pa.record_batch({"topic": ["a"], "due_ms": pa.array([T0 + HOUR]), "body": [b"x"]})
    [file], topics = bulk.stage(number, [rows])
    path = bench.config.data / "store" / file.path
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[:-8]
    elif how == "flipped":
        content[-20] ^= 1
    else:
        other = path.with_name("x.parquet")
        pq.write_table(pa.table({"a": [1]}), other)
        file = replace(file, path=str(other.relative_to(bench.config.data / "store")))
        path, content = other, bytearray(other.read_bytes())
    path.write_bytes(content)
    with pytest.raises(
        InvalidArgumentError, match=r"cannot be committed: .*; allowed: a whole Parquet file of a store"
    ):
        bulk.commit(number, [replace(file, size=len(content))], topics)
    assert bench.pending() == 0


def _fields(file: StagedFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in StagedFile.__dataclass_fields__}


def test_bad_rows_are_refused_when_they_are_staged(bench: Bench) -> None:
    number = bench.broker.components.bulk.begin("j").number
    good = {"topic": pa.array(["a"]), "due_ms": pa.array([T0]), "body": pa.array([b"x"])}
    with pytest.raises(InvalidMessageError, match="is not a topic name"):
        bench.broker.components.bulk.stage(number, [pa.record_batch({**good, "topic": pa.array(["a b"])})])
    for name, value in (("tarry.other", "x"), ("tarry.late", "x")):
        properties = pa.array([[(name, value)]], pa.map_(pa.string(), pa.string()))
        with pytest.raises(InvalidMessageError, match=r"reserved|late is 'x'"):
            bench.broker.components.bulk.stage(number, [pa.record_batch({**good, "properties": properties})])
    with pytest.raises(InvalidMessageError, match="repeat is not for bulk jobs"):
        bench.broker.components.bulk.stage(number, [pa.record_batch({**good, "repeat": pa.array(["1s"])})])


def test_what_a_task_has_admitted_is_admitted_again(bench: Bench) -> None:
    rows = pa.record_batch(
        {"topic": ["a"], "due_ms": pa.array([T0]), "body": [b"x"], "order_key": ["k"], "late": ["drop"]}
    )
    number = bench.broker.components.bulk.begin("j").number
    [file], topics = bench.broker.components.bulk.stage(number, [admit(rows, T0)])
    assert (file.rows, topics) == (1, {"a": 1})


def test_seqs_are_never_given_twice(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    first = jobs.begin("a", T0).number
    start = jobs.reserve(first, 100)
    assert start == first_seq(first)
    assert jobs.reserve(first, 100) == start + 100
    after_restart = Jobs(tmp_path).reserve(first, 1)
    assert after_restart >= start + 200
    assert number_of(after_restart) == first
    assert Jobs(tmp_path).begin("b", T0).number == first + 1
    assert jobs.begin("c", T0, number_min=900).number == 900, "the store knows a higher one: jobs.db was lost"


def test_old_attempts_are_forgotten_and_numbers_are_not_used_again(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    for job in "abc":
        jobs.begin(job, T0)
    jobs.sweep(0, T0 + 1)
    assert [a.job for a in jobs.recent(9)] == ["c"]
    assert jobs.begin("d", T0).number == 3


def test_damage_to_the_file_of_jobs_is_told(tmp_path: Path) -> None:
    Jobs(tmp_path).begin("a", T0)
    (tmp_path / "jobs.db").write_bytes(b"not a database" * 100)
    with pytest.raises(Exception, match=r"jobs\.db"):
        Jobs(tmp_path)


@pytest.mark.parametrize("has_record", [True, False])
def test_a_cut_commit_of_a_job_that_was_acknowledged_is_refused(bench: Bench, has_record: bool) -> None:
    bench.load("j", [T0 + HOUR] * 5)
    bench.broker.close()
    log_directory = bench.config.data / "store" / "_delta_log"
    entry = max(log_directory.glob("*.json"))
    content = entry.read_bytes()
    entry.write_bytes(content[:300])
    if not has_record:
        record_path(entry).unlink()
    with pytest.raises(CorruptError, match=rf"{entry.name} is damaged: it is incomplete, though .* acted on; restore"):
        bench.open()
    assert entry.read_bytes() == content[:300], "the file is kept"
    entry.write_bytes(content)
    bench.open()
    assert bench.pending() == 5


def test_a_store_that_is_older_than_the_broker_is_refused(bench: Bench) -> None:
    store = bench.config.data / "store"
    shutil.copytree(store, bench.config.data / "copy")
    bench.load("j", [T0 + HOUR] * 5)
    bench.broker.close()
    shutil.rmtree(store)
    (bench.config.data / "copy").rename(store)
    with pytest.raises(CorruptError, match=r"is at version 0, but version 1 was acted on: it was replaced"):
        bench.open()
    shutil.rmtree(bench.config.data)
    bench.open()


def test_the_store_needs_what_no_checkpoint_knows_of(bench: Bench) -> None:
    bench.broker.schedule("a", b"x", delay=1)
    bench.run(T0 + 5000, step_ms=1000)
    assert bench.broker.intake_state()["expire_until_ms"] > T0 + 1000
    bench.load("j", [T0 + 10])
    assert bench.broker.intake_state()["expire_until_ms"] == T0 + 10
    bench.take()
    bench.broker.checkpoint()
    assert bench.broker.intake_state()["expire_until_ms"] > T0 + 1000


def test_the_files_are_in_the_table(bench: Bench) -> None:
    number = bench.load("j", [T0 + HOUR] * 10)
    snapshot = Store.open(bench.config.store_uri).snapshot()
    assert snapshot.files.rows.tolist() == [10]
    assert (snapshot.committed_seq, int(snapshot.files.seq_min[0])) == (0, first_seq(number))
    assert Store.open(bench.config.store_uri).bulk_number() == number
    assert sqlite3.connect(bench.config.data / "jobs.db").execute("select state from attempt").fetchall() == [
        ("committed",)
    ]
    assert Kind.JOB == 2
    assert np.all(snapshot.files.due_min_ms == T0 + HOUR)


@pytest.mark.parametrize("how", ["the wheel is full", "the job comes late"])
def test_what_is_due_in_the_same_millisecond_as_a_job_that_is_larger_than_the_wheel(how: str, tmp_path: Path) -> None:
    """The wheel is cut among the job's messages, which have the highest seqs there are. What is scheduled for the same
    millisecond afterwards has a lower one, and stands before the cut.
    """
    bench = Bench(tmp_path / "data", wheel_bytes_max=4096, horizon_ms=60_000)
    due = T0 + 1000
    if how == "the job comes late":
        bench.broker.step()  # the window is loaded
    bench.load("j", [due] * 50, body=300)
    bench.broker.step()
    loaded = bench.broker.components.wheel.loaded
    assert loaded.due_ms == due
    assert loaded.seq > first_seq(0)
    bench.broker.schedule("a", b"single", due=due)
    assert bench.pending() == 51
    assert len(bench.broker.list_pending(limit=1000).rows) == 51
    bench.run(due + 1000, step_ms=500)
    assert bench.got == names("j", *range(50)) + Counter([b"single"])
    assert bench.pending() == 0
    bench.kill()
    bench.take()
    assert bench.got.total() == 51
    bench.broker.close()


def test_a_message_of_a_cancelled_job_is_cancelled_also_when_it_is_past(bench: Bench) -> None:
    number = bench.load("j", [T0 + 1000, T0 + HOUR])
    [row, _] = bench.broker.list_pending().rows.to_pylist()
    assert number_of(row["seq"]) == number
    text = handle.encode(
        row["seq"], row["due_ms"], row["seq"], 1, handle.sign(bench.broker.components.secret, row["seq"], 1)
    )
    assert bench.broker.cancel_job("j").cancelled == 2
    assert bench.broker.cancel(text) == "cancelled"
    bench.run(T0 + 2 * HOUR)
    for _ in range(2):
        assert bench.broker.checkpoint()
        assert bench.broker.cancel(text) == "cancelled"
        assert bench.broker.cancel_job("j").outcome == "cancelled"
        bench.kill()
    assert bench.got == Counter()


def test_a_cancelled_job_that_the_broker_has_not_come_to_is_not_forgotten(tmp_path: Path) -> None:
    """After a long pause all of it is older than the retention, and not past yet: it would be delivered."""
    jobs = Jobs(tmp_path)
    number = jobs.begin("j", T0).number
    jobs.committing(number, {"a": 1}, (T0 + HOUR, T0 + HOUR), 0)
    jobs.apply([JobRow(Kind.JOB, number, "a", 1, None)], T0)
    jobs.apply([JobRow(Kind.JOB_CANCELLED, number, "a", 1, (T0, 0))], T0)
    jobs.begin("the last one stays anyhow", T0)
    jobs.sweep(T0 + HOUR, T0 + 2 * HOUR)
    assert jobs.cancelled.numbers() == Jobs(tmp_path).cancelled.numbers() == [number]
    jobs.sweep(T0 + HOUR + 1, T0)
    assert jobs.cancelled.numbers() == [number], "it is past, and younger than what is remembered"
    jobs.sweep(T0 + HOUR + 1, T0 + 2 * HOUR)
    assert jobs.cancelled.numbers() == Jobs(tmp_path).cancelled.numbers() == []


def listed(bench: Bench, **asked: Any) -> list[bytes]:
    """Return the bodies of all that is listed as pending, by pages of three."""
    bodies, cursor = [], None
    for _ in range(100):
        page = bench.broker.list_pending(limit=3, cursor=cursor, **asked)
        bodies += page.rows["body"].to_pylist()
        if (cursor := page.cursor) is None:
            return bodies
    raise AssertionError("pages have no end")


def check_queries(bench: Bench, expected: Counter[bytes], next_due_ms: int) -> None:
    """Check that list, count, forecast and the next due time tell of the same messages."""
    assert Counter(listed(bench)) == expected
    [entry] = bench.broker.pending()
    assert (entry.pending, entry.next_due_ms) == (expected.total(), next_due_ms)
    forecast = bench.broker.forecast(unit="hour", until_ms=T0 + 100 * HOUR)
    assert (sum(load.rows for load in forecast.loads), {load.unsure for load in forecast.loads}) == (8, {0})


LATE_DUES = [T0 + 1000, T0 - 5, *(T0 + 2000 * i for i in range(1, 5)), T0 + 30 * HOUR, T0 + 31 * HOUR]
"""Overdue, due soon, and due beyond what is loaded."""


@pytest.mark.parametrize("lacks", ["the store's new version", "its rows"])
def test_a_job_that_the_loader_has_not_brought_yet_is_listed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """It was committed and counted while the loader was busy with something else."""
    parts = bench.broker.components
    bench.broker.schedule("a", b"other", delay="1s")
    bench.broker.step()
    if lacks == "its rows":
        monkeypatch.setattr(parts.loader, "step", lambda: None)
    else:
        monkeypatch.setattr(StoreFollower, "take_up", lambda _: None)
    bench.load("j", LATE_DUES[:-1])
    check_queries(bench, names("j", *range(7)) + Counter([b"other"]), T0 - 5)
    assert listed(bench, until_ms=T0 + 1000) == [b"j-1"]
    monkeypatch.undo()
    bench.run(T0 + 32 * HOUR, step_ms=HOUR)
    assert bench.got == names("j", *range(7)) + Counter([b"other"])


def test_a_job_is_listed_while_the_loader_brings_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = bench.broker.components
    bench.broker.step()
    add, looks = parts.wheel.add, 0

    def added(run: Any) -> bool:
        nonlocal looks
        result, looks = add(run), looks + 1
        check_queries(bench, names("j", *range(8)), T0 - 5)
        return result

    monkeypatch.setattr(loader, "LOAD_ROWS", 1)
    monkeypatch.setattr(parts.wheel, "add", added)
    bench.load("j", LATE_DUES)
    assert looks >= 6


def test_a_list_up_to_where_a_file_begins_has_an_end(bench: Bench) -> None:
    bench.broker.step()
    bench.load("j", [T0 + 30 * HOUR, T0 + 30 * HOUR + 1])
    assert listed(bench, until_ms=T0 + 30 * HOUR) == []
    assert listed(bench, until_ms=T0 + 30 * HOUR + 1) == [b"j-0"]
