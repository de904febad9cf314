"""A small intake that speaks the wire's half that the pipeline uses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.link.ranges import first_part
from tarry.message.schema import SCHEMA
from tarry.store import Store, read_window
from tests.spark.fake_link import FakeLink, RowsAnswer

NOW_MS = 1_795_264_000_000
FRAME_ROWS = 1000


def messages(start: int, stop: int, *, body_bytes: int = 16, spread_ms: int = 86_400_000) -> pa.RecordBatch:
    """Messages whose due times are scattered, and can be told from their seqs."""
    n = stop - start
    seq = np.arange(start, stop, dtype=np.int64)
    due = NOW_MS + 60_000 + seq * 7_919 % spread_ms
    body = pa.array([b"%0*d" % (body_bytes, s) for s in seq])
    columns = {
        "seq": pa.array(seq),
        "topic": pa.array(["orders", "mails"] * (n // 2) + ["orders"] * (n % 2)),
        "due_ms": pa.array(due),
        "body": body,
        "born_ms": pa.array(np.full(n, NOW_MS)),
        "kind": pa.array(np.zeros(n, np.int8)),
    }
    return pa.RecordBatch.from_arrays([columns.get(f.name, pa.nulls(n, f.type)) for f in SCHEMA], schema=SCHEMA)


class FakeIntake(FakeLink):
    """An intake in memory. Attributes may be changed at any time; ``on_committed`` runs inside ``store-committed``."""

    def __init__(self, store_uri: str) -> None:
        super().__init__()
        self.store_uri = store_uri
        self.table_id = Store.open(store_uri).table_id
        self.frames: list[pa.RecordBatch] = []
        self.first_seq = 0
        self.durable_seq = 0
        self.fired = (0, 0)
        self.committed_seq = 0
        self.epoch: int | None = None
        self.leaves_out: set[str] = set()
        """Fields that its answers lack, as an older broker's do."""
        self.reports: list[dict[str, Any]] = []
        self.reads: list[tuple[int, int]] = []
        self.states = 0
        self.frames_max: int | None = None
        """Most frames in one answer; None: as many as the broker gives."""
        self.reported = threading.Condition()
        self.on_committed: Callable[[], None] = lambda: None
        self.before_read: Callable[[int, int], None] = lambda start, end: None
        self.during_read: Callable[[int], None] = lambda frames: None

    def add(self, rows: int, **how: int) -> None:
        stop = self.durable_seq + rows
        for start in range(self.durable_seq, stop, FRAME_ROWS):
            self.frames.append(messages(start, min(start + FRAME_ROWS, stop), **how))
        self.durable_seq = stop

    def state(self) -> dict[str, Any]:
        waiting = self.durable_seq - self.committed_seq
        state: dict[str, Any] = {
            "first_seq": self.first_seq,
            "durable_seq": self.durable_seq,
            "committed_seq": self.committed_seq,
            "waiting_bytes": 300 * waiting,
            "oldest_ms": NOW_MS if waiting else None,
            "fired_until_ms": self.fired[0],
            "fired_seq": self.fired[1],
            "expire_until_ms": self.fired[0],
            "cancelled_jobs": [],
            "now_ms": NOW_MS + 1,
            "shard": 0,
            "store_uri": self.store_uri,
            "table_id": self.table_id,
            "epoch": self.epoch,
        }
        return {name: value for name, value in state.items() if name not in self.leaves_out}

    def wait_until(self, done: Callable[[], bool], timeout_s: float = 240) -> None:
        with self.reported:
            assert self.reported.wait_for(done, timeout_s), f"never came; last report: {self.reports[-1:]}"

    def wait_committed(self, seq: int) -> None:
        self.wait_until(lambda: self.committed_seq >= seq)

    def call(self, op: str, body: dict[str, Any]) -> dict[str, Any] | RowsAnswer:
        if op == "intake":
            return self._range(body["start"], body["end"])
        answer: dict[str, Any] = {}
        with self.reported:
            if op == "intake-state":
                self.states += 1
                answer = self.state()
            elif op == "store-committed":
                self.on_committed()
                self.committed_seq = Store.open(self.store_uri).snapshot().committed_seq
            elif op == "pipeline-status":
                self.reports.append(body)
            else:
                raise InvalidArgumentError(f"unknown op {op}")
            self.reported.notify_all()
        return answer

    def _range(self, start: int, end: int) -> RowsAnswer:
        self.before_read(start, end)
        self.reads.append((start, end))
        if start < self.first_seq:
            raise CorruptError(f"[{start}, {end}) is not all here")
        return RowsAnswer(SCHEMA, first_part(islice(self._read(start, end), self.frames_max)))

    def _read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for number, frame in enumerate(self.frames):
            base = frame["seq"][0].as_py()
            low, high = max(start, base), min(end, base + frame.num_rows)
            if low < high:
                self.during_read(number)
                yield frame.slice(low - base, high - low)


def stored(uri: str) -> list[tuple[int, int, bytes]]:
    """Everything in the store, as a reader in due order gets it: seq, due time and body."""
    got = read_window(Store.open(uri).snapshot(), (0, 0), 2**62, batch_rows=8192)
    rows = [
        row
        for b in got
        for row in zip(b["seq"].to_pylist(), b["due_ms"].to_pylist(), b["body"].to_pylist(), strict=True)
    ]
    assert [(due, seq) for seq, due, _ in rows] == sorted((due, seq) for seq, due, _ in rows)
    return sorted(rows)


def expected(start: int, stop: int) -> list[tuple[int, int, bytes]]:
    b = messages(start, stop)
    return list(zip(b["seq"].to_pylist(), b["due_ms"].to_pylist(), b["body"].to_pylist(), strict=True))


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[FakeIntake]:
    server = FakeIntake(str(tmp_path / "store"))
    yield server
    server.shutdown()
