"""A broker on a file layer that crashes, with a ledger of what its callers may assume.

The ledger is what a producer and a consumer know: accepted (the call returned), settled (the acknowledgement returned),
or in between (the call crashed). :meth:`World.drain` compares it with what is delivered in the end.
"""

from __future__ import annotations

import random
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tarry.api.outcome import Outcome
from tarry.base.config import Config
from tarry.message.schema import SCHEMA
from tarry.store import Store, stage
from tarry.testing import TestBroker, TestClock
from tests.faults import Crash, FaultyFiles

SMALL: dict[str, Any] = {
    "horizon_ms": 2_000,
    "segment_bytes_max": 8192,
    "ready_cache_bytes_max": 4096,
    "lease_ms": 30_000,
    "retry_ms": 1_000,
    "disk_free_bytes_min": 0,
}
"""Settings under which a few dozen messages roll every log."""


class KeepNothing(random.Random):
    """For :meth:`FaultyFiles.lose_unsynced`: the first choice, which is the part that was synced."""

    def choice(self, seq: Sequence[Any]) -> Any:  # type: ignore[override]
        return seq[0]


class KeepPart(random.Random):
    """A random part of what was not synced is kept."""

    def choice(self, seq: Sequence[Any]) -> Any:  # type: ignore[override]
        return seq[-1]


LOSSES: dict[str, Callable[[int], random.Random | None]] = {
    "nothing": KeepNothing,
    "part": KeepPart,
    "all": lambda seed: None,
}
"""What a crash leaves of that which was not synced. All of it: the process was killed, and the machine goes on; the
disk has no more of it than before.
"""


@dataclass
class World:
    """One data directory through crashes and restarts."""

    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    clock: TestClock = field(default_factory=TestClock)
    files: FaultyFiles = field(default_factory=FaultyFiles)
    due_ms: dict[str, int] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    perhaps: list[list[str]] = field(default_factory=list)
    handed: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    perhaps_settled: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    handles: dict[str, str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    perhaps_cancelled: set[str] = field(default_factory=set)
    outcomes: Sequence[str] = ()
    broker: TestBroker | None = None

    def __post_init__(self) -> None:
        self.config = Config(data=self.directory, pipeline="off", **{**SMALL, **self.settings})

    def open(self) -> TestBroker:
        self.broker = TestBroker(self.config, self.clock, self.files, threads=False)
        return self.broker

    @property
    def b(self) -> TestBroker:
        assert self.broker is not None
        return self.broker

    # -- what happens ------------------------------------------------------------------------------------------------

    def schedule(
        self, topic: str, delays: Sequence[int], body: int = 20, key: str | None = None, if_seq: int | None = None
    ) -> list[str]:
        """One batch; its rows are accepted, or, when it crashes, perhaps. Their ids."""
        now = self.clock.now_ms()
        ids = [f"{topic}{len(self.due_ms) + i}" for i in range(len(delays))]
        self.due_ms.update({i: now + d for i, d in zip(ids, delays, strict=True)})
        self.topics.add(topic)
        self.perhaps.append(ids)
        self.keys.update({} if key is None else dict.fromkeys(ids, key))
        accepted = self.b.schedule_batch(
            pa.record_batch(
                {
                    "topic": [topic] * len(ids),
                    "due_ms": pa.array([self.due_ms[i] for i in ids], pa.int64()),
                    "id": ids,
                    "body": [b"x" * body] * len(ids),
                    **({} if key is None else {"key": [key] * len(ids)}),
                    **({} if if_seq is None else {"if_seq": [if_seq] * len(ids)}),
                }
            )
        )
        self.perhaps.pop()
        self.outcomes = accepted.outcomes
        self.handles.update(zip(ids, accepted.handles(), strict=True))
        self.accepted.update(ids)
        return ids

    def cancel(self, ids: Sequence[str]) -> None:
        """They are pending; when it crashes, they are cancelled, all or none of them, or not."""
        self.perhaps_cancelled.update(ids)
        outcomes = self.b.cancel_many([self.handles[i] for i in ids])
        assert set(outcomes) == {Outcome.DONE}
        self.cancelled.update(ids)

    def replace(self, topic: str, key: str, former: str, delay: int, if_seq: int | None = None) -> str:
        """The message of a key by another. After a crash, it is one of the two."""
        self.perhaps_cancelled.add(former)
        [new] = self.schedule(topic, [delay], key=key, if_seq=if_seq)
        assert self.outcomes == ["replaced"]
        self.cancelled.add(former)
        return new

    def change_due(self, rng: random.Random) -> str:
        """Cancel, move or replace one message that is due, of which nobody knows whether a consumer had it but who was
        handed it: of what was handed out, "done" is never said. The outcome.
        """
        now = self.clock.now_ms()
        due = sorted(i for i in self.accepted - self.perhaps_cancelled if self.due_ms[i] <= now)
        if not due:
            return "nothing is due"
        chosen, change = rng.choice(due), rng.choice([self._cancel_due, self._move_due, self._replace_due])
        self.perhaps_cancelled.add(chosen)
        outcome = change(chosen)
        assert outcome != "done" or chosen not in self.handed, f"{chosen} was handed out, and its change is done"
        if outcome != "done":
            self.perhaps_cancelled.discard(chosen)
        return outcome

    def _cancel_due(self, chosen: str) -> str:
        outcome = self.b.cancel(self.handles[chosen])
        if outcome == "done":
            self.cancelled.add(chosen)
        return outcome

    def _move_due(self, chosen: str) -> str:
        moved = self.b.reschedule(self.handles[chosen], delay=30)
        if moved.outcome != "done":
            return str(moved.outcome)
        assert chosen not in self.handed, f"{chosen} was handed out, and is moved"
        # It is another message from now on, under the same id.
        self.due_ms[chosen], self.handles[chosen] = moved.receipt.due_ms, moved.receipt.handle
        self.perhaps_cancelled.discard(chosen)
        return "moved"

    def _replace_due(self, chosen: str) -> str:
        key, topic = self.keys.get(chosen), chosen.rstrip("0123456789")
        if key is None or list(self.keys.values()).count(key) > 1:
            return self._cancel_due(chosen)  # who holds the key is not known
        self.schedule(topic, [60_000], key=key)
        if self.outcomes[-1] != "replaced":
            return "delivered"
        self.cancelled.add(chosen)
        return "done"

    def receive(self, topic: str, limit: int = 1000) -> pa.RecordBatch:
        batch = self.b.receive(topic, "g", max_messages=limit)
        now = self.clock.now_ms()
        self.handed.update(batch["id"].to_pylist())
        for i, due in zip(batch["id"].to_pylist(), batch["due_ms"].to_pylist(), strict=True):
            assert due == self.due_ms[i]
            assert due <= now, f"{i} is early"
            assert i not in self.settled, f"{i} was delivered after its acknowledgement"
            assert i not in self.cancelled, f"{i} was delivered after it was cancelled"
        return batch

    def ack(self, topic: str, batch: pa.RecordBatch) -> None:
        ids = set(batch["id"].to_pylist())
        self.perhaps_settled |= ids
        self.b.ack(topic, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
        self.settled |= ids

    def nack(self, topic: str, batch: pa.RecordBatch, delay_ms: int) -> None:
        self.b.nack(topic, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy(), delay_ms)

    def pipeline_commits(self) -> None:
        commit_intake(self.b)

    def reopen(self) -> None:
        self.b.close()
        self.open()

    def crashed(self, rng: random.Random | None) -> None:
        """The process is gone, and with it what ``rng`` says of that which was not synced."""
        if self.broker is not None:
            try:
                self.broker.components.engine.release()
            except OSError:
                pass  # it crashed in close(), behind that
            self.broker = None
        self.files.crash_at = None
        self.files.close_all()
        if rng is not None:
            self.files.lose_unsynced(rng)

    # -- what must hold ----------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Deliver and acknowledge all that is left, and compare with the ledger."""
        self.b.advance_to(max([self.clock.now_ms(), *self.due_ms.values()]) + 1)
        self.clock.advance_ms(100_000)
        delivered: list[str] = []
        for topic in sorted(self.topics):
            while (batch := self.receive(topic)).num_rows:
                delivered += batch["id"].to_pylist()
                self.ack(topic, batch)
        assert len(set(delivered)) == len(delivered), "delivered twice without a crash"
        lost = self.accepted - set(delivered) - self.settled - self.perhaps_settled - self.perhaps_cancelled
        assert not lost, f"lost: {sorted(lost)}"
        for ids in self.perhaps:
            # What was perhaps settled before a crash does not come again if it was.
            here = [
                i in self.settled or i in delivered for i in ids if i in self.settled or i not in self.perhaps_settled
            ]
            assert all(here) or not any(here), f"half of a batch: {ids}"
        for entry in self.b.pending():
            assert (entry.pending, entry.ready) == (0, 0)
        assert all(self.receive(t).num_rows == 0 for t in self.topics)


def commit_intake(broker: TestBroker) -> None:
    """Do what the pipeline's schedule query does, without Spark."""
    state = broker.intake_state()
    store = Store.open(state["store_uri"], epoch=state["epoch"])
    start, end = store.snapshot().committed_seq, state["durable_seq"]
    table = pa.Table.from_batches(list(broker.read_intake(start, end)), SCHEMA)
    fired = (table["due_ms"].to_numpy() < state["fired_until_ms"]) & (table["seq"].to_numpy() < state["fired_seq"])
    rest = table.filter(pa.array(~fired))
    files = stage(rest, store.root, f"test-{uuid.uuid4().hex}", state["now_ms"]) if rest.num_rows else []
    store.commit(files, start, end)
    broker.store_committed()


def crash_at(work: Callable[[], object], files: FaultyFiles, step: int | None) -> bool:
    """Do something that crashes ``step`` steps from now; whether it did."""
    files.crash_at = None if step is None else files.steps + step
    try:
        work()
    except Crash:
        return True
    finally:
        files.crash_at = None
    return False


SAMPLE_EVERY = 16
PARTS = ["sample", pytest.param("some", marks=pytest.mark.rest), pytest.param("others", marks=pytest.mark.long)]
"""Each test that crashes at every step is three: one step in sixteen is in the core of the tests, three are in the
rest, and the others have a target of their own, `make test-long`.
"""


def steps_of(part: str, steps: Sequence[int], name: str) -> Sequence[int]:
    """The steps of a part of :data:`PARTS`. Where the sample begins depends on ``name`` alone: tests of different
    scenarios and losses take different steps.
    """
    first = zlib.crc32(name.encode()) % SAMPLE_EVERY
    return [step for i, step in enumerate(steps) if _part_of((i - first) % SAMPLE_EVERY) == part]


def _part_of(place: int) -> str:
    return "sample" if place == 0 else "some" if place % 4 == 0 else "others"


def damage(path: Path, at: int, mask: int = 0xFF) -> None:
    """Flip bits of one byte; negative positions count from the end."""
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)


def column(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)
