"""The whole broker against a simple model: any sequence of schedule, advance, receive, ack, nack, pipeline commit,
crash, reopen.

The model knows for each message what a caller may assume: accepted (the call returned), perhaps (the call crashed),
settled. A crash loses what was not fsynced (``faults``). The clock is the test's, so a sequence covers hours in
milliseconds.
"""

from __future__ import annotations

import random
import shutil
import uuid
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.faults import Crash, FaultyFiles, fast_directory

from tarry.api.jobs import StagedFile
from tarry.base.config import Config
from tarry.base.errors import OverloadedError
from tarry.message.schema import SCHEMA
from tarry.store import Store, stage
from tarry.testing import TestBroker, TestClock

TOPICS = ("a", "b")
LEASE_MS = 30_000


@dataclass
class ModelMessage:
    """What the model knows of one message."""

    topic: str
    due_ms: int
    accepted: bool
    delivered: int = 0
    settled: bool = False  # the acknowledgement returned
    perhaps_settled: bool = False  # it crashed
    visible_ms: int = 0  # leased or nacked until then
    is_leased: bool = False
    handle: str = ""
    born_ms: int = 0
    ended: bool = False  # cancelled or replaced, and told so
    perhaps_ended: bool = False  # it crashed
    perhaps_back: bool = False  # what was delivered was lost with the power: it may be pending again
    other_due_ms: int | None = None  # where it is, if rescheduling it crashed and took place
    bulk: bool = False  # of a job: its id is not known to the registry
    moved: bool = False  # rescheduled, perhaps: it is another message for whoever knows the former place


@dataclass
class Held:
    """A lease that the consumer may still try to settle."""

    topic: str
    ids: list[str]
    leases: np.ndarray
    offsets: np.ndarray
    deadline_ms: int
    alive: bool = True
    open: set[str] = field(default_factory=set)


class BrokerMachine(RuleBasedStateMachine):
    @initialize(
        horizon_ms=st.sampled_from([50, 1_000, 60_000]),
        segment_bytes=st.sampled_from([4096, 16_384, 1 << 20]),
        wheel_bytes=st.sampled_from([2048, 1 << 20]),
        seed=st.integers(0, 1 << 16),
    )
    def start(self, horizon_ms: int, segment_bytes: int, wheel_bytes: int, seed: int) -> None:
        self.directory = fast_directory()
        self.clock = TestClock()
        self.files = FaultyFiles()
        self.rng = random.Random(seed)
        self.config = Config(
            data=self.directory,
            pipeline="off",
            horizon_ms=horizon_ms,
            segment_bytes_max=segment_bytes,
            wheel_bytes_max=wheel_bytes,
            ready_cache_bytes_max=2048,
            lease_ms=LEASE_MS,
            disk_free_bytes_min=0,
        )
        self.messages: dict[str, ModelMessage] = {}
        self.held: list[Held] = []
        self.crashed = False
        self.power_failures = 0
        self.crashed_ms = 0
        self.next_id = 0
        self.latest_ms = self.clock.now_ms()
        self.broker: TestBroker | None = None
        self.start_more()
        self.open()

    def start_more(self) -> None:
        """For machines with more rules."""

    # -- what happens ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        for _ in range(20):
            try:
                self.broker = TestBroker(self.config, self.clock, self.files, threads=False)
                return
            except Crash:
                self.files.close_all()
                self.files.lose_unsynced(self.rng)
        raise AssertionError("the broker never opened")

    def guarded(self, work):
        """Do something that may crash; then what a crash means. The result, or None."""
        try:
            return work()
        except Crash:
            self.after_crash()
            return None

    def after_crash(self) -> None:
        self.crashed = True
        assert self.broker is not None
        self.broker.components.engine.release()
        self.files.close_all()
        self.files.lose_unsynced(self.rng)
        self.power_failures += 1
        self.latest_ms = self.crashed_ms = max(self.latest_ms, self.clock.now_ms())
        for held in self.held:
            held.alive = False
        for message in self.messages.values():
            message.visible_ms = 0
            message.perhaps_back |= message.delivered > 0 and not message.settled
        self.open()

    @rule(
        topic=st.sampled_from(TOPICS),
        delays=st.lists(st.sampled_from([0, 1, 40, 999, 1000, 5000, 61_000, 3_600_000]), min_size=1, max_size=12),
        past=st.booleans(),
        body=st.sampled_from([10, 300]),
    )
    def schedule(self, topic: str, delays: list[int], past: bool, body: int) -> None:
        now = self.clock.now_ms()
        due = [now + d - (5000 if past else 0) for d in delays]
        ids = [f"m{self.next_id + i}" for i in range(len(due))]
        self.next_id += len(due)
        for i, d in zip(ids, due, strict=True):
            self.messages[i] = ModelMessage(topic, d, accepted=False, born_ms=now)
        batch = pa.record_batch(
            {
                "topic": [topic] * len(due),
                "due_ms": pa.array(due, pa.int64()),
                "id": ids,
                "body": [b"x" * body] * len(due),
            }
        )
        assert self.broker is not None
        try:
            accepted = self.guarded(lambda: self.broker.schedule_batch(batch))
        except OverloadedError:
            # The wheel is tiny, and nothing has made room in it: nothing was accepted.
            for i in ids:
                del self.messages[i]
            return
        if accepted is not None:
            assert accepted.due_ms.tolist() == due
            for i, handle in zip(ids, accepted.handles(), strict=True):
                self.messages[i].accepted = True
                self.messages[i].handle = handle

    @rule(by_ms=st.sampled_from([0, 1, 39, 1000, 7000, 30_000, 100_000, 4_000_000]))
    def advance(self, by_ms: int) -> None:
        target = self.clock.now_ms() + by_ms
        self.latest_ms = max(self.latest_ms, target)
        assert self.broker is not None
        self.guarded(lambda: self.broker.advance_to(target))
        self.clock.set_ms(target)

    @rule(back_ms=st.sampled_from([1, 500, 20_000]))
    def clock_steps_back(self, back_ms: int) -> None:
        self.clock.set_ms(self.clock.now_ms() - back_ms)

    @rule()
    def step(self) -> None:
        assert self.broker is not None
        self.guarded(self.broker.step)

    @rule(topic=st.sampled_from(TOPICS), limit=st.sampled_from([1, 3, 1000]))
    def receive(self, topic: str, limit: int) -> None:
        assert self.broker is not None
        now = self.clock.now_ms()
        batch = self.guarded(lambda: self.broker.receive(topic, "g", max_messages=limit))
        if batch is None or not batch.num_rows:
            return
        assert batch.num_rows <= limit
        ids = batch.column("id").to_pylist()
        assert len(set(ids)) == len(ids)
        for i, due, attempt in zip(ids, batch["due_ms"].to_pylist(), batch["attempt"].to_pylist(), strict=True):
            message = self.messages[i]
            assert message.topic == topic
            assert due in (message.due_ms, message.other_due_ms)
            assert due <= now, "early"
            assert not message.settled, "delivered after its acknowledgement"
            assert not message.ended, f"{i} was delivered after it was cancelled: {message}"
            # `visible_ms` may lie in the future of a clock that was set back since: then it is not yet visible either,
            # but for a lease that has ended before.
            visible_since = self.latest_ms if message.is_leased else now
            assert message.visible_ms <= visible_since, "delivered while leased or backing off"
            assert attempt >= 1
            if not self.crashed:
                assert attempt == message.delivered + 1
            message.delivered += 1
            message.perhaps_back = False
            message.visible_ms = now + LEASE_MS
            message.is_leased = True
        self.held.append(
            Held(topic, ids, batch["lease"].to_numpy(), batch["offset"].to_numpy(), now + LEASE_MS, open=set(ids))
        )

    @precondition(lambda self: self.held)
    @rule(data=st.data(), nack=st.booleans(), delay_ms=st.sampled_from([0, 10, 20_000]))
    def settle(self, data, nack: bool, delay_ms: int) -> None:
        held = data.draw(st.sampled_from(self.held))
        rows = data.draw(st.lists(st.integers(0, len(held.ids) - 1), min_size=1, unique=True))
        leases, offsets = held.leases[rows], held.offsets[rows]
        ids = [held.ids[r] for r in rows]
        now = self.clock.now_ms()
        live = [i for i in ids if held.alive and i in held.open and self.messages[i].visible_ms == held.deadline_ms]
        assert self.broker is not None
        group = self.broker.group(held.topic, "g")
        errors: list[object] = []

        def work() -> int:
            if nack:
                return group.nack(leases, offsets, delay_ms, errors.append)
            return group.ack(leases, offsets, errors.append)

        count = self.guarded(work)
        if count is None:
            for i in ids:
                self.messages[i].perhaps_settled |= not nack
            return
        # A lease whose time is up is still good until somebody notices: another one's receive, or the broker.
        if count == 0 and held.deadline_ms <= self.latest_ms:
            live = []
        assert count == len(live), (count, live)
        assert (errors[0] is None) == (count == len(ids))
        for i in live:
            held.open.discard(i)
            if nack:
                self.messages[i].visible_ms = now + delay_ms
                self.messages[i].is_leased = False
            else:
                self.messages[i].settled = True

    @rule(crash_before_commit=st.booleans(), part=st.sampled_from([0.5, 1.0]))
    def pipeline_commits(self, crash_before_commit: bool, part: float) -> None:
        """What the schedule query does, without Spark; perhaps dying between files written and commit."""
        assert self.broker is not None
        state = self.broker.intake_state()
        store = Store.open(state["store_uri"])
        start = store.snapshot().committed_seq
        end = start + int((state["durable_seq"] - start) * part)
        if end <= start:
            return
        table = pa.Table.from_batches(list(self.broker.read_intake(start, end)), SCHEMA)
        fired = np.logical_and(
            table["due_ms"].to_numpy() < state["fired_until_ms"], table["seq"].to_numpy() < state["fired_seq"]
        )
        files = stage_all(store, table.filter(pa.array(~fired)), state["now_ms"])
        if crash_before_commit:
            return
        store.commit(files, start, end)
        self.broker.store_committed()

    @rule(steps=st.integers(1, 30))
    def crash_soon(self, steps: int) -> None:
        self.files.crash_at = self.files.steps + steps

    @rule()
    def power_fails_now(self) -> None:
        self.after_crash()

    @rule()
    def reopen(self) -> None:
        assert self.broker is not None
        self.files.crash_at = None
        self.broker.close()
        for held in self.held:
            held.alive = False
        for message in self.messages.values():
            message.visible_ms = 0
        self.crashed = True  # attempts begin anew: a lease is not durable
        self.latest_ms = self.crashed_ms = max(self.latest_ms, self.clock.now_ms())
        self.open()

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        if getattr(self, "broker", None) is None or any(not m.accepted for m in self.messages.values()):
            return
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())
        for entry in self.broker.pending(next_due=False):
            if entry.topic not in TOPICS:
                continue
            mine = [m for m in self.messages.values() if m.topic == entry.topic]
            # What was never due cannot have left; what is due may wait for the next step.
            assert sum(m.due_ms > self.latest_ms and not (m.ended or m.perhaps_ended) for m in mine) <= entry.pending
            left = sum((m.delivered > 0 and not m.perhaps_back) or m.ended for m in mine)
            assert entry.pending <= len(mine) - left

    def teardown(self) -> None:
        if getattr(self, "broker", None) is None:
            return
        try:
            self.finish()
        finally:
            # After a failure, too: hundreds of sequences fail while one is made shorter.
            shutil.rmtree(self.directory, ignore_errors=True)

    def finish(self) -> None:
        """Deliver all that is left: every message that was accepted has come, or is gone."""
        self.files.crash_at = None
        end = max([self.clock.now_ms(), *(max(m.due_ms, m.other_due_ms or 0) for m in self.messages.values())]) + 1
        self.broker.advance_to(end)
        self.clock.set_ms(end + 10 * LEASE_MS)
        self.broker.step()
        for topic in TOPICS:
            for _ in range(10_000):
                batch = self.broker.receive(topic, "g", max_messages=1000)
                if not batch.num_rows:
                    break
                for i in batch.column("id").to_pylist():
                    assert not self.messages[i].settled, f"{i} again: {self.messages[i]}"
                    assert not self.messages[i].ended, f"{i} was cancelled: {self.messages[i]}"
                    self.messages[i].delivered += 1
                self.broker.ack(topic, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
        lost = [i for i, m in self.messages.items() if m.accepted and not (m.delivered or m.ended or m.perhaps_ended)]
        assert not lost, f"lost: {lost}"
        self.check_more(end)
        for entry in self.broker.pending():
            assert (entry.pending, entry.ready) == (0, 0)
        self.broker.close()

    def check_more(self, end_ms: int) -> None:
        """For machines with more rules."""


def stage_all(store: Store, table: pa.Table, now_ms: int) -> list[StagedFile]:
    """Stage a table as the schedule query's tasks do."""
    return stage(table, store.root, f"test-{uuid.uuid4().hex}", now_ms) if table.num_rows else []


TestBrokerMachine = BrokerMachine.TestCase
TestBrokerMachine.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
