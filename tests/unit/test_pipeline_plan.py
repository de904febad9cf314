"""When a batch starts and how it is divided; reading all of a range; the checkpoint against the store. No Spark."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError, TarryError
from tarry.message.schema import SCHEMA
from tarry.spark.broker_client import IntakeState
from tarry.spark.pipeline.checkpoint import reconcile
from tarry.spark.pipeline.plan import (
    BATCH_BYTES_MAX,
    RANGE_BYTES,
    RANGE_ROWS_MIN,
    Trigger,
    batch_end,
    ranges,
    row_bytes,
)
from tarry.spark.pipeline.stage_task import read_all
from tarry.spark.runtime import java
from tarry.spark.runtime.daemon import without_zips
from tarry.spark.runtime.session import build_session

TRIGGER = Trigger(bytes_min=1000, interval_ms=60_000, rows_max=500)
STATE = IntakeState(
    first_seq=0,
    durable_seq=100,
    committed_seq=0,
    waiting_bytes=999,
    oldest_ms=1_000_000,
    fired_until_ms=0,
    fired_seq=0,
    expire_until_ms=0,
    cancelled_jobs=[],
    now_ms=1_059_999,
    shard=0,
    store_uri="/store",
    table_id="t",
)


@pytest.mark.parametrize(
    ("change", "start", "end"),
    [
        ({}, 0, 0),  # neither enough nor old enough
        ({"waiting_bytes": 1000}, 0, 100),
        ({"now_ms": 1_060_000}, 0, 100),
        ({"now_ms": 900_000}, 0, 0),  # the clock has stepped back
        ({"waiting_bytes": 10**6, "durable_seq": 10_000}, 0, 500),
        ({"waiting_bytes": 10**6, "durable_seq": 10_000}, 100, 100),  # the broker has not taken up our commit yet
        ({"waiting_bytes": 10**6, "durable_seq": 10_000, "committed_seq": 100}, 100, 600),
        ({"waiting_bytes": 10**6, "durable_seq": 50}, 50, 50),
        ({"waiting_bytes": 10**6, "durable_seq": 40, "committed_seq": 50}, 50, 50),
        ({"waiting_bytes": 0, "oldest_ms": None, "durable_seq": 0}, 0, 0),
        ({"waiting_bytes": 100 * BATCH_BYTES_MAX}, 0, 1),  # bodies so large that a batch is one of them
    ],
)
def test_batch_end(change: dict[str, int], start: int, end: int) -> None:
    assert batch_end(replace(STATE, **change), start, TRIGGER) == end


def test_batch_end_respects_the_engine_too() -> None:
    assert batch_end(replace(STATE, waiting_bytes=1000), 0, TRIGGER, 10) == 10


@given(st.integers(0, 10**12), st.integers(-5, 10**8), st.integers(1, 64))
def test_ranges_tile(start: int, rows: int, cores: int) -> None:
    got = ranges(start, start + rows, cores)
    assert [a for a, _ in got] == [start, *(b for _, b in got[:-1])] if rows > 0 else got == []
    if got:
        assert got[-1][1] == start + rows
        assert len(got) == 1 or min(b - a for a, b in got) >= RANGE_ROWS_MIN


@pytest.mark.parametrize(
    ("rows", "cores", "count"),
    [(500_000, 2, 2), (1_000_000, 2, 4), (3_000_000, 2, 8), (1_000_000, 8, 8), (100_000, 8, 3)],
)
def test_tasks_have_much_before_cores_have_several(rows: int, cores: int, count: int) -> None:
    assert len(ranges(0, rows, cores, row_bytes=RANGE_BYTES // 250_000)) == count


def test_the_size_of_what_waits() -> None:
    assert row_bytes(STATE, 10) == 999 // 90
    assert row_bytes(STATE, 100) == 999


# -- reading a range ---------------------------------------------------------------------------------------------------


def rows(start: int, stop: int) -> pa.RecordBatch:
    n = stop - start
    columns = {"seq": pa.array(np.arange(start, stop, dtype=np.int64)), "due_ms": pa.array(np.zeros(n, np.int64))}
    return pa.RecordBatch.from_arrays([columns.get(f.name, pa.nulls(n, f.type)) for f in SCHEMA], schema=SCHEMA)


class Client:
    """An intake whose front may be deleted between any two batches."""

    def __init__(self, first_seq: int = 0, give: Callable[[int, int], Iterator[pa.RecordBatch]] | None = None) -> None:
        self.first_seq = first_seq
        self.give = give or self.exactly

    def exactly(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for at in range(start, end, 10):
            if at < self.first_seq:
                raise TarryError(f"{at} is not here")
            yield rows(at, min(at + 10, end))

    def state(self) -> IntakeState:
        return replace(STATE, first_seq=self.first_seq)

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return self.give(start, end)


def seqs(client: Client, start: int, end: int) -> list[int]:
    return [s for _, b in read_all(client, start, end) for s in b["seq"].to_pylist()]  # type: ignore[arg-type]


def test_all_of_a_range() -> None:
    assert seqs(Client(), 5, 37) == list(range(5, 37))


@pytest.mark.parametrize(("first_seq", "got"), [(20, range(20, 37)), (37, []), (90, [])])
def test_what_has_fired_and_is_deleted_is_no_loss(first_seq: int, got: list[int]) -> None:
    assert seqs(Client(first_seq), 5, 37) == list(got)


def test_deletion_while_reading() -> None:
    client = Client()
    got = []
    for _, batch in read_all(client, 0, 60):  # type: ignore[arg-type]
        got += batch["seq"].to_pylist()
        if got[-1] == 19:
            client.first_seq = 45
    assert got == [*range(20), *range(45, 60)]


@pytest.mark.parametrize(
    "given_rows",
    [[(0, 10), (11, 20)], [(0, 10)], [], [(0, 10), (5, 20)], [(1, 20)], [(0, 25)], [(0, 0)]],
    ids=["gap", "short", "nothing", "twice", "late start", "too far", "empty batch"],
)
def test_any_other_gap_is_refused(given_rows: list[tuple[int, int]]) -> None:
    client = Client(give=lambda start, end: iter([rows(a, b) for a, b in given_rows]))
    with pytest.raises(CorruptError):
        seqs(client, 0, 20)


def test_an_error_of_the_intake_is_passed_on() -> None:
    def broken(start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield rows(0, 10)
        raise CorruptError("frame 3")

    with pytest.raises(CorruptError, match="frame 3"):
        seqs(Client(give=broken), 0, 20)


# -- the checkpoint ----------------------------------------------------------------------------------------------------


def checkpoint(directory: Path, ends: list[int], done: int) -> Path:
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    for batch, end in enumerate(ends):
        (directory / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{json.dumps({"seq": end})}')
    for batch in range(done):
        (directory / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory


@pytest.mark.parametrize(
    ("ends", "done", "committed_seq", "kept"),
    [
        ([10, 20], 2, 20, True),
        ([10, 20], 1, 10, True),  # crash before the Delta commit
        ([10, 20], 1, 20, True),  # crash between Delta's commit and Spark's
        ([10, 20], 2, 10, False),  # an older store
        ([10, 20], 2, 30, False),  # a newer store: another driver was at work
        ([10, 20], 1, 15, False),
        ([10, 20], 1, 0, False),
        ([10], 0, 0, True),
        ([10], 0, 10, True),
        ([10], 0, 11, False),
        ([10], 1, 10, True),
        ([], 0, 0, False),
    ],
)
def test_reconcile(tmp_path: Path, ends: list[int], done: int, committed_seq: int, kept: bool) -> None:
    directory = checkpoint(tmp_path / "c", ends, done)
    assert reconcile(directory, committed_seq) is kept
    assert directory.exists() is kept


def test_under_an_epoch_the_plan_of_a_driver_before_is_discarded(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "c", [10, 20], 1)
    assert reconcile(directory, 10)
    assert not reconcile(directory, 10, epoch=5)
    assert not directory.exists()


@pytest.mark.parametrize("content", ["", "v1", 'v1\n{}\n{"other": 1}', 'v1\n{}\n{"seq": "x"}', "v1\n{}\n{"])
def test_an_unreadable_checkpoint_is_discarded(tmp_path: Path, content: str) -> None:
    directory = checkpoint(tmp_path / "c", [10, 20], 1)
    (directory / "offsets" / "1").write_text(content)
    assert not reconcile(directory, 10)
    assert not directory.exists()
    assert not reconcile(directory, 10)


def test_a_directory_that_is_no_checkpoint_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InvalidArgumentError, match=r"thesis\.tex"):
        reconcile(tmp_path, 0)
    assert (tmp_path / "thesis.tex").exists()


# -- what is installed -------------------------------------------------------------------------------------------------


def test_without_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(NotFoundError, match=r"'tarry\[spark\]'"):
        build_session(name="x", master="local[1]", memory="1g", work=tmp_path / "work")


def test_the_broker_side_imports_no_spark() -> None:
    code = "import sys, tarry.spark.pipeline.supervisor, tarry.store; sys.exit(int('pyspark' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- finding Java ------------------------------------------------------------------------------------------------------


def fake_java(home: Path, version: str) -> Path:
    java_path = home / "bin" / "java"
    java_path.parent.mkdir(parents=True)
    java_path.write_text(
        f"#!/bin/sh\n"
        f"""[ "$1" = -version ] && {{ echo 'openjdk version "{version}" 2025' >&2; exit 0; }}\n"""
        f"""for a; do echo "arg:$a"; done\n"""
    )
    java_path.chmod(java_path.stat().st_mode | stat.S_IXUSR)
    return home


def without_java(patch: pytest.MonkeyPatch, bundled: Path | None) -> None:
    patch.delenv("JAVA_HOME", raising=False)
    patch.setattr(java.shutil, "which", lambda name: None)
    patch.setattr(java, "_bundled_home", lambda: bundled)


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_java_version(tmp_path: Path, version: str, major: int) -> None:
    assert java.java_version(fake_java(tmp_path, version) / "bin" / "java") == major


def test_java_home_goes_first_unless_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_java(monkeypatch, None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    assert java.find_java_home(tmp_path) == tmp_path / "new"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.1")))
    with pytest.raises(NotFoundError, match=r"version 11.*\[spark\]"):
        java.find_java_home(tmp_path)


def test_the_bundled_java_runs_without_the_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_java(monkeypatch, fake_java(tmp_path / "a b" / "jdk", "25"))
    home = java.find_java_home(tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "Main", "*"]
    printed = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["arg:-Xmx1g", "arg:-Dx=a b", "arg:Main", "arg:*"]
    assert java.find_java_home(tmp_path / "cache") == home
    assert os.listdir(home / "bin") == ["java"]  # noqa: PTH208


def test_no_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_java(monkeypatch, None)
    with pytest.raises(NotFoundError, match=r"'tarry\[spark\]'"):
        java.find_java_home(tmp_path)


def test_workers_do_not_import_from_archives() -> None:
    path = [
        "",
        "/s/python/lib/pyspark.zip",
        "/s/python/lib/py4j-0.10.9.9-src.zip",
        "/lib/python3.12.zip",
        "/site-packages",
    ]
    assert without_zips(path) == ["", "/lib/python3.12.zip", "/site-packages"]
