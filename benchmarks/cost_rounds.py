"""What a small round costs in the core alone: in one thread, with a clock that is moved, and without its fsyncs.

``in``: from a batch of columns as fronts give it until it is durable and answered. ``out``: from due to leased, and to
acknowledged durably. CPU time of the thread in loop-µs (see :mod:`benchmarks.cost`): little else is as steady.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Result, benchmark, workspace
from benchmarks.loop import loop_s
from tarry.api.admission import assembled
from tarry.api.receipt import Accepted
from tarry.log.files import AppendFile, OsFiles
from tarry.testing import TestBroker, open_broker

ROUNDS, PARTS = 200, 7
DELAY_MS = 20_000
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


@benchmark
def cost_rounds() -> list[Result]:
    """Rounds of 1 and 8 messages, in and out."""
    rows = []
    for count, ids in ((1, False), (8, False), (1, True), (8, True)):
        with workspace() as directory, open_broker(directory / "data", files=UnsyncedFiles()) as broker:
            rounds, took = Rounds(broker, count, ids), []
            for _ in range(PARTS):
                batches, before_s = rounds.batches(), loop_s()
                in_s, out_s = rounds.run_in(batches), rounds.run_out()
                loop = (before_s + loop_s()) / 2
                took.append([each / ROUNDS * 1e6 / loop for each in (in_s, out_s)])
        found = np.median(took, axis=0).tolist()
        text = f"cost of a round of {count}{' with ids' if ids else ''}"
        bar = "≤ 150" if not ids else ""
        rows += [
            Result(f"{text}: in, arrival to durable", found[0], "loop-µs", bar),
            Result(f"{text}: out, due to acknowledged", found[1], "loop-µs"),
        ]
    return rows
