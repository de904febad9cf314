"""A data directory that comes back under another path, on another machine, after a clean stop or a kill."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from pathlib import Path

import pyarrow as pa
import pytest

from tarry.base.config import Config
from tarry.base.errors import LockedError, OwnershipLostError
from tarry.base.lock_file import LockFile
from tarry.broker.verification import plan_checks
from tarry.testing import TestBroker, open_broker
from tarry.verify import Finding
from tests.crash.tools import SMALL, World


def filled(directory: Path) -> World:
    """Messages that are pending here and in the store, named, cancelled, handed out and settled; groups and a job."""
    world = World(directory)
    broker = world.open()
    world.schedule("a", [5_000, 600_000, 7_200_000, 10_000_000])
    world.schedule("b", [600_000], key="k")
    cancelled = world.schedule("b", [7_200_000])
    world.pipeline_commits()
    world.schedule("a", [1_000, 1_000, 700_000])
    world.cancel(cancelled)
    bulk = broker.components.bulk
    attempt = bulk.begin("job")
    due_ms = world.clock.now_ms() + 3_600_000
    rows = pa.record_batch({"topic": ["jobs"], "due_ms": pa.array([due_ms]), "body": [b"x"]})
    bulk.commit(attempt.number, *bulk.stage(attempt.number, [rows]))
    broker.advance("2s")
    world.ack("a", world.receive("a", limit=1))
    return world


@pytest.mark.parametrize("is_clean", [True, False])
def test_it_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool) -> None:
    world = filled(tmp_path / "first" / "data")
    if is_clean:
        world.b.close()
    world.crashed(None)
    elsewhere = tmp_path / "second" / "mounted" / "here"
    elsewhere.parent.mkdir(parents=True)
    shutil.move(world.directory, elsewhere)
    (tmp_path / "first").rmdir()
    monkeypatch.setattr(socket, "gethostname", lambda: "second-machine")
    world.directory, world.config = elsewhere, Config(data=elsewhere, pipeline="off", **SMALL)
    broker = world.open()
    assert {entry.topic: entry.pending for entry in broker.pending()} == {"a": 5, "b": 1, "jobs": 1}
    broker.advance("2h")
    jobs = broker.receive("jobs", "g")
    assert jobs["body"].to_pylist() == [b"x"]
    broker.ack("jobs", "g", jobs["lease"].to_numpy(), jobs["offset"].to_numpy())
    world.drain()  # what was handed out and not settled comes again: its lease was the former process's
    broker.close()
    results = [each for check in plan_checks(elsewhere, broker.config.store_uri) for each in check.results(print)]
    assert [each for each in results if isinstance(each, Finding)] == []


def test_a_directory_that_is_open_on_another_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_broker(tmp_path):
        monkeypatch.setattr(socket, "gethostname", lambda: "second-machine")
        with pytest.raises(LockedError, match=r"process \d+ on [^)]+\); one is allowed"), open_broker(tmp_path):
            pass


def test_a_lock_that_cannot_be_read_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is given back: a descriptor that is left open would hold the directory until the process ends."""

    def failing(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", failing)
        lock = LockFile(tmp_path / "lock", held=tmp_path, user="broker")
        assert lock.is_held
        with pytest.raises(LockedError, match=r"in use by another broker \(process unknown\)"):
            LockFile(tmp_path / "lock", held=tmp_path, user="broker")
    lock.release()
    LockFile(tmp_path / "lock", held=tmp_path, user="broker").release()


def written_by_another(lock: Path) -> None:
    """As where the file system has no locks between its machines."""
    lock.write_text("4711 second-machine 9\n")


@pytest.mark.parametrize("lose", [Path.unlink, written_by_another])
def test_a_broker_whose_lock_is_lost_stops(tmp_path: Path, lose: object) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("a", b"1", delay="1s")
        broker.step()
        lose(tmp_path / "lock")  # type: ignore[operator]
        with pytest.raises(OwnershipLostError, match="is another broker's now"):
            broker.step()
    with open_broker(tmp_path, clock=broker.clock) as broker:
        assert_goes_on(broker)


def assert_goes_on(broker: TestBroker) -> None:
    broker.advance("1s")
    assert broker.receive("a", "g")["body"].to_pylist() == [b"1"]
