"""A disk that is full, and a disk that fails.

Full: producers get a refusal that says so and may be tried again, consumers go on, nothing acknowledged is lost, and
when there is room again everything works as before. Failing: the broker stops, and answers nobody well from then on.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.errors import DiskFullError, FatalError, TarryError, UnavailableError
from tarry.broker import Broker
from tarry.broker.directory import Checkpoint
from tarry.log.files import AppendFile, OsFiles
from tarry.testing import TestClock, open_broker
from tests.crash.tools import SMALL, World
from tests.disks import mounted, resize
from tests.faults import FaultyAppendFile, FaultyFiles, LimitedFiles
from tests.waiting import wait_until

WAIT_S = 20


def rows(topic: str, count: int, *, delay_ms: int = 0, body: int = 20) -> pa.RecordBatch:
    return pa.record_batch(
        {"topic": [topic] * count, "delay_ms": pa.array([delay_ms] * count, pa.int64()), "body": [b"x" * body] * count}
    )


@contextmanager
def threaded(directory: Path, files: OsFiles, **settings: Any) -> Iterator[Broker]:
    config = Config(data=directory, pipeline="off", **{**SMALL, "checkpoint_interval_ms": 20, **settings})
    broker = Broker.open(config, clock=SystemClock(), files=files)
    try:
        yield broker
    finally:
        broker.close()


def everything(broker: Broker, group: str) -> list[str]:
    """The ids of all that a group can get now."""
    ids: list[str] = []
    while (batch := broker.receive("a", group, max_messages=1000)).num_rows:
        ids += batch["id"].to_pylist()
    return ids


# -- full --------------------------------------------------------------------------------------------------------------


def test_producers_are_refused_and_consumers_go_on(w: World) -> None:
    w.open()
    w.schedule("a", [0, 0, 0, 50])
    w.b.step()
    w.files.full = True
    with pytest.raises(DiskFullError, match="nothing was accepted") as refusal:
        w.b.schedule("a", b"no room")
    assert refusal.value.retryable
    batch = w.receive("a", 2)
    assert batch.num_rows == 2
    with pytest.raises(DiskFullError, match="not durable yet"):
        w.ack("a", batch)
    assert w.receive("a").num_rows == 1, "acknowledged and durable or not, it is not handed out again"
    w.files.full = False
    w.schedule("a", [0])
    w.perhaps.clear()
    w.drain()
    w.crashed(None)
    w.open()
    assert w.receive("a").num_rows == 0, "what was owed to the disk was written with the next acknowledgement"


def test_acknowledgements_owed_to_a_full_disk_are_written_by_a_clean_stop(w: World) -> None:
    w.open()
    w.schedule("a", [0, 0])
    w.b.step()
    batch = w.receive("a")
    w.files.full = True
    with pytest.raises(DiskFullError):
        w.ack("a", batch)
    w.files.full = False
    w.reopen()
    assert w.receive("a").num_rows == 0


def test_what_a_full_disk_refused_is_not_there_after_a_crash(w: World) -> None:
    w.open()
    w.schedule("a", [5])
    w.files.full = True
    for _ in range(3):
        with pytest.raises(DiskFullError):
            w.schedule("a", [5])
        w.perhaps.pop()
    w.crashed(None)
    w.files.full = False
    w.open()
    w.b.advance(1)
    assert w.receive("a")["id"].to_pylist() == ["a0"]


def test_below_the_watermark_producers_are_refused(tmp_path: Path) -> None:
    class Little(OsFiles):
        free = 1 << 20

        def free_bytes(self, path: Path) -> int:
            return self.free

    files = Little()
    with open_broker(tmp_path, files=files, disk_free_bytes_min=2 << 20) as broker:
        with pytest.raises(DiskFullError, match=r"1 MiB .* below 2 MiB \(disk_free_bytes_min\)"):
            broker.schedule("a", b"x")
        files.free = 3 << 20
        broker.components.acceptance._checked_s = -1.0  # noqa: SLF001 - it looks again after a moment
        broker.schedule("a", b"x")


def test_a_full_disk_while_threads_are_at_work(tmp_path: Path) -> None:
    files = FaultyFiles()
    with threaded(tmp_path, files, segment_bytes_max=1 << 20) as broker:
        broker.schedule_batch(rows("a", 100, delay_ms=150))
        files.full = True
        with pytest.raises(DiskFullError):
            broker.schedule("a", b"x")
        got = broker.receive("a", "g", max_messages=1000, wait_ms=WAIT_S * 1000)
        while got.num_rows < 100:
            got = pa.Table.from_batches([got, broker.receive("a", "g", max_messages=1000, wait_ms=1000)])
            got = got.combine_chunks().to_batches()[0]
        with pytest.raises(DiskFullError):
            broker.ack("a", "g", got["lease"].to_numpy(), got["offset"].to_numpy())
        assert broker.status()["state"] == "serving"
        files.full = False
        broker.schedule("a", b"x")
        [more] = [broker.receive("a", "g", wait_ms=WAIT_S * 1000)]
        broker.ack("a", "g", more["lease"].to_numpy(), more["offset"].to_numpy())
        assert [(e.pending, e.ready) for e in broker.pending()] == [(0, 0)]
    with threaded(tmp_path, files) as broker:
        assert broker.receive("a", "g", max_messages=1000).num_rows == 0


class FullWhenRolling(OsFiles):
    """The disk is full for the first bytes of a new file of one log: its last block went to the segment before."""

    def __init__(self, log_name: str) -> None:
        self.log_name = log_name
        self.full = True
        self.refused = 0

    def open_append(self, path: Path) -> AppendFile:
        if self.full and path.parent.name == self.log_name and not path.name.startswith("0" * 20):
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device (injected)", str(path))
        return super().open_append(path)


@pytest.mark.parametrize(
    "log_name",
    [
        pytest.param(
            "intake",
        ),
        "ready",
        "acks",
    ],
)
def test_no_room_for_the_next_segment(log_name: str, tmp_path: Path) -> None:
    files, clock = FullWhenRolling(log_name), TestClock()
    settings = {**SMALL, "segment_bytes_max": 4096}
    with open_broker(tmp_path, clock=clock, files=files, **settings) as broker:
        for k in range(12):
            broker.schedule("a", b"x" * 700, id=f"m{k}")
            try:
                broker.step()
            except OSError as error:
                assert error.errno == errno.ENOSPC
            got = broker.receive("a", "g")
            assert got["id"].to_pylist() == [f"m{k}"], "each exactly once, and in order"
            if k % 2 == 0:
                try:
                    broker.ack("a", "g", got["lease"].to_numpy(), got["offset"].to_numpy())
                except DiskFullError:
                    pass
        for k in range(60):  # many small entries for the journal
            broker.group("a", f"other{k}")
        assert files.refused
        assert broker.status()["state"] == "serving"
        files.full = False
        broker.step()
        late = everything(broker, "late")
        assert late == [f"m{k}" for k in range(12)][-len(late) :], "read from the files, in the same order"
        assert len(late) >= 11, "what a group still needs is kept"
    with open_broker(tmp_path, clock=clock, **settings) as broker:
        assert everything(broker, "g") == [f"m{k}" for k in range(1, 12, 2)]
        assert everything(broker, "later") == late


def test_a_full_disk_and_more_due_than_may_wait_unwritten(tmp_path: Path) -> None:
    files = FaultyFiles()
    with threaded(tmp_path, files, segment_bytes_max=64 << 20) as broker:
        broker.schedule_batch(rows("a", 20, delay_ms=300, body=1 << 20))
        files.full = True
        wait_until(lambda: sum(entry.ready for entry in broker.pending()) == 20)
        tried = len(files.done)
        wait_until(lambda: sum("write ready" in step for step in files.done[tried:]) >= 2)
        assert broker.status()["state"] == "serving"


def half_due(topic: str, count: int, *, body: int, spread_ms: int) -> pa.RecordBatch:
    """Every second message is due soon, within ``spread_ms``; the others keep the intake's segments on the disk."""
    soon = [1500 + k * spread_ms // count if k % 2 == 0 else 3_600_000 for k in range(count)]
    ids = [f"m{k}" for k in range(count)]
    return pa.record_batch({"topic": [topic] * count, "id": ids, "delay_ms": soon, "body": [b"x" * body] * count})


SMALL_DISK = {"disk_free_bytes_min": 640 << 10, "segment_bytes_max": 128 << 10, "ready_cache_bytes_max": 0}


def test_a_herd_larger_than_the_free_disk_is_acknowledged_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.broker.dispatcher.SHORT_BYTES", 256 << 10)
    monkeypatch.setattr("tarry.broker.dispatcher.SLOW_BYTES", 16 << 10)
    files = LimitedFiles(tmp_path)
    with threaded(tmp_path, files, **SMALL_DISK) as broker:
        broker.schedule_batch(half_due("a", 1200, body=5000, spread_ms=300))
        files.limit(1 << 20)  # 3 MiB are due
        got: list[str] = []

        def acknowledge() -> bool:
            batch = broker.receive("a", "g", max_messages=100, wait_ms=100)
            got.extend(batch["id"].to_pylist())
            with suppress(DiskFullError):  # now and then, for a moment
                broker.ack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
            return len(got) == 600

        wait_until(acknowledge)
        assert len(set(got)) == 600
        wait_until(lambda: not broker.components.ready.unwritten_bytes)
        files.limit(64 << 20)
        broker.schedule("a", b"x", id="last")
        last = broker.receive("a", "g", wait_ms=WAIT_S * 1000)
        broker.ack("a", "g", last["lease"].to_numpy(), last["offset"].to_numpy())
    with threaded(tmp_path, OsFiles(), **SMALL_DISK) as broker:
        assert broker.receive("a", "g").num_rows == 0


def test_a_segment_acknowledged_while_a_checkpoint_is_written_is_there_at_the_start(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.open()
    write = Checkpoint.write
    busy: list[object] = []

    def write_slowly(self: Checkpoint, *args: Any) -> None:
        if not busy:
            busy.append(self)
            for _ in range(8):
                w.b.schedule_batch(rows("a", 1, body=3000))
                w.b.components.loader.step()
                w.b.components.dispatcher.step()
                w.b.components.ready.flush()
                got = w.b.receive("a", "g")
                w.b.ack("a", "g", got["lease"].to_numpy(), got["offset"].to_numpy())
        write(self, *args)

    w.b.schedule_batch(rows("a", 1))
    monkeypatch.setattr(Checkpoint, "write", write_slowly)
    w.b.step()
    assert len(w.b.components.ready.segments) > 1
    w.crashed(None)
    w.open()
    assert w.b.receive("a", "g", max_messages=100).num_rows == 1


def test_of_a_herd_of_one_moment_what_fits_is_acknowledged(tmp_path: Path) -> None:
    files = LimitedFiles(tmp_path)
    with threaded(tmp_path, files, **SMALL_DISK) as broker:
        broker.schedule_batch(half_due("a", 1200, body=5000, spread_ms=0))
        files.limit(1 << 20)
        batch = broker.receive("a", "g", max_messages=30, wait_ms=WAIT_S * 1000)
        assert broker.ack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy()) == batch.num_rows
        files.limit(64 << 20)
        got = batch["id"].to_pylist()
        while len(got) < 600:
            batch = broker.receive("a", "g", max_messages=100, wait_ms=WAIT_S * 1000)
            assert batch.num_rows
            got += batch["id"].to_pylist()
            broker.ack("a", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
        assert len(set(got)) == 600


def test_consumers_are_told_of_what_a_checkpoint_handed_over_although_the_disk_is_full(tmp_path: Path) -> None:
    files = FaultyFiles()
    with open_broker(tmp_path, files=files, disk_free_bytes_min=0) as broker:
        broker.schedule("a", b"x", delay=1)
        broker.step()
        topic = broker.components.ready.topic("a")
        notified: list[str] = []
        broker.group("a", "g").listen(lambda: notified.append("a"))
        broker.clock.advance_ms(1000)
        files.full = True
        with pytest.raises(OSError, match="No space"):
            broker.checkpoint()
        files.full = False
        assert topic.end == 1
        assert notified, "it is ready, and a waiting consumer sleeps on"


def test_no_room_for_a_due_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def full(*_: object) -> None:
        tried.append(_)
        raise OSError(errno.ENOSPC, "No space left on device (injected)")

    with threaded(tmp_path, OsFiles()) as broker:
        monkeypatch.setattr("tarry.intake.segments.write_index", full)
        for _ in range(4):
            broker.schedule_batch(rows("a", 10, delay_ms=60_000, body=1000))
        wait_until(lambda: len(tried) >= 2)
        assert broker.status()["state"] == "serving"


@pytest.mark.rest
def test_a_store_out_of_reach_is_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def gone(store: object) -> None:
        asked.append(store)
        raise UnavailableError("the place cannot be reached (injected)")

    with threaded(tmp_path, OsFiles()) as broker:
        monkeypatch.setattr("tarry.store.Store.snapshot", gone)
        broker.store_committed()
        wait_until(lambda: len(asked) >= 2)
        assert broker.status()["state"] == "serving"


# -- failing -----------------------------------------------------------------------------------------------------------


def test_a_failed_fsync_of_the_intake_is_fatal(w: World) -> None:
    w.open()
    w.schedule("a", [0])
    w.files.broken_sync = True
    with pytest.raises(FatalError, match=r"writing the intake failed: .*fsync failed"):
        w.schedule("a", [0])
    w.files.broken_sync = False
    assert w.b.status()["state"] == "fatal"
    assert w.b.wait_fatal(0)
    calls: list[Callable[[], object]] = [
        lambda: w.b.schedule("a", b"x"),
        lambda: w.b.receive("a", "g"),
        lambda: w.b.subscribe("a", "g"),
        w.b.step,
    ]
    for call in calls:
        with pytest.raises(FatalError, match="the broker has failed"):
            call()
    w.crashed(None)
    w.open()
    w.drain()


@pytest.mark.parametrize("failure", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_failed_fsync_of_the_ready_log_is_fatal(failure: int, w: World, monkeypatch: Any) -> None:
    # Also when the system says ENOSPC (a delayed allocation): what was in memory is dropped, the next fsync succeeds.
    def fails(self: FaultyAppendFile) -> None:
        raise OSError(failure, os.strerror(failure))

    w.open()
    w.schedule("a", [0])
    w.b.components.loader.step()
    w.b.components.dispatcher.step()
    batch = w.receive("a")
    assert batch.num_rows == 1
    monkeypatch.setattr(FaultyAppendFile, "sync", fails)
    with pytest.raises(FatalError, match="journal of acknowledgements"):
        w.ack("a", batch)
    monkeypatch.undo()
    with pytest.raises(FatalError):
        w.ack("a", batch)


def test_a_log_whose_fsync_failed_never_syncs_again(w: World) -> None:
    # The checkpoint's thread sees the failure; the journal's thread must not take the next fsync for a success.
    w.open()
    w.schedule("a", [0])
    w.b.components.loader.step()
    w.b.components.dispatcher.step()
    w.files.broken_sync = True
    ready = w.b.components.ready
    with pytest.raises(OSError, match="fsync failed"):
        ready.sync(ready.ticket())
    w.files.broken_sync = False
    with pytest.raises(OSError, match="fsync failed"):
        ready.sync(ready.ticket())


def test_a_broken_disk_stops_a_threaded_broker_and_answers_everybody(tmp_path: Path) -> None:
    files = FaultyFiles()
    with threaded(tmp_path, files) as broker:
        broker.schedule("a", b"x")
        files.broken_sync = True
        answers: list[object] = []
        answered = threading.Semaphore(0)

        def done(answer: object) -> None:
            answers.append(answer)
            answered.release()

        submitted = 0
        for _ in range(50):
            try:
                broker.submit(rows("a", 1), done)
                submitted += 1
            except TarryError as error:
                assert isinstance(error, FatalError | UnavailableError)
        for _ in range(submitted):
            assert answered.acquire(timeout=WAIT_S)
        assert not [a for a in answers if not isinstance(a, FatalError)], "acknowledged after a failed fsync"
        assert broker.wait_fatal(WAIT_S)
        files.broken_sync = False
        with pytest.raises(FatalError):
            broker.schedule("a", b"x")


def test_a_waiting_consumer_is_released_when_the_broker_fails(tmp_path: Path) -> None:
    with threaded(tmp_path, FaultyFiles()) as broker:
        consumer = broker.subscribe("a", "g")
        back = threading.Event()

        def wait() -> None:
            try:
                consumer.fetch(1, None)
            except TarryError:
                pass
            back.set()

        threading.Thread(target=wait, daemon=True).start()
        broker.components.health.fail(OSError(errno.EIO, "injected"))
        assert back.wait(1)


def test_each_submission_is_answered_once(tmp_path: Path) -> None:
    files = FullWhenRolling("intake")
    with open_broker(tmp_path, files=files, disk_free_bytes_min=0, segment_bytes_max=4096) as broker:
        answers: list[object] = []
        broker.submit(rows("a", 1, body=8000), answers.append)
        assert len(answers) == 1


# -- a real one --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB, where we may mount one."""
    with mounted(tmp_path / "small", "3m") as directory:
        yield directory


def test_a_real_disk_that_fills_up(small_disk: Path) -> None:
    clock = TestClock()
    settings = {**SMALL, "segment_bytes_max": 16 << 20}
    accepted: list[int] = []
    with open_broker(small_disk / "data", clock=clock, **settings) as broker:
        with pytest.raises(DiskFullError, match="No space left"):
            for _ in range(100):
                accepted += broker.schedule_batch(rows("a", 8, body=20_000, delay_ms=1000)).due_ms.tolist()
        assert accepted
        ballast = len(accepted)
        clock.advance_ms(1000)
        with pytest.raises(OSError, match="space"):
            broker.step()  # the ready log cannot be written
        got = broker.receive("a", "g", max_messages=10_000)
        assert got.num_rows == ballast, "consumers go on"
        with pytest.raises(DiskFullError):
            broker.ack("a", "g", got["lease"].to_numpy(), got["offset"].to_numpy())
    resize(small_disk, "64m")
    with open_broker(small_disk / "data", clock=clock, **settings) as broker:
        broker.schedule_batch(rows("a", 8, body=20_000))
        broker.step()
        again = broker.receive("a", "g", max_messages=10_000)
        assert again.num_rows in (8, ballast + 8), "nothing is lost; what was not durably acknowledged comes again"
        assert broker.ack("a", "g", again["lease"].to_numpy(), again["offset"].to_numpy()) == again.num_rows
