"""What a small round costs in the core alone: in one thread, with a clock that is moved, and without its fsyncs.

``in``: from a batch of columns as fronts give it until it is durable and answered. ``out``: from due to leased, and to
acknowledged durably. CPU time of the thread in loop-µs (see :mod:`benchmarks.cost`): little else is as steady.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Result, benchmark, workspace
from benchmarks.loop import loop_s
from tarry.base.placement import GC_THRESHOLDS
from tarry.log.files import AppendFile, OsFiles
from tarry.message.accepted import Accepted
from tarry.message.admission import assembled
from tarry.testing import TestBroker, open_broker

ROUNDS, PARTS = 200, 5
DELAY_MS = 20_000
STREAM_MS, LOAD_MS, ACK_MS, FLUSH_MS = 1_500, 250, 20, 50
BODY = bytes(range(256))


class UnsyncedFile:
    """An append file that calls everything durable at once."""

    def __init__(self, file: AppendFile) -> None:
        self._file = file
        self.write, self.truncate, self.close = file.write, file.truncate, file.close

    @property
    def size(self) -> int:
        return self._file.size

    def sync(self) -> None:
        pass


class UnsyncedFiles:
    """:class:`tarry.log.files.Files` without fsyncs of logs."""

    def __init__(self) -> None:
        files = self._files = OsFiles()
        self.replace, self.remove = files.replace, files.remove
        self.free_bytes, self.adopt = files.free_bytes, files.adopt
        self.open_overwrite = files.open_overwrite

    def open_append(self, path: Path) -> AppendFile:
        return UnsyncedFile(self._files.open_append(path))


@dataclass
class Rounds:
    """Puts rounds of ``rows`` through a broker; ``ids``: each message has one, as RocketMQ's have."""

    broker: TestBroker
    rows: int
    ids: bool
    number: int = 0

    def __post_init__(self) -> None:
        self.subscription = self.broker.subscribe("bench", "bench", prefetch=1 << 20)
        self.answers: list[Any] = []

    def batches(self) -> list[pa.RecordBatch]:
        """Rounds as a front gives them; each falls due a millisecond after the one before."""
        made, now_ms = [], self.broker.clock.now_ms()
        for i in range(ROUNDS):
            columns = {
                "topic": pa.array(["bench"] * self.rows),
                "due_ms": pa.array([now_ms + DELAY_MS + i] * self.rows, pa.int64()),
                "body": pa.array([BODY] * self.rows, pa.binary()),
            }
            if self.ids:
                columns["id"] = pa.array([f"01AC1E00020001{self.number + row:018d}" for row in range(self.rows)])
                self.number += self.rows
            made.append(assembled(columns, now_ms))
        return made

    def run_in(self, batches: list[pa.RecordBatch]) -> float:
        """CPU seconds until all are durable."""
        self.answers.clear()
        began = time.thread_time()
        for batch in batches:
            self.broker.submit_checked(batch, self.answers.append)
        took_s = time.thread_time() - began
        assert all(isinstance(answer, Accepted) for answer in self.answers)
        assert len(self.answers) == len(batches)
        return took_s

    def run_out(self) -> float:
        """CPU seconds until what :meth:`run_in` took has become due, round by round, and was acknowledged."""
        parts, taken = self.broker.components, 0
        self.broker.clock.advance_ms(DELAY_MS)
        began = time.thread_time()
        parts.loader.step()
        for _ in range(ROUNDS):
            parts.dispatcher.step()
            batch = self.subscription.fetch(1 << 16, 0)
            assert batch is not None
            leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
            taken += self.subscription.ack(leases, offsets)
            self.broker.clock.advance_ms(1)
        took_s = time.thread_time() - began
        assert taken == ROUNDS * self.rows
        return took_s


@dataclass
class Stream:
    """2,000 messages a second, as a clock that is moved by milliseconds has it: each of them brings a round of two
    rows, due in half a second to two and a half, and hands out what is due; acknowledged each 20 ms.
    """

    broker: TestBroker
    ids: bool
    number: int = 0

    def __post_init__(self) -> None:
        self.subscription = self.broker.subscribe("bench", "bench", prefetch=1 << 20)
        self.random = np.random.default_rng(5)
        self.took_s = {"in": 0.0, "out": 0.0, "acknowledged": 0.0}

    def run(self, milliseconds: int) -> None:
        """Adds to :attr:`took_s`."""
        parts, answers, leased = self.broker.components, list[Any](), list[pa.RecordBatch]()
        for moment in range(milliseconds):
            self.broker.clock.advance_ms(1)
            batch = self._batch(2)
            with self._counted("in"):
                self.broker.submit(batch, answers.append)
            with self._counted("out"):
                if moment % LOAD_MS == 0:
                    parts.loader.step()
                if parts.dispatcher.step() and (due := self.subscription.fetch(1 << 16, 0)) is not None:
                    leased.append(due)
            if moment % ACK_MS == 0 and leased:
                rows = [np.concatenate([b.column(n).to_numpy() for b in leased]) for n in ("lease", "offset")]
                leased.clear()
                with self._counted("acknowledged"):
                    self.subscription.ack(*rows)
            if moment % FLUSH_MS == 0:
                with self._counted("acknowledged"):
                    parts.ready.flush()
        assert all(isinstance(answer, Accepted) for answer in answers)

    def _batch(self, rows: int) -> pa.RecordBatch:
        due = self.broker.clock.now_ms() + self.random.integers(500, 2500, rows)
        columns = {
            "topic": pa.array(["bench"] * rows),
            "due_ms": pa.array(due, pa.int64()),
            "body": pa.array([BODY] * rows, pa.binary()),
        }
        if self.ids:
            columns["id"] = pa.array([f"01AC1E00020001{self.number + row:018d}" for row in range(rows)])
            self.number += rows
        return pa.RecordBatch.from_pydict(columns)

    @contextmanager
    def _counted(self, part: str) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.took_s[part] += time.thread_time() - began


@benchmark
def cost_rounds() -> list[Result]:
    """Rounds of 1 and 8 messages, in and out, and a steady stream."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)  # as it is where a broker serves
    rows = []
    for count, ids in ((1, False), (8, False), (1, True), (8, True)):
        with workspace() as directory, open_broker(directory / "data", files=UnsyncedFiles()) as broker:
            rows += _of_rounds(Rounds(broker, count, ids))
    for ids in (False, True):
        with workspace() as directory, open_broker(directory / "data", files=UnsyncedFiles()) as broker:
            rows += _of_stream(Stream(broker, ids))
    return rows


def _of_rounds(rounds: Rounds) -> list[Result]:
    took = []
    for _ in range(PARTS):
        batches, before_s = rounds.batches(), loop_s()
        in_s, out_s = rounds.run_in(batches), rounds.run_out()
        loop = (before_s + loop_s()) / 2
        took.append([each / ROUNDS * 1e6 / loop for each in (in_s, out_s)])
    found = np.median(took, axis=0).tolist()
    text = f"cost of a round of {rounds.rows}{' with ids' if rounds.ids else ''}"
    return [
        Result(f"{text}: in, arrival to durable", found[0], "loop-µs", "≤ 150"),
        Result(f"{text}: out, due to acknowledged", found[1], "loop-µs"),
    ]


def _of_stream(stream: Stream) -> list[Result]:
    stream.run(STREAM_MS)
    took = []
    for _ in range(PARTS):
        stream.took_s = dict.fromkeys(stream.took_s, 0.0)
        before_s = loop_s()
        stream.run(STREAM_MS)
        loop = (before_s + loop_s()) / 2
        took.append([each / (2 * STREAM_MS) * 1e6 / loop for each in stream.took_s.values()])
    text = f"cost of a message in a stream{' with ids' if stream.ids else ''}"
    return [
        Result(f"{text}: {name}", each, "loop-µs")
        for name, each in zip(stream.took_s, np.median(took, axis=0).tolist(), strict=True)
    ]
