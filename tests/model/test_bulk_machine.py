"""The machine of ``test_changes_machine`` with bulk jobs, which come into the middle of everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.examples import examples
from tests.model.test_broker_machine import TOPICS, ModelMessage
from tests.model.test_changes_machine import ChangesMachine, Drawn

from tarry.api.jobs import JobState
from tarry.api.outcome import Outcome
from tarry.base.errors import UnavailableError
from tarry.message import handle

DELAYS = [-5_000, 0, 1, 40, 999, 1000, 5000, 61_000, 3_600_000]


@dataclass
class Loaded:
    """What the model knows of a job. ``sure``: that it is committed."""

    ids: list[str]
    sure: bool = False
    cancelled: bool = False
    perhaps_cancelled: bool = False


class BulkMachine(ChangesMachine):
    def start_more(self) -> None:
        super().start_more()
        self.jobs: dict[str, Loaded] = {}

    @rule(
        topic=st.sampled_from(TOPICS),
        delays=st.lists(st.sampled_from(DELAYS), min_size=0, max_size=12),
        body=st.sampled_from([10, 300]),
        parts=st.sampled_from([1, 2]),
    )
    def load(self, topic: str, delays: list[int], body: int, parts: int) -> None:
        now, job = self.clock.now_ms(), f"job{len(self.jobs)}"
        ids = [f"m{self.next_id + i}" for i in range(len(delays))]
        self.next_id += len(ids)
        self.jobs[job] = Loaded(ids)
        for i, d in zip(ids, delays, strict=True):
            self.messages[i] = ModelMessage(topic, now + d, accepted=False, born_ms=now, bulk=True)
        columns = {
            "topic": pa.array([topic] * len(ids), pa.string()),
            "due_ms": pa.array([now + d for d in delays], pa.int64()),
            "id": pa.array(ids, pa.string()),
            "body": pa.array([b"x" * body] * len(ids), pa.binary()),
        }
        rows = pa.record_batch(columns)
        middle = len(ids) // parts
        batches = [b for b in (rows.slice(0, middle), rows.slice(middle)) if b.num_rows]

        def work() -> str:
            bulk = self.broker.components.bulk
            number = bulk.begin(job).number
            staged = [bulk.stage(number, [b]) for b in batches]
            topics = sum((counts for _, counts in staged), start=type(staged[0][1])()) if staged else {}
            return bulk.commit(number, [f for files, _ in staged for f in files], topics)[0].state

        if self.guarded(work) is None:
            self.resolve(job)
        else:
            self.there(job, number_of_job(self, job))

    def there(self, job: str, number: int) -> None:
        """It is committed: all of it is accepted. Each message gets a handle, for the other rules to cancel it by."""
        loaded = self.jobs[job]
        loaded.sure = True
        for i in loaded.ids:
            self.messages[i].accepted = True
        seqs = {row["id"]: row for row in self.all_pending()}
        for i in loaded.ids:
            if i in seqs and not loaded.cancelled:
                seq, due = seqs[i]["seq"], seqs[i]["due_ms"]
                self.messages[i].handle = handle.encode(
                    seq, due, seq, 1, handle.sign(self.broker.components.secret, seq, 1)
                )
        assert number >= 0

    def all_pending(self) -> list[dict[str, Any]]:
        """Page by page: a page ends when its time is up, too, and what a rule draws from must not depend on that."""
        rows: list[dict[str, Any]] = []
        page = self.broker.list_pending(limit=1000)
        while page.cursor is not None:
            rows += page.rows.to_pylist()
            page = self.broker.list_pending(limit=1000, cursor=page.cursor)
        return rows + page.rows.to_pylist()

    @precondition(lambda self: any(not x.sure for x in self.jobs.values()))
    @rule(data=st.data())
    def ask_again(self, data) -> None:
        self.resolve(data.draw(st.sampled_from(sorted(j for j, x in self.jobs.items() if not x.sure))))

    def resolve(self, job: str) -> None:
        """Loading it crashed: the broker says whether it is there, as a whole or not at all."""
        begun = self.guarded(lambda: self.broker.components.bulk.begin(job))
        if begun is None:
            return
        loaded = self.jobs[job]
        if begun.state is JobState.OPEN:
            for i in loaded.ids:
                del self.messages[i]  # delivering one would be an error from now on
            del self.jobs[job]
            self.jobs[f"{job} was not there"] = Loaded([], sure=True, cancelled=True)
            return
        assert begun.state in (JobState.COMMITTED, JobState.CANCELLED)
        assert begun.rows == len(loaded.ids)
        self.there(job, begun.number)

    @precondition(lambda self: any(x.sure and x.ids for x in self.jobs.values()))
    @rule(data=st.data())
    def cancel_job(self, data) -> None:
        job = data.draw(st.sampled_from(sorted(j for j, x in self.jobs.items() if x.sure and x.ids)))
        loaded = self.jobs[job]
        before = [self.messages[i] for i in loaded.ids]
        certain = sum(m.due_ms > self.latest() and not (m.ended or m.perhaps_ended) for m in before if not m.moved)
        try:
            found = self.guarded(lambda: self.broker.cancel_job(job))
        except UnavailableError:
            return  # the wheel is tiny, and has no room yet for what the job brought late
        if found is None:
            loaded.perhaps_cancelled = True
            for m in before:
                m.perhaps_ended = True
            return
        if found.outcome is Outcome.CANCELLED:
            assert loaded.cancelled or loaded.perhaps_cancelled
        else:
            assert not loaded.cancelled
            assert found.cancelled >= certain
            gone = sum((m.delivered > 0 and not m.perhaps_back) or m.ended for m in before)
            assert found.cancelled <= len(before) - gone
            assert (found.outcome is Outcome.DONE) == (found.cancelled > 0)
            loaded.cancelled = found.outcome is Outcome.DONE
        if not loaded.cancelled and not loaded.perhaps_cancelled:
            return
        for m in before:
            if m.due_ms > self.latest() and not m.moved:
                m.ended = True  # it cannot have left before
            else:
                m.perhaps_ended = True


def number_of_job(machine: BulkMachine, job: str) -> int:
    [found] = machine.broker.jobs(job)
    assert found.state is JobState.COMMITTED
    assert found.rows == len(machine.jobs[job].ids)
    return found.number


TestBulkMachine = BulkMachine.TestCase
TestBulkMachine.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("end", ["reopen", "power_fails_now"])
def test_what_a_job_brought_late_and_had_fired_is_not_cancelled_after_a_start(end: str) -> None:
    """A sequence that the machine found, shrunk. The clock had been set back behind the checkpoint, so what the job
    brought was read again at the next start. One of its messages stood in the ready log; cancelling it was answered
    with "done", its topic counted one too few, and it was delivered.
    """
    machine = BulkMachine()
    machine.start(horizon_ms=60_000, segment_bytes=1 << 20, wheel_bytes=1 << 20, seed=0)
    machine.advance(by_ms=1000)
    machine.reopen()  # its checkpoint says that all before now has fired
    machine.clock_steps_back(back_ms=500)
    machine.load(topic="b", delays=[-5_000, 40], body=10, parts=1)
    machine.step()
    getattr(machine, end)()
    assert [(e.pending, e.ready) for e in machine.broker.pending() if e.topic == "b"] == [(1, 1)]
    assert machine.broker.cancel(machine.messages["m0"].handle) is Outcome.DELIVERED
    machine.cancel(data=Drawn(["m1"]))
    assert machine.messages["m1"].ended
    machine.counts_agree()
    machine.teardown()
